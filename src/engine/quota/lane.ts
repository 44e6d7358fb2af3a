import { untilAborted } from '../../base/timing.ts'
import type { Revision } from '../../store/store.ts'

/**
 * The outcome of a transaction:
 * - `refused`: it did not commit and never will
 * - `unknown`: it may have committed, or may commit later
 * - a revision: it committed at this revision
 */
export type LaneOutcome = 'refused' | 'unknown' | Revision

/** Tracks one limit of one organisation in this process: the amounts of transactions that the snapshot may not contain yet. It also lets callers take turns. */
export class Lane {
  /** The sum of all tracked amounts, which the snapshot may not contain yet. */
  #sum = 0
  /** Committed transactions that the snapshot did not contain when they were reported. */
  #landed: { readonly amount: number; readonly revision: Revision }[] = []
  /** The amounts of transactions that may still commit, and whose outcome will not be reported any more. */
  readonly #unknown: number[] = []
  #last: Promise<void> = Promise.resolve()
  #holders = 0
  #change = Promise.withResolvers<void>()

  /** True if a caller has the turn or waits for it. */
  get isTaken(): boolean {
    return this.#holders > 0
  }

  /** True if the object holds no data and can be dropped. */
  get isIdle(): boolean {
    return this.#holders === 0 && this.#sum === 0
  }

  /** True if a transaction committed that the snapshot does not contain yet. */
  get hasLanded(): boolean {
    return this.#landed.length > 0
  }

  /** Resolves when it is the caller's turn, in the order of the calls. The returned function ends the turn; call it once. */
  async enter(signal: AbortSignal): Promise<() => void> {
    const before = this.#last
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#last = before.then(() => promise)
    this.#holders += 1
    const end = (): void => {
      this.#holders -= 1
      resolve()
    }
    try {
      await untilAborted(before, signal)
      return end
    } catch (error) {
      end()
      throw error
    }
  }

  /** Returns the sum of the amounts that a snapshot of `revision` may not contain. */
  flying(revision: Revision): number {
    if (this.#landed.length > 0) {
      for (const landed of this.#landed) if (landed.revision <= revision) this.#sum -= landed.amount
      this.#landed = this.#landed.filter((landed) => landed.revision > revision)
    }
    return this.#sum
  }

  /**
   * Counts a transaction of `amount` (greater than 0) as under way. Call the returned function once, with the outcome and the snapshot's revision at that
   * time.
   */
  start(amount: number): (outcome: LaneOutcome, revision: Revision) => void {
    this.#sum += amount
    return (outcome, revision) => {
      if (outcome === 'unknown') this.#unknown.push(amount)
      else if (outcome !== 'refused' && outcome > revision) this.#landed.push({ amount, revision: outcome })
      else this.#sum -= amount
      this.#change.resolve()
      this.#change = Promise.withResolvers()
    }
  }

  /**
   * Returns a function that drops the transactions with an unknown outcome. Call it once a snapshot contains those that committed. Undefined if there are
   * none.
   */
  settleUnknown(): (() => void) | undefined {
    const { length } = this.#unknown
    if (length === 0) return undefined
    return () => {
      for (const amount of this.#unknown.splice(0, length)) this.#sum -= amount
    }
  }

  /** Resolves when the next outcome is reported. */
  async changed(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#change.promise, signal)
  }
}

/** The Lanes of a process, by the store key of their limit. The cost of a call does not depend on their number. */
export class Lanes {
  readonly #lanes = new Map<string, Lane>()
  /** Iterates over all Lanes, again and again, to find idle ones. */
  #round = this.#lanes.keys()

  get size(): number {
    return this.#lanes.size
  }

  /** Returns the Lane for the store key of a limit; undefined if there is none. */
  find(key: string): Lane | undefined {
    return this.#lanes.get(key)
  }

  /** Returns the Lane for the store key of a limit. Creates it if there is none. */
  of(key: string): Lane {
    let lane = this.#lanes.get(key)
    if (lane === undefined) this.#lanes.set(key, (lane = new Lane()))
    return lane
  }

  /**
   * Drops those of the lanes that are idle with a snapshot of `revision`. Each call also checks one other lane in rotation, so every idle lane is dropped at
   * some time.
   */
  tidy(keys: Iterable<string>, revision: Revision): void {
    let next = this.#round.next()
    if (next.done === true) {
      this.#round = this.#lanes.keys()
      next = this.#round.next()
    }
    for (const key of [...keys, next.value ?? '']) {
      const lane = this.#lanes.get(key)
      lane?.flying(revision)
      if (lane?.isIdle === true) this.#lanes.delete(key)
    }
  }
}
