import { createServer, type RequestListener } from 'node:http'
import { exportJWK, generateKeyPair, importJWK, SignJWT, type CryptoKey, type JWK, type JWTPayload } from 'jose'
import Provider from 'oidc-provider'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'

/** A server on loopback whose handler can be replaced. */
interface Listening {
  readonly origin: string
  handler: RequestListener
  stop(): Promise<void>
}

async function listen(): Promise<Listening> {
  const server = createServer((request, response) => void listening.handler(request, response))
  const port = await listenOnLoopback(server)
  const listening: Listening = {
    origin: `http://127.0.0.1:${port}`,
    handler: (_request, response) => void response.writeHead(404).end(),
    stop: () => closeNow(server),
  }
  return listening
}

/** A private key as JWK, with kid and algorithm. */
export async function newKey(kid: string, algorithm = 'ES256'): Promise<JWK> {
  return { ...(await exportJWK((await generateKeyPair(algorithm, { extractable: true })).privateKey)), kid, alg: algorithm, use: 'sig' }
}

/** Returns a JWT with exactly these claims, signed by a private key. By default the header names the key. */
export async function signWith(key: JWK, claims: JWTPayload, header: Record<string, unknown> = {}): Promise<string> {
  const { alg = '', kid } = key
  // Only symmetric keys are imported as bytes.
  const secret = (await importJWK(key, alg)) as CryptoKey
  return await new SignJWT(claims).setProtectedHeader({ alg, ...(kid === undefined ? {} : { kid }), typ: 'JWT', ...header }).sign(secret)
}

/** A real OpenID provider on loopback (package oidc-provider) with client credentials. */
export interface OidcProvider {
  readonly issuer: string
  /** Returns its current key, so that tests can sign like the provider. */
  key(): JWK
  /** Replaces its key; the old one is no longer published. */
  rotate(kid: string): Promise<void>
  /** Issues a token to a client (`sub` is the client's id) for an audience. */
  token(client: string, audience: string): Promise<string>
  /** Returns the claims of such a token. */
  claims(changes?: JWTPayload): JWTPayload
  stop(): Promise<void>
}

/** Starts a provider with these clients. The id of a client is also its secret. */
export async function startOidcProvider(clients: readonly string[]): Promise<OidcProvider> {
  const server = await listen()
  // RS256 is always there: the package needs it for its own defaults.
  const base = await newKey('base', 'RS256')
  let key = await newKey('first')
  const use = (): void => {
    server.handler = new Provider(server.origin, {
      clients: clients.map((id) => ({ client_id: id, client_secret: id, grant_types: ['client_credentials'], redirect_uris: [], response_types: [] })),
      jwks: { keys: [key, base] },
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: (_context: unknown, audience: string) => ({
            scope: 'api',
            audience,
            accessTokenTTL: 600,
            accessTokenFormat: 'jwt',
            jwt: { sign: { alg: 'ES256' } },
          }),
        },
      },
    }).callback()
  }
  use()
  return {
    issuer: server.origin,
    key: () => key,
    async rotate(kid) {
      key = await newKey(kid)
      use()
    },
    async token(client, audience) {
      const body = new URLSearchParams({ grant_type: 'client_credentials', resource: audience, client_id: client, client_secret: client, scope: 'api' })
      const response = await fetch(`${server.origin}/token`, { method: 'POST', body })
      const { access_token: text } = (await response.json()) as { access_token?: string } // a cast of the provider's answer
      if (text === undefined) throw new Error(`the provider answered ${response.status}`)
      return text
    },
    claims(changes = {}) {
      const nowSeconds = Math.floor(Date.now() / 1000)
      return { iss: server.origin, sub: clients[0] ?? '', iat: nowSeconds, exp: nowSeconds + 600, ...changes }
    },
    stop: () => server.stop(),
  }
}

/** An issuer that accepts connections and requests and never answers. */
export interface HangingIssuer {
  readonly issuer: string
  /** Requests seen so far. */
  requests(): number
  stop(): Promise<void>
}

/** See HangingIssuer. */
export async function startHangingIssuer(): Promise<HangingIssuer> {
  const server = await listen()
  let seen = 0
  server.handler = () => {
    seen += 1
  }
  return { issuer: server.origin, requests: () => seen, stop: () => server.stop() }
}
