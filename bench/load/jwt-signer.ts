import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

/** Header and claims of a JWT. */
export interface JwtShape {
  /** The header, base64url-encoded. */
  readonly header: string
  readonly claims: Readonly<Record<string, unknown>>
}

/**
 * Returns a function that signs JWTs of one shape by ES256, each with its own `jti`. It creates its key. It does only the work that such a
 * token needs.
 */
export function createJwtSigner({ header, claims }: JwtShape): () => string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return () => {
    const payload = JSON.stringify({ ...claims, jti: randomBytes(16).toString('hex') })
    const text = `${header}.${Buffer.from(payload).toString('base64url')}`
    return `${text}.${sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`
  }
}
