import { Readable } from 'node:stream'
import { auditedCaller, type AuditTrail } from '../../base/audit-line.ts'
import { digestOf, type Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import { pause } from '../../base/timing.ts'
import { rootOf } from '../../base/uid.ts'
import type { MutationContext, Services } from '../../engine/services.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { heldManifest, isImageRecord, manifestKey, putArtifact, scanKey, scanPrefixes, type RepoDelegate, type Upstream } from '../../registry/index.ts'
import type { Entry } from '../../store/store.ts'
import type { QueuedImage } from '../image-queue.ts'
import { ContentError } from '../package.ts'
import { prepareFolder, readInProcess } from '../reading/reading-process.ts'
import type { ReportTurns } from '../scanner-reports/report-turns.ts'
import { reportArtifact, type ReportArtifact } from './report-artifact.ts'
import { ScannerError, type ScannerAbilities, type ScannerClient } from './scanner-client.ts'

/** What scanning images needs. Times are in milliseconds. */
export interface ImageScanOptions {
  readonly services: Services
  readonly upstream: Upstream
  readonly delegate: RepoDelegate
  readonly client: ScannerClient
  /** The name of the scanner. */
  readonly name: string
  /** The URL of the registry host, as the scanner reaches it. */
  readonly registryUrl: string
  /** The name of the registry host in events. */
  readonly registryHost: string
  readonly auditLog: AuditTrail
  /** Where processes keep their files. Created if missing. */
  readonly folder: string
  /** The turns in which reports are read, of all scanners: each process takes memory. */
  readonly turns: ReportTurns
  /** The longest time from the request to the report. */
  readonly scanMs: number
  /** The least time between two questions for a report; 1 second by default. */
  readonly leastWaitMs?: number
}

/**
 * How a scan ended:
 * - `kept`: the report is a referrer of the image.
 * - `denied`: the identity of the scanner may not pull and push here.
 * - `nothing`: there is nothing to do: the image has a report, is gone, or is no image.
 */
export type ScanOutcome = 'kept' | 'denied' | 'nothing'

/** A scan that the scanner has accepted. */
interface AcceptedScan {
  readonly id: string
  readonly reportType: string
  /** The time of the request, in milliseconds since 1970. */
  readonly startedMs: number
}

/** What an image in the queue has after its tries. */
interface ScanNote {
  readonly scan?: AcceptedScan
  /** The number of times that a failure at this image stopped the job. */
  readonly stops?: number
}

/** When a scan ends early. */
export interface ScanSignals {
  /** Aborts once the scanner cannot be used. What cannot begin again without a loss is not ended. */
  readonly stopping: AbortSignal
  /** Aborts with the process, or its leadership. */
  readonly ending: AbortSignal
}

/** An image that the scanner may scan. */
interface ScannableImage {
  readonly path: string
  readonly record: ManifestRecord
  /** The entry of the record. */
  readonly held: Entry
}

/** The waits between two questions, if the scanner names none, in milliseconds: the first, and the longest. */
const waits: Readonly<Record<'firstMs' | 'longestMs', number>> = { firstMs: 2_000, longestMs: 60_000 }
/** How often a scan begins again that the scanner has lost. */
const maxStarts = 3
/** The time after which a scan begins again, though the scanner knows it, in milliseconds. */
const forgottenMs = 24 * 3_600_000
/** The longest time for reading a report, in milliseconds. */
const readMs = 60_000

/** Scans one image: asks for the scan, waits for the report, and keeps it. Any process can go on with a scan that the scanner has accepted. */
export class ImageScan {
  readonly #options: Required<ImageScanOptions>
  readonly #image: QueuedImage
  #entry: Entry

  constructor(options: ImageScanOptions, image: QueuedImage) {
    this.#options = { leastWaitMs: 1_000, ...options }
    this.#image = image
    this.#entry = image.entry
  }

  /** The entry in the queue, with the note of this scan. */
  get entry(): Entry {
    return this.#entry
  }

  /** True if the scanner has accepted a scan of the image. */
  get isAccepted(): boolean {
    return this.#noted().scan !== undefined
  }

  /** The note of the scan that the scanner has accepted. */
  get noteOfScan(): string {
    const { scan } = this.#noted()
    return JSON.stringify(scan === undefined ? {} : { scan })
  }

  /** Notes that a failure at this image stopped the job. Resolves with how often that was so. */
  async noteStop(signal: AbortSignal): Promise<number> {
    const { stops = 0, ...note } = this.#noted()
    await this.#note({ ...note, stops: stops + 1 }, signal)
    return stops + 1
  }

  /** Rejects with ScannerError, ContentError about the report, DomainError, UpstreamError, StoreError, or the reason of one of the signals. */
  async run(abilities: () => Promise<ScannerAbilities>, { stopping: signal, ending }: ScanSignals): Promise<ScanOutcome> {
    await this.#options.services.cache.barrier(signal)
    if (await this.#isScanned(signal)) return 'nothing'
    for (let starts = 1; ; starts++) {
      const image = await this.#scannable(signal)
      if (typeof image === 'string') return image
      let { scan } = this.#noted()
      if (scan === undefined || Math.abs(this.#options.services.clock.now() - scan.startedMs) > forgottenMs) {
        const able = await abilities()
        signal.throwIfAborted()
        // Not ended by `stopping`: the scanner would scan an image whose report is not asked for.
        scan = await this.#begin(image, able, ending)
      }
      try {
        const report = await this.#report(scan, signal)
        return typeof report === 'string' ? report : await this.#keep(report, scan, ending)
      } catch (error) {
        if (!(error instanceof ScannerError && error.kind === 'lost') || starts >= maxStarts) throw error
        const { stops } = this.#noted()
        await this.#note(stops === undefined ? {} : { stops }, signal)
      }
    }
  }

  /** Resolves with true if the repo holds the report of an earlier scan. */
  async #isScanned(signal: AbortSignal): Promise<boolean> {
    const { services, name } = this.#options
    const known = await services.store.get(scanKey(scanPrefixes.done, name, this.#image), signal)
    if (known === undefined) return false
    const digest = Buffer.from(known.value).toString() as Digest // of #keep
    return (await heldManifest(services, { repo: this.#image.repo, digest }, signal)) !== undefined
  }

  /** Resolves with the image, or with the outcome if it cannot be scanned. */
  async #scannable(signal: AbortSignal): Promise<ScannableImage | ScanOutcome> {
    const { services, delegate } = this.#options
    const { repo, digest } = this.#image
    const held = await services.store.get(manifestKey(repo, digest), signal)
    const record = held === undefined ? undefined : await heldManifest(services, this.#image, signal)
    if (held === undefined || record === undefined || !isImageRecord(record)) return 'nothing'
    const path = delegate.pathWith(repo, ['pull', 'push'])
    return path === undefined ? 'denied' : { path, record, held }
  }

  #noted(): ScanNote {
    const text = Buffer.from(this.#entry.value).toString()
    const at = text.indexOf(' ')
    return at < 0 ? {} : (JSON.parse(text.slice(at + 1)) as ScanNote) // of #note
  }

  /** Writes the note in the queue. If the image was asked for meanwhile, the note is lost: then another process begins again. */
  async #note(note: ScanNote, signal: AbortSignal): Promise<void> {
    const { key, revision, value } = this.#entry
    const [tries = ''] = Buffer.from(value).toString().split(' ')
    const noted = Buffer.from(`${tries} ${JSON.stringify(note)}`)
    const outcome = await this.#options.services.store.transact(
      { guards: [{ kind: 'unchanged', key, revision }], writes: [{ kind: 'put', key, value: noted }] },
      signal,
    )
    this.#entry = { key, value: noted, revision: outcome.committed ? outcome.revision : revision }
  }

  async #begin({ path, record }: ScannableImage, abilities: ScannerAbilities, signal: AbortSignal): Promise<AcceptedScan> {
    const { services, delegate, client, registryUrl } = this.#options
    const { digest } = this.#image
    const target = { registryUrl, token: delegate.pullToken(this.#image, path), repository: path, digest, mediaType: record.mediaType }
    this.#audit('registry/token', path)
    const startedMs = services.clock.now()
    const scan = { id: await client.scan(abilities, target, signal), reportType: abilities.reportType, startedMs }
    await this.#note({ ...this.#noted(), scan }, signal)
    return scan
  }

  /** Waits for the report. Resolves with the outcome if the image cannot be scanned any more. */
  async #report({ id, reportType, startedMs }: AcceptedScan, signal: AbortSignal): Promise<Uint8Array | ScanOutcome> {
    const { services, client, scanMs, leastWaitMs } = this.#options
    for (let waitMs = waits.firstMs; ; waitMs = Math.min(waitMs * 2, waits.longestMs)) {
      // A clock that was set back must not make the wait endless.
      const isLate = Math.abs(services.clock.now() - startedMs) > scanMs
      const lateError = (cause?: unknown): ScannerError => new ScannerError('late', `the scanner made no report within ${scanMs / 1000} seconds`, cause)
      const answer = await client.report(id, reportType, signal).catch((error: unknown) => {
        // A question that never has an answer ends with the time, too.
        throw isLate && error instanceof ScannerError && error.kind !== 'lost' ? lateError(error) : error
      })
      if ('bytes' in answer) return answer.bytes
      if (isLate) throw lateError()
      await pause(Math.max(leastWaitMs, Math.min(answer.afterMs ?? waitMs, waits.longestMs)), signal)
      signal.throwIfAborted()
      const image = await this.#scannable(signal)
      if (typeof image === 'string') return image
    }
  }

  /** Checks the report, and pushes it as a referrer of the image. */
  async #keep(bytes: Uint8Array, { reportType }: AcceptedScan, signal: AbortSignal): Promise<ScanOutcome> {
    const { services, name } = this.#options
    await this.#assertReport(bytes, signal)
    await services.cache.barrier(signal)
    const image = await this.#scannable(signal)
    if (typeof image === 'string') return image
    const artifact = reportArtifact({ bytes, type: reportType, scanner: name }, { digest: this.#image.digest, record: image.record })
    try {
      await this.#push(artifact, image, signal)
    } catch (error) {
      // The rights, the image or the repo may have gone in between.
      const now = error instanceof DomainError && [5, 7, 10, 16].includes(error.code) ? await this.#scannable(signal) : image
      if (typeof now === 'string') return now
      throw error
    }
    this.#audit('registry/putManifest', image.path)
    return 'kept'
  }

  async #push({ mediaType, manifest, blobs, digest }: ReportArtifact, { path, held }: ScannableImage, signal: AbortSignal): Promise<void> {
    const { services, upstream, delegate, name, registryHost } = this.#options
    const { repo } = this.#image
    const mutation: MutationContext = {
      ...delegate.pushContext(repo, signal),
      // The report and the end of its scan are one change: no image gets two.
      also: () => ({
        guards: [{ kind: 'unchanged', key: held.key, revision: held.revision }],
        writes: [
          { kind: 'delete', key: this.#entry.key },
          { kind: 'delete', key: scanKey(scanPrefixes.later, name, this.#image) },
          { kind: 'put', key: scanKey(scanPrefixes.done, name, this.#image), value: Buffer.from(digest) },
        ],
      }),
    }
    const traffic = { host: registryHost, repository: path, userAgent: `taproot (scanner ${name})` }
    await putArtifact({ services, upstream }, mutation, { repo, mediaType, manifest, blobs, traffic })
  }

  /** Reads the report in a process of its own. Rejects with ContentError if it is no report of Harbor's form about this image. */
  async #assertReport(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const { folder, turns } = this.#options
    const { repo, digest } = this.#image
    await prepareFolder(folder)
    const job = { kind: 'report', digest: digestOf(bytes), size: bytes.length, digests: [digest], artifact: digest } as const
    await turns.next(rootOf(repo), async () => {
      signal.throwIfAborted()
      const late = AbortSignal.timeout(readMs)
      try {
        await readInProcess(job, { streams: [() => Promise.resolve(Readable.from([bytes]))], folder }, AbortSignal.any([signal, late]))
      } catch (error) {
        signal.throwIfAborted()
        throw late.aborted ? new ContentError('TOO_LARGE', `the report was not read within ${readMs / 1000} seconds`, { cause: error }) : error
      }
    })
  }

  #audit(method: string, path: string): void {
    const { auditLog, delegate } = this.#options
    const { repo, digest } = this.#image
    const caller = auditedCaller(delegate.caller())
    auditLog.record({ outcome: 'done', method, transport: 'worker', ...caller, subject: repo, kind: 'Repo', name: `${path}@${digest}` })
  }
}
