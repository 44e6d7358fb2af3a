import { hash } from 'node:crypto'
import { RecentMap } from '../../base/recent-map.ts'
import { createKeySet, isSecretKey, isUsableKey, KeySetError, readKeys, uselessness } from './key-set.ts'
import type { KeySet } from './key-set.ts'

/** Maximum number of static keys of one identity. */
export const maxStaticKeys = 20

/** Maximum length of an identity's JWKS text, in characters. */
export const maxStaticKeysLength = 64 * 1024

const parsed = new RecentMap<string, KeySet>(1000)

/**
 * Returns the keys in the JWKS text of an identity with static keys. Throws KeySetError if the text is not a JWKS, or has no key, more than 20, a secret key,
 * or one of an unknown type. Sets with different keys have different ids, so a cached signature check of one set is never used for another.
 */
export function parseStaticKeys(text: string): KeySet {
  if (text.length > maxStaticKeysLength) throw new KeySetError('the JWKS is too large')
  const digest = hash('sha256', text, 'base64')
  const known = parsed.get(digest)
  if (known !== undefined) return known
  const keys = readKeys(parseJson(text), maxStaticKeys)
  if (keys.length === 0) throw new KeySetError('the JWKS has no key')
  if (keys.some(isSecretKey)) throw new KeySetError('the JWKS has a private or symmetric key')
  if (!keys.every(isUsableKey)) throw new KeySetError('the JWKS has a key that cannot be used for signatures')
  const set = createKeySet(keys)
  parsed.set(digest, set)
  return set
}

/** Checks a JWKS text before it is stored, like parseStaticKeys. Also throws KeySetError if one of the keys can never verify a token. */
export function assertVerifying(text: string): void {
  const problem = parseStaticKeys(text)
    .keys.map(uselessness)
    .find((found) => found !== undefined)
  if (problem !== undefined) throw new KeySetError(`the JWKS has ${problem}`)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    // Replace the parser's error: its message contains the text, which may hold a secret key that was sent by mistake.
    throw new KeySetError('the JWKS is not JSON')
  }
}
