import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { benchIssuer } from '../data/generate.ts'

/** An issuer of OIDC tokens for the people of the benchmark. */
export interface Issuer {
  readonly jwksUri: string
  /** Returns a token of `subject` for this audience. */
  tokenOf(subject: string, audience: string): Promise<string>
  stop(): Promise<void>
}

const kid = 'bench'

/** Starts a server on loopback that serves the keys of `benchIssuer`. */
export async function startIssuer(): Promise<Issuer> {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
  const keys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' }] })
  const server = createServer((_request, response) => response.setHeader('content-type', 'application/json').end(keys))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  // a cast: a listening TCP server has an AddressInfo
  const { port } = server.address() as AddressInfo
  return {
    jwksUri: `http://127.0.0.1:${port}/jwks.json`,
    tokenOf: (subject, audience) =>
      new SignJWT({})
        .setProtectedHeader({ alg: 'ES256', kid })
        .setIssuer(benchIssuer)
        .setSubject(subject)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime('1h')
        .sign(privateKey),
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
