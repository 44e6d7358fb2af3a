import { DomainError } from '../../../base/errors.ts'

/** Maximum number of attempts if garbage collections remove bytes of the repo meanwhile. */
const maxAttempts = 4

/** True if a garbage collection removed bytes of the repo meanwhile, so that the bytes must be stored again. */
function isCollected(error: unknown): boolean {
  return error instanceof DomainError && error.reason === 'CONTENT_COLLECTED'
}

/**
 * Runs `put`, which stores bytes and records them. Runs it again if a garbage collection removed bytes of the repo meanwhile. `put` must
 * read the epoch each time.
 */
export async function whileUncollected<T>(put: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await put()
    } catch (error) {
      if (attempt === maxAttempts || !isCollected(error)) throw error
    }
  }
}
