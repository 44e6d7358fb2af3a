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

  /** `now` gives milliseconds, with fractions, from any origin. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** What runs from now on is for another. */
  enter(charge: Charge): void {
    this.#leave()
    this.#charge = charge
    this.#sinceMs = this.#now()
    if (this.#willLeave) return
    this.#willLeave = true
    // Ticks come before promises where both wait, so: a promise behind those that wait, and a tick behind that.
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
