import { createHash, createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { publicPart, type KeySet } from '../../auth/keys/key-set.ts'
import { createLiveKeySet } from '../../auth/keys/live-key-set.ts'
import { createRotatingKeys, type KeyKind, type RotatingKeys, type RotatingKeysOptions } from '../../auth/keys/rotating-keys.ts'
import type { Random } from '../../base/runtime.ts'
import { openTokenAuthority, type TokenAuthority } from './token-authority.ts'

/**
 * The one algorithm of registry tokens: every pull waits for one to be signed. Measured here in node:crypto, per signature: ES256 30 us, Ed25519 49 us, RS256 291 us;
 * all registries that verify tokens by themselves know it.
 */
export const registryAlgorithm = 'ES256'

type Jwk = KeySet['keys'][number]

/** A key that signs registry tokens. Outside the JWKS: whoever verifies such a token by itself goes by its certificate. */
export interface RegistryKey {
  readonly kid: string
  readonly publicJwk: Jwk
  readonly privateKey: KeyObject
  /** The header of what it signs, encoded: the same for every token. */
  readonly header: string
}

/** The keys that sign registry tokens, on their schedule. */
export interface RegistryKeys extends Omit<RotatingKeys<RegistryKey>, 'generation'> {
  /** The public half of every live key. */
  keySet(): KeySet
  readonly authority: TokenAuthority
}

const hourMs = 3_600_000

/** As the signing keys of access tokens; registry tokens live minutes. */
export const registryKeySchedule = { rotateEveryMs: 30 * 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: hourMs } as const

/** A certificate outlives its key's use: rotation may be late. */
const certificateLifeMs = 90 * 24 * hourMs

/** What is shown of a stored key. */
interface ShownKey {
  readonly jwk: Jwk
  /** DER, base64. */
  readonly certificate: string
}

function keyKind(authority: TokenAuthority, nowMs: () => number): KeyKind<RegistryKey> {
  return {
    prefix: 'meta/registry-keys/',
    schedule: registryKeySchedule,
    generate() {
      const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
      const bare = publicPart(publicKey.export({ format: 'jwk' }))
      const id = thumbprint(bare)
      const certificate = authority.issue({ id, publicKey }, nowMs() + certificateLifeMs).toString('base64')
      const shown: ShownKey = { jwk: { ...bare, kid: id, alg: registryAlgorithm, use: 'sig' }, certificate }
      return Promise.resolve({ id, shown, secret: privateKey.export({ type: 'pkcs8', format: 'der' }) })
    },
    load(id, shown, secret) {
      const { jwk, certificate } = shown as ShownKey // a cast of our own record
      const header = { alg: registryAlgorithm, typ: 'JWT', kid: id, x5c: [certificate] }
      return Promise.resolve({
        kid: id,
        publicJwk: jwk,
        privateKey: createPrivateKey({ key: Buffer.from(secret), type: 'pkcs8', format: 'der' }),
        header: Buffer.from(JSON.stringify(header)).toString('base64url'),
      })
    },
  }
}

/** RFC 7638. */
function thumbprint({ crv, kty, x, y }: Jwk): string {
  return createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url')
}

/** The keys from the store, and the authority that their certificates are under; makes both in a fresh one. Throws SealingError or StoreError. */
export async function createRegistryKeys(options: RotatingKeysOptions & { readonly random: Random }, signal: AbortSignal): Promise<RegistryKeys> {
  const authority = await openTokenAuthority(options, signal)
  const kind = keyKind(authority, () => options.clock.now())
  const keys = await createRotatingKeys(kind, options, signal)
  return { ...keys, authority, keySet: createLiveKeySet(keys) }
}
