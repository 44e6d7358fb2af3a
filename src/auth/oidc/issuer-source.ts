import { createKeySet, isSecretKey, isUsableKey, KeySetError, readKeys } from '../keys/key-set.ts'
import type { KeySet } from '../keys/key-set.ts'
import { FetchError } from '../safe-fetch.ts'
import type { FetchPolicy, SafeFetch } from '../safe-fetch.ts'
import { TokenError } from '../access-tokens/token-error.ts'

/** An issuer in the configuration. */
export interface ConfiguredIssuer {
  readonly issuer: string
  /** URL of the issuer's public keys. By default, the one in its discovery document. */
  readonly jwksUri?: string
  /** Returns PEM certificates to trust for this issuer. Called at each fetch. */
  readonly ca?: () => string
  /** Returns a bearer token to send, for example to a Kubernetes API server. It is sent only to the issuer's own origin and to `jwksUri`. Called at each fetch. */
  readonly token?: () => string
  /** True if the issuer may have private addresses and use http. */
  readonly allowPrivate?: boolean
}

/** Maximum number of keys that are read from one issuer. */
const maxIssuerKeys = 100

/**
 * Returns a function that fetches an issuer's keys: its discovery document, whose `issuer` must be equal, and then its `jwks_uri`. Throws TokenError
 * `issuer_unavailable` for temporary failures, otherwise `issuer_keys`. Ignores keys of unknown types. Refuses a set that contains a secret key.
 */
export function createIssuerSource(fetch: SafeFetch): (row: ConfiguredIssuer, signal: AbortSignal) => Promise<KeySet> {
  return async (row, signal) => {
    try {
      const { policy, headers } = accessTo(row)
      const json = (url: string): Promise<unknown> => fetch.json({ url, ...policy, ...(mayHaveToken(row, url) ? { headers } : {}) }, signal)
      const keys = readKeys(await json(row.jwksUri ?? (await discover(row.issuer, json))), maxIssuerKeys)
      if (keys.some(isSecretKey)) throw new KeySetError('the JWKS has a private or symmetric key')
      return createKeySet(keys.filter(isUsableKey))
    } catch (error) {
      if (error instanceof TokenError) throw error
      const permanent = error instanceof KeySetError || (error instanceof FetchError && !error.transient)
      throw new TokenError(permanent ? 'issuer_keys' : 'issuer_unavailable', error)
    }
  }
}

/** Fetches an issuer's discovery document, which must name exactly this issuer. Throws TokenError `issuer_keys` or FetchError. */
export async function readDiscovery(fetch: SafeFetch, row: ConfiguredIssuer, signal: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  const { policy, headers } = accessTo(row)
  return await documentOf(row.issuer, (url) => fetch.json({ url, ...policy, headers }, signal))
}

async function discover(issuer: string, json: (url: string) => Promise<unknown>): Promise<string> {
  const { jwks_uri: jwksUri } = await documentOf(issuer, json)
  if (typeof jwksUri !== 'string') throw new TokenError('issuer_keys')
  return jwksUri
}

async function documentOf(issuer: string, json: (url: string) => Promise<unknown>): Promise<Readonly<Record<string, unknown>>> {
  const url = URL.parse(issuer)
  if (url === null || url.search !== '' || url.hash !== '' || issuer.includes('?') || issuer.includes('#')) throw new TokenError('issuer_keys')
  const document = await json(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)
  const members = (document ?? {}) as Record<string, unknown> // Each member of the JSON is checked where it is used.
  if (members['issuer'] !== issuer) throw new TokenError('issuer_keys')
  return members
}

/** True if the token may be sent to this URL. A discovery document can name any host, so secrets are only sent where the configuration allows it. */
function mayHaveToken(row: ConfiguredIssuer, url: string): boolean {
  return url === row.jwksUri || URL.parse(url)?.origin === URL.parse(row.issuer)?.origin
}

/** Returns the rules for requests to the issuer: private addresses and trusted certificates. */
export function policyOf(row: ConfiguredIssuer): FetchPolicy {
  return accessTo(row).policy
}

interface Access {
  readonly policy: FetchPolicy
  readonly headers: Readonly<Record<string, string>>
}

function accessTo(row: ConfiguredIssuer): Access {
  const [ca, token] = [row.ca?.(), row.token?.()]
  return {
    policy: { allowPrivate: row.allowPrivate === true, ...(ca === undefined ? {} : { ca }) },
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
  }
}
