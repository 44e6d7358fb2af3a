import { hash } from 'node:crypto'
import { compactVerify, errors } from 'jose'
import type { CryptoKey } from 'jose'
import { RecentMap } from '../../base/recent-map.ts'
import type { Clock } from '../../base/runtime.ts'
import type { DecodedToken } from './decoded-token.ts'
import type { KeySet } from '../keys/key-set.ts'
import { TokenError } from './token-error.ts'

/**
 * Checks signatures and caches the valid ones for five minutes at most. The cache key is the token's hash together with the id of the key set. Only the result
 * for the signature is cached: times, issuer, audience and permissions are checked every time (docs/spec/tokens.md#issuer-keys).
 */
export interface SignatureChecks {
  /** Resolves if one of `keys` signed the token. Throws TokenError `unknown_key` or `signature`. Concurrent calls for the same token share one check. */
  check(token: DecodedToken, keys: KeySet): Promise<void>
  /** True if the cache knows that one of `keys` signed the token. */
  isRemembered(token: DecodedToken, keys: KeySet): boolean
}

/** The limits and dependencies of SignatureChecks. */
export interface SignatureCheckOptions {
  readonly clock: Clock
  /** Maximum number of cached results; 10,000 by default. */
  readonly limit?: number
  /** Called for each check that the cache does not answer, for metrics and tests. */
  readonly onCheck?: () => void
}

/** Time in milliseconds for which a valid signature is cached. No other fact about a token is cached without it. */
export const rememberMs = 5 * 60_000

/** Maximum number of keys to try for a token that names no key. */
const maxCandidates = 10

/** Creates SignatureChecks. */
export function createSignatureChecks(options: SignatureCheckOptions): SignatureChecks {
  const checkedAt = new RecentMap<string, number>(options.limit ?? 10_000, undefined, { clock: options.clock, ms: rememberMs })
  const running = new Map<string, Promise<void>>()
  const digests = new WeakMap<DecodedToken, string>()
  return {
    isRemembered: (token, keys) => isFresh(checkedAt.get(keyOf(token, keys))),
    async check(token, keys) {
      const key = keyOf(token, keys)
      if (isFresh(checkedAt.get(key))) return
      const started = running.get(key) ?? start(key, token, keys)
      await started
    },
  }

  function isFresh(seen: number | undefined): boolean {
    const age = seen === undefined ? Infinity : options.clock.now() - seen
    return age >= 0 && age < rememberMs
  }

  function keyOf(token: DecodedToken, keys: KeySet): string {
    return `${digestOf(token)}:${keys.id}`
  }

  function digestOf(token: DecodedToken): string {
    const known = digests.get(token)
    if (known !== undefined) return known
    const digest = hash('sha256', token.text, 'base64')
    digests.set(token, digest)
    return digest
  }

  function start(key: string, token: DecodedToken, keys: KeySet): Promise<void> {
    const startedAtMs = options.clock.now()
    const work = verifySignature(token, keys, options.onCheck).then(() => void checkedAt.set(key, startedAtMs))
    const settled = work.finally(() => running.delete(key))
    running.set(key, settled)
    return settled
  }
}

async function verifySignature(token: DecodedToken, keys: KeySet, onCheck: (() => void) | undefined): Promise<void> {
  const header = { alg: token.algorithm, ...(token.keyId === undefined ? {} : { kid: token.keyId }) }
  const [encodedHeader = '', payload = '', signature = ''] = token.text.split('.')
  let tried = 0
  try {
    for await (const key of keys.candidates(header, { protected: encodedHeader, payload, signature })) {
      if (++tried > maxCandidates) break
      onCheck?.()
      if (await signedBy(token, key)) return
    }
  } catch (cause) {
    throw new TokenError('signature', cause)
  }
  throw new TokenError(tried === 0 ? 'unknown_key' : 'signature')
}

async function signedBy(token: DecodedToken, key: CryptoKey): Promise<boolean> {
  try {
    await compactVerify(token.text, key, { algorithms: [token.algorithm] })
    return true
  } catch (error) {
    if (error instanceof errors.JWSSignatureVerificationFailed) return false
    throw error
  }
}
