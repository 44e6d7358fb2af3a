import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createKeyring, dataKeyKey, parseKeyEncryptionKey } from '../../src/authn/sealing.ts'
import { failure, freshStore, random, signal, thrown } from './parts.ts'

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

describe('a keyring', () => {
  test('opens what it sealed, after a restart too, and only with the same context', async () => {
    const store = await freshStore()
    const keyEncryptionKey = randomBytes(32)
    const sealed = (await createKeyring({ store, keyEncryptionKey, random }, signal)).seal(Buffer.from('secret'), 'a')
    const again = await createKeyring({ store, keyEncryptionKey, random }, signal)
    expect(text(again.open(sealed, 'a'))).toBe('secret')
    expect(await thrown(() => again.open(sealed, 'b'))).toBe('unreadable')
    expect(text(sealed)).not.toContain('secret')
  })

  test('of many processes that start at once in a fresh store all have the same data key', async () => {
    const store = await freshStore()
    const keyEncryptionKey = randomBytes(32)
    const rings = await Promise.all(Array.from({ length: 8 }, () => createKeyring({ store, keyEncryptionKey, random }, signal)))
    const sealed = rings.map((ring) => ring.seal(Buffer.from('x'), 'c'))
    for (const ring of rings) expect(sealed.map((one) => text(ring.open(one, 'c')))).toEqual(sealed.map(() => 'x'))
  })

  test('refuses to start with another key encryption key', async () => {
    const store = await freshStore()
    await createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal)
    expect(await failure(createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal))).toBe('wrong_key')
  })

  test('notices every changed byte and every cut', async () => {
    const ring = await createKeyring({ store: await freshStore(), keyEncryptionKey: randomBytes(32), random }, signal)
    const sealed = ring.seal(Buffer.from('secret'), 'a')
    for (let at = 0; at < sealed.length; at += 1) {
      const changed = Uint8Array.from(sealed, (byte, index) => (index === at ? byte ^ 1 : byte))
      expect(['unreadable', 'unknown_key']).toContain(await thrown(() => ring.open(changed, 'a')))
      expect(await thrown(() => ring.open(sealed.subarray(0, at), 'a'))).toBe('unreadable')
    }
  })

  test('never shows its data key in the store', async () => {
    const store = await freshStore()
    const dataKey = randomBytes(32)
    await createKeyring({ store, keyEncryptionKey: randomBytes(32), random: { bytes: (count) => (count === 32 ? dataKey : randomBytes(count)) } }, signal)
    const entry = await store.get(dataKeyKey, signal)
    expect(text(entry?.value ?? new Uint8Array())).not.toContain(dataKey.toString('base64'))
  })
})

test.each(['raw', 'hex', 'base64', 'base64url'] as const)('a key encryption key may be given as %s', (form) => {
  const key = randomBytes(32)
  const content = form === 'raw' ? key : Buffer.from(`${key.toString(form)}\n`)
  expect(Buffer.from(parseKeyEncryptionKey(content)).equals(key)).toBe(true)
})

test.each([0, 16, 31, 33, 64])('%i bytes are no key encryption key', async (length) => {
  expect(await thrown(() => parseKeyEncryptionKey(randomBytes(length)))).toBe('bad_key')
})
