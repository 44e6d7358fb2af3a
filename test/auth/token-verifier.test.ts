import { createHmac } from 'node:crypto'
import { exportSPKI, importJWK } from 'jose'
import type { CryptoKey, JWTPayload } from 'jose'
import { describe, expect, test } from 'vitest'
import { decodeToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { createIssuerKeys } from '../../src/auth/oidc/issuer-keys.ts'
import { createSignatureChecks } from '../../src/auth/access-tokens/signature-checks.ts'
import { parseStaticKeys } from '../../src/auth/keys/static-keys.ts'
import { createTokenVerifier } from '../../src/auth/access-tokens/token-verifier.ts'
import { failure, localIssuer, sign, signal, testClock, testFetch, testKey, thrown } from './parts.ts'
import type { TestKey } from './parts.ts'

const unscoped = { named: [] }

async function ground(algorithm = 'ES256') {
  const key = await testKey(algorithm)
  const local = await localIssuer([key])
  const clock = testClock()
  const seconds = Math.floor(clock.now() / 1000)
  let checked = 0
  const checks = createSignatureChecks({ clock, onCheck: () => (checked += 1) })
  const issuerKeys = createIssuerKeys({ fetch: testFetch(), clock, configured: [{ issuer: local.issuer, allowPrivate: true }] })
  const verifier = createTokenVerifier({ issuerKeys, checks, clock })
  const claims: JWTPayload = { iss: local.issuer, sub: 'alice', aud: 'http://localhost:8080', iat: seconds, exp: seconds + 600 }
  const verify = async (text: string): Promise<void> => verifier.verifyByIssuer(decodeToken(text), unscoped, signal)
  return { key, local, clock, seconds, verifier, claims, verify, checkCount: () => checked }
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')

describe('an external token', () => {
  test.each(['RS256', 'RS512', 'PS256', 'ES256', 'ES384', 'ES512', 'EdDSA'])('an external token signed with %s is accepted', async (algorithm) => {
    const { key, claims, verify } = await ground(algorithm)
    expect(await failure(verify(await sign(key, claims)))).toBe('no failure')
  })

  test('an external token may leave out the key id', async () => {
    const { key, local, claims, verify } = await ground()
    local.keys = [(await testKey()).jwk, key.jwk, (await testKey()).jwk]
    expect(await failure(verify(await sign({ ...key }, claims, { kid: undefined })))).toBe('no failure')
  })

  test.each<[string, (claims: JWTPayload, seconds: number) => JWTPayload, string]>([
    ['that expired over a minute ago is refused', (claims, now) => ({ ...claims, exp: now - 60 }), 'expired'],
    ['that expired within the last minute is accepted', (claims, now) => ({ ...claims, exp: now - 59 }), 'no failure'],
    ['that is not valid for over a minute is refused', (claims, now) => ({ ...claims, nbf: now + 61 }), 'not_yet_valid'],
    ['that becomes valid within the next minute is accepted', (claims, now) => ({ ...claims, nbf: now + 60 }), 'no failure'],
    ['without exp is refused', ({ exp: _exp, ...claims }) => claims, 'unreadable'],
    ['without sub is refused', ({ sub: _sub, ...claims }) => claims, 'unreadable'],
    ['with an empty sub is refused', (claims) => ({ ...claims, sub: '' }), 'unreadable'],
    ['of an issuer that no record names is refused', (claims) => ({ ...claims, iss: 'https://other.example' }), 'unknown_issuer'],
    ['with an audience that is not a string is refused', (claims) => ({ ...claims, aud: [{}] as never }), 'unreadable'],
    ['that is too large is refused', (claims) => ({ ...claims, filler: 'x'.repeat(16 * 1024) }), 'too_large'],
  ])('%s', async (_name, change, error) => {
    const { key, claims, seconds, verify } = await ground()
    expect(await failure(verify(await sign(key, change(claims, seconds))))).toBe(error)
  })

  test.each(['logout+jwt', 'secevent+jwt', 'dpop+jwt'])('an external token of type %s is refused', async (typ) => {
    const { key, claims, verify } = await ground()
    expect(await failure(verify(await sign(key, claims, { typ })))).toBe('unreadable')
  })

  test.each(['JWT', 'jwt', 'at+jwt', 'application/at+jwt', 'JOSE'])('an external token of type %s is accepted', async (typ) => {
    const { key, claims, verify } = await ground()
    expect(await failure(verify(await sign(key, claims, { typ })))).toBe('no failure')
  })

  test('an external token with algorithm none is refused, with and without a signature', async () => {
    const { claims, verify, key } = await ground()
    const unsigned = `${encode({ alg: 'none' })}.${encode(claims)}.`
    expect(await failure(verify(unsigned))).toBe('algorithm')
    const [, , signature = ''] = (await sign(key, claims)).split('.')
    expect(await failure(verify(unsigned + signature))).toBe('algorithm')
  })

  test('an external token with HS256 and the public key as secret is refused', async () => {
    const { claims, verify, key } = await ground('RS256')
    const publicKey = await importJWK(key.jwk, 'RS256', { extractable: true })
    const pem = await exportSPKI(publicKey as CryptoKey) // a cast: a public RSA key
    const body = `${encode({ alg: 'HS256', kid: key.kid })}.${encode(claims)}`
    expect(await failure(verify(`${body}.${createHmac('sha256', pem).update(body).digest('base64url')}`))).toBe('algorithm')
  })

  test('an external token with its own key in the header is refused', async () => {
    const { claims, verify } = await ground()
    const own = await testKey()
    expect(await failure(verify(await sign(own, claims, { jwk: own.jwk })))).toBe('unknown_key')
  })

  test('an external token with the key id of another key is refused', async () => {
    const { claims, verify, key } = await ground()
    const other = await testKey('ES256', key.kid)
    expect(await failure(verify(await sign(other, claims)))).toBe('signature')
  })

  test('an external token whose payload was changed is refused', async () => {
    const { claims, verify, key } = await ground()
    const [header = '', , signature = ''] = (await sign(key, claims)).split('.')
    expect(await failure(verify(`${header}.${encode({ ...claims, sub: 'bob' })}.${signature}`))).toBe('signature')
  })

  test.each(['', 'x', 'a.b', 'a.b.c', 'a.b.c.d.e', '..', `${encode({ alg: 'ES256' })}.${encode([])}.x`, `${encode({ alg: 'ES256' })}.bm90IGpzb24.x`])(
    'an external token given as %j is refused as malformed',
    async (text) => {
      expect(await thrown(() => decodeToken(text))).toBe('unreadable')
    },
  )

  test('an external token with unencoded payload or critical extensions is refused', async () => {
    const { claims } = await ground()
    for (const header of [
      { alg: 'ES256', crit: ['b64'], b64: false },
      { alg: 'ES256', b64: false },
      { alg: 'ES256', crit: ['x'], x: 1 },
    ]) {
      expect(await thrown(() => decodeToken(`${encode(header)}.${encode(claims)}.AA`))).toBe('unreadable')
    }
  })

  test('an external token signed with a rotated key is accepted once the keys may be fetched again, and the retired key is refused', async () => {
    const { key, local, claims, clock, verify } = await ground()
    const old = await sign(key, claims)
    await verify(old)
    const rotated = await testKey()
    local.keys = [rotated.jwk]
    const fresh = await sign(rotated, claims)
    expect(await failure(verify(fresh))).toBe('unknown_key')
    clock.advance(30_000)
    expect(await failure(verify(fresh))).toBe('no failure')
    expect(await failure(verify(old))).toBe('unknown_key')
  })
})

describe('the cache of verified tokens', () => {
  test('the cache of verified tokens verifies one token a thousand times with one signature check', async () => {
    const { key, claims, verify, checkCount } = await ground()
    const text = await sign(key, claims)
    await Promise.all(Array.from({ length: 500 }, () => verify(text)))
    for (let again = 0; again < 500; again += 1) await verify(text)
    expect(checkCount()).toBe(1)
  })

  test('the cache of verified tokens keeps a result for five minutes, and checks token times on each use', async () => {
    const { key, claims, clock, verify, checkCount } = await ground()
    const text = await sign(key, claims)
    await verify(text)
    clock.advance(300_000 - 1)
    await verify(text)
    expect(checkCount()).toBe(1)
    clock.advance(1)
    await verify(text)
    expect(checkCount()).toBe(2)
    clock.advance(360_000)
    expect(await failure(verify(text))).toBe('expired')
  })

  test('the cache of verified tokens never keeps a failure', async () => {
    const { key, claims, verify, checkCount } = await ground()
    const text = await sign(await testKey('ES256', key.kid), claims)
    expect([await failure(verify(text)), await failure(verify(text)), checkCount()]).toEqual(['signature', 'signature', 2])
  })

  test('the cache of verified tokens has a size limit', async () => {
    const clock = testClock()
    const key = await testKey()
    let checked = 0
    const checks = createSignatureChecks({ clock, limit: 2, onCheck: () => (checked += 1) })
    const set = parseStaticKeys(JSON.stringify({ keys: [key.jwk] }))
    const tokens = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(async (sub) => decodeToken(await sign(key, { iss: 'i', sub, exp: 1 }))))
    for (const token of [...tokens, ...tokens]) await checks.check(token, set)
    expect(checked).toBe(12)
  })

  test("the cache of verified tokens is separate for each key set: identities with static keys of one issuer never accept each other's tokens", async () => {
    const { verifier, claims } = await ground()
    const kid = 'same'
    const [mine, theirs] = [await testKey('ES256', kid), await testKey('ES256', kid)]
    const set = (key: TestKey) => parseStaticKeys(JSON.stringify({ keys: [key.jwk] }))
    const token = decodeToken(await sign(mine, claims))
    for (const round of ['first', 'remembered']) {
      expect(await failure(verifier.verifyByKeys(token, set(mine))), round).toBe('no failure')
      expect(await failure(verifier.verifyByKeys(token, set(theirs))), round).toBe('signature')
    }
  })
})
