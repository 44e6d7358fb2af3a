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
    let kept = this.#of.get(subscription)
    if (kept === undefined) this.#of.set(subscription, (kept = []))
    this.#size += 1
    this.#number += 1
    const { entry, attempts, status, timeMs, latencyMs } = delivery
    kept.push({ entry, number: this.#number, attempts, status, timeMs, latencyMs })
    if (kept.length > keptOfEach) {
      kept.shift()
      this.#size -= 1
    }
    if (this.#size > keptInAll) this.#forgetIdlest()
  }

  /** Forgets the subscription that has waited longest for a delivery. */
  #forgetIdlest(): void {
    let idlest: Uid | undefined
    let least = Infinity
    for (const [subscription, kept] of this.#of) {
      const newest = kept.at(-1)?.number ?? 0
      if (newest < least) [idlest, least] = [subscription, newest]
    }
    if (idlest !== undefined) this.forget(idlest)
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
