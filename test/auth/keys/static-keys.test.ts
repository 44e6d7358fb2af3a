import { generateKeyPairSync } from 'node:crypto'
import { generateKeyPair, exportJWK, type JWK } from 'jose'
import { describe, expect, test } from 'vitest'
import { KeySetError } from '../../../src/auth/keys/key-set.ts'
import { assertVerifying, parseStaticKeys } from '../../../src/auth/keys/static-keys.ts'
import { testKey } from '../parts.ts'

const jwks = (...keys: unknown[]): string => JSON.stringify({ keys })

describe('a JWKS of static keys', () => {
  test('a JWKS of static keys may hold up to twenty public keys of several kinds', async () => {
    const kinds = await Promise.all(['RS256', 'ES256', 'EdDSA'].map((algorithm) => testKey(algorithm)))
    expect(parseStaticKeys(jwks(...kinds.map((key) => key.jwk))).keys).toHaveLength(3)
    const key = (await testKey()).jwk
    expect(parseStaticKeys(jwks(...Array.from({ length: 20 }, () => key))).keys).toHaveLength(20)
  })

  test('a JWKS of static keys is equal to another JWKS with the same keys in any notation', async () => {
    const { jwk } = await testKey()
    const reversed = Object.fromEntries(Object.entries(jwk).toReversed())
    expect(parseStaticKeys(jwks(jwk)).id).toBe(parseStaticKeys(`\n${jwks(reversed)}`).id)
    expect(parseStaticKeys(jwks(jwk)).id).not.toBe(parseStaticKeys(jwks({ ...jwk, kid: 'other' })).id)
  })

  test('a JWKS of static keys is refused with a private key of any kind, and the error does not repeat the key', async () => {
    for (const algorithm of ['RS256', 'ES256', 'EdDSA']) {
      const secret = await exportJWK((await generateKeyPair(algorithm, { extractable: true })).privateKey)
      const parse = (): unknown => parseStaticKeys(jwks(secret))
      expect(parse).toThrow(KeySetError)
      expect(parse).toThrow(/^the JWKS has a private or symmetric key$/)
    }
  })

  test.each([
    ['no JSON', '{"keys":[{"d":"secret"'],
    ['no list of keys', '{}'],
    ['null', 'null'],
    ['an empty list of keys', jwks()],
    ['an item that is not a key', jwks(1)],
    ['a symmetric key', jwks({ kty: 'oct', k: 'AAAA' })],
    ['an unknown key type', jwks({ kty: 'XYZ' })],
    ['the name of an inherited property as key type', jwks({ kty: 'constructor' })],
    ['an RSA key without modulus', jwks({ kty: 'RSA', e: 'AQAB' })],
    ['an oversized RSA key', jwks({ kty: 'RSA', e: 'AQAB', n: 'A'.repeat(1400) })],
    ['an RSA key with an oversized exponent', jwks({ kty: 'RSA', e: 'A'.repeat(300), n: 'A'.repeat(342) })],
    ['an encryption key', jwks({ kty: 'RSA', e: 'AQAB', n: 'A'.repeat(342), use: 'enc' })],
    ['too many keys', jwks(...Array.from({ length: 21 }, () => ({ kty: 'OKP', crv: 'Ed25519', x: 'AA' })))],
    ['too much text', `${jwks({ kty: 'OKP', crv: 'Ed25519', x: 'AA' })}${' '.repeat(65_536)}`],
  ])('a JWKS of static keys is refused with %s', (_name, text) => {
    expect(() => parseStaticKeys(text)).toThrow(KeySetError)
  })
})

describe('a key that can never verify a token', () => {
  const point = { crv: 'P-256', x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU', y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0' }
  const smallRsa = async (): Promise<JWK> => generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'jwk' })
  test.each<[string, JWK | (() => Promise<JWK>)]>([
    ['an RSA key of 1024 bits', smallRsa],
    ['a curve that no algorithm uses', { kty: 'EC', ...point, crv: 'secp256k1' }],
    ['a point that is not on its curve', { kty: 'EC', ...point, y: point.x }],
    ['a key for key agreement', { kty: 'OKP', crv: 'X25519', x: 'hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo' }],
    ['a point of another length', { kty: 'OKP', crv: 'Ed25519', x: 'AA' }],
    ['an algorithm that is not accepted', { kty: 'EC', ...point, alg: 'ES256K' }],
    ['an algorithm of another kind of key', { kty: 'EC', ...point, alg: 'RS256' }],
    ['an algorithm of another curve', { kty: 'EC', ...point, alg: 'ES384' }],
    ['a symmetric algorithm', { kty: 'EC', ...point, alg: 'HS256' }],
    ['key operations without verify', { kty: 'EC', ...point, key_ops: ['encrypt'] }],
  ])('a key that can never verify a token is refused with a reason: %s', async (_name, key) => {
    const jwk = typeof key === 'function' ? await key() : key
    expect(() => assertVerifying(jwks(jwk))).toThrow(KeySetError)
  })

  test.each(['RS256', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'])('a key that can never verify a token is not reported if it fits %s', async (algorithm) => {
    const { jwk } = await testKey(algorithm)
    assertVerifying(jwks(jwk, { ...jwk, alg: undefined, kid: 'without' }))
  })
})
