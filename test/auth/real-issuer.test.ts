import type { RequestListener } from 'node:http'
import { exportJWK, generateKeyPair } from 'jose'
import type { JWK } from 'jose'
import Provider from 'oidc-provider'
import { describe, expect, test } from 'vitest'
import { matchClaims } from '../../src/auth/oidc/claim-match.ts'
import { decodeToken } from '../../src/auth/access-tokens/decoded-token.ts'
import type { DecodedToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { createIssuerKeys } from '../../src/auth/oidc/issuer-keys.ts'
import { createSignatureChecks } from '../../src/auth/access-tokens/signature-checks.ts'
import { createTokenVerifier } from '../../src/auth/access-tokens/token-verifier.ts'
import { failure, listen, signal, testClock, testFetch } from './parts.ts'

const audience = 'https://console.example.com'

async function privateJwk(algorithm: string, kid: string): Promise<JWK> {
  return { ...(await exportJWK((await generateKeyPair(algorithm, { extractable: true })).privateKey)), kid, alg: algorithm, use: 'sig' }
}

function provider(issuer: string, algorithm: string, keys: readonly JWK[]): RequestListener {
  const client = { client_id: 'ci-job', client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }
  const api = { scope: 'api', audience, accessTokenTTL: 600, accessTokenFormat: 'jwt', jwt: { sign: { alg: algorithm } } }
  return new Provider(issuer, {
    clients: [client],
    jwks: { keys },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: { enabled: true, defaultResource: () => audience, getResourceServerInfo: () => api },
    },
  }).callback()
}

async function realIssuer(algorithm: string) {
  let handler: RequestListener = (_request, response) => response.end()
  const issuer = await listen((request, response) => void handler(request, response))
  const use = (keys: readonly JWK[]): void => {
    handler = provider(issuer, algorithm, keys)
  }
  // RS256 is always there: the package needs it for its own defaults.
  const base = [await privateJwk('RS256', 'base')]
  const first = await privateJwk(algorithm, 'first')
  use([first, ...base])
  const token = async (): Promise<DecodedToken> => {
    const body = new URLSearchParams({ grant_type: 'client_credentials', resource: audience, client_id: 'ci-job', client_secret: 'secret' })
    const response = await fetch(`${issuer}/token`, { method: 'POST', body })
    const { access_token: text } = (await response.json()) as { access_token: string } // a cast of the provider's answer
    return decodeToken(text)
  }
  const clock = testClock(Date.now())
  const issuerKeys = createIssuerKeys({ fetch: testFetch(), clock, configured: [{ issuer, allowPrivate: true }] })
  const verifier = createTokenVerifier({ issuerKeys, checks: createSignatureChecks({ clock }), clock })
  return { issuer, base, use, token, clock, verify: (one: DecodedToken) => verifier.verifyByIssuer(one, { named: [] }, signal) }
}

describe('tokens of a real OpenID provider', () => {
  test.each(['RS256', 'PS256', 'ES256', 'EdDSA'])('tokens of a real OpenID provider signed with %s are verified and matched', async (algorithm) => {
    const { issuer, token, verify } = await realIssuer(algorithm)
    const one = await token()
    expect(one.algorithm).toBe(algorithm)
    await verify(one)
    expect(matchClaims({ issuer, subject: 'ci-job', claims: { scope: 'api' } }, one, [audience])).toBeUndefined()
    expect(matchClaims({ issuer, subject: 'ci-job', claims: { client_id: 'ci-job' } }, one, [audience])).toBe(audience)
    expect(matchClaims({ issuer, subject: 'other' }, one, [audience])).toBeUndefined()
    expect(matchClaims({ issuer, subject: 'ci-job' }, one, ['https://other.example'])).toBeUndefined()
  })

  test('tokens of a real OpenID provider signed with a rotated key are verified', async () => {
    const { base, use, token, clock, verify } = await realIssuer('ES256')
    await verify(await token())
    use([await privateJwk('ES256', 'second'), ...base])
    const fresh = await token()
    expect(fresh.keyId).toBe('second')
    expect(await failure(verify(fresh))).toBe('unknown_key')
    clock.advance(30_000)
    expect(await failure(verify(fresh))).toBe('no failure')
  })
})
