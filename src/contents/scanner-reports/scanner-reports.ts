import type { Digest } from '../../base/digest.ts'
import { errorText } from '../../base/error-text.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { untilAborted } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import type { ReportOutcome, ScannerReport, ScannerReportsSource } from '../../cache/lists/scanner-reports-source.ts'
import type { Services } from '../../engine/services.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { heldManifest, imageNotFound, UpstreamError, type Upstream } from '../../registry/index.ts'
import { ContentError, type ContentRetry } from '../package.ts'
import { absent, namedBlob, readManifest, type NamedManifest } from '../reading/held-content.ts'
import { prepareFolder, readInProcess } from '../reading/reading-process.ts'
import { manifestsAbout, namesOf, predicateIn } from '../reading/sbom-candidates.ts'
import { reportLimits } from './report-list.ts'
import { reportPredicates } from './report.ts'
import { ReportTurns } from './report-turns.ts'

/** What reading reports needs. */
export interface ScannerReportsOptions {
  readonly services: () => Services
  readonly upstream: Upstream
  /** Where processes keep their files. Created if missing. */
  readonly folder: string
  /** How long an answer waits for reports that are not read yet, in milliseconds; 10 seconds by default. */
  readonly waitMs?: number
  /** The longest time for the reports in one manifest, in milliseconds; one minute by default. */
  readonly timeLimitMs?: number
}

/** A manifest that may have a report. */
interface Candidate {
  readonly repo: Uid
  readonly digest: Digest
  readonly record: ManifestRecord
  readonly subject: Digest
  /** The digests by which statements can name the subject. */
  readonly names: readonly Digest[]
  /** What its type says: `report`, `envelope` of which it may be one, or nothing. */
  readonly hint: Hint | undefined
  /** The candidates of the least rank count first. */
  readonly rank: number
}

type Hint = 'report' | 'envelope'

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
 * Limits of one answer. The newest manifests count, those first whose type says that they are reports. `vulnerabilities` and `characters` are about all reports
 * in it: the thread that answers sorts them.
 */
const limits = { subjects: 100, manifests: 20, documents: 10, vulnerabilities: 20_000, characters: 16 * 1024 * 1024 } as const
/** The memory for reports that were read, in characters: those of some images. */
const rememberedCharacters = 2 * limits.characters
/** Memory of one vulnerability besides its texts. */
const overhead = 100
/** The time after which a report is read again that could not be read, in milliseconds. `few`: its author may be the reason, so it is longer. */
const retryMs = { never: Infinity, few: 3_600_000, daily: 30_000 } as const

/** Types that are reports, and types of envelopes that may have one in them. */
const reportTypes = /sarif|grype|trivy|vuln|security\.vulnerability\.report/i
const envelopeTypes = /in-toto|dsse|sigstore\.bundle/i

/** The types of manifests that have none of their own: those of an empty config, and of images. Cosign writes the latter. */
const noTypes: ReadonlySet<string> = new Set([
  '',
  'application/vnd.oci.empty.v1+json',
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
])

function isReportPredicate(predicate: unknown): boolean {
  return typeof predicate === 'string' && reportPredicates.test(predicate)
}

/** True unless an annotation names a predicate that is no report. */
function mayBeReport(annotations: Readonly<Record<string, unknown>>): boolean {
  const predicate = predicateIn(annotations)
  return predicate === undefined || isReportPredicate(predicate)
}

/** Returns what types and annotations say; undefined if it is nothing about reports. */
function hintOf(types: string, annotations: Readonly<Record<string, unknown>>): Hint | undefined {
  if (!mayBeReport(annotations)) return undefined
  if (reportTypes.test(types) || isReportPredicate(predicateIn(annotations))) return 'report'
  return envelopeTypes.test(types) ? 'envelope' : undefined
}

/** Sorts the newest push first. */
function compareAges(one: Candidate, other: Candidate): number {
  return Number(other.record.createTimeMs - one.record.createTimeMs) || (one.digest < other.digest ? -1 : 1)
}

/** Returns the candidates that count, newest first. */
function newestOf(found: readonly Candidate[]): readonly Candidate[] {
  const best = found.toSorted((one, other) => one.rank - other.rank || compareAges(one, other)).slice(0, limits.manifests)
  return best.sort(compareAges)
}

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

  constructor(options: ScannerReportsOptions) {
    this.#options = { waitMs: 10_000, timeLimitMs: 60_000, ...options }
  }

  close(): Promise<void> {
    return this.#turns.close()
  }

  async of(image: ImageName, signal: AbortSignal): Promise<readonly ScannerReport[]> {
    const candidates = await this.#candidates(image, signal)
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
      const { digest, subject, record, hint } = candidate
      const documents = parts.get(candidate)?.documents ?? (hint === undefined ? [] : [pending])
      return documents.map((one): ScannerReport => {
        const { document, outcome } = space.take(one)
        return { digest, subject, pushedMs: Number(record.createTimeMs), document, outcome }
      })
    })
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

  /** Resolves with the manifests that may have reports, newest first. */
  async #candidates({ repo, digest }: ImageName, signal: AbortSignal): Promise<readonly Candidate[]> {
    const services = this.#options.services()
    const content = { services, upstream: this.#options.upstream, repo }
    const record = await heldManifest(services, { repo, digest }, signal)
    if (record === undefined) throw imageNotFound(`${repo}@${digest}`)
    const found = new Map<Digest, Candidate>()
    const children = record.children.slice(0, limits.subjects).map((child) => child.digest as Digest) // a cast: records hold checked digests
    for (const subject of new Set([digest, ...children])) {
      const held = subject === digest ? record : await heldManifest(services, { repo, digest: subject }, signal)
      if (held === undefined) continue
      const manifest: NamedManifest = { digest: subject, record: held, config: undefined, layers: [], children: [] }
      for (const one of await manifestsAbout(content, { subject: { image: manifest, index: undefined }, mayBe: mayBeReport }, signal)) {
        const { artifactType, annotations } = one.record
        if (one.tag === 'sbom') continue
        // Without a type of its own, its layers say what it is.
        const hint = hintOf(artifactType, annotations) ?? (one.tag === 'att' || noTypes.has(artifactType) ? 'envelope' : undefined)
        const rank = hint === 'report' || one.tag === 'att' ? 0 : hint === 'envelope' ? 1 : 2
        found.set(one.digest, { repo, digest: one.digest, record: one.record, subject, names: namesOf(manifest), hint, rank })
      }
    }
    return newestOf([...found.values()])
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
    const made = this.#turns.take(rootOf(candidate.repo), (signal) => this.#read(candidate, signal))
    this.#reading.set(key, made)
    const end = (): void => void this.#reading.delete(key)
    made.then((part) => this.#parts.set(key, part)).then(end, end)
    return made
  }

  /** Reads a manifest and its reports, within the time limit. Rejects only if the signal aborts. */
  async #read(candidate: Candidate, signal: AbortSignal): Promise<Part> {
    const { timeLimitMs } = this.#options
    const ending = new AbortController()
    const late = new ContentError('TOO_LARGE', `the reports were not read within ${timeLimitMs / 1000} seconds`, { retry: 'few' })
    const timer = setTimeout(() => ending.abort(late), timeLimitMs)
    const limited = AbortSignal.any([signal, ending.signal])
    const documents: ReadDocument[] = []
    const space = new AnswerSpace()
    let untilMs = Infinity
    const note = (document: Digest | '', outcome: ReportOutcome, retry: ContentRetry): void => {
      documents.push(space.take({ document, outcome, weight: weightOfOutcome(outcome) }))
      untilMs = Math.min(untilMs, this.#now() + retryMs[retry])
    }
    try {
      for (const { digest, hint } of await this.#documents(candidate, limited)) {
        try {
          note(digest, await this.#report(candidate, digest, limited), 'never')
        } catch (error) {
          const failure = this.#failureOf(candidate, error, signal)
          // Signatures, SBOMs and other statements are in the same envelopes.
          if (hint === 'report' || failure.problem !== 'UNSUPPORTED_FORM') note(digest, outcomeOf(failure), failure.retry)
        }
      }
    } catch (error) {
      const failure = this.#failureOf(candidate, error, signal)
      note('', outcomeOf(failure), failure.retry)
    } finally {
      clearTimeout(timer)
    }
    return { documents, untilMs }
  }

  /** Resolves with the layers of a manifest that may be reports, the newest first. */
  async #documents({ repo, digest, record }: Candidate, signal: AbortSignal): Promise<{ readonly digest: Digest; readonly hint: Hint }[]> {
    const { services, upstream } = this.#options
    const manifest = await readManifest({ services: services(), upstream, repo }, digest, signal)
    const found = (manifest?.layers ?? []).toReversed().flatMap((layer) => {
      const hint = hintOf(`${layer.mediaType} ${record.artifactType}`, { ...record.annotations, ...layer.annotations })
      return hint === undefined ? [] : [{ digest: layer.digest, hint }]
    })
    return [...new Map(found.map((one) => [one.digest, one])).values()].slice(0, limits.documents)
  }

  async #report({ repo, names }: Candidate, digest: Digest, signal: AbortSignal): Promise<ReportOutcome> {
    const { services, upstream, folder } = this.#options
    const blob = await namedBlob({ services: services(), upstream, repo }, digest, signal)
    if (blob === undefined) throw absent(`document ${digest}`)
    const { size } = blob
    if (size > reportLimits.documentBytes) throw new ContentError('TOO_LARGE', `the report has ${size} bytes: at most ${reportLimits.documentBytes} are read`)
    await prepareFolder(folder)
    const job = { kind: 'report', digest, size, digests: names } as const
    const { items: vulnerabilities, facts } = await readInProcess(job, { streams: [(opened) => blob.open(opened)], folder }, signal)
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

function outcomeOf({ problem, message }: ContentError): ReportOutcome {
  return { state: problem === 'TOO_LARGE' ? 'tooLarge' : 'failed', message }
}
