import type { Digest } from '../../core/digest.ts'
import type { Uid } from '../../core/uid.ts'
import type { Log } from '../../core/log.ts'
import type { Caller } from '../../resources/services.ts'

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
  /** Writes events to the outbox, all or none. */
  readonly write: (pulls: readonly Pull[], signal: AbortSignal) => Promise<void>
  readonly log: Log
  /** Told how many were lost. */
  readonly dropped: (count: number) => void
  /** How many are kept between two flushes; 1,000 where absent. More are lost. */
  readonly capacity?: number
  /** Between two flushes, in milliseconds; 1,000 where absent. */
  readonly intervalMs?: number
}

/** How many go into one transaction. */
const batchSize = 100
const writePatienceMs = 10_000

/**
 * Events of pulls: kept in memory for a moment and written in batches, so that a pull waits for nobody. There may be too many of them, and what was not
 * written when the process ends is gone (architecture 9): what is lost is counted.
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
    for (let at = 0; at < pulls.length; at += batchSize) {
      const batch = pulls.slice(at, at + batchSize)
      try {
        await this.#options.write(batch, AbortSignal.timeout(writePatienceMs))
      } catch (error) {
        const lost = pulls.length - at
        this.#options.dropped(lost)
        this.#options.log.warn('pull events were lost', { count: lost, error: String(error) })
        return
      }
    }
  }
}
