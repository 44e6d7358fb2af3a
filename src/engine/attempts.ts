import { DomainError } from '../base/errors.ts'
import { fractionOf, type Random } from '../base/runtime.ts'

/** Maximum number of attempts of a change that conflicts with others. */
const maxAttempts = 12
/** The longest wait between two attempts, in milliseconds. */
const maxWaitMs = 100

/** Waits a jittered time that grows with the attempt. */
export async function backOff({ random }: { readonly random: Random }, attempt: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  setTimeout(resolve, Math.min(2 ** attempt, maxWaitMs) * fractionOf(random))
  await promise
}

/**
 * Repeats attempts, numbered from 1, until one succeeds. An attempt reads, plans and commits; it returns undefined if another change came first. Waits between
 * attempts. Rejects with the signal's reason, with an attempt's error, and with code 10 after too many conflicts.
 */
export async function inAttempts<T>(
  { random, signal }: { readonly random: Random; readonly signal: AbortSignal },
  attempt: (number: number) => Promise<{ readonly done: T } | undefined>,
): Promise<T> {
  for (let number = 1; number <= maxAttempts; number++) {
    signal.throwIfAborted()
    const outcome = await attempt(number)
    if (outcome !== undefined) return outcome.done
    await backOff({ random }, number)
  }
  throw new DomainError(10, 'too many concurrent changes of the same resource; try again', { details: { retryAfterMs: 100 } })
}
