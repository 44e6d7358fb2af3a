import type { Uid } from '../../base/uid.ts'
import type { LogEntry } from './log-index.ts'

/** A delivery that the sink accepted. */
export interface RecentDelivery {
  readonly entry: LogEntry
  /** Grows with each delivery of the process. */
  readonly number: number
  /** With the one that succeeded. */
  readonly attempts: number
  readonly status: number
  readonly timeMs: number
  readonly latencyMs: number
}

/** Deliveries that are kept for one subscription. */
const keptOfEach = 100
/** Deliveries that are kept in all. With more, the subscriptions that waited longest for one lose theirs. */
const keptInAll = 100_000

/**
 * The last deliveries of each subscription that succeeded, in memory: successes cost the store no write. Only the process that delivers has them
 * (docs/spec/events.md#delivery).
 */
export class RecentDeliveries {
  /** The subscription with the newest delivery is last. */
  readonly #of = new Map<Uid, RecentDelivery[]>()
  #size = 0
  #number = 0
  #isKept = false

  /** Begins to keep deliveries; the result ends it and forgets all. */
  begin(): () => void {
    this.#isKept = true
    return () => {
      this.#isKept = false
      this.#of.clear()
      this.#size = 0
    }
  }

  /** Notes a delivery that succeeded. */
  note(subscription: Uid, delivery: Omit<RecentDelivery, 'number'>): void {
    if (!this.#isKept) return
    const kept = this.#of.get(subscription) ?? []
    this.#of.delete(subscription)
    this.#of.set(subscription, kept)
    this.#size += 1
    this.#number += 1
    kept.push({ ...delivery, number: this.#number })
    if (kept.length > keptOfEach) {
      kept.shift()
      this.#size -= 1
    }
    for (const [oldest] of this.#of) {
      if (this.#size <= keptInAll) break
      this.forget(oldest)
    }
  }

  /** Forgets a subscription. */
  forget(subscription: Uid): void {
    this.#size -= this.#of.get(subscription)?.length ?? 0
    this.#of.delete(subscription)
  }

  /** Returns the last deliveries of a subscription, newest first; undefined if this process does not deliver. */
  of(subscription: Uid): readonly RecentDelivery[] | undefined {
    return this.#isKept ? (this.#of.get(subscription)?.toReversed() ?? []) : undefined
  }
}
