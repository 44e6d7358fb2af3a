import { normalizeIssuer } from './issuer-name.ts'
import { readDiscovery, type ConfiguredIssuer } from './issuer-source.ts'
import type { SafeFetch } from '../safe-fetch.ts'

/**
 * Whether the issuer's discovery document says that it has no PKCE with SHA-256: it lists methods (`code_challenge_methods_supported`, RFC 8414), and that one is not
 * among them. False where it says nothing, be it that there is no list, no usable document, or no answer within the client's time. Throws only the signal's reason.
 */
export type DeniesPkce = (issuer: string, signal: AbortSignal) => Promise<boolean>

/** See DeniesPkce. `configured` says which issuers may be at private addresses. */
export function createPkceLook(fetch: SafeFetch, configured: readonly ConfiguredIssuer[]): DeniesPkce {
  const rows = new Map(configured.map((row) => [normalizeIssuer(row.issuer), row]))
  return async (issuer, signal) => {
    try {
      const { code_challenge_methods_supported: methods } = await readDiscovery(fetch, rows.get(normalizeIssuer(issuer)) ?? { issuer }, signal)
      return Array.isArray(methods) && !methods.includes('S256')
    } catch {
      // What the issuer can't be asked it does not deny.
      signal.throwIfAborted()
      return false
    }
  }
}
