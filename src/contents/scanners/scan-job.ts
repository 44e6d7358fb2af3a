import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { Alarm } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { scanPrefixes, UpstreamError } from '../../registry/index.ts'
import { ImageQueue, type QueuedImage } from '../image-queue.ts'
import { ContentError, type ContentRetry } from '../package.ts'
import { ImageScan, type ImageScanOptions, type ScanOutcome } from './image-scan.ts'
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

/** Key prefix of scanners that were asked for all images. */
const knownScannerPrefix = 'meta/scanners/'
/** How often the job looks for images while others are scanned, in milliseconds. */
const lookEveryMs = 1_000
/** For how long the answer of a scanner about itself is used, in milliseconds. */
const abilitiesMs = 5 * 60_000

/** Returns how the failure of one image ends its scan; undefined for a failure that says nothing about the image. */
function endAfter(error: unknown): EndedScan | undefined {
  if (error instanceof ContentError) return { outcome: 'failed', retry: 'few' }
  // A conflict, or a quota that is reached: it may be gone later.
  if (error instanceof DomainError) return [8, 9, 10].includes(error.code) ? { outcome: 'failed', retry: 'few' } : undefined
  if (error instanceof UpstreamError) return error.kind === 'unavailable' || error.kind === 'exhausted' ? undefined : { outcome: 'failed', retry: 'few' }
  if (!(error instanceof ScannerError) || error.kind === 'unavailable' || error.kind === 'unauthorized') return undefined
  if (error.kind === 'unsupported') return { outcome: 'unsupported', retry: 'never' }
  return { outcome: 'failed', retry: error.kind === 'rejected' ? 'daily' : 'few' }
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
    if (!this.#asked) await this.#begin(signal)
    const running = new Map<string, { readonly root: Uid; readonly ended: Promise<void> }>()
    const stopping = new AbortController()
    const ended = new Alarm()
    const alive = AbortSignal.any([signal, stopping.signal])
    const scan = async (image: QueuedImage): Promise<void> => {
      try {
        await this.#scan(image, observer, alive)
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
      // Set before the scan begins: it may end at once.
      const begun = Promise.withResolvers<void>()
      running.set(next.entry.key, { root: rootOf(next.repo), ended: begun.promise })
      void scan(next).then(begun.resolve, begun.resolve)
    }
  }

  async #scan(image: QueuedImage, observer: ScanObserver | undefined, signal: AbortSignal): Promise<void> {
    const { services, name } = this.#options
    const { repo, digest } = image
    const startMs = performance.now()
    const work = new ImageScan(this.#options, image)
    let end: EndedScan
    try {
      end = { outcome: await work.run(() => this.#current(signal), signal), retry: 'never' }
    } catch (error) {
      signal.throwIfAborted()
      end = endAfter(error) ?? (await this.#endIfUp(error, signal))
      services.log.warn('an image was not scanned', { scanner: name, repo, digest, outcome: end.outcome, error: errorText(error) })
    }
    // With its report, it has left the queue.
    if (end.outcome !== 'kept') await this.#queue.done({ ...image, entry: work.entry }, { retry: end.retry }, signal)
    if (end.outcome !== 'nothing') observer?.scanned(name, end.outcome, (performance.now() - startMs) / 1000)
  }

  /** Resolves with the end of a scan that failed as if the scanner were down, if it is not. Else rejects: then the image keeps waiting. */
  async #endIfUp(error: unknown, signal: AbortSignal): Promise<EndedScan> {
    this.#abilities = undefined
    const isDown = error instanceof ScannerError && error.kind === 'unavailable'
    if (!isDown) throw new ScannerError('unavailable', `scanner ${this.name} cannot go on`, error)
    await this.#current(signal)
    return { outcome: 'failed', retry: 'daily' }
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
      throw new ScannerError('unavailable', `scanner ${name} cannot be used`, error)
    }
  }
}
