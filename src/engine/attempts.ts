import { DomainError } from '../base/errors.ts'
import { fractionOf, type Random } from '../base/runtime.ts'

/** A change that others come before is made again this often. */
const maxAttempts = 12
/** The longest wait between two attempts, in milliseconds. */
const maxWaitMs = 100

/** Waits a jittered moment that grows with the attempt. */
export async function backOff({ random }: { readonly random: Random }, attempt: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  setTimeout(resolve, Math.min(2 ** attempt, maxWaitMs) * fractionOf(random))
  await promise
}

/**
 * Makes attempts, numbered from 1 on, until one is done: an attempt reads, plans and commits, and answers undefined where another change came before. Waits between two of
 * them. Rejects with the signal's reason, as the attempt does, and with code 10 where others come before too often.
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
