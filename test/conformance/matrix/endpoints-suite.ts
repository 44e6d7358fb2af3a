import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, roleUid } from '../../support/test-server.ts'
import { basic, bearer, RegistryWorld, type Tenant } from '../../registry/tokens/registry-world.ts'
import { askScim, makeDirectory } from '../../iam/scim/directory.ts'
import { missingSibling } from '../walk/world.ts'
import type { TestPerson, Stage } from './stage.ts'

/** Every secret that a client can hold, each made for one endpoint. */
interface Credentials {
  readonly 'an access token for the API': string
  readonly 'an access token for the registry host': string
  readonly 'a registry token': string
  readonly 'a refresh token': string
  readonly 'an ID token for the platform': string
  readonly 'an ID token for another client': string
  readonly 'a SCIM token': string
  readonly "another organisation's SCIM token": string
  readonly 'the code of an invite': string
  readonly 'a page token': string
  readonly 'the state of a sign-in': string
  readonly 'the cookie of a sign-in': string
}

type Credential = keyof Credentials

/**
 * The endpoint that gets it, and the answer.
 * The answer is the code of an API, or the status of the registry host, of OAuth or of the organisation's SCIM server.
 */
interface Row {
  readonly api: number
  readonly exchange: number
  readonly refresh: number
  readonly register: number
  readonly registry: number
  readonly token: number
  readonly revoke: number
  readonly scim: number
}

type Answers = readonly [api: number, exchange: number, refresh: number, register: number, registry: number, token: number, revoke: number, scim: number]

function answers(...[api, exchange, refresh, register, registry, token, revoke, scim]: Answers): Row {
  return { api, exchange, refresh, register, registry, token, revoke, scim }
}

/**
 * What each is good for: only its own endpoint (docs/spec/tokens.md#token-uses).
 * An exchange answers code 16 to a text that is no token (docs/spec/tokens.md#exchange-errors).
 * The person of the ID token is registered, so every sign-in accepts it.
 */
const table = {
  //                                                      api exchange refresh register registry /token /oauth/revoke SCIM
  'an access token for the API': /*            */ answers(0, 7, 16, 7, 403, 403, 400, 401),
  'an access token for the registry host': /*  */ answers(7, 7, 16, 7, 200, 200, 400, 401),
  'a registry token': /*                       */ answers(16, 7, 16, 7, 200, 401, 400, 401),
  'a refresh token': /*                        */ answers(16, 16, 0, 16, 401, 401, 200, 401),
  'an ID token for the platform': /*           */ answers(0, 0, 16, 0, 403, 403, 200, 401),
  'an ID token for another client': /*         */ answers(7, 7, 16, 7, 403, 403, 200, 401),
  'a SCIM token': /*                           */ answers(16, 16, 16, 16, 401, 401, 200, 200),
  "another organisation's SCIM token": /*      */ answers(16, 16, 16, 16, 401, 401, 200, 401),
  'the code of an invite': /*                  */ answers(16, 16, 16, 16, 401, 401, 200, 401),
  'a page token': /*                           */ answers(16, 16, 16, 16, 401, 401, 200, 401),
  'the state of a sign-in': /*                 */ answers(16, 16, 16, 16, 401, 401, 200, 401),
  'the cookie of a sign-in': /*                */ answers(16, 16, 16, 16, 401, 401, 200, 401),
} as const satisfies Readonly<Record<Credential, Row>>

/** Returns the state and cookie that a browser gets at the start of a sign-in. */
async function signInOf(stage: Stage, provider: string): Promise<{ state: string; cookie: string }> {
  const url = `http://127.0.0.1:${stage.server.config.api.port}/oauth?idp_id=${encodeURIComponent(provider)}&exit=redirect&redirect=${encodeURIComponent('http://localhost:39999/callback')}`
  const response = await fetch(url, { redirect: 'manual' })
  const [pair = ''] = (response.headers.get('set-cookie') ?? '').split(';')
  return { state: new URL(response.headers.get('location') ?? '').searchParams.get('state') ?? '', cookie: pair.slice(pair.indexOf('=') + 1) }
}

interface Held {
  readonly credentials: Credentials
  readonly tenant: Tenant
  readonly world: RegistryWorld
  readonly person: TestPerson
  /** The URL of a SCIM server that is on. */
  readonly scimEndpoint: string
}

async function makeCredentials(stage: Stage): Promise<Held> {
  const world = new RegistryWorld(stage.server)
  const tenant = await world.tenant()
  const { group, token } = tenant
  const person = stage.person()
  await stage.bind(tenant, person.uid, 'owner')
  await stage.ok('Register', {}, await stage.external(person))
  const provider = await stage.provider(tenant, freshName('client'))
  for (let at = 0; at < 2; at++) await stage.group(tenant)
  const { state, cookie } = await signInOf(stage, provider)
  const [directory, foreign] = [await makeDirectory(stage.server), await makeDirectory(stage.server)]
  const text = async (rpc: string, request: JsonObject, member: string): Promise<string> => String((await stage.ok(rpc, request, token))[member])
  const credentials: Credentials = {
    'an access token for the API': token,
    'an access token for the registry host': await world.accessToken(tenant.owner),
    'a registry token': await world.tokenFor(`repository:${tenant.path}:pull`, tenant.authorization),
    'a refresh token': await stage.refreshToken(person),
    'an ID token for the platform': await stage.external(person),
    'an ID token for another client': await stage.external(person, 'another-client'),
    'a SCIM token': directory.scimToken,
    "another organisation's SCIM token": foreign.scimToken,
    'the code of an invite': await text('CreateGroupInvite', { parent: group, groupInvite: { roleUid: roleUid('owner'), ttl: '60s' } }, 'code'),
    'a page token': await text('ListGroups', { uidp: { childrenOf: group }, pageSize: 1 }, 'nextPageToken'),
    'the state of a sign-in': state,
    'the cookie of a sign-in': cookie,
  }
  return { credentials, tenant, world, person, scimEndpoint: directory.endpoint }
}

/** Sign-out with a text that is not a live refresh token is no error (RFC 7009 2.2). Access and registry tokens can't be revoked. */
async function revokeStatus(stage: Stage, token: string): Promise<number> {
  const url = `http://127.0.0.1:${stage.server.config.api.port}/oauth/revoke`
  return (await fetch(url, { method: 'POST', body: new URLSearchParams({ token }) })).status
}

/** Presents a credential to every endpoint. */
async function shown(stage: Stage, { world, tenant, scimEndpoint }: Held, credential: string): Promise<Row> {
  const code = async (rpc: string, request: JsonObject = {}): Promise<number> => (await stage.call(rpc, request, credential)).code
  return {
    api: await code('ListGroups'),
    exchange: await code('Exchange'),
    register: await code('Register'),
    registry: (await world.list(tenant.path, bearer(credential))).status,
    token: (await world.requestToken([`repository:${tenant.path}:pull`], bearer(credential))).status,
    scim: (await askScim(`${scimEndpoint}/Users`, 'GET', { token: credential })).status,
    // The last ones, because they use up and end the token.
    refresh: await code('ExchangeRefreshToken'),
    revoke: await revokeStatus(stage, credential),
  }
}

/** Credentials at endpoints that do not accept them. */
export function apiClientsSuite(get: () => Stage): void {
  test('a credential is refused at every endpoint that it is not for', async () => {
    const stage = get()
    const held = await makeCredentials(stage)
    const found: Record<string, Row> = {}
    for (const [name, credential] of Object.entries(held.credentials)) {
      expect(String(credential).length, name).toBeGreaterThan(20)
      found[name] = await shown(stage, held, String(credential))
    }
    expect(found).toEqual(table)
  })

  test('a credential is refused as a password, as a page token and as an invite code', async () => {
    const stage = get()
    const held = await makeCredentials(stage)
    const { 'a page token': pageToken, 'the code of an invite': invite, ...others } = held.credentials
    const { token, group, owner } = held.tenant
    const list = { uidp: { childrenOf: group }, pageSize: 1 }
    for (const [name, credential] of Object.entries(others)) {
      expect((await stage.call('ListGroups', { ...list, pageToken: credential }, token)).code, name).toBe(3)
      expect((await stage.call('Register', { code: credential }, await stage.external(held.person))).code, name).toBe(5)
    }
    await stage.ok('ListGroups', { ...list, pageToken }, token)
    const ownEndpoints: readonly string[] = ['an access token for the registry host', 'an ID token for the platform']
    for (const [name, credential] of Object.entries({ ...others, pageToken, invite })) {
      // Without an identity, an access token is accepted at the host. With an identity whose claim match it does not fit, it is refused.
      const [anonymous, asIdentity] = await Promise.all([
        held.world.requestToken([], basic('_token', credential)),
        held.world.requestToken([], basic(owner, credential)),
      ])
      if (!ownEndpoints.includes(name)) expect([401, 403], name).toContain(anonymous.status)
      expect([401, 403], name).toContain(asIdentity.status)
    }
  })

  test('a SCIM token is refused like an unknown token at a provider that is foreign, missing or has SCIM off', async () => {
    const stage = get()
    const [mine, theirs, off] = [await makeDirectory(stage.server), await makeDirectory(stage.server), await makeDirectory(stage.server)]
    await off.setEnabled(false)
    const id = await theirs.add()
    const never = `cgscim_${'0'.repeat(64)}`
    const places = [
      theirs.provider,
      off.provider,
      missingSibling(mine.provider),
      missingSibling(mine.provider.slice(0, 40)),
      mine.provider.slice(0, 40),
      'no/uid',
    ]
    const tries = [
      [mine.provider, never],
      ...places.flatMap((place) => [mine.scimToken, off.scimToken, never].map((token) => [place, token] as const)),
    ] as const
    for (const [method, path] of [
      ['GET', 'Users'],
      ['GET', `Users/${id}`],
      ['GET', 'none'],
      ['POST', 'Users'],
      ['DELETE', `Users/${id}`],
    ] as const) {
      const answers = await Promise.all(
        tries.map(async ([place, token]) => {
          const url = `${stage.server.config.baseUrl}/scim/v2/${place}/${path}`
          const { status, headers, text } = await askScim(url, method, { token, headers: { 'x-request-id': 'same' } })
          return JSON.stringify([status, text, [...headers].filter(([name]) => name !== 'date')])
        }),
      )
      expect([...new Set(answers)], `${method} ${path}`).toHaveLength(1)
      expect(answers[0]).toContain('401')
    }
  })

  test('a page token or idempotency key of another caller gives no access', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const second = await makeMember(stage.server, org.group, { role: 'owner' })
    for (let at = 0; at < 3; at++) await stage.group(org)
    const list = { uidp: { descendantsOf: org.group }, pageSize: 1 }
    const pageToken = String((await stage.ok('ListGroups', list, org.token))['nextPageToken'])
    for (const token of [second.token, other.token]) await stage.refused(3, ['ListGroups', { ...list, pageToken }, token])
    const changes: JsonObject[] = [{ uidp: { childrenOf: org.group } }, { name: 'team' }, { orderBy: 'name' }, { uidp: { descendantsOf: other.group } }]
    for (const change of changes) await stage.refused(3, ['ListGroups', { ...list, ...change, pageToken }, org.token])
    await stage.refused(3, ['ListRepos', { ...list, pageToken }, org.token])

    const idempotencyKey = freshName('key')
    const request = { parent: org.group, identity: { name: 'theirs', description: 'private', claimMatch: { issuer: 'https://issuer.example', subject: 'x' } } }
    const made = await stage.call('CreateIdentity', request, org.token, { idempotencyKey })
    expect(made.code).toBe(0)
    const again = await stage.call('CreateIdentity', request, second.token, { idempotencyKey })
    expect(again.body['uid']).not.toBe(made.body['uid'])
    await stage.refused(5, ['CreateIdentity', request, other.token, { idempotencyKey }])
    // A caller who lost the right is not shown what they created with the key.
    const member = await stage.holding(org, ['identity.create', 'groups.list'])
    expect((await stage.call('CreateIdentity', request, member.token, { idempotencyKey })).code).toBe(0)
    await stage.ok('UpdateRole', { role: { uid: member.role, capabilities: ['CAP_IAM_GROUPS_LIST'] } }, org.token)
    await stage.refused(7, ['CreateIdentity', request, member.token, { idempotencyKey }])
  })

  test('conditional requests about foreign records fail like those about missing ones', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const { etag } = await stage.ok('GetGroup', { uid: org.group }, org.token)
    const options = [{ ifMatch: String(etag) }, { ifMatch: '0123456789abcdef' }, { ifNoneMatch: '*' }, { forceOwnership: 'true' }, { validateOnly: true }]
    for (const option of options) {
      for (const uid of [org.group, 'a'.repeat(40)]) {
        const group = { uid, description: 'mine', etag: String(etag) }
        const replies = [
          await stage.refused(5, ['UpdateGroup', { group }, other.token, option]),
          await stage.refused(5, ['DeleteGroup', { uid }, other.token, option]),
        ]
        for (const { details } of replies) expect(details['ResourceInfo']).toMatchObject({ resourceName: uid, owner: '/' })
      }
    }
  })

  test('a pull token allows pulling only', async () => {
    const stage = get()
    const world = new RegistryWorld(stage.server)
    const [mine, theirs] = [await world.tenant(), await world.tenant()]
    const puller = await world.member(mine.group, { role: 'registry.pull' })
    const upload = await world.upload(mine.path, puller.authorization)
    expect([401, 403]).toContain(upload.status)
    expect(await world.list(mine.path, puller.authorization)).toMatchObject({ status: 200 })
    const foreign = await world.list(theirs.path, puller.authorization)
    const missing = await world.list(`${freshName('unknown')}/app`, puller.authorization)
    expect([foreign.status, foreign.codes]).toEqual([missing.status, missing.codes])
    const token = await stage.server.tokenFor(puller.uid)
    await stage.refused(7, ['CreateRepo', { parent: mine.group, repo: { name: 'mine' } }, token])
    await stage.refused(7, ['UpdateRepo', { repo: { uid: mine.repo, description: 'mine' } }, token])
    await stage.refused(7, ['GetIdentity', { uid: mine.owner }, token])
    await stage.refused(7, ['CreateRoleBinding', { parent: mine.group, roleBinding: { identityUid: puller.uid, roleUid: roleUid('registry.pull') } }, token])
    expect((await stage.ok('ListRoleBindings', {}, token))['totalCount']).toBe('0')
    // Without the audience of the API even this is refused.
    await stage.refused(7, ['GetRepo', { uid: mine.repo }, puller.authorization.slice('Bearer '.length)])
  })
}
