import { createServer } from 'node:http'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'

/** Lifetime of the issuer's own tokens in seconds: longer than clocks jump. */
const lifeSeconds = 24 * 3600
const algorithm = 'ES256'
const kid = 'faults'

/** A token issuer on loopback. */
export interface Issuer {
  readonly issuer: string
  /** Returns a token for this subject and audience. */
  token(subject: string, audience: string): Promise<string>
  close(): Promise<void>
}

/** Starts an issuer with a key of its own. */
export async function startIssuer(): Promise<Issuer> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { extractable: true })
  const jwk = { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: 'sig' }
  const server = createServer((request, response) => {
    const document = request.url === '/jwks.json' ? { keys: [jwk] } : { issuer, jwks_uri: `${issuer}/jwks.json` }
    response.setHeader('content-type', 'application/json').end(JSON.stringify(document))
  })
  const port = await listenOnLoopback(server)
  const issuer = `http://127.0.0.1:${port}`
  return {
    issuer,
    token: (subject, audience) => {
      const nowSeconds = Math.floor(Date.now() / 1000)
      // Valid for processes whose clock is ahead or behind.
      const claims = { iss: issuer, sub: subject, aud: audience, iat: nowSeconds - lifeSeconds, exp: nowSeconds + lifeSeconds }
      return new SignJWT(claims).setProtectedHeader({ alg: algorithm, kid }).sign(privateKey)
    },
    close: () => closeNow(server),
  }
}
