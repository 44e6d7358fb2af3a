import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createPlatformClient } from '../../../src/cli/client/platform-client.ts'
import { createPullToken } from '../../../src/cli/pull-token.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import { askScim, makeDirectory, userUrn } from '../../iam/scim/directory.ts'
import { basic, bearer, RegistryWorld } from '../../registry/tokens/registry-world.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { PersonWithBrowser, startLoginProvider, type LoginProvider } from '../../support/parts/sign-in/login-provider.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'

const waiting = 'http://localhost:39999/callback'
const clientSecret = 'planted-client-secret-of-a-provider'
/** Parameters of addresses in a sign-in whose values are secret. */
const secretParameters = ['code', 'state', 'nonce', 'token', 'refresh_token'] as const
/** Each kind of secret that a flow must have planted. */
const kinds = [
  ...secretParameters,
  ...['cookie', 'client secret', 'device code', 'user code', 'ID token', 'access token', 'device refresh token', 'next refresh token'],
  ...['SCIM token', 'next SCIM token', 'password of a user', 'webhook secret', 'next webhook secret', 'pull token', 'registry token', 'invite code'],
] as const

let directory: string
let server: TestServer
let idp: LoginProvider
let org: Organisation
let provider: string
/** Secrets, and what they are. */
const planted = new Map<string, string>()

function plant(kind: (typeof kinds)[number], secret: unknown): string {
  if (typeof secret !== 'string' || secret.length < 8) throw new Error(`no ${kind}`)
  planted.set(secret, kind)
  return secret
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'taproot-secrets-'))
  idp = await startLoginProvider()
  const [closed = 0] = await freePorts(1)
  const sinks = [{ kind: 'log' }, { kind: 'file', path: join(directory, 'audit.log') }, { kind: 'https', url: `https://127.0.0.1:${closed}/in` }]
  const env = {
    TAPROOT_AUDIT_SINKS: JSON.stringify(sinks),
    TAPROOT_ISSUERS: JSON.stringify([{ issuer: idp.issuer, allowPrivate: true }]),
    TAPROOT_STOP_GRACE_SECONDS: '1',
  }
  server = await startTestServer({ dataDir: directory, env })
  org = await makeOrganisation(server)
  const oidc = { issuer: idp.issuer, clientId: 'taproot', clientSecret: plant('client secret', clientSecret) }
  provider = String(
    (await api('CreateIdentityProvider', { parent: org.group, identityProvider: { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc } }))['uid'],
  )
  idp.serve([{ id: 'taproot', secret: clientSecret, redirectUris: [`${server.config.baseUrl}/oauth/callback/${provider}`] }])
})
afterAll(async () => {
  await idp.stop()
  await rm(directory, { recursive: true, force: true })
})

async function api(rpc: string, request: JsonObject, token = org.token): Promise<JsonObject> {
  return ok(await server.rest.call(rpc, request, { token }))
}

async function post(path: string, form: Readonly<Record<string, string>>): Promise<JsonObject> {
  const answer = await fetch(new URL(path, server.config.baseUrl), { method: 'POST', body: new URLSearchParams(form) })
  return JSON.parse((await answer.text()) || '{}') as JsonObject // a cast of JSON
}

/** Signs in with a browser, and plants what its addresses and cookies contain. */
async function signIn(query: Readonly<Record<string, string>>, until = waiting): Promise<{ person: PersonWithBrowser; url: URL }> {
  const person = new PersonWithBrowser(freshName('person'))
  const { url } = await person.open(`${server.config.baseUrl}/oauth?${new URLSearchParams({ idp_id: provider, ...query }).toString()}`, until)
  for (const { searchParams } of person.visited)
    for (const name of secretParameters) for (const value of searchParams.getAll(name)) if (value.length > 8) plant(name, value)
  for (const pair of person.cookieFor(new URL(server.config.baseUrl)).split('; ')) if (pair.length > 40) plant('cookie', pair.slice(pair.indexOf('=') + 1))
  return { person, url }
}

test('browsers sign in, and are refused', async () => {
  const query = { exit: 'redirect', redirect: `${waiting}?token=true&error=true`, create_refresh_token: 'true' }
  const { url } = await signIn(query)
  const refresh = plant('refresh_token', url.searchParams.get('refresh_token'))
  await api('ExchangeRefreshToken', {}, refresh)
  for (const rpc of ['ExchangeRefreshToken', 'Exchange', 'ListGroups']) expect((await server.rest.call(rpc, {}, { token: refresh })).code, rpc).toBe(16)
  // A callback in another browser, and one with an unknown state.
  const { url: stolen } = await signIn(query, `${server.config.baseUrl}/oauth/callback`)
  const { status } = await new PersonWithBrowser('victim').open(stolen.href, waiting)
  expect(status).toBe(400)
  stolen.searchParams.set('state', plant('state', 'planted-state-that-was-never-given'))
  expect((await new PersonWithBrowser('victim').open(stolen.href, waiting)).status).toBe(400)
})

test('devices sign in, refresh and sign out', async () => {
  const { baseUrl } = server.config
  const started = await post('/oauth/device_authorization', { client_id: baseUrl, scope: 'openid offline_access' })
  const [device, user] = [plant('device code', started['device_code']), plant('user code', started['user_code'])]
  const poll = (): Promise<JsonObject> =>
    post('/oauth/token', { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', client_id: baseUrl, device_code: device })
  expect((await poll())['error']).toBe('authorization_pending')
  await signIn({ user_code: user }, waiting)
  const tokens = await poll()
  plant('access token', tokens['access_token'])
  plant('ID token', tokens['id_token'])
  const refresh = (token: string): Promise<JsonObject> => post('/oauth/token', { grant_type: 'refresh_token', refresh_token: token })
  const first = plant('device refresh token', tokens['refresh_token'])
  const next = plant('next refresh token', (await refresh(first))['refresh_token'])
  expect((await refresh('planted-refresh-token-of-no-one'))['error']).toBe('invalid_grant')
  await post('/oauth/revoke', { token: next })
  expect((await refresh(next))['error']).toBe('invalid_grant')
  expect((await poll())['error']).toBe('expired_token')
})

test('tokens are exchanged, and invites accepted and refused', async () => {
  const idToken = plant('ID token', await server.devIssuer.mintDevToken({ subject: 'person-1', audience: server.config.baseUrl }))
  const { code } = await api('CreateGroupInvite', { parent: org.group, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s', singleUse: true } })
  const invite = plant('invite code', code)
  await api('Register', { code: invite }, idToken)
  const other = plant('ID token', await server.devIssuer.mintDevToken({ subject: 'person-2', audience: server.config.baseUrl }))
  expect((await server.rest.call('Register', { code: invite }, { token: other })).code).toBe(5)
  plant('access token', (await api('Exchange', {}, idToken))['token'])
  expect((await server.rest.call('Exchange', { identity: org.owner }, { token: other })).code).toBe(7)
  expect((await server.rest.call('DeleteGroup', { uid: org.group }, { token: idToken })).code).toBe(7)
})

test('directories change users, and are refused', async () => {
  const users = await makeDirectory(server, { clientSecret: plant('client secret', 'planted-client-secret-of-a-directory') })
  plant('SCIM token', users.scimToken)
  const password = plant('password of a user', 'planted-password-of-a-user')
  const answer = await users.ask('POST', 'Users', { body: { schemas: [userUrn], userName: freshName('user'), password } })
  expect([201, 400]).toContain(answer.status)
  const { etag } = (await api('GetIdentityProvider', { uid: users.provider }, users.token))['scim'] as { etag: string } // a cast of the answer
  const next = plant('next SCIM token', (await users.verb('RegenerateScimToken', { etag }))['token'])
  for (const token of [`${users.scimToken.slice(0, -1)}x`, 'planted-token-of-no-directory', org.token])
    expect((await askScim(`${users.endpoint}/Users`, 'GET', { token })).status).toBe(401)
  expect((await server.rest.call('ListGroups', {}, { token: next })).code).toBe(16)
})

test('secrets of webhooks are made and rotated', async () => {
  const subscription = {
    sink: 'https://hooks.example.com/in',
    types: ['dev.taproot.api.iam.group.'],
    signing: 'STANDARD_WEBHOOKS',
  }
  const { uid, secret } = await api('CreateSubscription', { parent: org.group, subscription })
  plant('webhook secret', secret)
  plant('next webhook secret', (await api('RotateSubscriptionSecret', { uid: String(uid) }))['secret'])
})

test('registries are pulled from and pushed to', async () => {
  const world = new RegistryWorld(server)
  const tenant = await world.tenant()
  const client = createPlatformClient({ baseUrl: server.config.baseUrl, token: tenant.token })
  const options = { client, registry: world.host, clock: systemClock, random: systemRandom }
  const pull = await createPullToken(options, { group: tenant.group, name: undefined, ttlMs: 3_600_000 })
  const authorization = basic(pull.uid, plant('pull token', pull.password))
  plant('pull token', authorization.slice('Basic '.length))
  const token = plant('registry token', (await world.requestToken([`repository:${tenant.path}:pull`], authorization)).token)
  expect((await world.list(tenant.path, bearer(token))).status).toBe(200)
  expect([401, 403]).toContain((await world.upload(tenant.path, bearer(token))).status)
  for (const refused of [basic(tenant.owner, pull.password), basic(pull.uid, plant('pull token', 'planted-wrong-password'))])
    expect([401, 403]).toContain((await world.requestToken([], refused)).status)
  for (const [used, code] of [
    [token, 16],
    [pull.password, 7],
  ] as const)
    expect((await server.rest.call('ListGroups', {}, { token: used })).code).toBe(code)
})

/** Returns the text of all files below a folder, by path. Compressed ones are decompressed: segments are. */
async function filesIn(folder: string, ending = ''): Promise<ReadonlyMap<string, string>> {
  const entries = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile() && entry.name.endsWith(ending))
  const texts = entries.map(async ({ parentPath, name }): Promise<[string, string]> => {
    const bytes = await readFile(join(parentPath, name))
    const isCompressed = bytes[0] === 0x1f && bytes[1] === 0x8b
    return [join(parentPath, name).slice(folder.length + 1), (isCompressed ? gunzipSync(bytes) : bytes).toString('latin1')]
  })
  return new Map(await Promise.all(texts))
}

test('no secret of these flows is in the log, a file, a spool, a segment, the index or a list', async () => {
  const requestId = freshName('last')
  expect((await server.rest.call('CreateGroup', { parent: org.group, group: { name: freshName('last') } }, { token: org.token, requestId })).code).toBe(0)
  const { events } = await api('ListAuditEvents', { pageSize: 200 }, await server.operatorToken())
  const listed = JSON.stringify(events)
  // A stop may have time to remove the spools.
  const spools = await filesIn(directory, '.jsonl')
  await server.stop()
  const files = new Map([...spools, ...(await filesIn(directory))])
  const ofTrail = [...files].filter(([path]) => /^(audit|registry)/.test(path))
  const places = new Map([['the log', JSON.stringify(server.logs)], ['the list', listed], ...ofTrail])
  // Each form of the trail is among the places.
  const withLast = [...places].flatMap(([place, text]) => (text.includes(requestId) ? [place.replaceAll(/[0-9a-f]{8,}|\d{4,}/g, '…')] : []))
  expect(withLast.sort()).toEqual([
    'audit.log',
    'audit/…/_kept/index.sqlite',
    'audit/…/_kept/spool/….jsonl',
    'audit/…/https/….jsonl',
    'registry/repos/…/blobs/sha256/…',
    'the list',
    'the log',
  ])
  expect(new Set(planted.values())).toEqual(new Set(kinds))
  const found = [...places].flatMap(([place, text]) =>
    [...planted].filter(([secret]) => text.includes(secret) || text.includes(secret.slice(-24))).map(([, kind]) => `${kind} in ${place}`),
  )
  expect(found).toEqual([])
})
