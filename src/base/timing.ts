import { fractionOf, type Clock, type Random } from './runtime.ts'

/** Time that only goes forward, and timers on it. Tests pass their own. */
export interface Timers {
  /** Milliseconds since some moment in the past. No change of the wall clock moves it. */
  now(): number
  /** Calls `ring` once when `ms` have passed. Returns a function that cancels the timer. */
  start(ms: number, ring: () => void): () => void
}

/** The longest timer of Node. A longer one would fire at once. */
const longestMs = 2 ** 31 - 1

/** The timers of the process. */
export const systemTimers: Timers = {
  now: () => performance.now(),
  start: (ms, ring) => {
    const timer = setTimeout(ring, Math.min(Math.max(0, ms), longestMs))
    return () => clearTimeout(timer)
  },
}

/** Resolves when `ms` have passed or `signal` aborts, whichever comes first. Never rejects. */
export async function pause(ms: number, signal: AbortSignal, timers: Timers = systemTimers): Promise<void> {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  const stop = timers.start(ms, resolve)
  const end = (): void => {
    stop()
    resolve()
  }
  signal.addEventListener('abort', end, { once: true })
  await promise
  signal.removeEventListener('abort', end)
}

/** How often a wait compares the clock, in milliseconds: the clock may jump, and the machine may have slept. */
const lookEveryMs = 1_000

/** A wait that ends early when the alarm rings. A ring before the wait counts, if it came after the last `arm`. */
export class Alarm {
  #isRung = false
  readonly #waits = new Set<() => void>()

  /** Ends the waits. */
  readonly ring = (): void => {
    this.#isRung = true
    for (const end of this.#waits) end()
  }

  /** Forgets earlier rings. Call it before the work after which the caller waits. */
  arm(): void {
    this.#isRung = false
  }

  /**
   * Resolves when the clock passes `untilMs` (since 1970) or is set back by as much, the alarm rings, or `signal` aborts. `Infinity` waits for the last two.
   */
  async until(untilMs: number, { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal }): Promise<void> {
    const startMs = clock.now()
    for (let now = startMs; !signal.aborted && !this.#isRung && Math.abs(now - startMs) < untilMs - startMs; now = clock.now())
      await this.within(untilMs === Infinity ? Infinity : Math.min(untilMs - now, lookEveryMs), signal)
  }

  /** Resolves when `ms` have passed, the alarm rings, or `signal` aborts. */
  async within(ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#isRung) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const end = (): void => resolve()
    const stop = systemTimers.start(ms, end)
    this.#waits.add(end)
    signal.addEventListener('abort', end, { once: true })
    await promise
    stop()
    this.#waits.delete(end)
    signal.removeEventListener('abort', end)
  }
}

/** Waits after failures: `firstMs` after the first, twice as long after each further one, at most `maxMs`. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  /** The random share of each wait, so that many do not return at once. 0.5 by default: half of the wait to all of it. */
  readonly jitter?: number
}

/** The wait after `failures` failures in a row (1 or more), in milliseconds. Without `random`, the whole wait. */
export function backoffMs({ firstMs, maxMs, jitter = 0.5 }: Backoff, failures: number, random?: Random): number {
  const wholeMs = Math.min(maxMs, firstMs * 2 ** Math.min(failures - 1, 50))
  return random === undefined ? wholeMs : wholeMs * (1 - jitter + jitter * fractionOf(random))
}

/** How `retry` reacts to failures. */
export interface RetryOptions {
  /** Returns the wait before the next attempt after so many failures, in milliseconds; undefined if the error is final. */
  readonly waitMs: (error: unknown, failures: number) => number | undefined
  readonly signal: AbortSignal
}

/** Repeats `work` until it succeeds. Rejects with a final error, the last error if `signal` has aborted, or the reason of a signal that aborts during a wait. */
export async function retry<T>(work: () => T | Promise<T>, { waitMs, signal }: RetryOptions): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await work()
    } catch (error) {
      const ms = signal.aborted ? undefined : waitMs(error, failures)
      if (ms === undefined) throw error
      await pause(ms, signal)
      signal.throwIfAborted()
    }
  }
}

/** Settles as `promise` does, or rejects with the signal's reason once that aborts, whichever comes first. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
