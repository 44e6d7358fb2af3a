import { generateKeyPairSync, X509Certificate } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createKeyring } from '../../../src/auth/keys/sealing.ts'
import { issueAuthority, issueLeaf } from '../../../src/base/certificate.ts'
import { createRegistryKeys, registryKeySchedule, type RegistryKeys, authorityKey } from '../../../src/registry/tokens/registry-keys.ts'
import type { Store } from '../../../src/store/store.ts'
import { freshStore, random, signal, testClock, type TestClock } from '../../auth/parts.ts'

const dayMs = 24 * 3_600_000
const kek = Buffer.alloc(32, 7)

async function keysOf(store: Store, clock: TestClock): Promise<RegistryKeys> {
  const keyring = await createKeyring({ store, keyEncryptionKey: kek, random }, signal)
  return await createRegistryKeys({ store, keyring, clock, random }, signal)
}

function leafOf(keys: RegistryKeys): X509Certificate {
  const header = JSON.parse(Buffer.from(keys.current().header, 'base64url').toString()) as { x5c: [string] } // a cast of our own header
  return new X509Certificate(Buffer.from(header.x5c[0], 'base64'))
}

describe('the certificate authority of registry tokens', () => {
  test('the certificate authority of registry tokens is self-signed and valid for decades', async () => {
    const clock = testClock()
    const { authority } = await keysOf(await freshStore(), clock)
    const ca = new X509Certificate(authority.certificate)
    expect(ca.ca).toBe(true)
    expect(ca.subject).toMatch(/^CN=Taproot registry tokens [0-9a-f]{8}$/)
    expect(ca.issuer).toBe(ca.subject)
    expect(ca.checkIssued(ca)).toBe(true)
    expect(ca.verify(ca.publicKey)).toBe(true)
    expect(ca.validFromDate.getTime()).toBeLessThanOrEqual(clock.now())
    expect(ca.validToDate.getTime() - clock.now()).toBeGreaterThan(29 * 365 * dayMs)
  })

  test('the certificate authority of registry tokens is created once: by several servers that start at once, and by those that start later', async () => {
    const [store, clock] = [await freshStore(), testClock()]
    const all = await Promise.all(Array.from({ length: 4 }, () => keysOf(store, clock)))
    all.push(await keysOf(store, clock))
    const certificates = all.map(({ authority }) => authority.certificate.toString('base64'))
    expect(new Set(certificates).size).toBe(1)
    expect(new Set(all.map((keys) => keys.keySet().id)).size).toBe(1)
  })

  test('the certificate authority of registry tokens is stored encrypted, and so are the keys', async () => {
    const store = await freshStore()
    const keys = await keysOf(store, testClock())
    const secret = keys.current().privateKey.export({ format: 'jwk' }).d ?? ''
    const { entries } = await store.range({ prefix: 'meta/', limit: 100 }, signal)
    expect(entries.map(({ key }) => key)).toContain(authorityKey)
    const stored = entries.map(({ value }) => Buffer.from(value).toString('latin1')).join('\n')
    expect(stored).not.toContain(secret)
    expect(stored).not.toContain(Buffer.from(secret, 'base64url').toString('base64').slice(0, 30))
    const other = createKeyring({ store, keyEncryptionKey: Buffer.alloc(32, 8), random }, signal)
    await expect(other).rejects.toMatchObject({ reason: 'wrong_key' })
  })
})

describe('a key for registry tokens', () => {
  test('a key for registry tokens has a certificate that chains to the authority and may only sign', async () => {
    const clock = testClock()
    const keys = await keysOf(await freshStore(), clock)
    const [leaf, ca] = [leafOf(keys), new X509Certificate(keys.authority.certificate)]
    expect(leaf.ca).toBe(false)
    expect(leaf.checkIssued(ca)).toBe(true)
    expect(leaf.verify(ca.publicKey)).toBe(true)
    expect(leaf.checkPrivateKey(keys.current().privateKey)).toBe(true)
    expect(leaf.validFromDate.getTime()).toBeLessThanOrEqual(clock.now())
    const { rotateEveryMs, publishAheadMs, retainMs } = registryKeySchedule
    expect(leaf.validToDate.getTime()).toBeGreaterThan(clock.now() + rotateEveryMs + publishAheadMs + retainMs)
    expect(leaf.serialNumber).not.toBe(ca.serialNumber)
    expect(leaf.subject).toContain(keys.current().kid)
  })

  test('a key for registry tokens is replaced after a month; its tokens are still verified for a while', async () => {
    const [store, clock] = [await freshStore(), testClock()]
    const keys = await keysOf(store, clock)
    const first = keys.current()
    clock.advance(registryKeySchedule.rotateEveryMs - registryKeySchedule.publishAheadMs)
    await keys.maintain(signal)
    expect(keys.current().kid).toBe(first.kid)
    expect(keys.all()).toHaveLength(2)
    clock.advance(registryKeySchedule.publishAheadMs)
    expect(keys.current().kid).not.toBe(first.kid)
    expect(keys.find(first.kid)).toBeDefined()
    expect(keys.keySet().keys).toHaveLength(2)
    clock.advance(registryKeySchedule.retainMs)
    await keys.maintain(signal)
    expect(keys.find(first.kid)).toBeUndefined()
    expect(leafOf(keys).verify(new X509Certificate(keys.authority.certificate).publicKey)).toBe(true)
  })
})

test('certificates beyond 2049 and with unusual serial numbers are read as written', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  for (const [first, notAfterMs] of [
    [0, Date.UTC(2049, 11, 31, 23, 59, 59)],
    [255, Date.UTC(2050, 0, 1)],
    [127, Date.UTC(2099, 5, 1, 12, 30, 15)],
  ] as const) {
    const serial = Buffer.alloc(16, first)
    const request = { subject: 'é'.repeat(20), publicKey, serial, notBeforeMs: Date.UTC(2000, 0, 1), notAfterMs }
    const ca = new X509Certificate(issueAuthority(request, privateKey))
    expect(ca.validToDate.getTime()).toBe(notAfterMs)
    expect(ca.serialNumber).toBe(`01${serial.toString('hex').toUpperCase()}`)
    expect(ca.verify(publicKey)).toBe(true)
    const leaf = new X509Certificate(issueLeaf(request, { name: 'é'.repeat(20), privateKey }))
    expect(leaf.checkIssued(ca)).toBe(true)
  }
})
