import { normalizeIssuer } from './issuer-name.ts'
import { readDiscovery, type ConfiguredIssuer } from './issuer-source.ts'
import type { SafeFetch } from '../safe-fetch.ts'

/**
 * Returns true if the issuer's discovery document lists PKCE methods (`code_challenge_methods_supported`, RFC 8414) without SHA-256.
 * Returns false without a list, a usable document or an answer within the client's timeout. Throws only the signal's reason.
 */
export type DeniesPkce = (issuer: string, signal: AbortSignal) => Promise<boolean>

/** Creates a DeniesPkce. `configured` names the issuers that may have private addresses. */
export function createPkceLook(fetch: SafeFetch, configured: readonly ConfiguredIssuer[]): DeniesPkce {
  const rows = new Map(configured.map((row) => [normalizeIssuer(row.issuer), row]))
  return async (issuer, signal) => {
    try {
      const { code_challenge_methods_supported: methods } = await readDiscovery(fetch, rows.get(normalizeIssuer(issuer)) ?? { issuer }, signal)
      return Array.isArray(methods) && !methods.includes('S256')
    } catch {
      // An issuer that does not answer counts as one that supports PKCE.
      signal.throwIfAborted()
      return false
    }
  }
}
