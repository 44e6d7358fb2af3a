import type { JWK } from 'jose'
import type { KeySet } from '../keys/key-set.ts'
import { es256 } from '../keys/es256.ts'
import { signingAlgorithm } from '../keys/signing-keys.ts'

/** The OAuth grant type for devices without a browser (RFC 8628). */
export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'

/** Paths of the OAuth endpoints to which clients send forms. */
export const oauthPaths = { token: '/oauth/token', deviceAuthorization: '/oauth/device_authorization', revocation: '/oauth/revoke' } as const

/** An OpenID discovery document. It contains only members that apply to this issuer, which signs people in at the identity providers of their organisations. */
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
  /** The registry host, if access tokens can be issued for it. Clients then request it as another audience. */
  readonly registry_host?: string
}

/** Returns the discovery document of the platform's issuer. It only names endpoints that exist. */
export function platformDiscovery(baseUrl: string, registryHost?: string): DiscoveryDocument {
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
    // ES256 is listed for those who verify events, which are signed with it.
    id_token_signing_alg_values_supported: [signingAlgorithm, es256],
    claims_supported: ['iss', 'sub', 'aud', 'iat', 'exp', 'jti', 'act', 'cap', 'email', 'email_verified', 'upstream'],
    ...(registryHost === undefined ? {} : { registry_host: registryHost }),
  }
}

/** Returns one JWKS document with the keys of all these sets. */
export function jwksDocument(...sets: readonly KeySet[]): { readonly keys: readonly JWK[] } {
  return { keys: sets.flatMap(({ keys }) => keys) }
}
