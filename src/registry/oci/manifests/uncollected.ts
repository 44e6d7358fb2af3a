import { DomainError } from '../../../base/errors.ts'

/** How often bytes are put again where something came in between. */
const maxAttempts = 4

/** True where a removal of unused bytes came in between: they are to be put again. */
function isCollected(error: unknown): boolean {
  return error instanceof DomainError && error.reason === 'CONTENT_COLLECTED'
}

/** Puts bytes and records them, again if bytes of the repo were removed in between. `put` reads the epoch again each time. */
export async function whileUncollected<T>(put: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await put()
    } catch (error) {
      if (attempt === maxAttempts || !isCollected(error)) throw error
    }
  }
}
