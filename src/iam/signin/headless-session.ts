import { createCipheriv, createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto'
import type { Random } from '../../base/runtime.ts'

/** Token that only the holder of one private key can decrypt (docs/spec/tokens.md#device-sign-in). */
export interface HeadlessSession {
  /** Public key of Taproot for the key agreement: base64url of an X25519 public key. */
  readonly publicKey: string
  /** AES-256-GCM with the raw shared secret: first the nonce, at the end the tag. */
  readonly encrypted: Uint8Array
}

const codePattern = /^[A-Za-z0-9_-]{43}$/
const nonceBytes = 12

/** Returns the X25519 public key in a link of a headless client. Undefined if the text is not one. */
function keyOf(code: string): KeyObject | undefined {
  if (!codePattern.test(code)) return undefined
  return createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x: code }, format: 'jwk' })
}

/** Encrypts a token for the client with the public key `code`. Undefined if the key cannot agree on a secret. */
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

/** Points of small order yield no secret: OpenSSL refuses them (RFC 7748 6.1). */
function agreed(privateKey: KeyObject, publicKey: KeyObject): Buffer | undefined {
  try {
    return diffieHellman({ privateKey, publicKey })
  } catch (error) {
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_OSSL_')) return undefined
    throw error
  }
}

/** True if a token can be encrypted for this text. */
export function isHeadlessCode(code: string, random: Random): boolean {
  return encryptForHeadless(code, '', random) !== undefined
}
