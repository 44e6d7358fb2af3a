import type { JWK } from 'jose'
import type { KeySet } from './key-set.ts'
import { signingAlgorithm } from './signing-keys.ts'

/** An OpenID discovery document, as far as it is true for a token issuer without a sign-in page. */
export interface DiscoveryDocument {
  readonly issuer: string
  readonly jwks_uri: string
  readonly token_endpoint?: string
  readonly response_types_supported: readonly string[]
  readonly subject_types_supported: readonly string[]
  readonly id_token_signing_alg_values_supported: readonly string[]
  readonly claims_supported: readonly string[]
}

/** The discovery document of our own issuer; names only endpoints that exist. */
export function platformDiscovery(baseUrl: string): DiscoveryDocument {
  return {
    issuer: baseUrl,
    jwks_uri: `${baseUrl.replace(/\/$/, '')}/.well-known/jwks.json`,
    token_endpoint: `${baseUrl.replace(/\/$/, '')}/sts/exchange`,
    response_types_supported: ['id_token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: [signingAlgorithm],
    claims_supported: ['iss', 'sub', 'aud', 'iat', 'exp', 'jti', 'act', 'cap', 'email', 'email_verified'],
  }
}

/** A JWKS document. */
export function jwksDocument(keys: KeySet): { readonly keys: readonly JWK[] } {
  return { keys: keys.keys }
}
