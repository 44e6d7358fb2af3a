/** Statuses that allow a retry (see errors.md): too many requests, or temporarily unavailable. */
const statuses: ReadonlySet<number> = new Set([429, 503])

/** Limits of retries by the client. */
export const retryLimits = { retries: 5, longestWaitMs: 30_000 } as const

/**
 * Returns the delay before a retry, in milliseconds. Undefined if the answer does not ask for a retry, or if the delay is too long for a terminal user.
 * `retryAfter` is the header: whole seconds, or a date.
 */
export function retryWaitMs({ status, retryAfter }: { status: number; retryAfter: string | undefined }, nowMs: number): number | undefined {
  if (!statuses.has(status) || retryAfter === undefined) return undefined
  const waitMs = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - nowMs
  return Number.isNaN(waitMs) || waitMs > retryLimits.longestWaitMs ? undefined : Math.max(0, waitMs)
}
