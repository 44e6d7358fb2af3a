import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from 'jose'
import { publicPart } from '../keys/key-set.ts'

/** What a password token is to say. */
export interface PasswordClaims {
  readonly issuer: string
  readonly subject: string
  readonly audience: string
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** A token that stands for a password, and what an identity with static keys needs to know it. */
export interface PasswordToken {
  /** The token. Nothing can make another one: its key is gone. */
  readonly token: string
  /** A JWKS as text: the public half of the key that signed it. */
  readonly issuerKeys: string
}

const algorithm = 'ES256'

/** Signs one token with a key made for it alone. */
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
