import type { Log } from '../../base/log.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { Caller } from '../../engine/services.ts'
import { StoreError } from '../../store/store.ts'
import type { Traffic } from '../records/traffic.ts'

/** A request whose event is written after its answer: a pull, or a push that failed. */
export interface ReportedRequest extends Omit<Traffic, 'host' | 'displayName'> {
  readonly kind: 'push' | 'pull'
  readonly repo: Uid
  /** Undefined if the caller is anonymous. */
  readonly caller: Caller | undefined
  readonly timeMs: number
}

/** What became of events: written, left out because an equal one was kept, or lost. */
export type TrafficOutcome = 'written' | 'repeated' | 'lost'

/** What traffic events are written with. */
export interface TrafficEventsOptions {
  /** Writes events to the outbox, all or none. Throws StoreError: what is `too_large` is written again by halves. */
  readonly write: (requests: readonly ReportedRequest[], signal: AbortSignal) => Promise<void>
  readonly log: Log
  /** Called with the number of events of an outcome. */
  readonly observe: (outcome: TrafficOutcome, count: number) => void
  /** Equal requests in one window have one event; 0: each request has one. In milliseconds. */
  readonly windowMs: number
  /** How many are kept between two flushes; 1,000 where absent. More are lost. */
  readonly capacity?: number
  /** Between two flushes, in milliseconds; 1,000 where absent. */
  readonly intervalMs?: number
}

/** Events that could not be written, and why. */
interface Loss {
  readonly count: number
  readonly error: unknown
}

/** How many go into one transaction. */
const batchSize = 100
/** How long one flush may take, in milliseconds: what is not written by then is lost. */
const flushTimeoutMs = 10_000
/** One organisation fills at most this share of what is kept between two flushes. */
const organisationShare = 1 / 4
/** The most requests that are remembered in one window. With more, the next window begins early. */
const maxRemembered = 50_000

/** The text by which requests are equal: who did what, with what result. Anonymous callers differ by address. */
function equalityOf({ kind, caller, remoteAddress = '', repo, digest = '', tag = '', method = '', error }: ReportedRequest): string {
  return `${kind} ${caller?.identity ?? remoteAddress} ${repo} ${digest} ${tag} ${method} ${error?.code ?? ''}`
}

/**
 * Events of requests to the registry host, kept in memory for a moment and written in batches, so that no request waits. In each window the first of equal
 * requests has an event (docs/spec/events.md#registry-traffic). Events are lost if there are too many, or if the process ends before it wrote them. All
 * outcomes are counted.
 */
export class TrafficEvents {
  readonly #options: Required<TrafficEventsOptions>
  #waiting: ReportedRequest[] = []
  readonly #waitingOf = new Map<Uid, number>()
  #seen = new Set<string>()
  #window = 0
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: TrafficEventsOptions) {
    this.#options = { capacity: 1_000, intervalMs: 1_000, ...options }
  }

  /** Notes a request. Never waits and never throws. */
  add(request: ReportedRequest): void {
    const { capacity, intervalMs, observe } = this.#options
    const equality = this.#unseen(request)
    if (equality === undefined) {
      observe('repeated', 1)
      return
    }
    const root = rootOf(request.repo)
    const ofRoot = this.#waitingOf.get(root) ?? 0
    if (this.#closed || this.#waiting.length >= capacity || ofRoot >= capacity * organisationShare) {
      observe('lost', 1)
      return
    }
    // One that is lost is not remembered: the next equal one has the event.
    if (equality !== '') this.#seen.add(equality)
    this.#waitingOf.set(root, ofRoot + 1)
    this.#waiting.push(request)
    this.#timer ??= setTimeout(() => void this.flush(), intervalMs).unref()
  }

  /** Writes what was noted; resolves when it is written, or lost. */
  flush(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#flushing = this.#flushing.then(() => this.#write())
    return this.#flushing
  }

  /** Writes the rest and takes no more. */
  async close(): Promise<void> {
    this.#closed = true
    await this.flush()
  }

  /** Returns the text to remember a request by; empty without a window, and undefined if an equal request of this window has an event. */
  #unseen(request: ReportedRequest): string | undefined {
    const { windowMs } = this.#options
    if (windowMs === 0) return ''
    const window = Math.floor(request.timeMs / windowMs)
    if (window !== this.#window || this.#seen.size >= maxRemembered) {
      this.#window = window
      this.#seen = new Set()
    }
    const equality = equalityOf(request)
    return this.#seen.has(equality) ? undefined : equality
  }

  async #write(): Promise<void> {
    const requests = this.#waiting
    this.#waiting = []
    this.#waitingOf.clear()
    const signal = AbortSignal.timeout(flushTimeoutMs)
    const losses: Loss[] = []
    for (let at = 0; at < requests.length; at += batchSize) losses.push(...(await this.#writeBatch(requests.slice(at, at + batchSize), signal)))
    const lost = losses.reduce((sum, { count }) => sum + count, 0)
    if (lost > 0) this.#options.log.warn('events of registry traffic were lost', { count: lost, error: String(losses[0]?.error) })
  }

  /**
   * Writes a batch and returns what was lost of it. A failed batch does not affect other batches. An event that is too large does not affect the rest of its
   * batch.
   */
  async #writeBatch(batch: readonly ReportedRequest[], signal: AbortSignal): Promise<Loss[]> {
    const { write, observe } = this.#options
    try {
      await write(batch, signal)
      observe('written', batch.length)
      return []
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'too_large' && batch.length > 1) {
        const half = Math.ceil(batch.length / 2)
        return [...(await this.#writeBatch(batch.slice(0, half), signal)), ...(await this.#writeBatch(batch.slice(half), signal))]
      }
      observe('lost', batch.length)
      return [{ count: batch.length, error }]
    }
  }
}
