import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

/** What a JWT is made of. */
export interface JwtShape {
  /** Encoded. */
  readonly header: string
  readonly claims: Readonly<Record<string, unknown>>
}

/** Signs JWTs of one shape by ES256 with a key of its own, each with its own `jti`: nothing but what such a token takes. */
export function createJwtSigner({ header, claims }: JwtShape): () => string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return () => {
    const payload = JSON.stringify({ ...claims, jti: randomBytes(16).toString('hex') })
    const text = `${header}.${Buffer.from(payload).toString('base64url')}`
    return `${text}.${sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`
  }
}
