/** Charges a caller with the time, in milliseconds, for which its request kept the event loop busy. */
type Charge = (ms: number) => void

/**
 * Measures for how long the event loop works for each caller. After `enter`, its time counts for the caller that entered, until another one enters or the loop
 * is idle. That includes all code that runs without a wait, such as callbacks of settled promises.
 */
export class LoopMeter {
  readonly #now: () => number
  #charge: Charge | undefined
  #sinceMs = 0
  #willLeave = false

  /** `now` returns milliseconds, with fractions, since an arbitrary moment. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Counts the loop's time from now on for `charge`. */
  enter(charge: Charge): void {
    this.#leave()
    this.#charge = charge
    this.#sinceMs = this.#now()
    if (this.#willLeave) return
    this.#willLeave = true
    // Node runs pending ticks before pending promises. So queue a promise behind the waiting ones, and then a tick.
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
