import type { JsonObject } from '@bufbuild/protobuf'
import type { JWK } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { newKey, signWith } from './issuers.ts'
import { ways, type Outcome, type Way } from './ways.ts'

const clock = new TestClock()
let server: TestServer
let organisation: Organisation
let baseUrl: string

beforeAll(async () => {
  server = await startTestServer({ clock })
  organisation = await makeOrganisation(server)
  baseUrl = server.config.baseUrl
})
afterAll(() => server.stop())

/** An identity of the organisation, viewer there. */
async function makeViewer(relationship: JsonObject): Promise<string> {
  const { group } = organisation
  // An operator's token, because the clock advances in this file.
  const token = await server.operatorToken()
  const made = ok(await server.rest.call('CreateIdentity', { parent: group, identity: { name: freshName('ci'), ...relationship } }, { token }))
  const roleBinding = { identityUid: String(made['uid']), roleUid: roleUid('viewer') }
  ok(await server.rest.call('CreateRoleBinding', { parent: group, roleBinding }, { token }))
  return String(made['uid'])
}

function present(way: Way, token: string, identity: string): Promise<Outcome> {
  return way.present(server, { token, identity, group: organisation.group })
}

function external(subject: string): Promise<string> {
  return server.devIssuer.mintDevToken({ subject, audience: baseUrl })
}

/** The answer to a valid token for the wrong identity. */
const mismatch = { code: 7, reason: 'PERMISSION_DENIED', token: undefined }

describe.each(['rest', 'grpc'] as const)('an access token over %s', (transport) => {
  const read = (token: string) => server[transport].call('GetGroup', { uid: organisation.group }, { token })

  test('an access token of a deleted identity is Unauthenticated at once', async () => {
    const { uid, token } = await makeMember(server, organisation.group, { role: 'viewer' })
    ok(await read(token))
    ok(await server[transport].call('DeleteIdentity', { uid }, { token: await server.operatorToken() }))
    for (const apiClient of [server.rest, server.grpc]) {
      for (const rpc of ['ListGroups', 'Auth/Validate']) {
        const refused = await apiClient.call(rpc, {}, { token })
        expect(refused).toMatchObject({ code: 16, details: { ErrorInfo: { reason: 'UNAUTHENTICATED' } } })
        if (apiClient.name === 'rest') expect(refused.httpStatus).toBe(401)
      }
    }
  })

  test('an access token loses a right with its binding at once, and gains a new one at once', async () => {
    const { uid, token } = await makeMember(server, organisation.group)
    const operator = await server.operatorToken()
    expect((await read(token)).code).toBe(5)
    const roleBinding = { identityUid: uid, roleUid: roleUid('viewer') }
    const binding = ok(await server[transport].call('CreateRoleBinding', { parent: organisation.group, roleBinding }, { token: operator }))
    ok(await read(token))
    expect((await server[transport].call('CreateGroup', { parent: organisation.group, group: { name: freshName('team') } }, { token })).code).toBe(7)
    ok(await server[transport].call('UpdateRoleBinding', { roleBinding: { uid: String(binding['uid']), roleUid: roleUid('owner') } }, { token: operator }))
    ok(await server[transport].call('CreateGroup', { parent: organisation.group, group: { name: freshName('team') } }, { token }))
    ok(await server[transport].call('DeleteRoleBinding', { uid: String(binding['uid']) }, { token: operator }))
    expect((await read(token)).code).toBe(5)
    expect(ok(await server[transport].call('ListGroups', {}, { token }))).toMatchObject({ groups: [], totalCount: '0' })
  })

  test('an access token expires after an hour plus a minute of leeway', async () => {
    const { token } = await makeMember(server, organisation.group, { role: 'viewer' })
    clock.advance(3_600_000 + 30_000)
    ok(await read(token))
    clock.advance(60_000)
    expect(await read(token)).toMatchObject({ code: 16, details: { ErrorInfo: { reason: 'UNAUTHENTICATED' } } })
  })
})

describe.each(ways)('$name', (way) => {
  test('a deleted identity accepts no token', async () => {
    const identity = await makeViewer({ claimMatch: { issuer: server.devIssuer.issuer, subject: 'leaver' } })
    const token = await external('leaver')
    expect(await present(way, token, identity)).toMatchObject({ code: 0 })
    ok(await server.grpc.call('DeleteIdentity', { uid: identity }, { token: await server.operatorToken() }))
    expect(await present(way, token, identity)).toMatchObject(mismatch)
  })

  test('an identity with a changed subject accepts that one at once, and the former no longer', async () => {
    const issuer = server.devIssuer.issuer
    const identity = await makeViewer({ claimMatch: { issuer, subject: 'first' } })
    const [first, second] = [await external('first'), await external('second')]
    expect(await present(way, first, identity)).toMatchObject({ code: 0 })
    expect(await present(way, second, identity)).toMatchObject(mismatch)
    const change = { identity: { uid: identity, claimMatch: { issuer, subject: 'second' } } }
    ok(await server.rest.call('UpdateIdentity', change, { token: await server.operatorToken() }))
    expect(await present(way, second, identity)).toMatchObject({ code: 0 })
    expect(await present(way, first, identity)).toMatchObject(mismatch)
  })
})

describe.each(ways)('static keys: $name', (way) => {
  const issuer = 'https://cluster.example'
  const subject = 'system:serviceaccount:ci:deployer'
  const relationship = (key: JWK, changes: JsonObject = {}): JsonObject => ({ staticKeys: { issuer, subject, issuerKeys: jwksOf(key), ...changes } })
  const signed = (key: JWK, changes: JsonObject = {}): Promise<string> => {
    const nowSeconds = Math.floor(clock.now() / 1000)
    return signWith(key, { iss: issuer, sub: subject, aud: baseUrl, iat: nowSeconds, exp: nowSeconds + 600, ...changes })
  }
  /** The answer to a token that the configured issuer did not sign, whichever identity it names. */
  const refused = way.kind === 'exchange' ? { code: 7, token: undefined } : { code: 16, token: undefined }

  test.each([
    ['the same kid', 'shared', 'shared'],
    ['different kids', 'ours', 'theirs'],
  ])("two identities with the same issuer and subject, keys with %s, never accept each other's tokens", async (_, ourKid, theirKid) => {
    const [ourKey, theirKey] = [await newKey(ourKid), await newKey(theirKid)]
    const [ours, theirs] = [await makeViewer(relationship(ourKey)), await makeViewer(relationship(theirKey))]
    const [ourToken, theirToken] = [await signed(ourKey), await signed(theirKey)]
    // Twice, because cached results of the first round must not serve the other identity.
    for (let round = 0; round < 2; round += 1) {
      expect(await present(way, ourToken, ours)).toMatchObject({ code: 0 })
      expect(await present(way, ourToken, theirs)).toMatchObject(mismatch)
      expect(await present(way, theirToken, theirs)).toMatchObject({ code: 0 })
      expect(await present(way, theirToken, ours)).toMatchObject(mismatch)
    }
    const both = await Promise.all([
      present(way, ourToken, theirs),
      present(way, ourToken, ours),
      present(way, theirToken, ours),
      present(way, theirToken, theirs),
    ])
    expect(both.map(({ code }) => code)).toEqual([mismatch.code, 0, mismatch.code, 0])
  })

  test('an identity with a claim match on that issuer does not accept the tokens either', async () => {
    const key = await newKey('ours')
    const [withKeys, byIssuer] = [await makeViewer(relationship(key)), await makeViewer({ claimMatch: { issuer: server.devIssuer.issuer, subject } })]
    const forged = await signed(key, { iss: server.devIssuer.issuer })
    expect(await present(way, await signed(key), withKeys)).toMatchObject({ code: 0 })
    expect(await present(way, await signed(key), byIssuer)).toMatchObject(mismatch)
    expect(await present(way, forged, byIssuer)).toMatchObject(refused)
    expect(await present(way, forged, withKeys)).toMatchObject(refused)
  })

  test('replaced keys take effect at once, and the former keys are refused', async () => {
    const [former, latter] = [await newKey('key'), await newKey('key')]
    const identity = await makeViewer(relationship(former))
    expect(await present(way, await signed(former), identity)).toMatchObject({ code: 0 })
    const token = await server.operatorToken()
    ok(await server.grpc.call('UpdateIdentity', { identity: { uid: identity, ...relationship(latter) } }, { token }))
    expect(await present(way, await signed(latter), identity)).toMatchObject({ code: 0 })
    expect(await present(way, await signed(former), identity)).toMatchObject(mismatch)
  })

  test("a wrong subject, issuer or audience is a mismatch; an identity's own audience replaces the default", async () => {
    const key = await newKey('key')
    const plain = await makeViewer(relationship(key))
    const own = await makeViewer(relationship(key, { audiences: ['https://own.example'] }))
    for (const changes of [{ sub: 'another' }, { iss: 'https://another.example' }, { aud: 'https://own.example' }]) {
      expect(await present(way, await signed(key, changes), plain)).toMatchObject(mismatch)
    }
    expect(await present(way, await signed(key, { aud: 'https://own.example' }), own)).toMatchObject({ code: 0 })
    expect(await present(way, await signed(key), own)).toMatchObject(mismatch)
  })

  test('after expirationTime no token is accepted, and the identity is still listed', async () => {
    const key = await newKey('key')
    const identity = await makeViewer(relationship(key, { expirationTime: new Date(clock.now() + 60_000).toISOString() }))
    expect(await present(way, await signed(key), identity)).toMatchObject({ code: 0 })
    clock.advance(61_000)
    expect(await present(way, await signed(key), identity)).toMatchObject(mismatch)
    expect(ok(await server.rest.call('GetIdentity', { uid: identity }, { token: await server.operatorToken() }))).toMatchObject({ uid: identity })
  })
})

function jwksOf({ d: _, ...publicKey }: JWK): string {
  return JSON.stringify({ keys: [publicKey] })
}
