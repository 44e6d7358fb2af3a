import { randomBytes } from 'node:crypto'
import type { JWTPayload } from 'jose'
import { isWithin, trustedUid } from '../../src/base/uid.ts'
import type { Uid } from '../../src/base/uid.ts'
import { createAuthenticator } from '../../src/auth/access-tokens/authenticator.ts'
import { defaultAudiences, createTokenVerifier } from '../../src/auth/access-tokens/token-verifier.ts'
import { createExchange, createTokenIssue } from '../../src/iam/signin/exchange.ts'
import type { ExchangeInput } from '../../src/iam/signin/exchange.ts'
import { createExternalSignIn, isConfiguredIssuer } from '../../src/auth/oidc/external-sign-in.ts'
import type { Relationship } from '../../src/auth/oidc/external-sign-in.ts'
import type { ProviderFacts } from '../../src/auth/oidc/trust-domain.ts'
import { createIssuerKeys } from '../../src/auth/oidc/issuer-keys.ts'
import type { SafeFetch } from '../../src/auth/safe-fetch.ts'
import { createPlatformTokens } from '../../src/auth/access-tokens/platform-token.ts'
import type { Operator } from '../../src/auth/access-tokens/principal.ts'
import { createKeyring } from '../../src/auth/keys/sealing.ts'
import { createSignatureChecks } from '../../src/auth/access-tokens/signature-checks.ts'
import { createSigningKeys } from '../../src/auth/keys/signing-keys.ts'
import { freshStore, localIssuer, random, sign, signal, testClock, testFetch, testKey } from './parts.ts'

/** The names that these tests share. */
export const baseUrl = 'http://localhost:8080'
export const registry = 'registry.example'
export const root = trustedUid('a'.repeat(40))
export const uid = trustedUid(`${root}/${'b'.repeat(16)}`)
export const mismatch = '7: the token does not match the identity'

/**
 * Creates all parts of an exchange, with one local issuer in the configuration and one outside it. `allowForeign` permits the private address of the second
 * issuer.
 */
export async function ground({ allowForeign = false, timeoutMs = 20_000 } = {}) {
  const clock = testClock()
  const key = await testKey()
  const local = await localIssuer([key])
  const foreign = await localIssuer([key])
  const operators: Operator[] = [{ issuer: local.issuer, subject: 'root-operator' }]
  const identities = new Map<string, Relationship>()
  const people = new Set<string>()
  const providers: ProviderFacts[] = []
  const bound = new Map<string, readonly Uid[]>()
  const store = await freshStore()
  const keyring = await createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal)
  const checks = createSignatureChecks({ clock })
  const fetch = testFetch()
  const open: SafeFetch = { ...fetch, json: (request, aborted) => fetch.json({ ...request, allowPrivate: true }, aborted) }
  const issuerKeys = createIssuerKeys({ fetch: allowForeign ? open : fetch, clock, configured: [{ issuer: local.issuer, allowPrivate: true }], timeoutMs })
  const tokens = createPlatformTokens({ issuer: baseUrl, keys: await createSigningKeys({ store, keyring, clock }, signal), checks, clock, random })
  const createTimeMs = clock.now() - 1000
  const signIn = createExternalSignIn({
    verifier: createTokenVerifier({ issuerKeys, checks, clock }),
    issuerKeys,
    clock,
    ownIssuer: baseUrl,
    audiences: defaultAudiences(baseUrl, registry),
    operators,
    identityOf(asked: Uid) {
      const relationship = identities.get(asked)
      return relationship === undefined ? undefined : { uid: asked, createTimeMs, relationship }
    },
    personOf: (asked: Uid) => (people.has(asked) ? { createTimeMs } : undefined),
    providersOf: (issuer) => (issuer === foreign.issuer || issuer === local.issuer ? providers.filter((provider) => provider.issuer === issuer) : []),
    isBoundWithin: (person, group) => (bound.get(person) ?? []).some((uid) => isWithin(uid, group)),
    rolesOf: (provider, groups) => (groups.includes('dev') ? [{ group: provider.group, role: uid, externalGroup: 'dev' }] : []),
  })
  const exchange = createExchange(
    { external: signIn, aws: () => Promise.reject(new Error('no AWS here')) },
    createTokenIssue({
      tokens,
      audiences: [baseUrl, registry],
      defaultAudience: baseUrl,
      trusts: (issuer) => isConfiguredIssuer({ issuerKeys, operators }, issuer),
    }),
  )
  const authenticator = createAuthenticator({ tokens, signIn, ownIssuer: baseUrl, audiences: [baseUrl, `${baseUrl}/`], operators, clock })
  const seconds = Math.floor(clock.now() / 1000)
  const claims = (changes: JWTPayload = {}): JWTPayload => ({ iss: local.issuer, sub: 'alice', aud: baseUrl, iat: seconds, exp: seconds + 300, ...changes })
  const token = (changes: JWTPayload = {}): Promise<string> => sign(key, claims(changes))
  const ask = async (text: string, input: Partial<ExchangeInput> = {}) =>
    exchange({ authorization: `Bearer ${text}`, aud: [], scopes: [], cap: [], ...input }, signal)
  identities.set(uid, { kind: 'claimMatch', match: { issuer: local.issuer, subject: 'alice' } })
  return { clock, key, local, foreign, operators, identities, people, providers, bound, exchange, authenticator, claims, token, ask, seconds, tokens, signIn }
}
