import { untilAborted } from '../../core/until-aborted.ts'
import type { Revision } from '../../store/store.ts'

/**
 * What became of a transaction:
 * - `refused`: it did not commit and never will
 * - `unknown`: it may have committed, or may do so later
 * - a revision: it committed there
 */
export type Outcome = 'refused' | 'unknown' | Revision

/** What one transaction of this process adds to what a limit counts. */
interface Flight {
  readonly amount: number
  landed: Outcome | undefined
}

/** This process's transactions that count towards one limit of one organisation, until its snapshot holds them, and whose turn it is. */
export class Lane {
  readonly #flights = new Set<Flight>()
  #last: Promise<void> = Promise.resolve()
  #turns = 0
  #change = Promise.withResolvers<void>()

  /** True where a caller has the turn, or waits for it. */
  get isTaken(): boolean {
    return this.#turns > 0
  }

  /** True where nothing would be lost with this object. */
  get isIdle(): boolean {
    return this.#turns === 0 && this.#flights.size === 0
  }

  /** True where a transaction committed that the snapshot has not shown yet. */
  get hasLanded(): boolean {
    return [...this.#flights].some(({ landed }) => typeof landed === 'number')
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
    let sum = 0
    for (const flight of this.#flights) {
      if (typeof flight.landed === 'number' && flight.landed <= revision) this.#flights.delete(flight)
      else sum += flight.amount
    }
    return sum
  }

  /** Counts a transaction as under way. Call what it returns, once, with what became of it; `revision` is the snapshot's then. */
  start(amount: number): (outcome: Outcome, revision: Revision) => void {
    const flight: Flight = { amount, landed: undefined }
    this.#flights.add(flight)
    return (outcome, revision) => {
      flight.landed = outcome
      if (outcome === 'refused' || (outcome !== 'unknown' && outcome <= revision)) this.#flights.delete(flight)
      this.#change.resolve()
      this.#change = Promise.withResolvers()
    }
  }

  /** What forgets the transactions that have an unknown outcome now. Call it once a snapshot holds those of them that committed. Undefined where there are none. */
  settleUnknown(): (() => void) | undefined {
    const unknown = [...this.#flights].filter(({ landed }) => landed === 'unknown')
    if (unknown.length === 0) return undefined
    return () => unknown.forEach((flight) => this.#flights.delete(flight))
  }

  /** Resolves at the next outcome. */
  async changed(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#change.promise, signal)
  }
}
