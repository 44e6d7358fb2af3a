import { createHash, createPublicKey } from 'node:crypto'
import { createLocalJWKSet, errors, type CompactJWSHeaderParameters, type CryptoKey, type FlattenedJWSInput, type JWK } from 'jose'
import type { RotatingKeys } from './rotating-keys.ts'

/** A set of public keys with an id. Sets with the same id contain the same keys, so they accept the same signatures. */
export interface KeySet {
  /** The id of the set: SHA-256 of its keys in hex. */
  readonly id: string
  readonly keys: readonly JWK[]
  /** Yields the keys that may have made a signature with this header, most likely first. Yields nothing if the set has no such key. */
  candidates(header: CompactJWSHeaderParameters, input: FlattenedJWSInput): AsyncIterable<CryptoKey>
}

/** The error for a JWKS document that cannot be used. The message states why, and contains no part of the document. */
export class KeySetError extends Error {
  override readonly name = 'KeySetError'
}

type PublicMember = 'n' | 'e' | 'crv' | 'x' | 'y'

/** The members of a JWK that form a public key, by its `kty`. Keys of other types are ignored. */
const publicMembers: ReadonlyMap<unknown, readonly PublicMember[]> = new Map([
  ['RSA', ['n', 'e']],
  ['EC', ['crv', 'x', 'y']],
  ['OKP', ['crv', 'x']],
])

const commonMembers = ['kid', 'alg', 'use', 'key_ops'] as const

const secretMembers = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k', 'priv'] as const

/** Maximum length of JWK members, in characters. RSA moduli over 8192 bits and exponents over 32 bits take too long to verify with. */
const longestMember = { n: 1366, e: 6 } as const

/** True if the JWK contains a secret: a private or a symmetric key. */
export function isSecretKey(key: JWK): boolean {
  return key.kty === 'oct' || secretMembers.some((member) => Object.hasOwn(key, member))
}

/** True if the JWK has a type with which tokens can be verified. Ignores its secret members. */
export function isUsableKey(key: JWK): boolean {
  const members = publicMembers.get(key.kty)
  if (members === undefined || (key.use !== undefined && key.use !== 'sig')) return false
  if (!members.every((member) => typeof key[member] === 'string' && key[member] !== '')) return false
  return key.kty !== 'RSA' || ((key.n?.length ?? 0) <= longestMember.n && (key.e?.length ?? 0) <= longestMember.e)
}

/** The algorithms with which each type of public key can verify, by its `kty` and curve. */
const algorithmsOf: Readonly<Record<string, readonly string[]>> = {
  RSA: ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  'EC P-256': ['ES256'],
  'EC P-384': ['ES384'],
  'EC P-521': ['ES512'],
  'OKP Ed25519': ['EdDSA', 'Ed25519'],
}

/** Minimum length of RSA keys, in bits (RFC 7518, 3.3). */
const leastRsaBits = 2048

/** Returns why a key of a usable type can never verify a token; undefined if it can. The text contains no part of the key. */
export function uselessness(key: JWK): string | undefined {
  const algorithms = algorithmsOf[key.kty === 'RSA' ? 'RSA' : `${String(key.kty)} ${String(key.crv)}`]
  if (algorithms === undefined) return 'a key on an unsupported curve'
  if (key.alg !== undefined && !algorithms.includes(key.alg)) return 'a key whose alg is unsupported, or does not fit the key type'
  if (key.key_ops !== undefined && !(Array.isArray(key.key_ops) && key.key_ops.includes('verify'))) return 'a key whose key_ops do not include verify'
  const bits = rsaBits(key)
  if (bits === undefined) return 'a key that is not a valid public key'
  return key.kty === 'RSA' && bits < leastRsaBits ? `an RSA key of less than ${String(leastRsaBits)} bits` : undefined
}

/** Returns the length of an RSA key in bits, 0 for other types, or undefined if the key is invalid. */
function rsaBits(key: JWK): number | undefined {
  try {
    return createPublicKey({ key: publicPart(key), format: 'jwk' }).asymmetricKeyDetails?.modulusLength ?? 0
  } catch {
    // Drop the library's error, because its message may contain the key.
    return undefined
  }
}

/** Returns the list `keys` of a JWKS document: objects with a `kty`, at most `limit`. Throws KeySetError for any other document. */
export function readKeys(document: unknown, limit: number): readonly JWK[] {
  const keys = typeof document === 'object' && document !== null && 'keys' in document ? document.keys : undefined
  if (!Array.isArray(keys)) throw new KeySetError('the JWKS has no list of keys')
  if (keys.length > limit) throw new KeySetError(`the JWKS has more than ${String(limit)} keys`)
  if (!keys.every(isKeyObject)) throw new KeySetError('a key of the JWKS is not a JSON Web Key')
  return keys
}

/** Creates a set of these keys, which must be usable (`isUsableKey`). It keeps only their public members. */
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

/** Returns the public members of a key, in a fixed order. */
export function publicPart(key: JWK): JWK {
  const members = publicMembers.get(key.kty) ?? []
  const part: JWK = key.kty === undefined ? {} : { kty: key.kty }
  for (const member of [...members, ...commonMembers]) if (key[member] !== undefined) Object.assign(part, { [member]: key[member] })
  return part
}

function isKeyObject(key: unknown): key is JWK {
  return typeof key === 'object' && key !== null && 'kty' in key && typeof key.kty === 'string'
}

/** Returns a function that returns the public halves of all live keys as one set. It is the same object until the live keys change. */
export function createLiveKeySet(keys: Pick<RotatingKeys<{ readonly publicJwk: JWK }>, 'all' | 'generation'>): () => KeySet {
  let made: { readonly generation: number; readonly set: KeySet } | undefined
  return () => {
    const generation = keys.generation()
    if (made?.generation !== generation) made = { generation, set: createKeySet(keys.all().map(({ publicJwk }) => publicJwk)) }
    return made.set
  }
}
