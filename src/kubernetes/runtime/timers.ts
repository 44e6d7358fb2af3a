/** Milliseconds since 1970 as Kubernetes writes a MicroTime. */
export function microTimeOf(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}

/** Time that only goes forward, and waiting for it; passed in, so that tests decide it. */
export interface Timers {
  /** Milliseconds since some moment in the past; no change of the wall clock moves it. */
  now(): number
  /** Calls `ring` once when `ms` have passed. Returns what takes that back; of no effect afterwards. */
  start(ms: number, ring: () => void): () => void
}

/** The longest wait that Node knows: a longer one would be over at once. */
const longestMs = 2 ** 31 - 1

/** The process's own time. */
export const systemTimers: Timers = {
  now: () => performance.now(),
  start: (ms, ring) => {
    const timer = setTimeout(ring, Math.min(Math.max(0, ms), longestMs))
    return () => clearTimeout(timer)
  },
}

/** Resolves when `ms` have passed or `signal` aborts, whichever comes first; never rejects. */
export function pause(timers: Timers, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  const { promise, resolve } = Promise.withResolvers<void>()
  const stop = timers.start(ms, resolve)
  const end = (): void => {
    stop()
    resolve()
  }
  signal.addEventListener('abort', end, { once: true })
  return promise.finally(() => signal.removeEventListener('abort', end))
}
