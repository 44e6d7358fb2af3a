import { DomainError } from '../base/errors.ts'
import { UpstreamError, type Upstream } from '../registry/index.ts'
import type { ContentSource } from '../engine/services.ts'

/** The upstream as records see it. */
export function contentSource(upstream: Upstream): ContentSource {
  return {
    async holdsManifest(repo, digest, signal) {
      try {
        return await upstream.hasManifest(repo, digest, signal)
      } catch (error) {
        if (error instanceof UpstreamError)
          throw new DomainError(14, 'what keeps the contents can not be reached; try again', { cause: error, details: { retryAfterMs: 5_000 } })
        throw error
      }
    },
  }
}
