import { DomainError } from '../../core/errors.ts'

/** How often bytes are put again where a removal of unused ones came in between. */
const maxAttempts = 4

/** Puts bytes and records them, again where bytes of the repo were removed in between (code 10, CONTENT_COLLECTED). `put` takes the epoch anew each time. */
export async function whileUncollected<T>(put: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await put()
    } catch (error) {
      if (attempt === maxAttempts || !(error instanceof DomainError && error.reason === 'CONTENT_COLLECTED')) throw error
    }
  }
}
