import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { Alarm, pause } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { scanPrefixes, UpstreamError } from '../../registry/index.ts'
import { StoreError } from '../../store/store.ts'
import { ImageQueue, type QueuedImage } from '../image-queue.ts'
import { ContentError, type ContentRetry } from '../package.ts'
import { ImageScan, type ImageScanOptions, type ScanOutcome, type ScanSignals } from './image-scan.ts'
import { ScanPlaces } from './scan-places.ts'
import { ScanStops } from './scan-stops.ts'
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

/** An image that is scanned now. `isAlone`: no other one is. */
interface RunningScan {
  readonly image: QueuedImage
  readonly isAlone: boolean
  readonly root: Uid
  readonly ended: Promise<void>
}

/** How an image leaves the queue. */
interface EndedScan {
  readonly outcome: ScanOutcome | 'unsupported' | 'failed'
  readonly retry: ContentRetry
  /** What the image keeps in the queue for its next try. */
  readonly note?: string | undefined
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
  // A scanner may fail for all images for days, because it has no data.
  const later: EndedScan = { outcome: 'failed', retry: 'daily' }
  if (error instanceof ContentError) return later
  // A conflict, or a quota that is reached: it may be gone later.
  if (error instanceof DomainError) return [8, 9, 10].includes(error.code) ? later : undefined
  if (error instanceof UpstreamError) return ['unavailable', 'exhausted', 'refused'].includes(error.kind) ? undefined : later
  if (!(error instanceof ScannerError) || ['unavailable', 'busy', 'unauthorized'].includes(error.kind)) return undefined
  return error.kind === 'unsupported' ? { outcome: 'unsupported', retry: 'never' } : later
}

/**
 * Has images scanned by one scanner. The active worker runs it (docs/adr/0040). Organisations take turns, and one of them never has all scans at the same time.
 * If the scanner does not answer, images keep waiting.
 */
export class ScanJob {
  readonly #options: ScanJobOptions
  readonly #queue: ImageQueue
  readonly #places: ScanPlaces
  readonly #stops = new ScanStops()
  /** Until when the job pauses, on the clock of `performance`. */
  #pausedMs = 0
  #abilities: { readonly value: ScannerAbilities; readonly untilMs: number } | undefined

  constructor(options: ScanJobOptions) {
    this.#options = options
    const prefixOf = (prefix: string): string => `${prefix}${options.name}/`
    this.#queue = new ImageQueue(options.services, { waiting: prefixOf(scanPrefixes.waiting), later: prefixOf(scanPrefixes.later) })
    this.#places = new ScanPlaces({ ...options, queue: this.#queue })
  }

  /** The name of the scanner. */
  get name(): string {
    return this.#options.name
  }

  /** Scans all images that wait. Rejects with the first failure that says nothing about an image, once no scan runs any more. */
  async run(observer: ScanObserver | undefined, signal: AbortSignal): Promise<void> {
    await pause(this.#pausedMs - performance.now(), signal)
    signal.throwIfAborted()
    const running = new Map<string, RunningScan>()
    const stopping = new AbortController()
    const ended = new Alarm()
    const alive = AbortSignal.any([signal, stopping.signal])
    const scan = async (one: RunningScan): Promise<void> => {
      const { image } = one
      try {
        await this.#scan(one, observer, { stopping: alive, ending: signal })
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
        await this.#places.look(signal)
        await this.#queue.askForDue(alive)
        await this.#fill(running, scan, alive)
        alive.throwIfAborted()
        if (running.size === 0) return
        await ended.within(lookEveryMs, alive)
        alive.throwIfAborted()
      }
    } catch (error) {
      stopping.abort(error)
      // The next run waits as long as the scanner asked for.
      if (!(error instanceof ScannerError && error.kind === 'busy')) throw error
    } finally {
      await Promise.all([...running.values()].map((one) => one.ended))
    }
  }

  /** Returns false if the scanner may not scan the repo. `signal` is that of the leadership. */
  wants(repo: Uid, signal: AbortSignal): boolean {
    return this.#places.mayCover(repo, signal)
  }

  /** Ends what the job holds. */
  close(): Promise<void> {
    return this.#options.client.close()
  }

  /** Begins as many scans as there may be. */
  async #fill(running: Map<string, RunningScan>, scan: (one: RunningScan) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { concurrent } = this.#options
    for (;;) {
      const { isAlone } = this.#stops
      if (running.size >= (isAlone ? 1 : concurrent)) return
      const counts = Map.groupBy(running.values(), ({ root }) => root)
      const full = [...counts].filter(([, scans]) => scans.length >= Math.max(1, concurrent - 1)).map(([root]) => root)
      const busy = new Set<string>([...full, ...this.#stops.waiting('organisation')])
      const next = await this.#queue.turns(busy, new Set([...running.keys(), ...this.#stops.waiting('image')]), signal)()
      if (next === undefined) return
      // After a failure, no image is the reason that the scanner is still down.
      await this.#current(signal)
      // Set before the scan begins: it may end at once.
      const begun = Promise.withResolvers<void>()
      const one = { image: next, isAlone, root: rootOf(next.repo), ended: begun.promise }
      running.set(next.entry.key, one)
      void scan(one).then(begun.resolve, begun.resolve)
    }
  }

  async #scan(one: RunningScan, observer: ScanObserver | undefined, signals: ScanSignals): Promise<void> {
    const { image } = one
    const { services, name } = this.#options
    const { repo, digest } = image
    const { stopping, ending } = signals
    const startMs = performance.now()
    const work = new ImageScan(this.#options, image)
    let end: EndedScan
    try {
      const outcome = await work.run(() => this.#current(stopping), signals)
      // Where the scanner gets its rights, it is asked for all images. So an image is not lost that it could not scan for a moment.
      end = { outcome, retry: outcome === 'denied' && this.#places.mayCover(repo, ending) ? 'daily' : 'never' }
    } catch (error) {
      ending.throwIfAborted()
      if (stopping.aborted && error === stopping.reason) throw error
      end = endAfter(error) ?? (await this.#endAfterStop(work, { one, error }, signals))
      // The scanner may still make the report: a further request would only make its queue longer.
      if (error instanceof ScannerError && error.kind === 'late') end = { ...end, note: work.noteOfScan }
      services.log.warn('an image was not scanned', { scanner: name, repo, digest, outcome: end.outcome, error: errorText(error) })
    }
    this.#stops.ended()
    // With its report, it has left the queue.
    if (end.outcome !== 'kept') await this.#queue.done({ ...image, entry: work.entry }, { retry: end.retry, note: end.note }, ending)
    if (end.outcome !== 'nothing') observer?.scanned(name, end.outcome, (performance.now() - startMs) / 1000)
  }

  /**
   * Resolves with the end of the scan if the failure is one of the image alone. So it is if scanner and upstream answer, or the image has stopped the job too often. Else
   * rejects: then the image keeps waiting.
   */
  async #endAfterStop(work: ImageScan, { one, error }: { readonly one: RunningScan; readonly error: unknown }, signals: ScanSignals): Promise<EndedScan> {
    const { stopping, ending } = signals
    const { image, isAlone, root } = one
    const later: EndedScan = { outcome: 'failed', retry: 'daily' }
    this.#abilities = undefined
    const isBusy = error instanceof ScannerError && error.kind === 'busy'
    if (isBusy) this.#pause(error)
    else if (await this.#isOfImage(work, error, ending)) return later
    stopping.throwIfAborted()
    if (!(error instanceof StoreError || error instanceof UpstreamError)) {
      this.#stops.stopped()
      if (isAlone && !isBusy) this.#stops.blame(image.entry.key, root)
      if (isAlone && (await work.noteStop(ending)) >= maxStops) return later
    }
    throw new ScannerError(isBusy ? 'busy' : 'unavailable', `scanner ${this.name} stopped at the image ${image.repo}/${image.digest}`, error)
  }

  #pause({ afterMs = pauses.usualMs }: ScannerError): void {
    this.#pausedMs = performance.now() + Math.min(afterMs, pauses.longestMs)
  }

  /** Resolves with true if the scanner or the upstream answers, though it failed for an image. */
  async #isOfImage(work: ImageScan, error: unknown, signal: AbortSignal): Promise<boolean> {
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

  /** Resolves with what the scanner can do. Rejects with ScannerError `unavailable` or `busy` for any failure: it says nothing about an image. */
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
      throw new ScannerError(isBusy ? 'busy' : 'unavailable', `scanner ${name} cannot be used`, error)
    }
  }
}
