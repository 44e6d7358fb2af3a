import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { changeKeyEncryption, createKeyring, dataKeyKey, parseKeyEncryptionKey } from '../../../src/auth/keys/sealing.ts'
import { failure, freshStore, random, signal, thrown } from '../parts.ts'

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

describe('a keyring', () => {
  test('a keyring opens what it sealed, also after a restart, and only with the same context', async () => {
    const store = await freshStore()
    const keyEncryptionKey = randomBytes(32)
    const sealed = (await createKeyring({ store, keyEncryptionKey, random }, signal)).seal(Buffer.from('secret'), 'a')
    const again = await createKeyring({ store, keyEncryptionKey, random }, signal)
    expect(text(again.open(sealed, 'a'))).toBe('secret')
    expect(await thrown(() => again.open(sealed, 'b'))).toBe('unreadable')
    expect(text(sealed)).not.toContain('secret')
  })

  test('a keyring gets the same data key in all processes that start at once on a new store', async () => {
    const store = await freshStore()
    const keyEncryptionKey = randomBytes(32)
    const rings = await Promise.all(Array.from({ length: 8 }, () => createKeyring({ store, keyEncryptionKey, random }, signal)))
    const sealed = rings.map((ring) => ring.seal(Buffer.from('x'), 'c'))
    for (const ring of rings) expect(sealed.map((one) => text(ring.open(one, 'c')))).toEqual(sealed.map(() => 'x'))
  })

  test('a keyring refuses to start with another key encryption key', async () => {
    const store = await freshStore()
    await createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal)
    expect(await failure(createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal))).toBe('wrong_key')
  })

  test('a keyring changes its key encryption key: both keys open the store after the addition, only the new one after the retirement', async () => {
    const store = await freshStore()
    const [old, next] = [randomBytes(32), randomBytes(32)]
    const before = await createKeyring({ store, keyEncryptionKey: old, random }, signal)
    const sealed = before.seal(Buffer.from('secret'), 'a')
    const opens = async (keyEncryptionKey: Uint8Array): Promise<string> =>
      text((await createKeyring({ store, keyEncryptionKey, random }, signal)).open(sealed, 'a'))
    const change = (keyEncryptionKey: Uint8Array, by: { add: Uint8Array } | { retire: Uint8Array }): Promise<number> =>
      changeKeyEncryption({ store, keyEncryptionKey, random }, by, signal)
    expect(await failure(change(next, { add: next }))).toBe('wrong_key')
    expect(await Promise.all([change(old, { add: next }), change(old, { add: next })])).toEqual([2, 2])
    const added = await store.get(dataKeyKey, signal)
    expect(await change(next, { add: old })).toBe(2)
    expect(await store.get(dataKeyKey, signal)).toEqual(added)
    expect([await opens(old), await opens(next)]).toEqual(['secret', 'secret'])
    expect(await failure(change(next, { retire: next }))).toBe('wrong_key')
    expect(await change(next, { retire: old })).toBe(1)
    expect(await failure(opens(old))).toBe('wrong_key')
    expect(await opens(next)).toBe('secret')
    expect(await change(next, { retire: old })).toBe(1)
    // A process that kept running still has the data key.
    expect(text(before.open(before.seal(Buffer.from('x'), 'b'), 'b'))).toBe('x')
  })

  test('a keyring refuses to retire a key that is the only one to open a data key', async () => {
    const store = await freshStore()
    const [old, next] = [randomBytes(32), randomBytes(32)]
    await createKeyring({ store, keyEncryptionKey: old, random }, signal)
    await changeKeyEncryption({ store, keyEncryptionKey: old, random }, { add: next }, signal)
    const stored = JSON.parse(text((await store.get(dataKeyKey, signal))?.value ?? new Uint8Array())) as { keys: { id: string; wrappedBy: string }[] }
    const foreign = { ...stored, keys: [...stored.keys, { ...stored.keys[0], id: '00000000' }] }
    await store.transact({ guards: [], writes: [{ kind: 'put', key: dataKeyKey, value: Buffer.from(JSON.stringify(foreign)) }] }, signal)
    expect(await failure(changeKeyEncryption({ store, keyEncryptionKey: next, random }, { retire: old }, signal))).toBe('wrong_key')
  })

  test('a keyring has no key to change in a new store', async () => {
    const options = { store: await freshStore(), keyEncryptionKey: randomBytes(32), random }
    await expect(changeKeyEncryption(options, { retire: randomBytes(32) }, signal)).rejects.toThrow('no data key')
  })

  test('a keyring detects every changed byte and every truncation', async () => {
    const ring = await createKeyring({ store: await freshStore(), keyEncryptionKey: randomBytes(32), random }, signal)
    const sealed = ring.seal(Buffer.from('secret'), 'a')
    for (let at = 0; at < sealed.length; at += 1) {
      const changed = Uint8Array.from(sealed, (byte, index) => (index === at ? byte ^ 1 : byte))
      expect(['unreadable', 'unknown_key']).toContain(await thrown(() => ring.open(changed, 'a')))
      expect(await thrown(() => ring.open(sealed.subarray(0, at), 'a'))).toBe('unreadable')
    }
  })

  test('a keyring stores its data key only in sealed form', async () => {
    const store = await freshStore()
    const dataKey = randomBytes(32)
    await createKeyring({ store, keyEncryptionKey: randomBytes(32), random: { bytes: (count) => (count === 32 ? dataKey : randomBytes(count)) } }, signal)
    const entry = await store.get(dataKeyKey, signal)
    expect(text(entry?.value ?? new Uint8Array())).not.toContain(dataKey.toString('base64'))
  })
})

test.each(['raw', 'hex', 'base64', 'base64url'] as const)('a key encryption key is accepted as %s', (form) => {
  const key = randomBytes(32)
  const content = form === 'raw' ? key : Buffer.from(`${key.toString(form)}\n`)
  expect(Buffer.from(parseKeyEncryptionKey(content)).equals(key)).toBe(true)
})

test.each([0, 16, 31, 33, 64])('a key encryption key of %i bytes is refused', async (length) => {
  expect(await thrown(() => parseKeyEncryptionKey(randomBytes(length)))).toBe('bad_key')
})
