import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { Alarm, pause } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { scanPrefixes, UpstreamError } from '../../registry/index.ts'
import { StoreError } from '../../store/store.ts'
import { ImageQueue, type QueuedImage } from '../image-queue.ts'
import { ContentError, type ContentRetry } from '../package.ts'
import { knownScannerPrefix } from './gone-scanners.ts'
import { ImageScan, type ImageScanOptions, type ScanOutcome, type ScanSignals } from './image-scan.ts'
import { ScannerError, type ScannerAbilities } from './scanner-client.ts'

/** Receives how scans ended, for metrics. */
export interface ScanObserver {
  /** `seconds` are those since the work on the image began in this process. `unsupported` and `failed`: there is no report. */
  scanned(scanner: string, outcome: Exclude<ScanOutcome, 'nothing'> | 'unsupported' | 'failed', seconds: number): void
}

/** What a job needs. */
export interface ScanJobOptions extends ImageScanOptions {
  /** The number of scans at the same time. */
  readonly concurrent: number
}

/** How an image leaves the queue. */
interface EndedScan {
  readonly outcome: ScanOutcome | 'unsupported' | 'failed'
  readonly retry: ContentRetry
}

/** How often the job looks for images while others are scanned, in milliseconds. */
const lookEveryMs = 1_000
/** For how long the answer of a scanner about itself is used, in milliseconds. */
const abilitiesMs = 5 * 60_000

/** The number of times that a failure at an image may stop the job. Then the image waits for later, so that others go on. */
const maxStops = 3
/** For how long the job pauses if the scanner asks for it, in milliseconds: by default, and at most. */
const pauses = { usualMs: 30_000, longestMs: 5 * 60_000 } as const

/** Returns how the failure of one image ends its scan; undefined for a failure that says nothing about the image. */
function endAfter(error: unknown): EndedScan | undefined {
  if (error instanceof ContentError) return { outcome: 'failed', retry: 'few' }
  // A conflict, or a quota that is reached: it may be gone later.
  if (error instanceof DomainError) return [8, 9, 10].includes(error.code) ? { outcome: 'failed', retry: 'few' } : undefined
  if (error instanceof UpstreamError) return ['unavailable', 'exhausted', 'refused'].includes(error.kind) ? undefined : { outcome: 'failed', retry: 'few' }
  if (!(error instanceof ScannerError) || ['unavailable', 'busy', 'unauthorized'].includes(error.kind)) return undefined
  // A scanner may fail for all images for days, because it has no data.
  return error.kind === 'unsupported' ? { outcome: 'unsupported', retry: 'never' } : { outcome: 'failed', retry: 'daily' }
}

/**
 * Has images scanned by one scanner. The active worker runs it (docs/adr/0040). Organisations take turns, and one of them never has all scans at the same time.
 * If the scanner does not answer, images keep waiting.
 */
export class ScanJob {
  readonly #options: ScanJobOptions
  readonly #queue: ImageQueue
  /** True once it is known that the scanner was asked for the images from before it was configured. */
  #asked = false
  /** Until when the job pauses, on the clock of `performance`. */
  #pausedMs = 0
  #abilities: { readonly value: ScannerAbilities; readonly untilMs: number } | undefined

  constructor(options: ScanJobOptions) {
    this.#options = options
    const prefixOf = (prefix: string): string => `${prefix}${options.name}/`
    this.#queue = new ImageQueue(options.services, { waiting: prefixOf(scanPrefixes.waiting), later: prefixOf(scanPrefixes.later) })
  }

  /** The name of the scanner. */
  get name(): string {
    return this.#options.name
  }

  /** Scans all images that wait. Rejects with the first failure that says nothing about an image, once no scan runs any more. */
  async run(observer: ScanObserver | undefined, signal: AbortSignal): Promise<void> {
    await pause(this.#pausedMs - performance.now(), signal)
    signal.throwIfAborted()
    if (!this.#asked) await this.#begin(signal)
    const running = new Map<string, { readonly root: Uid; readonly ended: Promise<void> }>()
    const stopping = new AbortController()
    const ended = new Alarm()
    const alive = AbortSignal.any([signal, stopping.signal])
    const scan = async (image: QueuedImage): Promise<void> => {
      try {
        await this.#scan(image, observer, { stopping: alive, ending: signal })
      } catch (error) {
        stopping.abort(error)
      } finally {
        running.delete(image.entry.key)
        ended.ring()
      }
    }
    try {
      for (;;) {
        ended.arm()
        await this.#queue.askForDue(alive)
        await this.#fill(running, scan, alive)
        alive.throwIfAborted()
        if (running.size === 0) return
        await ended.within(lookEveryMs, alive)
        alive.throwIfAborted()
      }
    } catch (error) {
      stopping.abort(error)
      throw error
    } finally {
      await Promise.all([...running.values()].map((one) => one.ended))
    }
  }

  /** Ends what the job holds. */
  close(): Promise<void> {
    return this.#options.client.close()
  }

  /** Asks for all images if the scanner is new. */
  async #begin(signal: AbortSignal): Promise<void> {
    const { store } = this.#options.services
    const key = `${knownScannerPrefix}${this.name}`
    if ((await store.get(key, signal)) === undefined) {
      await this.#queue.askForAll(signal)
      await store.transact({ guards: [], writes: [{ kind: 'put', key, value: new Uint8Array() }] }, signal)
    }
    this.#asked = true
  }

  /** Begins as many scans as there may be. */
  async #fill(
    running: Map<string, { readonly root: Uid; readonly ended: Promise<void> }>,
    scan: (image: QueuedImage) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const { concurrent } = this.#options
    while (running.size < concurrent) {
      const counts = Map.groupBy(running.values(), ({ root }) => root)
      const busy = new Set([...counts].filter(([, scans]) => scans.length >= Math.max(1, concurrent - 1)).map(([root]) => root))
      const next = await this.#queue.turns(busy, new Set(running.keys()), signal)()
      if (next === undefined) return
      // After a failure, no image is the reason that the scanner is still down.
      await this.#current(signal)
      // Set before the scan begins: it may end at once.
      const begun = Promise.withResolvers<void>()
      running.set(next.entry.key, { root: rootOf(next.repo), ended: begun.promise })
      void scan(next).then(begun.resolve, begun.resolve)
    }
  }

  async #scan(image: QueuedImage, observer: ScanObserver | undefined, signals: ScanSignals): Promise<void> {
    const { services, name } = this.#options
    const { repo, digest } = image
    const { stopping, ending } = signals
    const startMs = performance.now()
    const work = new ImageScan(this.#options, image)
    let end: EndedScan
    try {
      end = { outcome: await work.run(() => this.#current(stopping), signals), retry: 'never' }
    } catch (error) {
      ending.throwIfAborted()
      if (stopping.aborted && error === stopping.reason) throw error
      end = endAfter(error) ?? (await this.#endAfterStop(work, { image, error }, signals))
      services.log.warn('an image was not scanned', { scanner: name, repo, digest, outcome: end.outcome, error: errorText(error) })
    }
    // With its report, it has left the queue.
    if (end.outcome !== 'kept') await this.#queue.done({ ...image, entry: work.entry }, { retry: end.retry }, ending)
    if (end.outcome !== 'nothing') observer?.scanned(name, end.outcome, (performance.now() - startMs) / 1000)
  }

  /**
   * Resolves with the end of the scan if the failure is one of the image alone. So it is if scanner and upstream answer, or the image has stopped the job too often. Else
   * rejects: then the image keeps waiting.
   */
  async #endAfterStop(work: ImageScan, { image, error }: { readonly image: QueuedImage; readonly error: unknown }, signals: ScanSignals): Promise<EndedScan> {
    const { stopping, ending } = signals
    this.#abilities = undefined
    if (error instanceof ScannerError && error.kind === 'busy') {
      this.#pause(error)
    } else if (!(error instanceof StoreError)) {
      const isAlone = await this.#isAlone(work, error, ending)
      stopping.throwIfAborted()
      if (isAlone || (await work.noteStop(ending)) >= maxStops) return { outcome: 'failed', retry: 'daily' }
    }
    throw new ScannerError('unavailable', `scanner ${this.name} stopped at the image ${image.repo}/${image.digest}`, error)
  }

  #pause({ afterMs = pauses.usualMs }: ScannerError): void {
    this.#pausedMs = performance.now() + Math.min(afterMs, pauses.longestMs)
  }

  /** Resolves with true if the scanner or the upstream answers, though it failed for an image. */
  async #isAlone(work: ImageScan, error: unknown, signal: AbortSignal): Promise<boolean> {
    const isOfUpstream = error instanceof UpstreamError && error.kind === 'unavailable'
    // A credential that is refused before the scanner has seen the image is wrong for all.
    const isOfScanner = error instanceof ScannerError && (error.kind === 'unavailable' || work.isAccepted)
    if (!isOfUpstream && !isOfScanner) return false
    try {
      await (isOfUpstream ? this.#options.upstream.ready(signal) : this.#current(signal))
      return true
    } catch {
      signal.throwIfAborted()
      return false
    }
  }

  /** Resolves with what the scanner can do. Rejects with ScannerError `unavailable` for any failure: it says nothing about an image. */
  async #current(signal: AbortSignal): Promise<ScannerAbilities> {
    const { client, name, services } = this.#options
    const nowMs = services.clock.now()
    if (this.#abilities !== undefined && nowMs < this.#abilities.untilMs) return this.#abilities.value
    try {
      const value = await client.abilities(signal)
      this.#abilities = { value, untilMs: nowMs + abilitiesMs }
      return value
    } catch (error) {
      signal.throwIfAborted()
      const isBusy = error instanceof ScannerError && error.kind === 'busy'
      if (isBusy) this.#pause(error)
      throw new ScannerError('unavailable', `scanner ${name} cannot be used`, error)
    }
  }
}
