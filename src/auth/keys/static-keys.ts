import { hash } from 'node:crypto'
import { RecentMap } from '../../base/recent-map.ts'
import { createKeySet, isSecretKey, isUsableKey, KeySetError, readKeys, uselessness } from './key-set.ts'
import type { KeySet } from './key-set.ts'

/** Keys that one identity may have at most. */
export const maxStaticKeys = 20

/** The longest JWKS text accepted, in characters. */
export const maxStaticKeysLength = 64 * 1024

const parsed = new RecentMap<string, KeySet>(1000)

/**
 * The keys of an identity with static keys, from its JWKS text. Throws KeySetError where the text is no JWKS, has no key, a private or symmetric key, one of an
 * unknown kind, or more than 20. Sets with equal keys have equal ids; sets with other keys never do, so a remembered check of one never serves another.
 */
export function parseStaticKeys(text: string): KeySet {
  if (text.length > maxStaticKeysLength) throw new KeySetError('it is too large')
  const digest = hash('sha256', text, 'base64')
  const known = parsed.get(digest)
  if (known !== undefined) return known
  const keys = readKeys(parseJson(text), maxStaticKeys)
  if (keys.length === 0) throw new KeySetError('it has no key')
  if (keys.some(isSecretKey)) throw new KeySetError('it has a private or symmetric key')
  if (!keys.every(isUsableKey)) throw new KeySetError('it has a key that cannot be used for signatures')
  const set = createKeySet(keys)
  parsed.set(digest, set)
  return set
}

/** As parseStaticKeys, for keys that are written: throws KeySetError also where one of them can never verify a token. */
export function assertVerifying(text: string): void {
  const problem = parseStaticKeys(text)
    .keys.map(uselessness)
    .find((found) => found !== undefined)
  if (problem !== undefined) throw new KeySetError(`it has ${problem}`)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    // The parser's message repeats the text, which may hold a key that should not have been sent.
    throw new KeySetError('it is not JSON')
  }
}
