import { createHash, createPrivateKey, generateKeyPairSync, sign, type KeyObject } from 'node:crypto'
import type { JWK } from 'jose'
import { publicPart } from './key-set.ts'

/**
 * The signature algorithm of tokens that are signed once per request or event. Measured in node:crypto, per signature: ES256 30 us, Ed25519 49 us, RS256 291
 * us. All common verifiers support it.
 */
export const es256 = 'ES256'

/** A new P-256 key: its id, which is its JWK thumbprint (RFC 7638), its public half as a JWK, and its private half. */
export interface GeneratedEs256 {
  readonly id: string
  readonly jwk: JWK
  readonly privateKey: KeyObject
  readonly publicKey: KeyObject
}

/** Generates a new key. */
export function generateEs256(): GeneratedEs256 {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const bare = publicPart(publicKey.export({ format: 'jwk' }))
  const { crv, kty, x, y } = bare
  const id = createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url')
  return { id, jwk: { ...bare, kid: id, alg: es256, use: 'sig' }, privateKey, publicKey }
}

/** Returns the private key as the bytes that are encrypted and stored. */
export function exportEs256(privateKey: KeyObject): Uint8Array {
  return privateKey.export({ type: 'pkcs8', format: 'der' })
}

/** Returns the private key from the bytes that `exportEs256` returned. */
export function importEs256(secret: Uint8Array): KeyObject {
  return createPrivateKey({ key: Buffer.from(secret), type: 'pkcs8', format: 'der' })
}

/** Returns the encoded header of a JWT, which is the same for all tokens of a key. */
export function es256Header(kid: string, members: Readonly<Record<string, unknown>> = {}): string {
  return Buffer.from(JSON.stringify({ alg: es256, typ: 'JWT', kid, ...members })).toString('base64url')
}

/** Signs the claims and returns the JWT. `header` is the encoded header. */
export function signEs256(header: string, claims: Readonly<Record<string, unknown>>, privateKey: KeyObject): string {
  const text = `${header}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`
  const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${text}.${signature.toString('base64url')}`
}
