import type { JsonObject } from '@bufbuild/protobuf'
import { exportJWK, importJWK, type JWTPayload } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { newKey, signWith, startHangingIssuer, startOidcProvider, type HangingIssuer, type OidcProvider } from './issuers.ts'
import { ways, type Outcome, type Way } from './ways.ts'

const subject = 'ci-job'
const clock = new TestClock()
let provider: OidcProvider
let otherProvider: OidcProvider
let hanging: HangingIssuer
let server: TestServer
let organisation: Organisation
let identity: string
let baseUrl: string

beforeAll(async () => {
  provider = await startOidcProvider([subject, 'other-job'])
  otherProvider = await startOidcProvider([subject])
  hanging = await startHangingIssuer()
  const issuers = [provider, otherProvider, hanging].map(({ issuer }) => ({ issuer, allowPrivate: true }))
  server = await startTestServer({ clock, env: { TAPROOT_ISSUERS: JSON.stringify(issuers) } })
  organisation = await makeOrganisation(server)
  baseUrl = server.config.baseUrl
  identity = await makeViewer({ issuer: provider.issuer, subject })
})
afterAll(async () => {
  await server.stop()
  await Promise.all([provider, otherProvider, hanging].map((issuer) => issuer.stop()))
})

/** Creates a viewer of the organisation that a claim match accepts. */
async function makeViewer(claimMatch: JsonObject): Promise<string> {
  const { group, token } = organisation
  const made = ok(await server.rest.call('CreateIdentity', { parent: group, identity: { name: freshName('ci'), claimMatch } }, { token }))
  const roleBinding = { identityUid: String(made['uid']), roleUid: roleUid('viewer') }
  ok(await server.rest.call('CreateRoleBinding', { parent: group, roleBinding }, { token }))
  return String(made['uid'])
}

function present(way: Way, token: string, as = identity): Promise<Outcome> {
  return way.present(server, { token, identity: as, group: organisation.group })
}

/** Returns a token with the provider's usual claims, signed by its key. */
function signed(changes: JWTPayload = {}): Promise<string> {
  return signWith(provider.key(), provider.claims({ aud: baseUrl, ...changes }))
}

const nowSeconds = (): number => Math.floor(Date.now() / 1000)

describe.each(ways)('$name', (way) => {
  test('a token of a real OIDC provider signs in as the identity that matches it', async () => {
    const outcome = await present(way, await provider.token(subject, baseUrl))
    expect(outcome).toMatchObject({ code: 0 })
    if (way.kind === 'direct') return
    const group = ok(await server.rest.call('GetGroup', { uid: organisation.group }, { token: outcome.token }))
    expect(group).toMatchObject({ uid: organisation.group })
    const who = ok(await server.grpc.call('Auth/Validate', {}, { token: outcome.token }))
    expect(who).toMatchObject({ issuer: baseUrl, subject: identity })
  })

  test.each([
    ['the base URL with a slash', () => `${baseUrl}/`],
    ['its bare host', () => new URL(baseUrl).host],
    ['one of several', () => ['https://elsewhere.example', baseUrl]],
  ])('an audience given as %s means this platform', async (_, aud) => {
    expect(await present(way, await signed({ aud: aud() }))).toMatchObject({ code: 0 })
  })

  test('a token for the registry host alone is refused at the API, and accepted at the exchange', async () => {
    const { host } = server.config.registry
    const refused = { code: 7, reason: 'PERMISSION_DENIED', message: 'the token is for another audience' }
    expect(await present(way, await signed({ aud: host }))).toMatchObject(way.kind === 'exchange' ? { code: 0 } : refused)
    expect(await present(way, await signed({ aud: [host, baseUrl] }))).toMatchObject({ code: 0 })
    const named = await makeViewer({ issuer: provider.issuer, subject, audience: host })
    expect(await present(way, await signed({ aud: host }), named)).toMatchObject(way.kind === 'exchange' ? { code: 0 } : refused)
  })

  test.each([
    ['expired', () => signed({ exp: nowSeconds() - 90 })],
    ['not valid yet', () => signed({ nbf: nowSeconds() + 120 })],
    ['unsigned (alg: none)', async () => `${encode({ alg: 'none' })}.${(await signed()).split('.')[1]}.`],
    ['said to be unsigned, with the signature left in place', async () => (await signed()).replace(/^[^.]*/, encode({ alg: 'none', kid: 'first' }))],
    ['signed with a secret made of the public key', () => signedWithPublicKey()],
    ['signed by a key that the issuer does not have', async () => signWith(await newKey('unknown'), provider.claims({ aud: baseUrl }))],
    ['signed by another key under the name of a known one', async () => signWith(await newKey('first'), provider.claims({ aud: baseUrl }))],
    ['changed after it was signed', async () => changed(await signed({ sub: 'other-job' }), { sub: subject })],
    ['one of another issuer that claims to be of this one', () => signWith(otherProvider.key(), provider.claims({ aud: baseUrl }))],
  ])('a token that is %s is refused', async (_, token) => {
    const outcome = await present(way, await token())
    expect(outcome).toMatchObject(way.kind === 'exchange' ? { code: 7, reason: 'PERMISSION_DENIED' } : { code: 16, reason: 'UNAUTHENTICATED' })
    expect(outcome.message).toMatch(/^verifying token: /)
    expect(outcome.token).toBeUndefined()
  })

  test('clocks may differ by one minute', async () => {
    const token = await signed({ exp: nowSeconds() - 30, nbf: nowSeconds() - 90 })
    expect(await present(way, token)).toMatchObject({ code: 0 })
    expect(await present(way, await signed({ nbf: nowSeconds() + 30 }))).toMatchObject({ code: 0 })
  })

  test('a token for another identity gets the same error, whatever differs', async () => {
    const otherAudience = await makeViewer({ issuer: provider.issuer, subject, audience: 'https://mine.example' })
    const withClaim = await makeViewer({ issuer: provider.issuer, subject, claims: { scope: 'admin' } })
    const withPattern = await makeViewer({ issuer: provider.issuer, subjectPattern: 'other-.*' })
    const outcomes = [
      await present(way, await otherProvider.token(subject, baseUrl)),
      await present(way, await provider.token('other-job', baseUrl)),
      await present(way, await provider.token(subject, 'https://elsewhere.example')),
      await present(way, await signed({ sub: subject.toUpperCase() })),
      await present(way, await signed({ aud: [] })),
      await present(way, await provider.token(subject, baseUrl), otherAudience),
      await present(way, await provider.token(subject, baseUrl), withClaim),
      await present(way, await provider.token(subject, baseUrl), withPattern),
      await present(way, await provider.token(subject, baseUrl), `${organisation.group}/${'0'.repeat(16)}`),
      await present(way, await signWith(await newKey('theirs'), { ...provider.claims({ aud: baseUrl }), iss: 'https://unknown.example' })),
    ]
    expect(outcomes[0]).toMatchObject({ code: 7, reason: 'PERMISSION_DENIED' })
    expect(outcomes[0]?.message).not.toMatch(/issuer|subject|audience|aud|claim\b/i)
    for (const outcome of outcomes) expect(outcome).toEqual(outcomes[0])
  })

  test.each([
    ['no token', ''],
    ['half a token', 'eyJhbGciOiJFUzI1NiJ9'],
    ['three words', 'x.y.z'],
  ])('%s is Unauthenticated', async (_, token) => {
    expect(await present(way, token)).toMatchObject({ code: 16, reason: 'UNAUTHENTICATED', token: undefined })
  })

  test('claims, patterns and a required audience are matched where the identity has them', async () => {
    const claimMatch = {
      issuerPattern: provider.issuer.replaceAll('.', '\\.'),
      subjectPattern: 'ci-.*',
      audience: 'https://mine.example',
      claims: { scope: 'api' },
      claimPatterns: { client_id: 'ci-(job|task)' },
    }
    const strict = await makeViewer(claimMatch)
    expect(await present(way, await provider.token(subject, 'https://mine.example'), strict)).toMatchObject({ code: 0 })
    expect(await present(way, await provider.token(subject, baseUrl), strict)).toMatchObject({ code: 7 })
    expect(await present(way, await provider.token('other-job', 'https://mine.example'), strict)).toMatchObject({ code: 7 })
    expect(await present(way, await otherProvider.token(subject, 'https://mine.example'), strict)).toMatchObject({ code: 7 })
  })
})

describe('keys and issuers that change or fail', () => {
  test.each(ways)('after a key rotation tokens of the new key are accepted and those of the old key refused: $name', async (way) => {
    const old = await provider.token(subject, baseUrl)
    expect(await present(way, old)).toMatchObject({ code: 0 })
    await provider.rotate(freshName('key'))
    const fresh = await provider.token(subject, baseUrl)
    // An unknown key makes the server fetch the keys again, at most once in 30 s.
    clock.advance(31_000)
    expect(await present(way, fresh)).toMatchObject({ code: 0 })
    expect(await present(way, old)).toMatchObject(way.kind === 'exchange' ? { code: 7 } : { code: 16 })
    expect((await present(way, old)).message).toMatch(/^verifying token: /)
  })

  test('with an issuer that hangs, the answer is Unavailable, in limited time, after one request, and without delay for others', async () => {
    const stuck = await makeViewer({ issuer: hanging.issuer, subject })
    const token = await signWith(provider.key(), { ...provider.claims({ aud: baseUrl }), iss: hanging.issuer })
    const startedAt = performance.now()
    const waiting = ways.map((way) => present(way, token, stuck))
    expect(ok(await server.rest.call('GetGroup', { uid: organisation.group }, { token: organisation.token }))).toMatchObject({ uid: organisation.group })
    expect(performance.now() - startedAt).toBeLessThan(3_000)
    for (const outcome of await Promise.all(waiting)) expect(outcome).toMatchObject({ code: 14, reason: 'UNAVAILABLE' })
    // 5 s (docs/spec/tokens.md#tenant-urls), plus time for a busy machine.
    expect(performance.now() - startedAt).toBeLessThan(9_000)
    expect(hanging.requests()).toBe(1)
    for (const way of ways) expect(await present(way, token, stuck)).toMatchObject({ code: 14 })
    expect(hanging.requests()).toBe(1)
  })

  test.each(ways)('an unconfigured issuer with a private address is never called: $name', async (way) => {
    const inside = await startHangingIssuer()
    const lured = await makeViewer({ issuer: inside.issuer, subject })
    const token = await signWith(provider.key(), { ...provider.claims({ aud: baseUrl }), iss: inside.issuer })
    // A retry will not help, so clients must not try again. The answer is the same as for an identity that does not exist.
    expect(await present(way, token, lured)).toMatchObject({ code: 7, message: 'the token does not match the identity' })
    expect(inside.requests()).toBe(0)
    await inside.stop()
  })
})

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

/** Returns the token with other claims and the old signature. */
function changed(token: string, changes: JsonObject): string {
  const [header = '', payload = '', signature = ''] = token.split('.')
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as JsonObject
  return [header, encode({ ...claims, ...changes }), signature].join('.')
}

/** Returns a token signed with HS256 and the public key as secret, a classic attack. */
async function signedWithPublicKey(): Promise<string> {
  const { d: _, ...publicKey } = provider.key()
  const bare = await exportJWK(await importJWK(publicKey, 'ES256'))
  const secret = { kty: 'oct', k: encode(bare), alg: 'HS256', kid: 'first' }
  return signWith(secret, provider.claims({ aud: baseUrl }))
}
