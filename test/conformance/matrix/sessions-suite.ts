import type { JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { freshName, makeMember, makePerson, roleUid, type Organisation } from '../../support/test-server.ts'
import { makeRole, missingSibling } from '../walk/world.ts'
import { nowhere } from './asking.ts'
import type { TestPerson, Stage } from './stage.ts'

const ttl = '3600s'

/** Exchanges a token and returns the new one. */
async function exchanged(stage: Stage, token: string, request: JsonObject = {}): Promise<string> {
  return String((await stage.ok('Exchange', request, token))['token'])
}

/** Creates a person who had a role binding before they registered. */
async function registered(stage: Stage, org: Organisation, role = 'viewer'): Promise<TestPerson> {
  const person = stage.person()
  await stage.bind(org, person.uid, role)
  await stage.ok('Register', {}, await stage.external(person))
  return person
}

async function invite(stage: Stage, { group, token }: Organisation, more: JsonObject = {}): Promise<{ uid: string; code: string }> {
  const made = await stage.ok('CreateGroupInvite', { parent: group, groupInvite: { roleUid: roleUid('viewer'), ttl, ...more } }, token)
  return { uid: String(made['uid']), code: String(made['code']) }
}

/** Returns the `cap` claim of a token. */
function capOf(token: string): unknown {
  return decodeJwt(token)['cap']
}

/** Records of another organisation that sign-in requests can name. */
interface ForeignThings {
  readonly group: string
  readonly identity: string
  readonly person: string
  readonly provider: string
  /** The code of an invite. */
  readonly code: string
}

async function foreignThings(stage: Stage, other: Organisation): Promise<ForeignThings> {
  const [provider, person, { code }] = [await stage.provider(other, freshName('client')), await registered(stage, other), await invite(stage, other)]
  return { group: other.group, identity: other.owner, person: person.uid, provider, code }
}

/** Returns values of the same form without a record. */
function missingLike(value: string): string[] {
  return /^[0-9a-f/]+$/.test(value) ? [missingSibling(value), nowhere(value)] : [value.split('').reverse().join('')]
}

interface SignInRow {
  /** A field of the schema: `<message>.<field>`. */
  readonly field: string
  readonly rpc: string
  readonly bearer: 'an ID token for the platform' | 'an ID token for a client' | 'a refresh token'
  readonly names: keyof ForeignThings
  readonly request: (value: string) => JsonObject
  /** The expected code; 0 if a token without rights is issued. */
  readonly code: number
}

const exchange = { rpc: 'Exchange', bearer: 'an ID token for the platform' } as const
const refresh = { rpc: 'ExchangeRefreshToken', bearer: 'a refresh token' } as const

/** Every field of a sign-in request that names a record. */
export const namedAtSignIn: readonly SignInRow[] = [
  { field: 'oidc.v1.ExchangeRequest.scope', ...exchange, names: 'group', request: (scope) => ({ scope }), code: 0 },
  { field: 'oidc.v1.ExchangeRequest.scopes', ...exchange, names: 'group', request: (scope) => ({ scopes: [scope] }), code: 0 },
  { field: 'oidc.v1.ExchangeRequest.identity', ...exchange, names: 'identity', request: (identity) => ({ identity }), code: 7 },
  { field: 'oidc.v1.ExchangeRequest.identity', ...exchange, names: 'person', request: (identity) => ({ identity }), code: 7 },
  {
    field: 'oidc.v1.ExchangeRequest.identity_provider',
    rpc: 'Exchange',
    bearer: 'an ID token for a client',
    names: 'provider',
    request: (identityProvider) => ({ identityProvider }),
    code: 7,
  },
  { field: 'oidc.v1.ExchangeRefreshTokenRequest.scope', ...refresh, names: 'group', request: (scope) => ({ scope }), code: 0 },
  { field: 'oidc.v1.ExchangeRefreshTokenRequest.scopes', ...refresh, names: 'group', request: (scope) => ({ scopes: [scope] }), code: 0 },
  {
    field: 'auth.v1.RegisterRequest.identity_id',
    rpc: 'Register',
    bearer: 'an ID token for the platform',
    names: 'person',
    request: (identityId) => ({ identityId }),
    code: 3,
  },
  // A person known in one organisation alone joins no other.
  { field: 'auth.v1.RegisterRequest.code', rpc: 'Register', bearer: 'an ID token for a client', names: 'code', request: (code) => ({ code }), code: 5 },
]

/** Attempts to gain rights by a way of signing in, or by rights that have ended. */
export function sessionsSuite(get: () => Stage): void {
  test("the e-mail address claimed by a foreign organisation's provider gives no access to a person's rights", async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const [mine, theirs] = [freshName('client'), freshName('client')]
    await stage.provider(org, mine)
    await stage.provider(other, theirs)
    const claims = { email: 'ceo@acme.example', email_verified: true }
    const { code } = await invite(stage, org, { email: 'ceo@acme.example' })
    // The answer is as if the invite did not exist.
    const mallory = stage.person()
    const foreign = await stage.refused(5, ['Register', { code }, await stage.external(mallory, theirs, claims)])
    const missing = await stage.refused(5, ['Register', { code: 'none' }, await stage.external(mallory, theirs, claims)])
    expect(foreign.message).toBe(missing.message)
    await stage.refused(7, ['Register', { code }, await stage.external(stage.person(), mine, { ...claims, email_verified: false })])
    await stage.refused(7, ['Register', { code }, await stage.external(stage.person(), mine, { ...claims, email: 'cto@acme.example' })])
    expect(await stage.ok('Register', { code }, await stage.external(stage.person(), mine, claims))).toMatchObject({ group: org.group })
  })

  test("a sign-in at a provider of one's own as a person with rights elsewhere gives none of these rights", async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const theirs = freshName('client')
    await stage.provider(other, theirs)
    const victim = await registered(stage, org, 'owner')
    const stolen = await exchanged(stage, await stage.external(victim, theirs))
    await stage.refused(5, ['GetGroup', { uid: org.group }, stolen])
    await stage.refused(5, ['CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: victim.uid, roleUid: roleUid('viewer') } }, stolen])
    expect((await stage.ok('ListGroups', {}, stolen))['totalCount']).toBe('0')
    await stage.refused(7, ['Auth/Delete', { id: victim.uid }, stolen])
  })

  test('exchanging a narrowed token again gives no more rights', async () => {
    const stage = get()
    const org = await stage.organisation()
    const person = await registered(stage, org, 'owner')
    const external = await stage.external(person)
    const restricted = await exchanged(stage, external, { scopes: [org.group], cap: ['groups.list'] })
    const { config } = stage.server
    for (const request of [
      {},
      { aud: [config.registry.host] },
      { cap: ['groups.list', 'groups.delete'] },
      { scopes: [org.group] },
      { identity: org.owner },
      { identity: person.uid },
    ])
      await stage.refused(7, ['Exchange', request, restricted])
    await stage.refused(7, ['Exchange', {}, await exchanged(stage, external)])
    await stage.refused(7, ['DeleteGroup', { uid: org.group }, restricted])
  })

  test('a refresh gives no more rights than those of the refresh token', async () => {
    const stage = get()
    const org = await stage.organisation()
    const team = await stage.group(org)
    const person = await registered(stage, org, 'owner')
    const refresh = await stage.refreshToken(person, { scopes: [trustedUid(team)] })
    const { config } = stage.server
    for (const more of [{ scopes: [org.group, team] }, { scope: org.group }, { aud: [config.registry.host] }, { aud: [config.baseUrl, config.registry.host] }])
      await stage.refused(7, ['ExchangeRefreshToken', more, refresh])
    const answer = await stage.ok('ExchangeRefreshToken', { scopes: [team], cap: ['groups.list', 'groups.delete'] }, refresh)
    const access = String((answer['token'] as JsonObject)['token']) // a pair of tokens
    await stage.refused(5, ['GetGroup', { uid: org.group }, access])
    await stage.ok('GetGroup', { uid: team }, access)
    await stage.refused(16, ['ExchangeRefreshToken', {}, refresh])
  })

  test.each(namedAtSignIn)('naming a foreign record in $field fails as if it were missing', async ({ rpc, bearer, names, request, code }) => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const client = freshName('client')
    await stage.provider(org, client)
    const person = await registered(stage, org)
    const foreign = await foreignThings(stage, other)
    const bearers: Readonly<Record<typeof bearer, () => Promise<string>>> = {
      'an ID token for the platform': () => stage.external(person),
      'an ID token for a client': () => stage.external(person, client),
      'a refresh token': () => stage.refreshToken(person),
    }
    const values = [foreign[names], ...missingLike(foreign[names])]
    const replies = await Promise.all(values.map(async (value) => stage.call(rpc, request(value), await bearers[bearer]())))
    expect(replies.map((reply) => reply.code)).toEqual(values.map(() => code))
    expect(new Set(replies.map(({ message }) => message)).size).toBe(1)
    if (code !== 0) return
    // A token, or a pair of tokens.
    const tokens = replies.map(({ body: { token } }) => String(rpc === 'Exchange' ? token : (token as JsonObject)['token']))
    expect(tokens.map(capOf)).toEqual(tokens.map(() => capOf(tokens[0] ?? '')))
    for (const token of tokens) expect((await stage.ok('ListGroups', {}, token))['totalCount']).toBe('0')
  })

  test('an invite that is used up, expired, deleted or for another group gives no rights', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const join = async (code: string, person = stage.person()): Promise<[string, JsonObject, string]> => ['Register', { code }, await stage.external(person)]
    const single = await invite(stage, org, { singleUse: true })
    await stage.ok(...(await join(single.code)))
    const used = await stage.refused(5, await join(single.code))
    const deleted = await invite(stage, org)
    await stage.ok('DeleteGroupInvite', { uid: deleted.uid }, org.token)
    const role = await makeRole(stage.server, org.group, ['groups.list'])
    const roleless = await invite(stage, org, { roleUid: role })
    await stage.ok('DeleteRole', { uid: role }, org.token)
    const late = await invite(stage, org, { ttl: '0.001s' })
    const end = Date.parse(String((await stage.ok('GetGroupInvite', { uid: late.uid }, org.token))['expirationTime']))
    await expect.poll(() => stage.server.running.engine.services.clock.now()).toBeGreaterThan(end)
    const refusals = [used, ...(await Promise.all([deleted.code, roleless.code, late.code, 'none'].map(async (code) => stage.refused(5, await join(code)))))]
    expect(new Set(refusals.map(({ message }) => message)).size).toBe(1)
    // A code belongs to one group, and gives nothing in another.
    const { code } = await invite(stage, other)
    const person = stage.person()
    expect(await stage.ok(...(await join(code, person)))).toMatchObject({ group: other.group })
    const token = await exchanged(stage, await stage.external(person))
    await stage.refused(5, ['GetGroup', { uid: org.group }, token])
    await stage.refused(3, ['Register', { code, identityId: org.owner }, await stage.external(stage.person())])
  })

  test('a group name that belonged to a deleted group gives no access to its records', async () => {
    const stage = get()
    const org = await stage.organisation()
    const name = freshName('team')
    const team = await stage.group(org, name)
    const lead = await makeMember(stage.server, org.group, { role: 'owner', bindAt: team })
    const placed = await stage.server.tokenFor(org.owner, { scopes: [trustedUid(team)] })
    await stage.ok('DeleteGroup', { uid: team }, org.token)
    const heir = await stage.group(org, name)
    expect(heir).not.toBe(team)
    for (const token of [lead.token, placed]) {
      await stage.refused(5, ['GetGroup', { uid: heir }, token])
      await stage.refused(5, ['CreateGroup', { parent: name, group: { name: freshName('below') } }, token])
      expect((await stage.ok('ListGroups', {}, token))['totalCount']).toBe('0')
    }
  })

  test('a live token of a deleted identity, or of a person who registered again, gives no rights', async () => {
    const stage = get()
    const org = await stage.organisation()
    const member = await makeMember(stage.server, org.group, { role: 'owner' })
    await stage.ok('DeleteIdentity', { uid: member.uid }, org.token)
    for (const rpc of ['ListGroups', 'Auth/Validate']) await stage.refused(16, [rpc, {}, member.token])
    const person = await registered(stage, org, 'owner')
    const earlier = await exchanged(stage, await stage.external(person))
    await stage.ok('Auth/Delete', { id: person.uid }, earlier)
    await stage.refused(16, ['Auth/Validate', {}, earlier])
    // Their bindings were deleted with them. A person who registers again starts without bindings.
    const { code } = await invite(stage, org)
    await stage.ok('Register', { code }, await stage.external(person))
    await stage.refused(16, ['Auth/Validate', {}, earlier])
    const later = await exchanged(stage, await stage.external(person))
    await stage.refused(7, ['CreateGroup', { parent: org.group, group: { name: freshName('team') } }, later])
  })

  test('a live token whose role or binding was deleted gives no rights', async () => {
    const stage = get()
    const org = await stage.organisation()
    const member = await makeMember(stage.server, org.group)
    const binding = await stage.bind(org, member.uid, 'viewer')
    const cut = await stage.server.tokenFor(member.uid, { scopes: [trustedUid(org.group)] })
    await stage.ok('GetGroup', { uid: org.group }, cut)
    await stage.ok('DeleteRoleBinding', { uid: binding }, org.token)
    for (const token of [member.token, cut]) await stage.refused(5, ['GetGroup', { uid: org.group }, token])
    const restricted = await stage.holding(org, ['groups.list', 'repo.list'])
    await stage.ok('UpdateRole', { role: { uid: restricted.role, capabilities: ['CAP_IAM_GROUPS_LIST'] } }, org.token)
    expect((await stage.ok('ListRepos', {}, restricted.token))['totalCount']).toBe('0')
  })

  test('a session whose mapping, role or provider was deleted gives no rights', async () => {
    const stage = get()
    const org = await stage.organisation()
    const client = freshName('client')
    const plain = await makeRole(stage.server, org.group, ['roles.list'])
    const parent = await stage.provider(org, client, { defaultRole: plain })
    const [role, kept] = [await makeRole(stage.server, org.group, ['groups.list']), await makeRole(stage.server, org.group, ['repo.list'])]
    const map = (roleUidOfGroup: string): Promise<string> => {
      const externalGroupRoleMapping = { externalGroupId: 'developers', roleUid: roleUidOfGroup, scope: org.group }
      return stage.uid('CreateExternalGroupRoleMapping', { parent, externalGroupRoleMapping }, org.token)
    }
    const mappings = [await map(role), await map(kept)]
    const person = stage.person()
    const external = await stage.external(person, client, { groups: ['developers'] })
    await stage.ok('Register', {}, external)
    const named = { identityProvider: parent }
    const session = await exchanged(stage, external, named)
    await stage.ok('GetGroup', { uid: org.group }, session)
    await stage.refused(7, ['UpdateGroup', { group: { uid: org.group, description: 'mine' } }, session])
    for (const uid of mappings) await stage.ok('DeleteExternalGroupRoleMapping', { uid }, org.token)
    // The next session has none of it.
    await stage.refused(7, ['GetGroup', { uid: org.group }, await exchanged(stage, external, named)])
    // The current session keeps its roles for an hour, in their current state, without deleted ones.
    await stage.ok('GetGroup', { uid: org.group }, session)
    await stage.ok('DeleteRole', { uid: role }, org.token)
    await stage.refused(7, ['GetGroup', { uid: org.group }, session])
    await stage.ok('DeleteIdentityProvider', { uid: parent }, org.token)
    for (const request of [{}, named]) await stage.refused(7, ['Exchange', request, external])
  })

  test('a caller can not pose as another identity by its uid, its subject, or an issuer under their control', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const victim = await registered(stage, org, 'owner')
    // An own identity that claims the victim's issuer and subject is not the victim.
    const claimMatch = { issuer: stage.issuer.issuer, subject: victim.subject }
    const mine = await stage.uid('CreateIdentity', { parent: other.group, identity: { name: 'me', claimMatch } }, other.token)
    const token = await exchanged(stage, await stage.external(victim), { identity: mine })
    await stage.refused(5, ['GetGroup', { uid: org.group }, token])
    await stage.refused(5, ['Auth/Delete', { id: victim.uid }, token])
    await stage.refused(5, ['GetIdentity', { uid: victim.uid }, other.token])
    await stage.refused(5, ['UpdateIdentity', { identity: { uid: victim.uid, claimMatch } }, org.token])
    await stage.refused(5, ['DeleteIdentity', { uid: victim.uid }, org.token])
    const another = await makePerson(stage.server, { issuer: stage.issuer.issuer, subject: freshName('foreign-name') })
    await stage.refused(5, ['Auth/Delete', { id: victim.uid }, another.token])
    const own = { issuer: stage.server.config.baseUrl, subject: victim.uid }
    await stage.refused(3, ['CreateIdentity', { parent: other.group, identity: { name: 'me', claimMatch: own } }, other.token])
  })
}
