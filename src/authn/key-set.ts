import { createHash } from 'node:crypto'
import { createLocalJWKSet, errors } from 'jose'
import type { CompactJWSHeaderParameters, CryptoKey, FlattenedJWSInput, JWK } from 'jose'

/** Public keys, and a name for exactly this set of them: two sets with the same id check the same tokens. */
export interface KeySet {
  /** SHA-256 of the keys, hex. */
  readonly id: string
  readonly keys: readonly JWK[]
  /** The keys that may have made a signature with this header, best first; none where the set has no such key. */
  candidates(header: CompactJWSHeaderParameters, input: FlattenedJWSInput): AsyncIterable<CryptoKey>
}

/** A JWKS document can't be used as it is. The message says why and repeats nothing from the document. */
export class KeySetError extends Error {
  override readonly name = 'KeySetError'
}

type PublicMember = 'n' | 'e' | 'crv' | 'x' | 'y'

/** What makes up a public key, by its `kty`; other kinds are not used here. */
const publicMembers: ReadonlyMap<unknown, readonly PublicMember[]> = new Map([
  ['RSA', ['n', 'e']],
  ['EC', ['crv', 'x', 'y']],
  ['OKP', ['crv', 'x']],
])

const commonMembers = ['kid', 'alg', 'use', 'key_ops'] as const

const secretMembers = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k', 'priv'] as const

/** RSA moduli over 8192 bits and exponents over 32 bits cost more to check with than they are worth. */
const longestMember = { n: 1366, e: 6 } as const

/** True where the key has a secret half: a private or a symmetric key. */
export function isSecretKey(key: JWK): boolean {
  return key.kty === 'oct' || secretMembers.some((member) => Object.hasOwn(key, member))
}

/** True where the key is of a kind that tokens are checked with here; its secret members, if any, are not looked at. */
export function isUsableKey(key: JWK): boolean {
  const members = publicMembers.get(key.kty)
  if (members === undefined || (key.use !== undefined && key.use !== 'sig')) return false
  if (!members.every((member) => typeof key[member] === 'string' && key[member] !== '')) return false
  return key.kty !== 'RSA' || ((key.n?.length ?? 0) <= longestMember.n && (key.e?.length ?? 0) <= longestMember.e)
}

/** The members `keys` of a JWKS document: objects with a `kty`, at most `limit`. Throws KeySetError. */
export function readKeys(document: unknown, limit: number): readonly JWK[] {
  const keys = typeof document === 'object' && document !== null && 'keys' in document ? document.keys : undefined
  if (!Array.isArray(keys)) throw new KeySetError('it has no list of keys')
  if (keys.length > limit) throw new KeySetError(`it has more than ${String(limit)} keys`)
  if (!keys.every(isKeyObject)) throw new KeySetError('one of its keys is no JSON Web Key')
  return keys
}

/** A set of exactly these keys, which must be usable. Only their public members are kept. */
export function createKeySet(keys: readonly JWK[]): KeySet {
  const kept = keys.map(publicPart)
  const find = createLocalJWKSet({ keys: kept })
  return {
    id: createHash('sha256').update(JSON.stringify(kept)).digest('hex'),
    keys: kept,
    async *candidates(header, input) {
      try {
        yield await find(header, input)
      } catch (error) {
        if (error instanceof errors.JWKSMultipleMatchingKeys) yield* error
        else if (!(error instanceof errors.JWKSNoMatchingKey)) throw error
      }
    },
  }
}

/** What may be shown of a key: its public members, in a fixed order. */
export function publicPart(key: JWK): JWK {
  const members = publicMembers.get(key.kty) ?? []
  const part: JWK = key.kty === undefined ? {} : { kty: key.kty }
  for (const member of [...members, ...commonMembers]) if (key[member] !== undefined) Object.assign(part, { [member]: key[member] })
  return part
}

function isKeyObject(key: unknown): key is JWK {
  return typeof key === 'object' && key !== null && 'kty' in key && typeof key.kty === 'string'
}
