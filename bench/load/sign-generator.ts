import { createJwtSigner } from './jwt-signer.ts'
import type { Generator, SignLoad } from './load.ts'

/** Creates a generator that signs one token after the other, without a server. */
export function createSignGenerator(load: SignLoad): Generator {
  const signJwt = createJwtSigner(load)
  return {
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      for (let start = performance.now(); start < deadline;) {
        const token = signJwt()
        const now = performance.now()
        tally.answered('', now - start, token.length)
        start = now
      }
    },
    close() {},
  }
}
