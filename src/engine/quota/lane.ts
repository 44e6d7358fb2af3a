import { untilAborted } from '../../base/until-aborted.ts'
import type { Revision } from '../../store/store.ts'

/**
 * What became of a transaction:
 * - `refused`: it did not commit and never will
 * - `unknown`: it may have committed, or may do so later
 * - a revision: it committed there
 */
export type LaneOutcome = 'refused' | 'unknown' | Revision

/** This process's transactions that count towards one limit of one organisation, until its snapshot holds them, and whose turn it is. */
export class Lane {
  /** The amounts of all that may not be in the snapshot. */
  #sum = 0
  /** What committed where the snapshot had not come to. */
  #landed: { readonly amount: number; readonly revision: Revision }[] = []
  /** The amounts of what may still commit, and nothing more will be heard of it. */
  readonly #unknown: number[] = []
  #last: Promise<void> = Promise.resolve()
  #turns = 0
  #change = Promise.withResolvers<void>()

  /** True where a caller has the turn, or waits for it. */
  get isTaken(): boolean {
    return this.#turns > 0
  }

  /** True where nothing would be lost with this object. */
  get isIdle(): boolean {
    return this.#turns === 0 && this.#sum === 0
  }

  /** True where a transaction committed that the snapshot has not shown yet. */
  get hasLanded(): boolean {
    return this.#landed.length > 0
  }

  /** Resolves, in the order of the calls, when no other caller has the turn. Call what it returns, once, to end the turn. */
  async turn(signal: AbortSignal): Promise<() => void> {
    const before = this.#last
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#last = before.then(() => promise)
    this.#turns += 1
    const end = (): void => {
      this.#turns -= 1
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

  /** What is under way, and not in a snapshot of `revision`. */
  flying(revision: Revision): number {
    if (this.#landed.length > 0) {
      for (const landed of this.#landed) if (landed.revision <= revision) this.#sum -= landed.amount
      this.#landed = this.#landed.filter((landed) => landed.revision > revision)
    }
    return this.#sum
  }

  /** Counts a transaction as under way; `amount` is greater than 0. Call what it returns, once, with what became of it; `revision` is the snapshot's then. */
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

  /** What forgets the transactions that have an unknown outcome now. Call it once a snapshot holds those of them that committed. Undefined where there are none. */
  settleUnknown(): (() => void) | undefined {
    const { length } = this.#unknown
    if (length === 0) return undefined
    return () => {
      for (const amount of this.#unknown.splice(0, length)) this.#sum -= amount
    }
  }

  /** Resolves at the next outcome. */
  async changed(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#change.promise, signal)
  }
}

/** The lanes of a process by the key of their limit. Whatever their number, each call costs the same. */
export class Lanes {
  readonly #lanes = new Map<string, Lane>()
  /** Goes round all of them. */
  #round = this.#lanes.keys()

  get size(): number {
    return this.#lanes.size
  }

  /** The lane, if there is one. */
  find(key: string): Lane | undefined {
    return this.#lanes.get(key)
  }

  /** The lane; a new one where there is none. */
  of(key: string): Lane {
    let lane = this.#lanes.get(key)
    if (lane === undefined) this.#lanes.set(key, (lane = new Lane()))
    return lane
  }

  /** Removes those of the lanes that are idle with a snapshot of `revision`. It also looks at one other, each time at the next, so none stays for ever. */
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
