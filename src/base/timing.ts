import { fractionOf, type Clock, type Random } from './runtime.ts'

/** A monotonic clock with timers. Tests pass their own. */
export interface Timers {
  /** Returns the milliseconds since an arbitrary moment. Changes of the wall clock have no effect on it. */
  now(): number
  /** Calls `ring` once after `ms` milliseconds. Returns a function that cancels the timer. */
  start(ms: number, ring: () => void): () => void
}

/** The longest delay of a Node timer in milliseconds. Node would fire a longer one at once. */
const longestMs = 2 ** 31 - 1

/** The monotonic clock and the timers of this process. */
export const systemTimers: Timers = {
  now: () => performance.now(),
  start: (ms, ring) => {
    const timer = setTimeout(ring, Math.min(Math.max(0, ms), longestMs))
    return () => clearTimeout(timer)
  },
}

/** Resolves after `ms` milliseconds or when `signal` aborts, whichever comes first. Never rejects. */
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

/** Interval in milliseconds at which a wait compares the wall clock with its end: the clock may jump, and the machine may have slept. */
const lookEveryMs = 1_000

/** Waits that another part of the program can end early with `ring`. A call of `ring` before the wait also ends it, if it came after the last `arm`. */
export class Alarm {
  #isRung = false
  readonly #waits = new Set<() => void>()

  /** Ends all current waits. */
  readonly ring = (): void => {
    this.#isRung = true
    for (const end of this.#waits) end()
  }

  /** Forgets earlier rings. Call it before the work that a wait follows, so that a ring during the work ends the wait. */
  arm(): void {
    this.#isRung = false
  }

  /**
   * Resolves when the wall clock reaches `untilMs` (milliseconds since 1970), the alarm rings or `signal` aborts. Also resolves if the clock is set back by
   * the length of the wait. `Infinity` sets no time.
   */
  async until(untilMs: number, { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal }): Promise<void> {
    const startMs = clock.now()
    for (let now = startMs; !signal.aborted && !this.#isRung && Math.abs(now - startMs) < untilMs - startMs; now = clock.now())
      await this.within(untilMs === Infinity ? Infinity : Math.min(untilMs - now, lookEveryMs), signal)
  }

  /** Resolves after `ms` milliseconds, when the alarm rings, or when `signal` aborts. */
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

/** Exponential backoff: the wait after the first failure is `firstMs`, then doubles with each failure up to `maxMs`. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  /** The random share of each wait, so that many clients do not retry at once. By default 0.5: the wait is between half and all of its full length. */
  readonly jitter?: number
}

/** Returns the wait after `failures` (at least 1) consecutive failures, in milliseconds. Without `random` it is the full wait. */
export function backoffMs({ firstMs, maxMs, jitter = 0.5 }: Backoff, failures: number, random?: Random): number {
  const wholeMs = Math.min(maxMs, firstMs * 2 ** Math.min(failures - 1, 50))
  return random === undefined ? wholeMs : wholeMs * (1 - jitter + jitter * fractionOf(random))
}

/** Options of `retry`. */
export interface RetryOptions {
  /** Returns the wait in milliseconds before the next attempt, given the last error and the number of failures; undefined if the error is final. */
  readonly waitMs: (error: unknown, failures: number) => number | undefined
  readonly signal: AbortSignal
}

/**
 * Repeats `work` until it succeeds. Rejects with an error that is final, or with the last error if `signal` has aborted. If `signal` aborts during a wait,
 * rejects with its reason.
 */
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

/** Settles like `promise`, or rejects with the signal's reason if that aborts first. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
