import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { es256Header, exportEs256, generateEs256, importEs256 } from '../../auth/keys/es256.ts'
import { type KeySet, createLiveKeySet } from '../../auth/keys/key-set.ts'
import { createRotatingKeys, type KeyKind, type RotatingKeys, type RotatingKeysOptions } from '../../auth/keys/rotating-keys.ts'
import type { Keyring } from '../../auth/keys/sealing.ts'
import { issueAuthority, issueLeaf } from '../../base/certificate.ts'
import type { Random, Clock } from '../../base/runtime.ts'
import type { Store } from '../../store/store.ts'

/** Our own certificate authority for the keys that sign registry tokens: made once, in the store. */
interface TokenAuthority {
  /** Its certificate, DER: what a verifier of registry tokens trusts. */
  readonly certificate: Buffer
  /** A certificate, DER, for a key that is used until `notAfterMs`. */
  issue(key: { readonly id: string; readonly publicKey: KeyObject }, notAfterMs: number): Buffer
}

/** What a token authority is made of. */
interface TokenAuthorityOptions {
  readonly store: Store
  readonly keyring: Keyring
  readonly clock: Clock
  readonly random: Random
}

/** Where it is kept. */
export const authorityKey = 'meta/registry-ca'

/** The stored form: JSON; `certificate` and `sealed` (PKCS #8) are base64. */
interface StoredAuthority {
  readonly version: 1
  readonly name: string
  readonly certificate: string
  readonly sealed: string
}

const yearMs = 365.25 * 24 * 3_600_000
const lifeMs = 30 * yearMs
/** How far clocks may be behind. */
const backdateMs = 3_600_000

/**
 * Reads the authority, and creates it if the store has none. Of several processes that start at once one wins, and the others use its authority. Throws
 * SealingError or StoreError.
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
  const stored = JSON.parse(Buffer.from(value).toString('utf8')) as StoredAuthority // a cast of our own record; what is secret in it is authenticated by the seal
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

/** A key that signs registry tokens. It is not in the JWKS: external verifiers of such tokens use its certificate. */
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
      const { id, jwk, privateKey, publicKey } = generateEs256()
      const certificate = authority.issue({ id, publicKey }, nowMs() + certificateLifeMs).toString('base64')
      const shown: ShownKey = { jwk, certificate }
      return Promise.resolve({ id, shown, secret: exportEs256(privateKey) })
    },
    load(id, shown, secret) {
      const { jwk, certificate } = shown as ShownKey // a cast of our own record
      return Promise.resolve({ kid: id, publicJwk: jwk, privateKey: importEs256(secret), header: es256Header(id, { x5c: [certificate] }) })
    },
  }
}

/** The keys from the store, and the authority that their certificates are under; makes both in a fresh one. Throws SealingError or StoreError. */
export async function createRegistryKeys(options: RotatingKeysOptions & { readonly random: Random }, signal: AbortSignal): Promise<RegistryKeys> {
  const authority = await openTokenAuthority(options, signal)
  const kind = keyKind(authority, () => options.clock.now())
  const keys = await createRotatingKeys(kind, options, signal)
  return { ...keys, authority, keySet: createLiveKeySet(keys) }
}
