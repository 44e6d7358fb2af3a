import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import type { Keyring } from '../../auth/keys/sealing.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import type { Store } from '../../store/store.ts'
import { issueAuthority, issueLeaf } from '../../base/certificate.ts'

/** Our own certificate authority for the keys that sign registry tokens: made once, in the store. */
export interface TokenAuthority {
  /** Its certificate, DER: what a verifier of registry tokens trusts. */
  readonly certificate: Buffer
  /** A certificate, DER, for a key that is used until `notAfterMs`. */
  issue(key: { readonly id: string; readonly publicKey: KeyObject }, notAfterMs: number): Buffer
}

/** What a token authority is made of. */
export interface TokenAuthorityOptions {
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

/** Reads the authority, and makes it in a store that has none; of several processes that start at once one wins and the others take its. Throws SealingError or StoreError. */
export async function openTokenAuthority(options: TokenAuthorityOptions, signal: AbortSignal): Promise<TokenAuthority> {
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
