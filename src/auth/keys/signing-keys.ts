import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK } from 'jose'
import type { CryptoKey, JWK } from 'jose'
import { publicPart, type KeySet, createLiveKeySet } from './key-set.ts'
import { createRotatingKeys } from './rotating-keys.ts'
import type { KeyKind, RotatingKeys, RotatingKeysOptions } from './rotating-keys.ts'

/** The signature algorithm of the platform's own access tokens (docs/spec/tokens.md#access-tokens). */
export const signingAlgorithm = 'RS256'

/** A key that signs the platform's access tokens. */
export interface SigningKey {
  readonly kid: string
  readonly publicJwk: JWK
  readonly privateKey: CryptoKey
}

/** The keys that sign the platform's access tokens, replaced on a schedule. */
export interface SigningKeys extends Omit<RotatingKeys<SigningKey>, 'generation'> {
  /** Returns the public halves of all live keys. `/.well-known/jwks.json` serves them, and the platform verifies its own tokens with them. */
  keySet(): KeySet
}

const hourMs = 3_600_000

/**
 * A key signs for 30 days. It is in the JWKS two hours earlier, because clients may cache the JWKS for an hour. It stays for two hours afterwards, because
 * tokens live for one hour.
 */
export const signingKeySchedule = { rotateEveryMs: 30 * 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: 2 * hourMs } as const

const kind: KeyKind<SigningKey> = {
  prefix: 'meta/signing-keys/',
  schedule: signingKeySchedule,
  async generate() {
    const pair = await generateKeyPair(signingAlgorithm, { modulusLength: 2048, extractable: true })
    const bare = publicPart(await exportJWK(pair.publicKey))
    const id = await calculateJwkThumbprint(bare)
    const shown: JWK = { ...bare, kid: id, alg: signingAlgorithm, use: 'sig' }
    return { id, shown, secret: Buffer.from(JSON.stringify(await exportJWK(pair.privateKey))) }
  },
  async load(id, shown, secret) {
    const privateKey = await importJWK(JSON.parse(Buffer.from(secret).toString('utf8')) as JWK, signingAlgorithm) // This program wrote and encrypted the record.
    if (privateKey instanceof Uint8Array) throw new TypeError('a signing key is symmetric')
    return { kid: id, publicJwk: shown as JWK, privateKey } // This program wrote the record.
  },
}

/** Returns the platform's signing keys from the store. Creates the first one in a fresh store. Throws SealingError or StoreError. */
export async function createSigningKeys(options: RotatingKeysOptions, signal: AbortSignal): Promise<SigningKeys> {
  const keys = await createRotatingKeys(kind, options, signal)
  return { ...keys, keySet: createLiveKeySet(keys) }
}
