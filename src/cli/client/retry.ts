/** HTTP statuses after which a request may be retried: too many requests, and temporarily unavailable (docs/errors.md). */
const statuses: ReadonlySet<number> = new Set([429, 503])

/** Limits of retries by the client; the wait is in milliseconds. */
export const retryLimits = { retries: 5, longestWaitMs: 30_000 } as const

/**
 * Returns the delay before a retry, in milliseconds. Undefined if the response does not ask for a retry, or if the delay is too long for a
 * person at a terminal. `retryAfter` is the header: whole seconds, or a date.
 */
export function retryWaitMs({ status, retryAfter }: { status: number; retryAfter: string | undefined }, nowMs: number): number | undefined {
  if (!statuses.has(status) || retryAfter === undefined) return undefined
  const waitMs = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - nowMs
  return Number.isNaN(waitMs) || waitMs > retryLimits.longestWaitMs ? undefined : Math.max(0, waitMs)
}
