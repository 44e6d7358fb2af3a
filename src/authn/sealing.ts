import { createCipheriv, createDecipheriv, createHash } from 'node:crypto'
import type { Random } from '../core/runtime.ts'
import type { Store } from '../store/store.ts'

/**
 * Encrypts what the store keeps secret (AES-256-GCM). A sealed value can only be opened with the context it was sealed with, so it can't be moved to another key
 * of the store.
 */
export interface Keyring {
  seal(plaintext: Uint8Array, context: string): Uint8Array
  /** Throws SealingError `unreadable` or `unknown_key`. */
  open(sealed: Uint8Array, context: string): Uint8Array
}

/**
 * Why something can't be opened:
 * - `wrong_key`: the configured key encryption key is not the one that the store's data key is wrapped with.
 * - `unknown_key`: sealed with a data key that this keyring does not have.
 * - `unreadable`: changed, cut, or sealed for another context.
 * - `bad_key`: the configured text is no key of 32 bytes.
 */
export type SealingFault = 'wrong_key' | 'unknown_key' | 'unreadable' | 'bad_key'

/** See SealingFault. The message is for operators. */
export class SealingError extends Error {
  override readonly name = 'SealingError'
  readonly fault: SealingFault
  constructor(fault: SealingFault, message: string) {
    super(message)
    this.fault = fault
  }
}

/** Where the wrapped data keys are kept. */
export const dataKeyKey = 'meta/data-key'

/** The stored form: JSON. `active` seals; the others only open. */
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

/** A key encryption key from the content of its file: 32 raw bytes, or their hex or base64 text. Throws SealingError `bad_key`. */
export function parseKeyEncryptionKey(content: Uint8Array): Uint8Array {
  if (content.length === keyBytes) return content
  const text = Buffer.from(content).toString('latin1').trim()
  if (/^[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text, 'hex')
  if (/^[A-Za-z0-9+/_-]{43}=?$/.test(text)) return Buffer.from(text, 'base64')
  throw new SealingError('bad_key', 'the key encryption key must be 32 bytes: raw, or as hex or base64 text')
}

/** What a keyring is made of. */
export interface KeyringOptions {
  readonly store: Store
  /** 32 bytes, see parseKeyEncryptionKey. */
  readonly keyEncryptionKey: Uint8Array
  readonly random: Random
}

/**
 * Opens the store's data keys, and makes the first one in a fresh store; of several processes that start at once one wins and the others take its key.
 * Throws SealingError `wrong_key`, or StoreError.
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
  if (winner === undefined) throw new SealingError('unreadable', `the store's ${dataKeyKey} was removed while starting`)
  return openKeyring(winner.value, options)
}

function firstKeyring({ keyEncryptionKey, random }: KeyringOptions): StoredKeyring {
  const id = Buffer.from(random.bytes(idBytes)).toString('hex')
  const wrapped = encrypt(keyEncryptionKey, random, { plaintext: random.bytes(keyBytes), context: wrapContext(id) })
  return { version: 1, active: id, keys: [{ id, wrappedBy: nameOfKey(keyEncryptionKey), wrapped: Buffer.from(wrapped).toString('base64') }] }
}

function openKeyring(stored: Uint8Array, { keyEncryptionKey, random }: KeyringOptions): Keyring {
  const { active, keys } = parseStored(stored)
  const opened = new Map<string, Uint8Array>()
  for (const { id, wrappedBy, wrapped } of keys) {
    if (wrappedBy === nameOfKey(keyEncryptionKey)) opened.set(id, decrypt(keyEncryptionKey, Buffer.from(wrapped, 'base64'), wrapContext(id)))
  }
  const sealingKey = opened.get(active)
  if (sealingKey === undefined) {
    throw new SealingError(
      'wrong_key',
      "the configured key encryption key is not the one that this store's data is encrypted with: configure that key (encryption.keyFile)",
    )
  }
  return {
    seal: (plaintext, context) =>
      Buffer.concat([Uint8Array.of(formatVersion), Buffer.from(active, 'hex'), encrypt(sealingKey, random, { plaintext, context })]),
    open(sealed, context) {
      if (sealed.length < headBytes + tagBytes || sealed[0] !== formatVersion)
        throw new SealingError('unreadable', 'a sealed value is cut or of an unknown version')
      const key = opened.get(Buffer.from(sealed.subarray(1, 1 + idBytes)).toString('hex'))
      if (key === undefined) throw new SealingError('unknown_key', 'a sealed value needs a data key that is not in the store')
      return decrypt(key, sealed.subarray(1 + idBytes), context)
    },
  }
}

function parseStored(stored: Uint8Array): StoredKeyring {
  try {
    const parsed = JSON.parse(Buffer.from(stored).toString('utf8')) as StoredKeyring // a cast of our own record: `version` is checked below
    if (parsed.version === 1) return parsed
  } catch {
    // Told below, without the record's text.
  }
  throw new SealingError('unreadable', `the store's ${dataKeyKey} is of an unknown form`)
}

/** Nonce, ciphertext, tag. */
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
    throw new SealingError('unreadable', 'a sealed value was changed or belongs elsewhere')
  }
}

/** Tells keys apart without telling anything about them. */
function nameOfKey(key: Uint8Array): string {
  return createHash('sha256').update('taproot key encryption key').update(key).digest('hex').slice(0, 16)
}

function wrapContext(id: string): string {
  return `${dataKeyKey}/${id}`
}
