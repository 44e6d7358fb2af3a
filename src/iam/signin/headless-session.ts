import { createCipheriv, createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto'
import type { Random } from '../../base/runtime.ts'

/** A token that only the holder of one private key can decrypt (docs/spec/tokens.md#device-sign-in). */
export interface HeadlessSession {
  /** The platform's public key for the key agreement: X25519, base64url. */
  readonly publicKey: string
  /** The token, encrypted by AES-256-GCM with the raw shared secret. Begins with the nonce and ends with the tag. */
  readonly encrypted: Uint8Array
}

const codePattern = /^[A-Za-z0-9_-]{43}$/
const nonceBytes = 12

/** Parses the X25519 public key in a headless client's link; undefined if the text is not one. */
function keyOf(code: string): KeyObject | undefined {
  if (!codePattern.test(code)) return undefined
  return createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x: code }, format: 'jwk' })
}

/** Encrypts a token for the client with the public key `code`; undefined if no secret can be agreed with this key. */
export function encryptForHeadless(code: string, token: string, random: Random): HeadlessSession | undefined {
  const theirs = keyOf(code)
  if (theirs === undefined) return undefined
  const ours = generateKeyPairSync('x25519')
  const { x: publicKey = '' } = ours.publicKey.export({ format: 'jwk' })
  const secret = agreed(ours.privateKey, theirs)
  if (secret === undefined) return undefined
  const nonce = random.bytes(nonceBytes)
  const cipher = createCipheriv('aes-256-gcm', secret, nonce)
  return { publicKey, encrypted: Buffer.concat([nonce, cipher.update(token, 'utf8'), cipher.final(), cipher.getAuthTag()]) }
}

/** Returns the shared secret; undefined for points of small order, which OpenSSL refuses (RFC 7748 6.1). */
function agreed(privateKey: KeyObject, publicKey: KeyObject): Buffer | undefined {
  try {
    return diffieHellman({ privateKey, publicKey })
  } catch (error) {
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_OSSL_')) return undefined
    throw error
  }
}

/** Returns true if `code` is a public key for which a token can be encrypted. */
export function isHeadlessCode(code: string, random: Random): boolean {
  return encryptForHeadless(code, '', random) !== undefined
}
