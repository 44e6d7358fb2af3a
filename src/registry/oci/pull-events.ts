import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type { Log } from '../../base/log.ts'
import type { Caller } from '../../engine/services.ts'
import { StoreError } from '../../store/store.ts'

/** Something that was pulled, as its event will tell it. */
export interface Pull {
  readonly repo: Uid
  readonly repository: string
  readonly digest: Digest
  readonly tag: string | undefined
  readonly type: 'manifest' | 'blob'
  readonly method: 'GET' | 'HEAD'
  readonly caller: Caller | undefined
  readonly timeMs: number
  readonly remoteAddress: string
  readonly userAgent: string
}

/** What pull events are written with. */
export interface PullEventsOptions {
  /** Writes events to the outbox, all or none. Throws StoreError: what is `too_large` is written again by halves. */
  readonly write: (pulls: readonly Pull[], signal: AbortSignal) => Promise<void>
  readonly log: Log
  /** Called with the number of lost events. */
  readonly dropped: (count: number) => void
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

/**
 * Events of pulls, kept in memory for a moment and written in batches, so that no pull waits. Events are lost if there are too many, or if the process ends
 * before it wrote them (docs/spec/events.md#registry-traffic). Lost events are counted.
 */
export class PullEvents {
  readonly #options: Required<PullEventsOptions>
  #waiting: Pull[] = []
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: PullEventsOptions) {
    this.#options = { capacity: 1_000, intervalMs: 1_000, ...options }
  }

  /** Notes one. */
  add(pull: Pull): void {
    if (this.#closed || this.#waiting.length >= this.#options.capacity) {
      this.#options.dropped(1)
      return
    }
    this.#waiting.push(pull)
    this.#timer ??= setTimeout(() => void this.flush(), this.#options.intervalMs).unref()
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

  async #write(): Promise<void> {
    const pulls = this.#waiting
    this.#waiting = []
    const signal = AbortSignal.timeout(flushTimeoutMs)
    const losses: Loss[] = []
    for (let at = 0; at < pulls.length; at += batchSize) losses.push(...(await this.#writeBatch(pulls.slice(at, at + batchSize), signal)))
    const lost = losses.reduce((sum, { count }) => sum + count, 0)
    if (lost > 0) this.#options.log.warn('pull events were lost', { count: lost, error: String(losses[0]?.error) })
  }

  /**
   * Writes a batch and returns what was lost of it. A failed batch does not affect other batches. An event that is too large does not affect the rest of its
   * batch.
   */
  async #writeBatch(batch: readonly Pull[], signal: AbortSignal): Promise<Loss[]> {
    try {
      await this.#options.write(batch, signal)
      return []
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'too_large' && batch.length > 1) {
        const half = Math.ceil(batch.length / 2)
        return [...(await this.#writeBatch(batch.slice(0, half), signal)), ...(await this.#writeBatch(batch.slice(half), signal))]
      }
      this.#options.dropped(batch.length)
      return [{ count: batch.length, error }]
    }
  }
}
