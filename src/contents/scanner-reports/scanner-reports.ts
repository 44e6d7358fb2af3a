import type { Digest } from '../../base/digest.ts'
import { errorText } from '../../base/error-text.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { untilAborted } from '../../base/timing.ts'
import { rootOf } from '../../base/uid.ts'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import type { ReportOutcome, ScannerReport, ScannerReportsSource } from '../../cache/lists/scanner-reports-source.ts'
import type { Services } from '../../engine/services.ts'
import { UpstreamError, type Upstream } from '../../registry/index.ts'
import { ContentError, type ContentRetry } from '../package.ts'
import { absent, namedBlob, readManifest, type ReadableRepo } from '../reading/held-content.ts'
import { prepareFolder, readInProcess } from '../reading/reading-process.ts'
import { predicateIn } from '../reading/sbom-candidates.ts'
import { Candidates, hintOf, type Candidate, type Hint } from './candidates.ts'
import { reportLimits } from './report-list.ts'
import { ReportTurns } from './report-turns.ts'

/** What reading reports needs. */
export interface ScannerReportsOptions {
  readonly services: () => Services
  readonly upstream: Upstream
  /** Where processes keep their files. Created if missing. */
  readonly folder: string
  /** How long an answer waits for reports that are not read yet, in milliseconds; 10 seconds by default. */
  readonly waitMs?: number
  /** The longest time for one document, in milliseconds; 10 seconds by default. */
  readonly timeLimitMs?: number
  /** The number of referrers that are looked at for one answer; 500 by default. */
  readonly referrers?: number
}

/** A document in a manifest. */
interface ReadDocument extends Pick<ScannerReport, 'document' | 'outcome'> {
  /** The memory that it takes, in characters. */
  readonly weight: number
}

/** What was read of a manifest. */
interface Part {
  readonly documents: readonly ReadDocument[]
  /** When it is read again, in milliseconds since 1970: the failure may be gone then. */
  readonly untilMs: number
}

/**
 * Limits of one answer: the documents of each manifest. `vulnerabilities` and `characters` are about all reports
 * in it: the thread that answers sorts them.
 */
const limits = { documents: 10, vulnerabilities: 20_000, characters: 16 * 1024 * 1024 } as const
/** The memory for reports that were read, in characters: those of some images. */
const rememberedCharacters = 2 * limits.characters
/** The number of referrers that are looked at for one answer. */
const maxReferrers = 500
/** Memory of one vulnerability besides its texts. */
const overhead = 100
/** The time after which a report is read again that could not be read, in milliseconds. `few`: its author may be the reason, so it is longer. */
const retryMs = { never: Infinity, few: 3_600_000, daily: 30_000 } as const

const pending: ReadDocument = { document: '', outcome: { state: 'pending' }, weight: overhead }

function weightOfOutcome(outcome: ReportOutcome): number {
  let weight = overhead
  for (const one of outcome.state === 'read' ? outcome.report.vulnerabilities : []) {
    weight += overhead + one.id.length + one.name.length + one.version.length + one.purl.length + one.fixedVersion.length
    for (const path of one.locations) weight += path.length
  }
  return weight
}

function weightOf({ documents }: Part): number {
  return documents.reduce((sum, { weight }) => sum + weight, overhead)
}

/** Takes documents into one answer, the newest first, until its limits are reached. */
class AnswerSpace {
  #characters = 0
  #vulnerabilities = 0

  /** Returns the document, without its vulnerabilities if there is no space for them. */
  take(document: ReadDocument): ReadDocument {
    const { outcome } = document
    if (outcome.state !== 'read') return document
    this.#characters += document.weight
    this.#vulnerabilities += outcome.report.vulnerabilities.length
    const exceeded = this.#vulnerabilities > limits.vulnerabilities ? 'vulnerabilities' : this.#characters > limits.characters ? 'characters' : undefined
    if (exceeded === undefined) return document
    const message = `the newer reports and this one have more than ${limits[exceeded]} ${exceeded}`
    return { document: document.document, outcome: { state: 'tooLarge', message }, weight: overhead }
  }
}

/**
 * The reports in repos. A report is read when someone asks for it, in a process of its own. It is kept in memory: its bytes never change. One report
 * is read at a time, and organisations take turns.
 */
export class ScannerReports implements ScannerReportsSource {
  readonly #options: Required<ScannerReportsOptions>
  readonly #parts = new RecentMap<string, Part>(rememberedCharacters, weightOf)
  readonly #reading = new Map<string, Promise<Part>>()
  readonly #turns = new ReportTurns()
  readonly #candidates: Candidates

  constructor(options: ScannerReportsOptions) {
    this.#options = { waitMs: 10_000, timeLimitMs: 10_000, referrers: maxReferrers, ...options }
    this.#candidates = new Candidates(this.#options.referrers)
  }

  close(): Promise<void> {
    return this.#turns.close()
  }

  async of(image: ImageName, signal: AbortSignal): Promise<readonly ScannerReport[]> {
    const candidates = await this.#candidates.of(this.#content(image), image, signal)
    const parts = new Map<Candidate, Part>()
    const waiting: Promise<unknown>[] = []
    for (const candidate of candidates) {
      const part = this.#part(candidate)
      if (part instanceof Promise) waiting.push(part.then((read) => parts.set(candidate, read)))
      else parts.set(candidate, part)
    }
    if (waiting.length > 0) await this.#wait(waiting, signal)
    const space = new AnswerSpace()
    return candidates.flatMap((candidate) => {
      const { digest, subject, pushedMs, hint } = candidate
      const documents = parts.get(candidate)?.documents ?? (hint === undefined ? [] : [pending])
      return documents.map((one): ScannerReport => {
        const { document, outcome } = space.take(one)
        return { digest, subject, pushedMs, document, outcome }
      })
    })
  }

  #content({ repo }: Pick<Candidate, 'repo'>): ReadableRepo {
    return { services: this.#options.services(), upstream: this.#options.upstream, repo }
  }

  #now(): number {
    return this.#options.services().clock.now()
  }

  /** Waits until all are read, but no longer than an answer may wait. */
  async #wait(parts: readonly Promise<unknown>[], signal: AbortSignal): Promise<void> {
    const late = Promise.withResolvers<undefined>()
    const timer = setTimeout(() => late.resolve(undefined), this.#options.waitMs)
    try {
      await untilAborted(Promise.race([Promise.allSettled(parts), late.promise]), signal)
    } finally {
      clearTimeout(timer)
    }
  }

  #keyOf({ repo, digest, subject }: Candidate): string {
    return `${repo} ${digest} ${subject}`
  }

  /** Returns what is known of a manifest, or the promise of it. */
  #part(candidate: Candidate): Part | Promise<Part> {
    const key = this.#keyOf(candidate)
    const known = this.#parts.get(key)
    if (known !== undefined && this.#now() < known.untilMs) return known
    const running = this.#reading.get(key)
    if (running !== undefined) return running
    const made = this.#read(candidate)
    this.#reading.set(key, made)
    const end = (): void => void this.#reading.delete(key)
    made.then((part) => part.untilMs > this.#now() && this.#parts.set(key, part)).then(end, end)
    return made
  }

  /** Reads a manifest and its reports, each in a turn of its own. Rejects only if the turns end, or too many wait. */
  async #read(candidate: Candidate): Promise<Part> {
    const key = rootOf(candidate.repo)
    const documents: ReadDocument[] = []
    const space = new AnswerSpace()
    let untilMs = Infinity
    const note = (document: Digest | '', outcome: ReportOutcome | undefined, retry: ContentRetry): void => {
      if (outcome !== undefined) documents.push(space.take({ document, outcome, weight: weightOfOutcome(outcome) }))
      untilMs = Math.min(untilMs, this.#now() + retryMs[retry])
    }
    const listed = await this.#turns.take(key, (signal) => this.#within(candidate, (limited) => this.#documents(candidate, limited), signal))
    if (listed instanceof ContentError) note('', outcomeOf(listed, candidate.hint), listed.retry)
    else if (listed === undefined) untilMs = 0 // It was deleted meanwhile: it may come again.
    for (const { digest, hint } of listed instanceof ContentError ? [] : (listed ?? [])) {
      const outcome = await this.#turns.next(key, (signal) => this.#within(candidate, (limited) => this.#report(candidate, digest, limited), signal))
      if (outcome instanceof ContentError) note(digest, outcomeOf(outcome, hint), outcome.retry)
      else note(digest, outcome, 'never')
    }
    return { documents, untilMs }
  }

  /** Resolves with what the task returns within the time limit, or with the error that says why it failed. Rejects with the signal's reason. */
  async #within<T>(candidate: Candidate, task: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T | ContentError> {
    const { timeLimitMs } = this.#options
    const ending = new AbortController()
    const late = new ContentError('TOO_LARGE', `the report was not read within ${timeLimitMs / 1000} seconds`, { retry: 'few' })
    const timer = setTimeout(() => ending.abort(late), timeLimitMs)
    try {
      return await task(AbortSignal.any([signal, ending.signal]))
    } catch (error) {
      return this.#failureOf(candidate, error, signal)
    } finally {
      clearTimeout(timer)
    }
  }

  /** Resolves with the layers of a manifest that may be reports, the newest first; undefined if the repo does not hold the manifest. */
  async #documents(candidate: Candidate, signal: AbortSignal): Promise<{ readonly digest: Digest; readonly hint: Hint }[] | undefined> {
    const manifest = await readManifest(this.#content(candidate), candidate.digest, signal).catch(throwDamaged)
    if (manifest === undefined) return undefined
    const found = manifest.layers.toReversed().flatMap((layer) => {
      const hint = hintOf(`${layer.mediaType} ${candidate.artifactType}`, predicateIn(layer.annotations) ?? candidate.predicate)
      return hint === undefined ? [] : [{ digest: layer.digest, hint }]
    })
    return [...new Map(found.map((one) => [one.digest, one])).values()].slice(0, limits.documents)
  }

  async #report(candidate: Candidate, digest: Digest, signal: AbortSignal): Promise<ReportOutcome> {
    const { folder } = this.#options
    const blob = await namedBlob(this.#content(candidate), digest, signal)
    if (blob === undefined) throw absent(`document ${digest}`)
    const { size } = blob
    if (size > reportLimits.documentBytes) throw new ContentError('TOO_LARGE', `the report has ${size} bytes: at most ${reportLimits.documentBytes} are read`)
    await prepareFolder(folder)
    const job = { kind: 'report', digest, size, digests: candidate.names } as const
    const { items: vulnerabilities, facts } = await readInProcess(job, { streams: [(opened) => blob.open(opened).catch(throwDamaged)], folder }, signal)
    return { state: 'read', report: { ...facts, vulnerabilities } }
  }

  /** Returns an error that says something about the report. Throws the signal's reason. */
  #failureOf({ repo, digest }: Candidate, error: unknown, signal: AbortSignal): ContentError {
    signal.throwIfAborted()
    if (error instanceof ContentError) return error
    this.#options.services().log.warn('a report of a scanner cannot be read', { repo, digest, error: errorText(error) })
    const message =
      error instanceof UpstreamError ? 'the upstream does not answer; the report is read again' : 'the report cannot be read now, and is read again'
    return new ContentError('UNREADABLE', message, { cause: error, retry: 'daily' })
  }
}

/** Returns what is shown of a failure; undefined if nothing says that the document is a report. Signatures, SBOMs and other statements are in the same envelopes. */
function outcomeOf({ problem, message, isRecognised }: ContentError, hint: Hint | undefined): ReportOutcome | undefined {
  if (hint !== 'report' && !isRecognised) return undefined
  return { state: problem === 'TOO_LARGE' ? 'tooLarge' : 'failed', message }
}

/** Throws the error. Damaged bytes may be whole later, for example after a restore. */
function throwDamaged(error: unknown): never {
  if (!(error instanceof ContentError) || error.problem !== 'WRONG_DIGEST') throw error
  throw new ContentError(error.problem, error.message, { cause: error, retry: 'daily' })
}
