import { createCipheriv, createHash, randomBytes } from 'node:crypto'
import { create, fromBinary } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { createKeyring, dataKeyKey, type Keyring } from '../../src/auth/keys/sealing.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { IdentityProviderSchema } from '../../src/gen/taproot/iam/v2/identity_providers_pb.ts'
import { EnvelopeSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { identityProviderKind, clientSecretPath as path } from '../../src/iam/records/identity-providers.ts'
import { envelopeBytes, envelopeOf } from '../../src/engine/record-codec.ts'
import { secretFields } from '../../src/engine/secret-fields.ts'
import { changedSecrets, newSecrets, openSecret, sealSecrets, type SealedSecrets } from '../../src/engine/secrets.ts'
import { resources } from '../../src/base/schema/schema.ts'
import { recordOfBytes } from '../../src/cache/records/record-factory.ts'
import type { Resource, CachedRecord } from '../../src/cache/records/cached-record.ts'
import { storeRevision, type Store } from '../../src/store/store.ts'
import { freshStore, random, signal, thrown } from '../auth/parts.ts'

const { index, desc } = identityProviderKind
const uid = trustedUid(`${'a'.repeat(40)}/${'b'.repeat(16)}`)

function record(clientSecret: string): Resource {
  const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret }
  // A resource of the schema.
  return create(IdentityProviderSchema, { name: 'login', configuration: { case: 'oidc', value: oidc } })
}

/** Returns a stored provider with its encrypted secrets. */
function recordWith(sealed: SealedSecrets, at: Uid = uid): CachedRecord {
  const facts = { etag: 'e', createMs: 1, updateMs: 2, managedBy: '', sealed }
  return recordOfBytes(index, { uid: at, bytes: envelopeBytes(envelopeOf(desc, record(''), facts)), revision: storeRevision(1) })
}

async function keyring(): Promise<Keyring> {
  return createKeyring({ store: await freshStore(), keyEncryptionKey: randomBytes(32), random }, signal)
}

function seal(ring: Keyring, text: string): SealedSecrets {
  return sealSecrets(ring, { kind: index.kind, uid }, newSecrets(identityProviderKind, record(text)))
}

describe('secrets of records', () => {
  test('secrets of records are the fields that the schema marks, which clients write as text', () => {
    expect(secretFields(desc).map((field) => field.path)).toEqual([path])
    for (const row of resources.values()) for (const field of secretFields(row.desc)) expect(field.path).toMatch(/^[a-z_.]+$/)
  })

  test('secrets of records never appear in the stored bytes of a record, even if a caller forgets to remove them', () => {
    const facts = { etag: 'e', createMs: 1, updateMs: 2, managedBy: '' }
    const bytes = envelopeBytes(envelopeOf(desc, record('plain text'), facts))
    expect(Buffer.from(bytes).includes('plain text')).toBe(false)
  })

  test('secrets of records can be decrypted with their own record only', async () => {
    const ring = await keyring()
    const sealed = seal(ring, 'plain text')
    expect(Buffer.from(sealed[path] ?? []).includes('plain text')).toBe(false)
    expect(openSecret(ring, recordWith(sealed), path)).toBe('plain text')
    expect(openSecret(ring, recordWith({}), path)).toBeUndefined()
    const elsewhere = recordWith(sealed, trustedUid(`${'a'.repeat(40)}/${'c'.repeat(16)}`))
    expect(await thrown(() => openSecret(ring, elsewhere, path))).toBe('unreadable')
    const moved = recordWith({ 'oidc.other': sealed[path] ?? new Uint8Array() })
    expect(await thrown(() => openSecret(ring, moved, 'oidc.other'))).toBe('unreadable')
    const foreign = await keyring()
    expect(await thrown(() => openSecret(foreign, recordWith(sealed), path))).toBe('unknown_key')
  })

  test('secrets of records encrypted with an older data key can be read, and are kept unchanged', async () => {
    const store = await freshStore()
    const keyEncryptionKey = randomBytes(32)
    const old = await createKeyring({ store, keyEncryptionKey, random }, signal)
    const sealed = seal(old, 'plain text')
    await addDataKey(store, keyEncryptionKey)
    const rotated = await createKeyring({ store, keyEncryptionKey, random }, signal)
    expect(openSecret(rotated, recordWith(sealed), path)).toBe('plain text')
    expect(await thrown(() => openSecret(old, recordWith(seal(rotated, 'newer')), path))).toBe('unknown_key')
    const fates = changedSecrets(identityProviderKind, { cached: recordWith(sealed), record: record(''), paths: ['oidc'] })
    expect(sealSecrets(rotated, { kind: index.kind, uid }, fates)).toEqual(sealed)
    const envelope = fromBinary(EnvelopeSchema, envelopeBytes(recordWith(sealed).envelope))
    expect(Object.keys(envelope.sealed)).toEqual([path])
  })

  test('secrets of records are removed together with the message that contains them', () => {
    const bare = create(IdentityProviderSchema, { name: 'login' }) as unknown as Resource
    const record = recordWith({ [path]: Uint8Array.of(1) })
    expect(changedSecrets(identityProviderKind, { cached: record, record: bare, paths: ['oidc'] })).toEqual(new Map([[path, { kind: 'cleared' }]]))
  })
})

test('a fingerprint is the same for the same input and data key, and different for any other', async () => {
  const store = await freshStore()
  const keyEncryptionKey = randomBytes(32)
  const ring = async (): Promise<Keyring> => createKeyring({ store, keyEncryptionKey, random }, signal)
  const one = (await ring()).fingerprint(Buffer.from('x'))
  expect((await ring()).fingerprint(Buffer.from('x'))).toEqual(one)
  expect((await ring()).fingerprint(Buffer.from('y'))).not.toEqual(one)
  expect((await keyring()).fingerprint(Buffer.from('x'))).not.toEqual(one)
  expect(one).not.toEqual(createHash('sha256').update('x').digest())
})

/** Adds a second data key and makes it the current one: nonce, ciphertext and tag, encrypted as in src/auth/keys/sealing.ts. */
async function addDataKey(store: Store, keyEncryptionKey: Uint8Array): Promise<void> {
  const entry = await store.get(dataKeyKey, signal)
  // The stored form is JSON.
  const stored = JSON.parse(Buffer.from(entry?.value ?? []).toString()) as { keys: { wrappedBy: string }[] }
  const id = randomBytes(4).toString('hex')
  const nonce = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', keyEncryptionKey, nonce).setAAD(Buffer.from(`${dataKeyKey}/${id}`))
  const wrapped = Buffer.concat([nonce, cipher.update(randomBytes(32)), cipher.final(), cipher.getAuthTag()])
  const added = { id, wrappedBy: stored.keys[0]?.wrappedBy, wrapped: wrapped.toString('base64') }
  const value = Buffer.from(JSON.stringify({ ...stored, active: id, keys: [...stored.keys, added] }))
  await store.transact({ guards: [], writes: [{ kind: 'put', key: dataKeyKey, value }] }, signal)
}
