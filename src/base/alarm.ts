import type { Clock } from './runtime.ts'

/** How often a wait compares the clock, in milliseconds: the clock may jump, and the machine may have slept. */
const lookEveryMs = 1_000

/** A wait that ends early when it is called. A call before the wait counts, if it came after the last `arm`. */
export class Alarm {
  #called = Promise.withResolvers<void>()

  /** Ends the wait. */
  readonly ring = (): void => this.#called.resolve()

  /** Forgets earlier calls. To be called before the work after which the caller waits. */
  arm(): void {
    this.#called = Promise.withResolvers()
  }

  /** Resolves when `untilMs` (milliseconds since 1970) has passed on the clock, the alarm rings, or `signal` aborts. `Infinity` waits for the other two. */
  async until(untilMs: number, { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal }): Promise<void> {
    let isOver = signal.aborted
    const called = this.#called.promise.then(() => void (isOver = true))
    const aborted = Promise.withResolvers<void>()
    const stop = (): void => {
      isOver = true
      aborted.resolve()
    }
    signal.addEventListener('abort', stop, { once: true })
    while (!isOver && clock.now() < untilMs) {
      const nap = Promise.withResolvers<void>()
      const timer = untilMs === Infinity ? undefined : setTimeout(nap.resolve, Math.min(untilMs - clock.now(), lookEveryMs))
      await Promise.race([nap.promise, called, aborted.promise])
      clearTimeout(timer)
    }
    signal.removeEventListener('abort', stop)
  }
}
