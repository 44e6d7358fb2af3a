import { createKeySet, isSecretKey, isUsableKey, KeySetError, readKeys } from '../keys/key-set.ts'
import type { KeySet } from '../keys/key-set.ts'
import { FetchError } from '../safe-fetch.ts'
import type { FetchPolicy, SafeFetch } from '../safe-fetch.ts'
import { TokenError } from '../tokens/token-error.ts'

/** An issuer that configuration names. */
export interface ConfiguredIssuer {
  readonly issuer: string
  /** Where its keys are; by discovery where absent. */
  readonly jwksUri?: string
  /** PEM certificates to trust for it; asked for at each fetch. */
  readonly ca?: () => string
  /** A bearer token to send to it (a Kubernetes API server's keys), to its own origin and to `jwksUri` only; asked for at each fetch. */
  readonly token?: () => string
  /** Its addresses may be private, and http. */
  readonly allowPrivate?: boolean
}

/** Keys of one issuer that are looked at. */
const maxIssuerKeys = 100

/**
 * Fetches an issuer's keys: its discovery document, whose `issuer` must be equal, then `jwks_uri`. Throws TokenError `issuer_unavailable` where it may work later,
 * else `issuer_keys`. Keys of unknown kinds are left out; a set that shows a secret key is refused whole.
 */
export function createIssuerSource(fetch: SafeFetch): (row: ConfiguredIssuer, signal: AbortSignal) => Promise<KeySet> {
  return async (row, signal) => {
    try {
      const { policy, headers } = accessTo(row)
      const json = (url: string): Promise<unknown> => fetch.json({ url, ...policy, ...(mayHaveToken(row, url) ? { headers } : {}) }, signal)
      const keys = readKeys(await json(row.jwksUri ?? (await discover(row.issuer, json))), maxIssuerKeys)
      if (keys.some(isSecretKey)) throw new KeySetError('it contains a private or symmetric key')
      return createKeySet(keys.filter(isUsableKey))
    } catch (error) {
      if (error instanceof TokenError) throw error
      const permanent = error instanceof KeySetError || (error instanceof FetchError && !error.transient)
      throw new TokenError(permanent ? 'issuer_keys' : 'issuer_unavailable', error)
    }
  }
}

/** An issuer's discovery document, which must name that very issuer. Throws TokenError `issuer_keys` or FetchError. */
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
  const members = (document ?? {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked where it is used
  if (members['issuer'] !== issuer) throw new TokenError('issuer_keys')
  return members
}

/** A discovery document names any host that it likes: what is secret goes there only where configuration says so. */
function mayHaveToken(row: ConfiguredIssuer, url: string): boolean {
  return url === row.jwksUri || URL.parse(url)?.origin === URL.parse(row.issuer)?.origin
}

/** How the issuer may be reached. */
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
