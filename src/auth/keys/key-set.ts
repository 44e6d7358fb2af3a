import { createHash, createPublicKey } from 'node:crypto'
import { createLocalJWKSet, errors, type CompactJWSHeaderParameters, type CryptoKey, type FlattenedJWSInput, type JWK } from 'jose'
import type { RotatingKeys } from './rotating-keys.ts'

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

/** The algorithms that each kind of public key verifies, by its `kty` and curve. */
const algorithmsOf: Readonly<Record<string, readonly string[]>> = {
  RSA: ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  'EC P-256': ['ES256'],
  'EC P-384': ['ES384'],
  'EC P-521': ['ES512'],
  'OKP Ed25519': ['EdDSA', 'Ed25519'],
}

/** RSA keys of fewer bits verify nothing (RFC 7518, 3.3). */
const leastRsaBits = 2048

/** Why a usable key can never verify a token; undefined where it can. Repeats nothing of the key. */
export function uselessness(key: JWK): string | undefined {
  const algorithms = algorithmsOf[key.kty === 'RSA' ? 'RSA' : `${String(key.kty)} ${String(key.crv)}`]
  if (algorithms === undefined) return 'a key on an unsupported curve'
  if (key.alg !== undefined && !algorithms.includes(key.alg)) return 'a key whose alg is unsupported, or does not fit the key type'
  if (key.key_ops !== undefined && !(Array.isArray(key.key_ops) && key.key_ops.includes('verify'))) return 'a key whose key_ops lack verify'
  const bits = rsaBits(key)
  if (bits === undefined) return 'a key that is not a valid public key'
  return key.kty === 'RSA' && bits < leastRsaBits ? `an RSA key of less than ${String(leastRsaBits)} bits` : undefined
}

/** Returns the length of an RSA key in bits, 0 for other kinds, or undefined if the key is invalid. */
function rsaBits(key: JWK): number | undefined {
  try {
    return createPublicKey({ key: publicPart(key), format: 'jwk' }).asymmetricKeyDetails?.modulusLength ?? 0
  } catch {
    // The library's message may contain the key.
    return undefined
  }
}

/** The members `keys` of a JWKS document: objects with a `kty`, at most `limit`. Throws KeySetError. */
export function readKeys(document: unknown, limit: number): readonly JWK[] {
  const keys = typeof document === 'object' && document !== null && 'keys' in document ? document.keys : undefined
  if (!Array.isArray(keys)) throw new KeySetError('it has no list of keys')
  if (keys.length > limit) throw new KeySetError(`it has more than ${String(limit)} keys`)
  if (!keys.every(isKeyObject)) throw new KeySetError('one of its keys is not a JSON Web Key')
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

/** The public half of every live key, as one set: the same object until the live keys change. */
export function createLiveKeySet(keys: Pick<RotatingKeys<{ readonly publicJwk: JWK }>, 'all' | 'generation'>): () => KeySet {
  let made: { readonly generation: number; readonly set: KeySet } | undefined
  return () => {
    const generation = keys.generation()
    if (made?.generation !== generation) made = { generation, set: createKeySet(keys.all().map(({ publicJwk }) => publicJwk)) }
    return made.set
  }
}
