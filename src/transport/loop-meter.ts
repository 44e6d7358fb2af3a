/** Told for how long the loop was held, in milliseconds. */
type Charge = (ms: number) => void

/**
 * Measures for whom the event loop works. From `enter` on time counts for the one who entered, until another enters or the loop is free again: all that runs without a
 * wait in between, promises that are settled already included.
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
