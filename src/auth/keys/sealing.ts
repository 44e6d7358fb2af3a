import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync } from 'node:crypto'
import type { Random } from '../../base/runtime.ts'
import type { Store } from '../../store/store.ts'

/**
 * Encrypts the secrets in the store (AES-256-GCM). A value can only be decrypted with the context with which it was encrypted, so it cannot be moved to
 * another key of the store.
 */
export interface Keyring {
  seal(plaintext: Uint8Array, context: string): Uint8Array
  /** Decrypts a value. Throws SealingError `unreadable` or `unknown_key`. */
  open(sealed: Uint8Array, context: string): Uint8Array
  /** Returns a keyed hash of 32 bytes. It is equal for equal input while the data key is the same, and reveals nothing about the input without that key. */
  fingerprint(input: Uint8Array): Uint8Array
}

/**
 * Why a value or the store cannot be decrypted:
 * - `wrong_key`: the configured key encryption key is not one that encrypts the store's data key
 * - `unknown_key`: the value was encrypted with a data key that this keyring does not have
 * - `unreadable`: the value was changed, truncated, or encrypted for another context
 * - `bad_key`: the configured key encryption key does not consist of 32 bytes
 */
export type SealingErrorReason = 'wrong_key' | 'unknown_key' | 'unreadable' | 'bad_key'

/** The error of encryption and decryption, see SealingErrorReason. Its message is for operators. */
export class SealingError extends Error {
  override readonly name = 'SealingError'
  readonly reason: SealingErrorReason
  constructor(reason: SealingErrorReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** Key of the store entry with the data keys, which are encrypted with the key encryption key. */
export const dataKeyKey = 'meta/data-key'

/** The stored form of the data keys, as JSON. `active` encrypts new values; the other keys only decrypt. */
interface StoredKeyring {
  readonly version: 1
  readonly active: string
  readonly keys: readonly { readonly id: string; readonly wrappedBy: string; readonly wrapped: string }[]
}

const keyBytes = 32
const nonceBytes = 12
const tagBytes = 16
const idBytes = 4
const formatVersion = 1
const headBytes = 1 + idBytes + nonceBytes

/** Returns the key encryption key from the content of its file: 32 raw bytes, or their hex or base64 text. Throws SealingError `bad_key`. */
export function parseKeyEncryptionKey(content: Uint8Array): Uint8Array {
  if (content.length === keyBytes) return content
  const text = Buffer.from(content).toString('latin1').trim()
  if (/^[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text, 'hex')
  if (/^[A-Za-z0-9+/_-]{43}=?$/.test(text)) return Buffer.from(text, 'base64')
  throw new SealingError('bad_key', 'the key encryption key must be 32 bytes: raw, or as hex or base64 text')
}

/** The store and the key encryption key of a keyring. */
export interface KeyringOptions {
  readonly store: Store
  /** The configured key encryption key of 32 bytes, see parseKeyEncryptionKey. */
  readonly keyEncryptionKey: Uint8Array
  readonly random: Random
}

/**
 * Decrypts the store's data keys, and creates the first one in a fresh store. If several processes start at once, one creates it and the others use it. Throws
 * SealingError `wrong_key`, or StoreError.
 */
export async function createKeyring(options: KeyringOptions, signal: AbortSignal): Promise<Keyring> {
  if (options.keyEncryptionKey.length !== keyBytes) throw new SealingError('bad_key', 'the key encryption key must be 32 bytes')
  const existing = await options.store.get(dataKeyKey, signal)
  if (existing !== undefined) return openKeyring(existing.value, options)
  const made = Buffer.from(JSON.stringify(firstKeyring(options)))
  const outcome = await options.store.transact(
    { guards: [{ kind: 'absent', key: dataKeyKey }], writes: [{ kind: 'put', key: dataKeyKey, value: made }] },
    signal,
  )
  if (outcome.committed) return openKeyring(made, options)
  const winner = await options.store.get(dataKeyKey, signal)
  if (winner === undefined) throw new SealingError('unreadable', `the entry ${dataKeyKey} was removed from the store while this process started`)
  return openKeyring(winner.value, options)
}

/**
 * Adds (`add`) or removes (`retire`) another key encryption key that opens the store. The data keys do not change, so running processes are unaffected. Does
 * nothing if the change is already made. Resolves to the number of keys that open the store afterwards. Throws SealingError `wrong_key`. It also throws
 * `wrong_key` if the retired key is the configured one or its removal would lose a data key. Throws StoreError, or Error if the store is fresh.
 */
export async function changeKeyEncryption(
  options: KeyringOptions,
  change: { readonly add: Uint8Array } | { readonly retire: Uint8Array },
  signal: AbortSignal,
): Promise<number> {
  for (;;) {
    const existing = await options.store.get(dataKeyKey, signal)
    if (existing === undefined) throw new Error('the store has no data key yet: start a server on this store first')
    const stored = parseStored(existing.value)
    const opened = openDataKeys(stored, options)
    const keys =
      'retire' in change
        ? keptKeys(stored, options, change.retire)
        : [...stored.keys, ...wrappedAgain(stored, opened, { ...options, keyEncryptionKey: change.add })]
    const count = new Set(keys.map(({ wrappedBy }) => wrappedBy)).size
    if (keys.length === stored.keys.length) return count
    const value = Buffer.from(JSON.stringify({ ...stored, keys } satisfies StoredKeyring))
    const guards = [{ kind: 'unchanged', key: dataKeyKey, revision: existing.revision }] as const
    const outcome = await options.store.transact({ guards, writes: [{ kind: 'put', key: dataKeyKey, value }] }, signal)
    if (outcome.committed) return count
  }
}

type WrappedKey = StoredKeyring['keys'][number]

function keptKeys({ keys }: StoredKeyring, { keyEncryptionKey }: KeyringOptions, retired: Uint8Array): WrappedKey[] {
  const [configured, gone] = [nameOfKey(keyEncryptionKey), nameOfKey(retired)]
  if (configured === gone) throw new SealingError('wrong_key', 'the configured key cannot be retired: set encryption.keyFile to the key to keep')
  if (keys.some(({ id }) => !keys.some((other) => other.id === id && other.wrappedBy === configured))) throw wrongKey()
  return keys.filter(({ wrappedBy }) => wrappedBy !== gone)
}

function wrappedAgain({ keys }: StoredKeyring, opened: ReadonlyMap<string, Uint8Array>, { keyEncryptionKey, random }: KeyringOptions): WrappedKey[] {
  const wrappedBy = nameOfKey(keyEncryptionKey)
  const missing = [...opened].filter(([id]) => !keys.some((known) => known.id === id && known.wrappedBy === wrappedBy))
  return missing.map(([id, plaintext]) => wrap(id, plaintext, { keyEncryptionKey, random }))
}

function wrap(id: string, plaintext: Uint8Array, { keyEncryptionKey, random }: Pick<KeyringOptions, 'keyEncryptionKey' | 'random'>): WrappedKey {
  const wrapped = encrypt(keyEncryptionKey, random, { plaintext, context: wrapContext(id) })
  return { id, wrappedBy: nameOfKey(keyEncryptionKey), wrapped: Buffer.from(wrapped).toString('base64') }
}

function firstKeyring({ keyEncryptionKey, random }: KeyringOptions): StoredKeyring {
  const id = Buffer.from(random.bytes(idBytes)).toString('hex')
  return { version: 1, active: id, keys: [wrap(id, random.bytes(keyBytes), { keyEncryptionKey, random })] }
}

function wrongKey(): SealingError {
  return new SealingError('wrong_key', 'the key in encryption.keyFile does not open this store: set encryption.keyFile to the key that encrypted it')
}

/** Returns the data keys that the configured key encryption key decrypts, by id. The active one is among them. Throws SealingError. */
function openDataKeys({ active, keys }: StoredKeyring, { keyEncryptionKey }: KeyringOptions): ReadonlyMap<string, Uint8Array> {
  const opened = new Map<string, Uint8Array>()
  for (const { id, wrappedBy, wrapped } of keys) {
    if (wrappedBy === nameOfKey(keyEncryptionKey)) opened.set(id, decrypt(keyEncryptionKey, Buffer.from(wrapped, 'base64'), wrapContext(id)))
  }
  if (!opened.has(active)) throw wrongKey()
  return opened
}

function openKeyring(value: Uint8Array, options: KeyringOptions): Keyring {
  const { random } = options
  const stored = parseStored(value)
  const { active } = stored
  const opened = openDataKeys(stored, options)
  const sealingKey = opened.get(active)
  if (sealingKey === undefined) throw wrongKey()
  const fingerprintKey = new Uint8Array(hkdfSync('sha256', sealingKey, '', 'taproot fingerprint', keyBytes))
  return {
    fingerprint: (input) => createHmac('sha256', fingerprintKey).update(input).digest(),
    seal: (plaintext, context) =>
      Buffer.concat([Uint8Array.of(formatVersion), Buffer.from(active, 'hex'), encrypt(sealingKey, random, { plaintext, context })]),
    open(sealed, context) {
      if (sealed.length < headBytes + tagBytes || sealed[0] !== formatVersion)
        throw new SealingError('unreadable', 'an encrypted value in the store is truncated or has an unknown version')
      const key = opened.get(Buffer.from(sealed.subarray(1, 1 + idBytes)).toString('hex'))
      if (key === undefined) throw new SealingError('unknown_key', 'an encrypted value needs a data key that is not in the store')
      return decrypt(key, sealed.subarray(1 + idBytes), context)
    },
  }
}

function parseStored(stored: Uint8Array): StoredKeyring {
  try {
    const parsed = JSON.parse(Buffer.from(stored).toString('utf8')) as StoredKeyring // This program wrote the record, and `version` is checked below.
    if (parsed.version === 1) return parsed
  } catch {
    // Reported below, without the text of the record.
  }
  throw new SealingError('unreadable', `the entry ${dataKeyKey} in the store has an unknown format`)
}

/** Encrypts a text. Returns nonce, ciphertext and authentication tag, joined. */
function encrypt(key: Uint8Array, random: Random, input: { readonly plaintext: Uint8Array; readonly context: string }): Uint8Array {
  const nonce = random.bytes(nonceBytes)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(input.context))
  return Buffer.concat([nonce, cipher.update(input.plaintext), cipher.final(), cipher.getAuthTag()])
}

function decrypt(key: Uint8Array, box: Uint8Array, context: string): Uint8Array {
  const decipher = createDecipheriv('aes-256-gcm', key, box.subarray(0, nonceBytes), { authTagLength: tagBytes })
  decipher.setAAD(Buffer.from(context)).setAuthTag(box.subarray(-tagBytes))
  try {
    return Buffer.concat([decipher.update(box.subarray(nonceBytes, -tagBytes)), decipher.final()])
  } catch {
    throw new SealingError('unreadable', 'an encrypted value in the store was changed or belongs to another record')
  }
}

/** Returns a text that identifies a key and reveals nothing about it. */
function nameOfKey(key: Uint8Array): string {
  return createHash('sha256').update('taproot key encryption key').update(key).digest('hex').slice(0, 16)
}

function wrapContext(id: string): string {
  return `${dataKeyKey}/${id}`
}
