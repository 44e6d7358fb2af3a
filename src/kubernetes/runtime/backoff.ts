import { fractionOf, type Random } from '../../base/runtime.ts'

/** How long failed work waits: `firstMs` after the first failure, twice as long after each further one, `maxMs` at most. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
}

/** How long work that failed `failures` times (1 or more) in a row waits, in milliseconds: half of its time to all of it, so that many do not come back at once. */
export function backoffMs({ firstMs, maxMs }: Backoff, failures: number, random: Random): number {
  const wholeMs = Math.min(maxMs, firstMs * 2 ** Math.min(failures - 1, 50))
  return (wholeMs * (1 + fractionOf(random))) / 2
}
