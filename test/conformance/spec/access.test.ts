import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { setOf } from '../../../src/base/capability.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { suspend } from '../../support/suspend.ts'
import { freshName, makeMember, makeOrganisation, makePerson, ok, roleUid, type Organisation } from '../../support/test-server.ts'
import { subgroup } from './spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from './spec-suite.ts'

const dayMs = 24 * 3_600_000

/** An organisation with a group below it that has an owner of its own, and a person who is bound in both. */
interface Place extends Organisation {
  readonly team: string
  readonly lead: { readonly uid: string; readonly token: string }
  readonly ann: string
  /** The person's binding to a custom role at the root group: groups.delete and roles.list. */
  readonly above: string
  readonly secretRole: string
  /** The person's binding as a viewer at the group below. */
  readonly here: string
  /** The operator, who made the root group and is an owner by that. */
  readonly maker: string
}

async function bind(spec: Spec, group: string, pair: { identityUid: string; roleUid: string }): Promise<string> {
  const token = await spec.server.operatorToken()
  return uidOf(ok(await spec.server.rest.call('CreateRoleBinding', { parent: group, roleBinding: pair }, { token })))
}

async function makePlace(spec: Spec): Promise<Place> {
  const organisation = await makeOrganisation(spec.server)
  const { group, token } = organisation
  const team = await subgroup(spec, group, token)
  const lead = await makeMember(spec.server, team, { role: 'owner' })
  const ann = (await makePerson(spec.server, { issuer: 'https://people.example', subject: freshName('ann') })).uid
  const secretRole = freshName('secret-role')
  const role = { name: secretRole, capabilities: ['CAP_IAM_GROUPS_DELETE', 'CAP_IAM_ROLES_LIST'] }
  const custom = uidOf(ok(await spec.server.rest.call('CreateRole', { parent: group, role }, { token })))
  const above = await bind(spec, group, { identityUid: ann, roleUid: custom })
  const here = await bind(spec, team, { identityUid: ann, roleUid: roleUid('viewer') })
  const maker = personUid(spec.server.devIssuer.issuer, 'operator')
  return { ...organisation, team, lead, ann, above, secretRole, here, maker }
}

specSuite('Explain and ListAccess', (spec) => {
  const explain = (token: string, question: { identity: string; capability: string; resource: string }) => spec.call('Explain', question, { token })
  const explained = async (token: string, question: Parameters<typeof explain>[1]): Promise<JsonObject> => ok(await explain(token, question))
  const access = (token: string, request: JsonObject) => spec.ok('ListAccess', request, { token })
  const holders = (body: JsonObject): unknown[] => itemsOf(body, 'access').map(({ identity }) => (identity as JsonObject)['uid'])

  // docs/spec/iam.md#explain-and-access
  test('Explain and ListAccess explain a granted capability with its binding, group and role, by either name of the capability', async () => {
    const { group, team, token, owner } = await makePlace(spec)
    const answer = await explained(token, { identity: owner, capability: 'CAP_IAM_GROUPS_UPDATE', resource: team })
    expect(answer).toMatchObject({
      allowed: true,
      obstacle: 'OBSTACLE_UNSPECIFIED',
      capability: 'groups.update',
      resource: team,
      identity: { uid: owner, issuer: 'https://issuer.example' },
      bindings: [{ group: { uid: group }, role: { uid: roleUid('owner'), name: 'owner' }, effect: 'BINDING_EFFECT_GRANTS' }],
      inherited: false,
      withheldGroups: [],
    })
    expect(await explained(token, { identity: owner, capability: 'groups.update', resource: team })).toEqual(answer)
  })

  // docs/spec/iam.md#explain-and-access
  test('Explain and ListAccess explain a missing capability, and a caller without any permission', async () => {
    const { group, team, token, lead, ann } = await makePlace(spec)
    expect(await explained(token, { identity: ann, capability: 'repo.create', resource: team })).toMatchObject({
      allowed: false,
      obstacle: 'OBSTACLE_MISSING_CAPABILITY',
      bindings: [
        { group: { uid: team }, role: { name: 'viewer' }, effect: 'BINDING_EFFECT_LACKS_CAPABILITY' },
        { group: { uid: group }, effect: 'BINDING_EFFECT_LACKS_CAPABILITY' },
      ],
    })
    expect(await explained(token, { identity: lead.uid, capability: 'groups.list', resource: group })).toMatchObject({
      allowed: false,
      obstacle: 'OBSTACLE_NO_REACH',
      bindings: [],
    })
  })

  test('Explain and ListAccess list granting bindings first, in any group', async () => {
    const { team, token, ann, above, here } = await makePlace(spec)
    const answer = await explained(token, { identity: ann, capability: 'groups.delete', resource: team })
    expect(answer).toMatchObject({ allowed: true, bindings: [{ uid: above, effect: 'BINDING_EFFECT_GRANTS' }, { uid: here }] })
  })

  test('Explain and ListAccess count a binding of a higher group that the caller may not list, and show nothing else about it', async () => {
    const { group, team, lead, owner, ann, above, here, secretRole } = await makePlace(spec)
    const answer = await explained(lead.token, { identity: ann, capability: 'groups.delete', resource: team })
    expect(answer).toMatchObject({
      allowed: true,
      bindings: [{ uid: here, effect: 'BINDING_EFFECT_LACKS_CAPABILITY' }],
      inherited: true,
      withheldGroups: [group],
    })
    const listed = await access(lead.token, { resource: team, pageSize: 200 })
    expect(new Set(holders(listed))).toEqual(new Set([lead.uid, ann]))
    expect(listed).toMatchObject({ totalCount: '2', withheldGroups: [group] })
    for (const text of [JSON.stringify(answer), JSON.stringify(listed)]) for (const hidden of [above, secretRole, owner]) expect(text).not.toContain(hidden)
    // The owner of the organisation is a person whom the asker can't see.
    expectFailure(await explain(lead.token, { identity: owner, capability: 'groups.list', resource: team }), { code: 5 })
  })

  // docs/spec/iam.md#explain-and-access
  test("Explain and ListAccess answer the same about a missing identity and one out of the caller's reach", async () => {
    const { team, lead, owner } = await makePlace(spec)
    const other = await makeOrganisation(spec.server)
    const stranger = (await makePerson(spec.server, { issuer: 'https://people.example', subject: freshName('eve') })).uid
    const missing = `${owner.slice(0, -4)}0000`
    const seen = new Set<string>()
    for (const identity of [owner, other.owner, stranger, missing, '0'.repeat(40)]) {
      const reply = await explain(lead.token, { identity, capability: 'groups.list', resource: team })
      expectFailure(reply, { code: 5, domain: 'iam.taproot.dev' })
      const { requestId } = reply.details['ErrorInfo']?.['metadata'] as JsonObject // every error has one
      const parent = identity.includes('/') ? identity.slice(0, identity.lastIndexOf('/')) : '/'
      seen.add(
        JSON.stringify([reply.message, reply.details]).replaceAll(identity, '<uid>').replaceAll(`"${parent}"`, '<parent>').replaceAll(String(requestId), ''),
      )
    }
    expect([...seen]).toHaveLength(1)
  })

  test('Explain and ListAccess accept a record of any kind as the resource; a missing or unreachable one is code 5', async () => {
    const { group, token, owner, ann, above, lead, team } = await makePlace(spec)
    const repo = uidOf(await spec.ok('CreateRepo', { parent: team, repo: { name: 'repo' } }, { token }))
    for (const resource of [repo, owner, above, lead.uid, group, team])
      expect(await explained(token, { identity: owner, capability: 'repo.list', resource })).toMatchObject({ allowed: true, resource })
    expect(holders(await access(token, { resource: repo, capability: 'groups.delete' }))).toEqual(expect.arrayContaining([owner, lead.uid, ann]))
    await spec.ok('DeleteRepo', { uid: repo }, { token })
    const outside = await makeOrganisation(spec.server)
    for (const resource of [repo, `${group}/${'0'.repeat(16)}`, outside.group, outside.owner, roleUid('viewer'), ann, 'nothing']) {
      expectFailure(await explain(token, { identity: owner, capability: 'repo.list', resource }), { code: 5 })
      expectFailure(await spec.call('ListAccess', { resource }, { token }), { code: 5 })
    }
    expectFailure(await spec.call('ListAccess', { resource: roleUid('viewer') }, { token: await spec.server.operatorToken() }), { code: 5 })
  })

  // docs/spec/iam.md#explain-and-access
  test('Explain and ListAccess list all access in pages, in the orders of role bindings', async () => {
    const { group, team, token, owner, lead, ann, maker } = await makePlace(spec)
    const members: string[] = []
    for (let at = 0; at < 5; at++) members.push((await makeMember(spec.server, at % 2 === 0 ? group : team, { role: 'viewer' })).uid)
    const everyone = [maker, owner, lead.uid, ann, ann, ...members]
    for (const orderBy of ['', 'uid desc', 'created_at', 'createdAt desc', 'updated_at desc, uid']) {
      const whole = itemsOf(await access(token, { resource: team, orderBy }), 'access')
      const paged: JsonObject[] = []
      for (let pageToken = '', first = true; first || pageToken !== ''; first = false) {
        const page = await access(token, { resource: team, orderBy, pageSize: 2, pageToken })
        expect(page).toMatchObject({ totalCount: String(everyone.length), skipped: 0, withheldGroups: [] })
        paged.push(...itemsOf(page, 'access'))
        pageToken = String(page['nextPageToken'] ?? '')
      }
      expect(paged, orderBy).toEqual(whole)
      expect(paged.map(({ identity }) => String((identity as JsonObject)['uid'])).toSorted()).toEqual(everyone.toSorted())
    }
    const skipped = await access(token, { resource: team, skip: 3 })
    expect(skipped).toMatchObject({ skipped: 3, totalCount: String(everyone.length) })
    expect(itemsOf(skipped, 'access')).toEqual(itemsOf(await access(token, { resource: team }), 'access').slice(3))
  })

  test('Explain and ListAccess show each binding as the list of role bindings does', async () => {
    const { team, token, maker } = await makePlace(spec)
    for (const row of itemsOf(await access(token, { resource: team }), 'access')) {
      const { uid, identity, group, role, createTime } = await spec.ok('GetRoleBinding', { uid: uidOf(row) }, { token })
      expect(row).toEqual({ uid, identity, group, role, createTime, registered: (identity as JsonObject)['uid'] !== maker })
    }
  })

  // docs/spec/conventions.md#page-tokens
  test('Explain and ListAccess refuse a page token of another resource, capability, order or caller with code 3; an expired one starts again', async () => {
    const { group, team, token, owner } = await makePlace(spec)
    const second = (await makeMember(spec.server, group, { role: 'owner' })).token
    const pageToken = String((await access(token, { resource: team, pageSize: 1 }))['nextPageToken'])
    for (const request of [{ resource: group }, { resource: team, capability: 'groups.list' }, { resource: team, orderBy: 'created_at' }])
      expectFailure(await spec.call('ListAccess', { ...request, pageToken }, { token }), { code: 3, fields: ['page_token'] })
    expectFailure(await spec.call('ListAccess', { resource: team, pageToken }, { token: second }), { code: 3, fields: ['page_token'] })
    spec.clock.advance(3 * dayMs + 1000)
    const again = await spec.call('ListAccess', { resource: team, pageSize: 1, pageToken }, { token: await spec.server.tokenFor(owner) })
    expect(again.header('page-token-restarted')).toBe('true')
    expect(itemsOf(again.body, 'access')).toEqual(itemsOf(await access(await spec.server.tokenFor(owner), { resource: team, pageSize: 1 }), 'access'))
  })

  test('list, for a capability, every identity with a role that grants it', async () => {
    const { team, token, owner, lead, ann, above, maker } = await makePlace(spec)
    const byRole = await access(token, { resource: team, capability: 'roles.list' })
    expect(itemsOf(byRole, 'access').map(uidOf)).toContain(above)
    expect(new Set(holders(await access(token, { resource: team, capability: 'groups.delete' })))).toEqual(new Set([maker, owner, lead.uid, ann]))
    expect(new Set(holders(await access(token, { resource: team, capability: 'groups.update' })))).toEqual(new Set([maker, owner, lead.uid]))
  })

  test('Explain and ListAccess list a person who has not registered yet, with no permissions until then', async () => {
    const { team, token } = await makePlace(spec)
    const person = { issuer: 'https://people.example', subject: freshName('bob') }
    const identity = personUid(person.issuer, person.subject)
    const uid = await bind(spec, team, { identityUid: identity, roleUid: roleUid('viewer') })
    const row = async (): Promise<JsonObject | undefined> => itemsOf(await access(token, { resource: team }), 'access').find((one) => uidOf(one) === uid)
    expect(await row()).toMatchObject({ identity: { uid: identity, name: '' }, registered: false })
    const question = { identity, capability: 'groups.list', resource: team }
    expect(await explained(token, question)).toMatchObject({
      allowed: false,
      obstacle: 'OBSTACLE_NOT_REGISTERED',
      bindings: [{ uid, effect: 'BINDING_EFFECT_GRANTS' }],
    })
    await makePerson(spec.server, person)
    expect(await explained(token, question)).toMatchObject({ allowed: true })
    expect(await row()).toMatchObject({ registered: true })
  })

  test('Explain and ListAccess show operators only by their bindings, never by their rights from the configuration', async () => {
    const { group, team, token, maker } = await makePlace(spec)
    const operator = await spec.server.operatorToken()
    const made = itemsOf(await access(token, { resource: team }), 'access').find(({ identity }) => (identity as JsonObject)['uid'] === maker)
    await spec.ok('DeleteRoleBinding', { uid: uidOf(made ?? {}) }, { token })
    expect(holders(await access(operator, { resource: team }))).not.toContain(maker)
    expectFailure(await explain(token, { identity: maker, capability: 'groups.list', resource: group }), { code: 5 })
    await spec.ok('GetGroup', { uid: group }, { token: operator })
  })

  // docs/spec/iam.md#explain-and-access
  test('Explain and ListAccess show less to a caller with a restricted token, and nothing false', async () => {
    const { group, team, owner, ann, here } = await makePlace(spec)
    const restricted = await spec.server.tokenFor(owner, { scopes: [trustedUid(team)], capabilities: setOf(['role_bindings.list']) })
    const question = { identity: ann, capability: 'groups.delete', resource: team }
    expect(await explained(restricted, question)).toMatchObject({ allowed: true, inherited: true, withheldGroups: [group], bindings: [{ uid: here }] })
    const other = await spec.server.tokenFor(owner, { capabilities: setOf(['groups.list']) })
    const refused = await explain(other, question)
    expectFailure(refused, { code: 7 })
    expect(refused.details['ErrorInfo']).toMatchObject({ metadata: { missingCapabilities: 'role_bindings.list', scope: team } })
  })

  // docs/spec/iam.md#suspended-organisations
  test('Explain and ListAccess refuse members of a suspended organisation, and show operators that it is suspended', async () => {
    const { group, team, owner, token } = await makePlace(spec)
    await suspend(spec.server, group)
    const question = { identity: owner, capability: 'groups.create', resource: team }
    expect(await explained(await spec.server.operatorToken(), question)).toMatchObject({
      allowed: false,
      obstacle: 'OBSTACLE_ORGANIZATION_SUSPENDED',
      bindings: [{ effect: 'BINDING_EFFECT_GRANTS' }],
    })
    for (const [rpc, request] of [
      ['Explain', question],
      ['ListAccess', { resource: team }],
      ['GetGroup', { uid: team }],
      ['CreateGroup', { parent: team, group: { name: 'late' } }],
    ] as const) {
      const reply = await spec.call(rpc, request, { token })
      expectFailure(reply, { code: 7, reason: 'ORGANIZATION_SUSPENDED' })
      expect(reply.details['ErrorInfo']).toMatchObject({ metadata: { scope: group } })
    }
    expect(await spec.ok('ListGroups', {}, { token })).toMatchObject({ groups: [], totalCount: '0' })
    const seen = await spec.ok('ListGroups', { uidp: { descendantsOf: group } }, { token: await spec.server.operatorToken() })
    expect(itemsOf(seen, 'groups').map(uidOf)).toContain(team)
  })

  // docs/spec/iam.md#test-capabilities
  test('TestCapabilities names what the caller holds, in the order and spelling of the request', async () => {
    const { group, team, token, lead } = await makePlace(spec)
    const wanted = ['roles.update', 'CAP_IAM_GROUPS_LIST', 'groups.list', 'groups.list']
    const tested = async (resource: string, caller: string) =>
      (await spec.ok('TestCapabilities', { resource, capabilities: wanted }, { token: caller }))['capabilities']
    for (const resource of [group, team, lead.uid]) expect(await tested(resource, token)).toEqual(wanted)
    expect(await tested(team, lead.token)).toEqual(wanted)
    const viewer = await makeMember(spec.server, team, { role: 'viewer' })
    expect(await tested(team, viewer.token)).toEqual(wanted.slice(1))
    // A token with fewer rights than its identity.
    const restricted = await spec.server.tokenFor(lead.uid, { capabilities: setOf(['roles.update']) })
    expect(await tested(team, restricted)).toEqual(['roles.update'])
    const elsewhere = await makeOrganisation(spec.server)
    const none = [group, elsewhere.group, '0'.repeat(40), roleUid('viewer')]
    for (const resource of none) expect(await tested(resource, lead.token), resource).toEqual([])
    // The answer is about the place, and does not tell whether there is a record.
    expect(await tested(`${team}/${'0'.repeat(16)}`, lead.token)).toEqual(wanted)
    const { name: theirs } = await spec.ok('GetGroup', { uid: elsewhere.group }, { token: elsewhere.token })
    for (const path of ['path:nowhere', `path:${String(theirs)}`])
      expectFailure(await spec.call('TestCapabilities', { resource: path }, { token: lead.token }), { code: 3, fields: ['resource'] })
    expectFailure(await spec.call('TestCapabilities', { resource: team, capabilities: wanted }), { code: 16 })
    await suspend(spec.server, group)
    expect(await tested(team, token)).toEqual([])
    expect(await tested(team, await spec.server.operatorToken())).toEqual(wanted)
  })
})
