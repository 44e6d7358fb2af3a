import type { JWK } from 'jose'
import type { KeySet } from '../keys/key-set.ts'
import { es256 } from '../keys/es256.ts'
import { signingAlgorithm } from '../keys/signing-keys.ts'

/** The grant of a device without a browser (RFC 8628). */
export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'

/** Where OAuth clients send their forms. */
export const oauthPaths = { token: '/oauth/token', deviceAuthorization: '/oauth/device_authorization', revocation: '/oauth/revoke' } as const

/** An OpenID discovery document, as far as it is true for an issuer that signs people in at the providers of their organisations. */
export interface DiscoveryDocument {
  readonly issuer: string
  readonly jwks_uri: string
  readonly token_endpoint?: string
  readonly device_authorization_endpoint?: string
  readonly grant_types_supported?: readonly string[]
  readonly token_endpoint_auth_methods_supported?: readonly string[]
  readonly revocation_endpoint?: string
  readonly revocation_endpoint_auth_methods_supported?: readonly string[]
  readonly response_types_supported: readonly string[]
  readonly subject_types_supported: readonly string[]
  readonly id_token_signing_alg_values_supported: readonly string[]
  readonly claims_supported: readonly string[]
}

/** The discovery document of our own issuer; names only endpoints that exist. */
export function platformDiscovery(baseUrl: string): DiscoveryDocument {
  const base = baseUrl.replace(/\/$/, '')
  return {
    issuer: baseUrl,
    jwks_uri: `${base}/.well-known/jwks.json`,
    token_endpoint: `${base}${oauthPaths.token}`,
    device_authorization_endpoint: `${base}${oauthPaths.deviceAuthorization}`,
    grant_types_supported: [deviceGrant, 'refresh_token'],
    token_endpoint_auth_methods_supported: ['none'],
    revocation_endpoint: `${base}${oauthPaths.revocation}`,
    revocation_endpoint_auth_methods_supported: ['none'],
    response_types_supported: ['id_token'],
    subject_types_supported: ['public'],
    // Verifiers of events read here that they are signed with ES256.
    id_token_signing_alg_values_supported: [signingAlgorithm, es256],
    claims_supported: ['iss', 'sub', 'aud', 'iat', 'exp', 'jti', 'act', 'cap', 'email', 'email_verified', 'upstream'],
  }
}

/** Returns one JWKS document of all these sets. */
export function jwksDocument(...sets: readonly KeySet[]): { readonly keys: readonly JWK[] } {
  return { keys: sets.flatMap(({ keys }) => keys) }
}
