import { readFile } from 'node:fs/promises'
import { createKeySet, isSecretKey, isUsableKey, KeySetError, readKeys } from './key-set.ts'
import type { KeySet } from './key-set.ts'
import { FetchError } from './safe-fetch.ts'
import type { SafeFetch } from './safe-fetch.ts'
import { TokenError } from './token-error.ts'

/** An issuer that configuration names. */
export interface ConfiguredIssuer {
  readonly issuer: string
  /** Where its keys are; by discovery where absent. */
  readonly jwksUri?: string
  /** File with PEM certificates to trust for it; read at each fetch. */
  readonly caFile?: string
  /** File with a bearer token to send to it (a Kubernetes API server's keys); read at each fetch. */
  readonly tokenFile?: string
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
      const access = await accessTo(row)
      const url = row.jwksUri ?? (await discover(row.issuer, (address) => fetch.json({ url: address, ...access }, signal)))
      const keys = readKeys(await fetch.json({ url, ...access }, signal), maxIssuerKeys)
      if (keys.some(isSecretKey)) throw new KeySetError('it shows a secret key')
      return createKeySet(keys.filter(isUsableKey))
    } catch (error) {
      if (error instanceof TokenError) throw error
      const permanent = error instanceof KeySetError || (error instanceof FetchError && !error.transient)
      throw new TokenError(permanent ? 'issuer_keys' : 'issuer_unavailable', error)
    }
  }
}

async function discover(issuer: string, json: (url: string) => Promise<unknown>): Promise<string> {
  const url = URL.parse(issuer)
  if (url === null || url.search !== '' || url.hash !== '' || issuer.includes('?') || issuer.includes('#')) throw new TokenError('issuer_keys')
  const document = await json(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)
  const { issuer: named, jwks_uri: jwksUri } = (document ?? {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked below
  if (named !== issuer || typeof jwksUri !== 'string') throw new TokenError('issuer_keys')
  return jwksUri
}

async function accessTo(row: ConfiguredIssuer): Promise<{ allowPrivate: boolean; ca?: string; headers?: Record<string, string> }> {
  const ca = row.caFile === undefined ? undefined : await readFile(row.caFile, 'utf8')
  const token = row.tokenFile === undefined ? undefined : (await readFile(row.tokenFile, 'utf8')).trim()
  return {
    allowPrivate: row.allowPrivate === true,
    ...(ca === undefined ? {} : { ca }),
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
  }
}
