import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { es256Header, exportEs256, generateEs256, importEs256 } from '../../auth/keys/es256.ts'
import { type KeySet, createLiveKeySet } from '../../auth/keys/key-set.ts'
import { createRotatingKeys, type KeyKind, type RotatingKeys, type RotatingKeysOptions } from '../../auth/keys/rotating-keys.ts'
import type { Keyring } from '../../auth/keys/sealing.ts'
import { issueAuthority, issueLeaf } from '../../base/certificate.ts'
import type { Random, Clock } from '../../base/runtime.ts'
import type { Store } from '../../store/store.ts'

/** The certificate authority for the keys that sign registry tokens. It is created once and kept in the store. */
interface TokenAuthority {
  /** Its certificate, DER, which verifiers of registry tokens trust. */
  readonly certificate: Buffer
  /** Returns a certificate, DER, for a key that signs until `notAfterMs` (milliseconds since 1970). */
  issue(key: { readonly id: string; readonly publicKey: KeyObject }, notAfterMs: number): Buffer
}

/** Dependencies of the token authority. */
interface TokenAuthorityOptions {
  readonly store: Store
  readonly keyring: Keyring
  readonly clock: Clock
  readonly random: Random
}

/** Store key under which the certificate authority is kept. */
export const authorityKey = 'meta/registry-ca'

/** The stored authority: JSON, with `certificate` and `sealed` (PKCS #8) in base64. */
interface StoredAuthority {
  readonly version: 1
  readonly name: string
  readonly certificate: string
  readonly sealed: string
}

const yearMs = 365.25 * 24 * 3_600_000
const lifeMs = 30 * yearMs
/** How much earlier than now a certificate becomes valid, in milliseconds, for verifiers whose clocks are behind. */
const backdateMs = 3_600_000

/**
 * Reads the authority, and creates it if the store has none. If several processes start at once, all use the first one that is stored.
 * Throws SealingError or StoreError.
 */
async function openTokenAuthority(options: TokenAuthorityOptions, signal: AbortSignal): Promise<TokenAuthority> {
  const { store } = options
  const existing = await store.get(authorityKey, signal)
  if (existing !== undefined) return load(existing.value, options)
  const made = Buffer.from(JSON.stringify(make(options)))
  const guards = [{ kind: 'absent', key: authorityKey }] as const
  const outcome = await store.transact({ guards, writes: [{ kind: 'put', key: authorityKey, value: made }] }, signal)
  const kept = outcome.committed ? made : (await store.get(authorityKey, signal))?.value
  if (kept === undefined) throw new Error(`the store's ${authorityKey} was removed while starting`)
  return load(kept, options)
}

function make({ keyring, clock, random }: TokenAuthorityOptions): StoredAuthority {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const serial = random.bytes(16)
  const name = `Taproot registry tokens ${Buffer.from(serial).toString('hex').slice(0, 8)}`
  const nowMs = clock.now()
  const certificate = issueAuthority({ subject: name, publicKey, serial, notBeforeMs: nowMs - backdateMs, notAfterMs: nowMs + lifeMs }, privateKey)
  const sealed = keyring.seal(privateKey.export({ type: 'pkcs8', format: 'der' }), authorityKey)
  return { version: 1, name, certificate: certificate.toString('base64'), sealed: Buffer.from(sealed).toString('base64') }
}

function load(value: Uint8Array, { keyring, clock, random }: TokenAuthorityOptions): TokenAuthority {
  const stored = JSON.parse(Buffer.from(value).toString('utf8')) as StoredAuthority // a cast of a record that only this file writes; its secret part is authenticated by encryption
  const secret = keyring.open(Buffer.from(stored.sealed, 'base64'), authorityKey)
  const privateKey = createPrivateKey({ key: Buffer.from(secret), type: 'pkcs8', format: 'der' })
  return {
    certificate: Buffer.from(stored.certificate, 'base64'),
    issue({ id, publicKey }, notAfterMs) {
      const request = {
        subject: `registry token key ${id}`.slice(0, 64),
        publicKey,
        serial: random.bytes(16),
        notBeforeMs: clock.now() - backdateMs,
        notAfterMs,
      }
      return issueLeaf(request, { name: stored.name, privateKey })
    },
  }
}

type Jwk = KeySet['keys'][number]

/** A key that signs registry tokens. It is not in the JWKS: external verifiers of registry tokens use its certificate. */
export interface RegistryKey {
  readonly kid: string
  readonly publicJwk: Jwk
  readonly privateKey: KeyObject
  /** The encoded token header, the same for every token. */
  readonly header: string
}

/** The keys that sign registry tokens, with their rotation schedule. */
export interface RegistryKeys extends Omit<RotatingKeys<RegistryKey>, 'generation'> {
  /** Returns the public keys of all valid keys. */
  keySet(): KeySet
  readonly authority: TokenAuthority
}

const hourMs = 3_600_000

/** Same rotation as the signing keys of access tokens. The retention is shorter: registry tokens live for one hour at most. */
export const registryKeySchedule = { rotateEveryMs: 30 * 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: 2 * hourMs } as const

/** Lifetime of a certificate, in milliseconds. Longer than its key is used, since a rotation may be late. */
const certificateLifeMs = 90 * 24 * hourMs

/** The public part of a stored key. */
interface ShownKey {
  readonly jwk: Jwk
  /** The certificate: DER, base64. */
  readonly certificate: string
}

function keyKind(authority: TokenAuthority, nowMs: () => number): KeyKind<RegistryKey> {
  return {
    prefix: 'meta/registry-keys/',
    schedule: registryKeySchedule,
    generate() {
      const { id, jwk, privateKey, publicKey } = generateEs256()
      const certificate = authority.issue({ id, publicKey }, nowMs() + certificateLifeMs).toString('base64')
      const shown: ShownKey = { jwk, certificate }
      return Promise.resolve({ id, shown, secret: exportEs256(privateKey) })
    },
    load(id, shown, secret) {
      const { jwk, certificate } = shown as ShownKey // a cast of a record that only this file writes
      return Promise.resolve({ kid: id, publicJwk: jwk, privateKey: importEs256(secret), header: es256Header(id, { x5c: [certificate] }) })
    },
  }
}

/** Reads the keys and their authority from the store; creates both if the store has none. Throws SealingError or StoreError. */
export async function createRegistryKeys(options: RotatingKeysOptions & { readonly random: Random }, signal: AbortSignal): Promise<RegistryKeys> {
  const authority = await openTokenAuthority(options, signal)
  const kind = keyKind(authority, () => options.clock.now())
  const keys = await createRotatingKeys(kind, options, signal)
  return { ...keys, authority, keySet: createLiveKeySet(keys) }
}
