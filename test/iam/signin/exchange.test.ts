import type { JsonObject } from '@bufbuild/protobuf'
import { createRemoteJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { capabilityByName, decodeCapabilities, namesOf } from '../../../src/base/capability.ts'
import { builtInRoles } from '../../../src/base/roles.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'

const subject = 'deployer'
let server: TestServer
let organisation: Organisation
let baseUrl: string

beforeAll(async () => {
  server = await startTestServer()
  organisation = await makeOrganisation(server)
  baseUrl = server.config.baseUrl
})
afterAll(() => server.stop())

/** Creates an identity of the organisation for the development issuer's tokens with `subject`. */
async function makeIdentity(): Promise<string> {
  const { group, token } = organisation
  const claimMatch = { issuer: server.devIssuer.issuer, subject }
  return String(ok(await server.rest.call('CreateIdentity', { parent: group, identity: { name: freshName('deployer'), claimMatch } }, { token }))['uid'])
}

async function bind(identityUid: string, group: string, role: string): Promise<string> {
  const roleBinding = { identityUid, roleUid: roleUid(role) }
  return String(ok(await server.rest.call('CreateRoleBinding', { parent: group, roleBinding }, { token: organisation.token }))['uid'])
}

async function makeGroup(parent: string): Promise<string> {
  return String(ok(await server.rest.call('CreateGroup', { parent, group: { name: freshName('team') } }, { token: organisation.token }))['uid'])
}

function external(claims: JsonObject = {}, audience: string = baseUrl): Promise<string> {
  return server.devIssuer.mintDevToken({ subject, audience, claims })
}

/** Posts to /sts/exchange, with parameters in the query and in the body. */
async function post(token: string | undefined, options: { query?: string; body?: string; type?: string } = {}): Promise<{ status: number; body: JsonObject }> {
  const { query = '', body, type } = options
  const headers = { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...(type === undefined ? {} : { 'content-type': type }) }
  const url = `http://127.0.0.1:${server.config.api.port}/sts/exchange${query}`
  const response = await fetch(url, { method: 'POST', headers, redirect: 'error', ...(body === undefined ? {} : { body }) })
  return { status: response.status, body: (await response.json()) as JsonObject } // a cast of the answer: an object always
}

/** Exchanges and returns the access token. */
async function exchange(identity: string, request: JsonObject = {}): Promise<string> {
  return String(ok(await server.grpc.call('SecurityTokenService/Exchange', { identity, ...request }, { token: await external() }))['token'])
}

describe('a token exchange with the parameter names of RFC 8693', () => {
  test.each([
    ['in the query', (parameters: string) => ({ query: `?${parameters}` })],
    ['in a form', (body: string) => ({ body, type: 'application/x-www-form-urlencoded' })],
  ])('%s is code 3 and names `aud`: ignored, the token would be for another audience', async (_, options) => {
    const parameters = `identity=${await makeIdentity()}&audience=https://registry.example`
    const { status, body } = await post(await external(), options(parameters))
    const violation = { field: 'audience', description: 'is not a parameter: use aud' }
    expect({ status, body }).toMatchObject({ status: 400, body: { code: 3, details: [{}, { fieldViolations: [violation] }] } })
  })
})

describe('the answer of the exchange', () => {
  test.each([
    ['GET with a query', async (identity: string) => ok(await server.rest.call('SecurityTokenService/Exchange', { identity }, { token: await external() }))],
    ['POST with a query', async (identity: string) => (await post(await external(), { query: `?identity=${identity}` })).body],
    [
      'POST with a form',
      async (identity: string) => {
        const body = new URLSearchParams({ identity }).toString()
        return (await post(await external(), { body, type: 'application/x-www-form-urlencoded' })).body
      },
    ],
    ['gRPC', async (identity: string) => ok(await server.grpc.call('SecurityTokenService/Exchange', { identity }, { token: await external() }))],
  ])('the answer of the exchange to %s has token, refreshToken and expiry, and no other field', async (_, ask) => {
    const before = Date.now()
    const body = await ask(await makeIdentity())
    expect(['token', 'refreshToken', 'expiry']).toEqual(expect.arrayContaining(Object.keys(body)))
    expect(body['token']).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
    expect(body['expiry']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const lifeMs = Date.parse(String(body['expiry'])) - before
    expect(Math.abs(lifeMs - 3_600_000)).toBeLessThan(20_000)
  })

  test.each([
    ['a JSON body', 'application/json', (other: string) => JSON.stringify({ identity: other, aud: ['https://elsewhere.example'] })],
    ['an invalid JSON body', 'application/json', () => '{"identity": '],
  ])('the answer of the exchange does not depend on %s, which is ignored', async (_, type, body) => {
    const [identity, other] = [await makeIdentity(), await makeIdentity()]
    const answered = await post(await external(), { query: `?identity=${identity}`, type, body: body(other) })
    expect(answered.status).toBe(200)
    expect(decodeJwt(String(answered.body['token']))).toMatchObject({ sub: identity, aud: baseUrl })
    // Without the query no identity is named.
    expect((await post(await external(), { type, body: body(other) })).status).toBe(403)
  })

  test('the answer of the exchange is an error for a person who is not registered, which asks them to register', async () => {
    const { status, body } = await post(await external())
    expect({ status, code: body['code'] }).toEqual({ status: 403, code: 7 })
    expect(body['message']).toMatch(/register/)
  })

  test('the answer of the exchange without a bearer token is Unauthenticated, with the usual body', async () => {
    const { status, body } = await post(undefined, { query: `?identity=${await makeIdentity()}` })
    expect(status).toBe(401)
    expect(body).toMatchObject({ code: 16, details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'UNAUTHENTICATED' }] })
  })
})

describe('the token of an exchange', () => {
  test('the token of an exchange is a JWT signed with RS256, which anyone can verify with the discovery document', async () => {
    const identity = await makeIdentity()
    const token = await exchange(identity)
    expect(decodeProtectedHeader(token)).toMatchObject({ alg: 'RS256', kid: expect.any(String) as unknown })
    const discovery = (await (await fetch(`${baseUrl}/.well-known/openid-configuration`)).json()) as JsonObject & { jwks_uri: string; issuer: string }
    expect(discovery.issuer).toBe(baseUrl)
    const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(discovery.jwks_uri)), {
      issuer: discovery.issuer,
      audience: baseUrl,
      algorithms: ['RS256'],
    })
    expect(payload.sub).toBe(identity)
    const { keys } = (await (await fetch(discovery.jwks_uri)).json()) as { keys: JsonObject[] }
    for (const key of keys) for (const secret of ['d', 'p', 'q', 'dp', 'dq', 'qi', 'k']) expect(key).not.toHaveProperty(secret)
  })

  test('the token of an exchange names identity, audience, expiry, issuer and original token', async () => {
    const identity = await makeIdentity()
    const claims = decodeJwt(await exchange(identity))
    expect(claims).toMatchObject({ iss: baseUrl, sub: identity, aud: baseUrl, act: { aud: baseUrl, iss: server.devIssuer.issuer, sub: subject } })
    expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(3600)
    expect(claims).not.toHaveProperty('email')
  })

  test('the token of an exchange contains the e-mail address if the issuer says that it is verified', async () => {
    const identity = await makeIdentity()
    const ask = async (claims: JsonObject): Promise<JsonObject> =>
      decodeJwt(String((await post(await external(claims), { query: `?identity=${identity}` })).body['token']))
    expect(await ask({ email: 'a@example.com', email_verified: true })).toMatchObject({ email: 'a@example.com', email_verified: true })
    expect(await ask({ email: 'a@example.com', email_verified: false })).not.toHaveProperty('email')
    expect(await ask({ email: 'a@example.com' })).not.toHaveProperty('email')
  })

  test('the token of an exchange lists capabilities by the group of the role binding', async () => {
    const identity = await makeIdentity()
    const team = await makeGroup(organisation.group)
    await bind(identity, organisation.group, 'viewer')
    await bind(identity, team, 'registry.push')
    expect(capOf(await exchange(identity))).toEqual({ [organisation.group]: capabilitiesOf('viewer'), [team]: capabilitiesOf('registry.push') })
  })

  test('the token of an exchange has several audiences as an array, and one as a string', async () => {
    const identity = await makeIdentity()
    const registry = server.config.registry.host
    expect(decodeJwt(await exchange(identity, { aud: [registry] })).aud).toBe(registry)
    expect(decodeJwt(await exchange(identity, { aud: [baseUrl, registry] })).aud).toEqual([baseUrl, registry])
  })
})

describe('the audience of a token', () => {
  test('a token for the registry host is refused at the API with code 7; one for both is accepted', async () => {
    const identity = await makeIdentity()
    await bind(identity, organisation.group, 'viewer')
    const registry = server.config.registry.host
    const [forRegistry, forBoth] = [await exchange(identity, { aud: [registry] }), await exchange(identity, { aud: [registry, baseUrl] })]
    for (const apiClient of [server.rest, server.grpc]) {
      const refused = await apiClient.call('GetGroup', { uid: organisation.group }, { token: forRegistry })
      expect(refused).toMatchObject({ code: 7, details: { ErrorInfo: { reason: 'PERMISSION_DENIED' } } })
      if (apiClient.name === 'rest') expect(refused.httpStatus).toBe(403)
      ok(await apiClient.call('GetGroup', { uid: organisation.group }, { token: forBoth }))
    }
  })

  test.each(['rest', 'grpc'] as const)('over %s the audience of a token must belong to this platform, or the exchange is code 3', async (transport) => {
    const request = { identity: await makeIdentity(), aud: ['https://elsewhere.example'] }
    const reply = await server[transport].call('SecurityTokenService/Exchange', request, { token: await external() })
    expect(reply).toMatchObject({ code: 3, details: { BadRequest: { fieldViolations: [{ field: 'aud' }] } } })
  })
})

describe('a narrowed token', () => {
  test('a narrowed token by scopes has rights in the named groups and below, from bindings there and above', async () => {
    const identity = await makeIdentity()
    await bind(identity, organisation.group, 'viewer')
    const [inside, outside] = [await makeGroup(organisation.group), await makeGroup(organisation.group)]
    const below = await makeGroup(inside)
    const token = await exchange(identity, { scopes: [inside] })
    for (const apiClient of [server.rest, server.grpc]) {
      for (const uid of [inside, below]) ok(await apiClient.call('GetGroup', { uid }, { token }))
      for (const uid of [outside, organisation.group]) expect((await apiClient.call('GetGroup', { uid }, { token })).code).toBe(5)
      const { groups, totalCount } = ok(await apiClient.call('ListGroups', {}, { token })) as { groups: JsonObject[]; totalCount: string }
      expect([groups.map(({ uid }) => uid).toSorted(), totalCount]).toEqual([[inside, below].toSorted(), '2'])
    }
    expect(Object.keys(capOf(token))).toEqual([inside])
  })

  test("a narrowed token joins scope and scopes, lists each ancestor's binding once, and leaves out groups without a binding", async () => {
    const identity = await makeIdentity()
    const foo = await makeGroup(organisation.group)
    const bar = await makeGroup(foo)
    const empty = await makeGroup(organisation.group)
    await bind(identity, foo, 'viewer')
    await bind(identity, bar, 'registry.push')
    const [viewer, push] = [capabilitiesOf('viewer'), capabilitiesOf('registry.push')]
    expect(capOf(await exchange(identity, { scope: foo, scopes: [bar, bar, empty] }))).toEqual({ [foo]: viewer, [bar]: push })
    expect(capOf(await exchange(identity, { scopes: [bar] }))).toEqual({ [bar]: [...new Set([...viewer, ...push])].toSorted() })
    expect(capOf(await exchange(identity, { scopes: [empty] }))).toEqual({})
  })

  test('a narrowed token by cap has only rights that were requested and are held', async () => {
    const identity = await makeIdentity()
    await bind(identity, organisation.group, 'viewer')
    const token = await exchange(identity, { cap: ['groups.list', 'groups.delete'] })
    expect(capOf(token)).toEqual({ [organisation.group]: ['groups.list'] })
    for (const apiClient of [server.rest, server.grpc]) {
      ok(await apiClient.call('GetGroup', { uid: organisation.group }, { token }))
      expect((await apiClient.call('GetIdentity', { uid: identity }, { token })).code).toBe(7)
      expect((await apiClient.call('DeleteGroup', { uid: organisation.group }, { token })).code).toBe(7)
    }
    const who = ok(await server.rest.call('Auth/Validate', {}, { token })) as { capabilities: JsonObject[] }
    expect(who.capabilities).toMatchObject([{ group: { id: organisation.group }, role: { name: 'viewer' }, capabilities: ['groups.list'] }])
  })

  test('a narrowed token gains rights from later bindings within its limits, and never beyond', async () => {
    const identity = await makeIdentity()
    const [inside, outside] = [await makeGroup(organisation.group), await makeGroup(organisation.group)]
    const token = await exchange(identity, { scopes: [inside], cap: ['groups.list', 'groups.update'] })
    const update = (uid: string) => server.grpc.call('UpdateGroup', { group: { uid, description: 'changed' } }, { token })
    expect((await server.grpc.call('GetGroup', { uid: inside }, { token })).code).toBe(5)
    await bind(identity, inside, 'viewer')
    ok(await server.grpc.call('GetGroup', { uid: inside }, { token }))
    expect((await update(inside)).code).toBe(7)
    await bind(identity, organisation.group, 'owner')
    ok(await update(inside))
    expect((await update(outside)).code).toBe(5)
    expect((await server.grpc.call('CreateGroup', { parent: inside, group: { name: 'more' } }, { token })).code).toBe(7)
  })

  test('a narrowed token of an operator limits the operator too', async () => {
    const token = await server.devIssuer.mintDevToken({ subject: 'operator', audience: baseUrl })
    const team = await makeGroup(organisation.group)
    const restricted = String(ok(await server.grpc.call('SecurityTokenService/Exchange', { scopes: [team], cap: ['groups.list'] }, { token }))['token'])
    ok(await server.rest.call('GetGroup', { uid: team }, { token: restricted }))
    expect((await server.rest.call('GetGroup', { uid: organisation.group }, { token: restricted })).code).toBe(5)
    expect((await server.rest.call('DeleteGroup', { uid: team }, { token: restricted })).code).toBe(7)
    expect((await server.rest.call('CreateGroup', { group: { name: freshName('root') } }, { token: restricted })).code).toBe(7)
  })

  test.each([
    ['an unknown capability', { cap: ['groups.list', 'groups.fly'] }, 'cap'],
    ['a scope that is no uid', { scopes: ['demo'] }, 'scopes'],
  ])('a narrowed token with %s is code 3, and no token is issued', async (_, request, field) => {
    const identity = await makeIdentity()
    for (const apiClient of [server.rest, server.grpc]) {
      const reply = await apiClient.call('SecurityTokenService/Exchange', { identity, ...request }, { token: await external() })
      expect(reply.code).toBe(3)
      expect((reply.details['BadRequest']?.['fieldViolations'] as JsonObject[])[0]?.['field']).toMatch(new RegExp(`^${field}`))
    }
  })

  test.each(['rest', 'grpc'] as const)('over %s a narrowed token can not be exchanged, like any token of this platform', async (transport) => {
    const identity = await makeIdentity()
    await bind(identity, organisation.group, 'owner')
    const tokens = [await exchange(identity), await exchange(identity, { cap: ['groups.list'] }), await server.operatorToken()]
    for (const token of tokens) {
      for (const request of [{}, { identity }, { identity: organisation.owner }]) {
        const reply = await server[transport].call('SecurityTokenService/Exchange', request, { token })
        expect(reply).toMatchObject({ code: 7, message: expect.stringMatching(/^verifying token: /) as unknown })
      }
    }
    // The token can not act as another identity directly either.
    const other = await makeMember(server, organisation.group, { role: 'owner' })
    const reply = await server[transport].call('Auth/Validate', {}, { token: tokens[0], identity: other.uid })
    expect(reply.code === 0 ? reply.body['subject'] : reply.code).not.toBe(other.uid)
  })
})

describe('the answers of Validate', () => {
  test.each(['rest', 'grpc'] as const)('over %s the answers of Validate contain issuer, subject, times, and capabilities by group', async (transport) => {
    const identity = await makeIdentity()
    await bind(identity, organisation.group, 'viewer')
    const token = await exchange(identity)
    const { iat = 0, exp = 0 } = decodeJwt(token)
    const who = ok(await server[transport].call('Auth/Validate', {}, { token })) as JsonObject & { capabilities: JsonObject[] }
    expect(who).toMatchObject({ issuer: baseUrl, subject: identity, audience: [baseUrl], expiry: new Date(exp * 1000).toISOString() })
    expect(Math.floor(Date.parse(String(who['issuedAt'])) / 1000)).toBe(iat)
    expect(who.capabilities).toMatchObject([{ group: { id: organisation.group }, role: { id: roleUid('viewer') } }])
    expect((who.capabilities[0]?.['capabilities'] as string[]).toSorted()).toEqual(capabilitiesOf('viewer'))
  })

  test('the answers of Validate are the answer of GET /auth/v1/ok, which is 401 without a token', async () => {
    const url = `http://127.0.0.1:${server.config.api.port}/auth/v1/ok`
    const { token } = organisation
    const answered = await fetch(url, { headers: { authorization: `Bearer ${token}` } })
    expect(answered.status).toBe(200)
    expect(await answered.json()).toMatchObject({ subject: organisation.owner })
    const refused = await fetch(url)
    expect(refused.status).toBe(401)
    expect(await refused.json()).toMatchObject({ code: 16 })
  })
})

test('a thousand calls with one token need one signature check', async () => {
  const checks = async (): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()
    return Number(/^taproot_token_signature_checks_total (\d+)$/m.exec(text)?.[1])
  }
  const { uid, token } = await makeMember(server, organisation.group, { role: 'viewer' })
  const before = await checks()
  expect(before).toBeGreaterThan(0)
  for (let sent = 0; sent < 1000; sent += 100) {
    const calls = Array.from({ length: 100 }, (_, index) => (index % 2 === 0 ? server.rest : server.grpc).call('GetIdentity', { uid }, { token }))
    for (const reply of await Promise.all(calls)) ok(reply)
  }
  expect((await checks()) - before).toBe(1)
})

/** Returns the `cap` claim: sorted dotted names, by group. */
function capOf(token: string): Record<string, string[]> {
  const cap = (decodeJwt(token)['cap'] ?? {}) as Record<string, string> // a cast of our own claim (docs/spec/tokens.md#capability-claim)
  return Object.fromEntries(Object.entries(cap).map(([group, value]) => [group, capabilitiesIn(value)]))
}

function capabilitiesIn(value: string): string[] {
  const set = decodeCapabilities(value)
  if (set === undefined) throw new Error(`not a capability set: ${value}`)
  return [...namesOf(set)].toSorted()
}

/** The least number of capabilities that only Taproot has. Clients of the API family do not know them, so claims leave them out. */
const ownCapabilities = 10_000

function capabilitiesOf(role: string): string[] {
  const found = builtInRoles.find(({ name }) => name === role)
  const names = found === undefined ? [] : namesOf(found.capabilities)
  return [...names].filter((name) => (capabilityByName(name)?.number ?? 0) < ownCapabilities).toSorted()
}
