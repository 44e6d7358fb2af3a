import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from 'jose'
import { publicPart } from '../keys/key-set.ts'

/** The claims of a password token. */
export interface PasswordClaims {
  readonly issuer: string
  readonly subject: string
  readonly audience: string
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** A token that is used like a password, and the public key for an identity with static keys that accepts it. */
export interface PasswordToken {
  /** The token. Its private key was discarded, so no other token can be signed with it. */
  readonly token: string
  /** The text of a JWKS with the public key that verifies the token. */
  readonly issuerKeys: string
}

const algorithm = 'ES256'

/** Signs one token with a new key, and discards the private key. */
export async function createPasswordToken(claims: PasswordClaims): Promise<PasswordToken> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { extractable: true })
  const bare = publicPart(await exportJWK(publicKey))
  const kid = await calculateJwkThumbprint(bare)
  const token = await new SignJWT()
    .setProtectedHeader({ alg: algorithm, kid, typ: 'JWT' })
    .setIssuer(claims.issuer)
    .setSubject(claims.subject)
    .setAudience(claims.audience)
    .setIssuedAt(Math.floor(claims.issuedAtMs / 1000))
    .setExpirationTime(Math.floor(claims.expiresAtMs / 1000))
    .sign(privateKey)
  return { token, issuerKeys: JSON.stringify({ keys: [{ ...bare, kid, alg: algorithm, use: 'sig' }] }) }
}
