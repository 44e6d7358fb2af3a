/** When an answer says that the same request may come again; statuses are those of errors.md: too much was asked, or not now. */
const statuses: ReadonlySet<number> = new Set([429, 503])

/** How often, and how long, a client comes back. */
export const retryLimits = { retries: 5, longestWaitMs: 30_000 } as const

/**
 * How long to wait before the same request is sent again, in milliseconds; undefined where the answer does not ask for that, or asks for a longer time than anyone waits for at a terminal.
 * `retryAfter` is the header: whole seconds, or a date.
 */
export function retryWaitMs({ status, retryAfter }: { status: number; retryAfter: string | undefined }, nowMs: number): number | undefined {
  if (!statuses.has(status) || retryAfter === undefined) return undefined
  const waitMs = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - nowMs
  return Number.isNaN(waitMs) || waitMs > retryLimits.longestWaitMs ? undefined : Math.max(0, waitMs)
}
