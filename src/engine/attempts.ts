import { DomainError } from '../base/errors.ts'
import type { Random } from '../base/runtime.ts'
import { backoffMs, pause, type Backoff } from '../base/timing.ts'

/** Maximum number of attempts of a change that conflicts with concurrent changes. */
const maxAttempts = 12
const backoff: Backoff = { firstMs: 2, maxMs: 100, jitter: 1 }

/** Waits a random time, which is longer for later attempts. Ends early when the signal aborts. */
export function backOff({ random, signal }: { readonly random: Random; readonly signal: AbortSignal }, attempt: number): Promise<void> {
  return pause(backoffMs(backoff, attempt, random), signal)
}

/**
 * Repeats an attempt, with its number from 1 on, until it returns a value. An attempt reads, plans and commits; it returns undefined if a concurrent change
 * made its plan invalid. Waits between attempts. Rejects with the signal's reason, with an attempt's error, and with code 10 after too many conflicts.
 */
export async function inAttempts<T>(
  { random, signal }: { readonly random: Random; readonly signal: AbortSignal },
  attempt: (number: number) => Promise<{ readonly done: T } | undefined>,
): Promise<T> {
  for (let number = 1; number <= maxAttempts; number++) {
    signal.throwIfAborted()
    const outcome = await attempt(number)
    if (outcome !== undefined) return outcome.done
    await backOff({ random, signal }, number)
  }
  throw new DomainError(10, 'too many concurrent changes of the same resource; try again', { details: { retryAfterMs: 100 } })
}
