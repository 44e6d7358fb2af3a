/** Receives the time for which the loop was busy, in milliseconds. */
type Charge = (ms: number) => void

/**
 * Measures for which caller the event loop works. From `enter` on, time counts for the caller that entered, until another enters or the loop is free again.
 * That includes all code that runs without a wait, such as callbacks of settled promises.
 */
export class LoopMeter {
  readonly #now: () => number
  #charge: Charge | undefined
  #sinceMs = 0
  #willLeave = false

  /** `now` returns milliseconds, with fractions, from any origin. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Counts the time from now on for `charge`. */
  enter(charge: Charge): void {
    this.#leave()
    this.#charge = charge
    this.#sinceMs = this.#now()
    if (this.#willLeave) return
    this.#willLeave = true
    // Pending ticks run before pending promises. So queue a promise behind the waiting ones, and a tick behind that.
    process.nextTick(() => queueMicrotask(() => process.nextTick(this.#atEnd)))
  }

  readonly #atEnd = (): void => {
    this.#willLeave = false
    this.#leave()
  }

  #leave(): void {
    const charge = this.#charge
    this.#charge = undefined
    charge?.(this.#now() - this.#sinceMs)
  }
}
