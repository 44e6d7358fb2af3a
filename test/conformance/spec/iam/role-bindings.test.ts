import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { claimMatch, identityUnder, subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

specSuite('role bindings', (spec) => {
  const bind = (parent: string, identityUid: string, role: string, token: string) =>
    spec.call('CreateRoleBinding', { parent, roleBinding: { identityUid, roleUid: roleUid(role) } }, { token })

  /** The operator that made the organisation owns it too: leaves the owner alone. */
  const soleOwner = async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await spec.server.operatorToken()
    const bindings = itemsOf(await spec.ok('ListRoleBindings', { group: organisation.group }, { token }), 'roleBindings')
    const ofIdentity = (binding: JsonObject): JsonObject => binding['identity'] as JsonObject
    for (const binding of bindings) {
      if (uidOf(ofIdentity(binding)) !== organisation.owner) await spec.ok('DeleteRoleBinding', { uid: uidOf(binding) }, { token })
    }
    const [own] = bindings.filter((binding) => uidOf(ofIdentity(binding)) === organisation.owner)
    return { ...organisation, binding: uidOf(own ?? {}) }
  }

  // docs/spec/iam.md#role-bindings
  test('role bindings are created from identityUid and roleUid, and returned with identity, group and role', async () => {
    const name = freshName('hydrated')
    const token = await spec.server.operatorToken()
    const group = uidOf(await spec.ok('CreateGroup', { group: { name, description: 'the group' } }, { token }))
    const match = { issuer: 'https://token.example.com', subject: 'repo:acme/app' }
    const identity = await spec.ok('CreateIdentity', { parent: group, identity: { name: 'ci', description: 'the identity', claimMatch: match } }, { token })
    const made = await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: uidOf(identity), roleUid: roleUid('viewer') } }, { token })
    expect(made['identity']).toMatchObject({ uid: uidOf(identity), name: 'ci', description: 'the identity', ...match })
    expect(made['group']).toEqual({ uid: group, name, description: 'the group' })
    expect(made['role']).toEqual({ uid: roleUid('viewer'), name: 'viewer', description: 'Viewer Role (built-in)' })
    expect(made['createTime']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect(uidOf(made)).toMatch(new RegExp(`^${group}/[0-9a-f]{16}$`))
    expect(await spec.ok('GetRoleBinding', { uid: uidOf(made) }, { token })).toEqual(made)
  })

  // docs/spec/iam.md#role-binding-fields
  test('role bindings do not show the input fields in answers', async () => {
    const { group, owner, token } = await makeOrganisation(spec.server)
    const made = await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: owner, roleUid: roleUid('viewer') } }, { token })
    const [listed] = itemsOf(await spec.ok('ListRoleBindings', { uidp: { ids: [uidOf(made)] } }, { token }), 'roleBindings')
    for (const shown of [made, listed, await spec.ok('GetRoleBinding', { uid: uidOf(made) }, { token })]) {
      expect(shown).toBeDefined()
      expect(shown).not.toHaveProperty('identityUid')
      expect(shown).not.toHaveProperty('roleUid')
    }
  })

  // docs/spec/iam.md#role-binding-fields
  test('role bindings show identity, group and role in their current state', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'viewer' })
    await spec.ok('UpdateIdentity', { identity: { uid: member.uid, name: 'renamed' } }, { token })
    await spec.ok('UpdateGroup', { group: { uid: group, description: 'described' } }, { token })
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', { identity: member.uid }, { token }), 'roleBindings')
    expect(binding).toMatchObject({ identity: { name: 'renamed' }, group: { description: 'described' } })
  })

  // docs/spec/iam.md#role-binding-fields
  test('role bindings show subject and issuer only for exact claim matches', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const identity = { name: 'patterns', claimMatch: { issuerPattern: 'https://.*', subjectPattern: '.*' } }
    const { uid } = await spec.ok('CreateIdentity', { parent: group, identity }, { token })
    const made = await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: uid ?? '', roleUid: roleUid('viewer') } }, { token })
    expect(made['identity']).toMatchObject({ name: 'patterns', issuer: '', subject: '' })
  })

  // docs/spec/iam.md#role-bindings
  test('role bindings with an empty body are code 3 on both fields', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    expectFailure(await spec.call('CreateRoleBinding', { parent: group, roleBinding: {} }, { token }), { code: 3, fields: ['identity_uid', 'role_uid'] })
  })

  // docs/spec/iam.md#references-in-bodies
  test('role bindings with a missing or foreign identity or role get the same code 3', async () => {
    const [own, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const role = await spec.ok('CreateRole', { parent: other.group, role: { name: 'theirs', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token: other.token })
    const answers: string[] = []
    for (const identityUid of [`${own.group}/0000000000000000`, other.owner, roleUid('viewer')]) {
      const reply = await bind(own.group, identityUid, 'viewer', own.token)
      expectFailure(reply, { code: 3, fields: ['identity_uid'] })
      answers.push(reply.message)
    }
    for (const missing of [uidOf(role), `${own.group}/0000000000000000`, 'f'.repeat(40)]) {
      const roleBinding = { identityUid: own.owner, roleUid: missing }
      const reply = await spec.call('CreateRoleBinding', { parent: own.group, roleBinding }, { token: own.token })
      expectFailure(reply, { code: 3, fields: ['role_uid'] })
      answers.push(reply.message)
    }
    expect(new Set(answers).size).toBe(2)
  })

  // docs/spec/iam.md#references-in-bodies
  test("role bindings hide an identity or role of a group above the caller's reach like a missing one, except in an existing binding", async () => {
    const { group, owner, token } = await makeOrganisation(spec.server)
    const team = await subgroup(spec, group, token)
    const lead = await makeMember(spec.server, group, { role: 'owner', bindAt: team })
    const capabilities = ['CAP_IAM_GROUPS_LIST']
    const above = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'above', capabilities } }, { token }))
    const local = uidOf(await spec.ok('CreateRole', { parent: team, role: { name: 'local', capabilities } }, { token: lead.token }))
    const bound = await bind(team, owner, 'viewer', token)
    const answers: string[] = []
    for (const roleBinding of [
      { identityUid: owner, roleUid: roleUid('editor') },
      { identityUid: `${group}/${'0'.repeat(16)}`, roleUid: roleUid('editor') },
      { identityUid: lead.uid, roleUid: above },
      { identityUid: lead.uid, roleUid: `${group}/${'0'.repeat(16)}` },
    ]) {
      const reply = await spec.call('CreateRoleBinding', { parent: team, roleBinding }, { token: lead.token })
      expectFailure(reply, { code: 3, fields: [/^(identity|role)_uid$/] })
      answers.push(reply.message)
    }
    expect(new Set(answers).size).toBe(2)
    // Who owns the group decides what a binding in it grants; and everybody knows themselves.
    const lesser = { roleBinding: { uid: uidOf(bound.body), roleUid: local } }
    expect(await spec.ok('UpdateRoleBinding', lesser, { token: lead.token })).toMatchObject({ identity: { uid: owner }, role: { uid: local } })
    await spec.ok('CreateRoleBinding', { parent: team, roleBinding: { identityUid: lead.uid, roleUid: local } }, { token: lead.token })
  })

  // docs/spec/iam.md#role-bindings
  test('role bindings can be created for a person who has not registered yet, and show only a uid', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid } = await spec.ok('LookupIdentity', { issuer: 'https://issuer.example', subject: freshName('person') }, { token })
    const made = await bind(group, String(uid), 'viewer', token)
    expect(made.code).toBe(0)
    expect(made.body['identity']).toMatchObject({ uid, name: '', description: '', subject: '', issuer: '' })
  })

  // docs/spec/iam.md#role-bindings
  test('role bindings for the same identity, group and role twice are code 6', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'viewer' })
    expectFailure(await bind(group, member.uid, 'viewer', token), { code: 6 })
    const other = await bind(group, member.uid, 'editor', token)
    expect(other.code).toBe(0)
    const change = { uid: uidOf(other.body), roleUid: roleUid('viewer') }
    expectFailure(await spec.call('UpdateRoleBinding', { roleBinding: change }, { token }), { code: 6 })
  })

  // docs/spec/conventions.md#delete
  test('role bindings grant nothing from the moment of their deletion, and are then 404', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'viewer' })
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', { identity: member.uid }, { token }), 'roleBindings')
    const uid = uidOf(binding ?? {})
    expect(await spec.ok('DeleteRoleBinding', { uid }, { token })).toEqual({})
    expectFailure(await spec.call('GetGroup', { uid: group }, { token: member.token }), { code: 5 })
    expectFailure(await spec.call('DeleteRoleBinding', { uid }, { token }), { code: 5 })
  })

  // docs/spec/iam.md#role-bindings
  test('role bindings change identity or role in an update, never the group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [one, other] = [await makeMember(spec.server, group, { role: 'viewer' }), await makeMember(spec.server, group)]
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', { identity: one.uid }, { token }), 'roleBindings')
    const uid = uidOf(binding ?? {})
    const role = await spec.ok('UpdateRoleBinding', { roleBinding: { uid, roleUid: roleUid('editor') } }, { token })
    expect(role).toMatchObject({ uid, identity: { uid: one.uid }, role: { name: 'editor' } })
    const moved = await spec.ok('UpdateRoleBinding', { roleBinding: { uid, identityUid: other.uid, group: { uid: 'f'.repeat(40) } } }, { token })
    expect(moved).toMatchObject({ uid, identity: { uid: other.uid }, role: { name: 'editor' }, group: { uid: group } })
    expectFailure(await spec.call('GetGroup', { uid: group }, { token: one.token }), { code: 5 })
    await spec.ok('GetGroup', { uid: group }, { token: other.token })
  })

  // docs/spec/iam.md#no-escalation
  test('role bindings can not grant what the caller does not hold there, by create, batch or update', async () => {
    const { group, token: ownerToken } = await makeOrganisation(spec.server)
    const capabilities = ['CAP_IAM_ROLE_BINDINGS_CREATE', 'CAP_IAM_ROLE_BINDINGS_UPDATE', 'CAP_IAM_ROLE_BINDINGS_LIST']
    const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'binder', capabilities } }, { token: ownerToken }))
    const binder = await makeMember(spec.server, group, { role })
    const target = await makeMember(spec.server, group)
    expectFailure(await bind(group, target.uid, 'owner', binder.token), { code: 7 })
    const requests = [{ roleBinding: { identityUid: target.uid, roleUid: roleUid('owner') } }]
    expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests }, { token: binder.token }), { code: 7 })
    const own = { identityUid: target.uid, roleUid: role }
    const made = await spec.ok('CreateRoleBinding', { parent: group, roleBinding: own }, { token: binder.token })
    const wider = { uid: uidOf(made), roleUid: roleUid('owner') }
    expectFailure(await spec.call('UpdateRoleBinding', { roleBinding: wider }, { token: binder.token }), { code: 7 })
  })

  // docs/spec/iam.md#custom-roles
  test('role bindings bind a custom role at or below its own group only', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [left, right] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
    const below = await subgroup(spec, left, token)
    const member = await makeMember(spec.server, group)
    const role = uidOf(await spec.ok('CreateRole', { parent: left, role: { name: 'local', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token }))
    const roleBinding = { identityUid: member.uid, roleUid: role }
    for (const parent of [left, below]) await spec.ok('CreateRoleBinding', { parent, roleBinding }, { token })
    for (const parent of [group, right]) {
      expectFailure(await spec.call('CreateRoleBinding', { parent, roleBinding }, { token }), { code: 3, fields: ['role_uid'] })
    }
  })

  // docs/spec/iam.md#reach
  test('role bindings for an identity of the root group grant their role in every subgroup', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token)
    const deep = await subgroup(spec, sub, token)
    const member = await makeMember(spec.server, group, { role: 'viewer' })
    for (const uid of [group, sub, deep]) expect(uidOf(await spec.ok('GetGroup', { uid }, { token: member.token }))).toBe(uid)
    const list = await spec.ok('ListGroups', { uidp: { descendantsOf: group } }, { token: member.token })
    expect(itemsOf(list, 'groups').map(uidOf)).toEqual([sub, deep].sort())
  })

  // docs/spec/iam.md#reach
  test('role bindings for an identity of a subgroup can be created in that subgroup only', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [sub, sibling] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
    const deep = await subgroup(spec, sub, token)
    const identity = uidOf(await identityUnder(spec, sub, token))
    for (const parent of [group, sibling]) expectFailure(await bind(parent, identity, 'viewer', token), { code: 3, fields: ['identity_uid'] })
    for (const parent of [sub, deep]) expect((await bind(parent, identity, 'viewer', token)).code).toBe(0)
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', { group }, { token }), 'roleBindings')
    const moved = { uid: uidOf(binding ?? {}), identityUid: identity }
    expectFailure(await spec.call('UpdateRoleBinding', { roleBinding: moved }, { token }), { code: 3, fields: ['identity_uid'] })
  })

  // docs/spec/iam.md#reach
  test('role bindings for an identity of a subgroup grant nothing in the root group or in siblings', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [sub, sibling] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
    const deep = await subgroup(spec, sub, token)
    const member = await makeMember(spec.server, sub, { role: 'owner' })
    for (const uid of [sub, deep]) await spec.ok('GetGroup', { uid }, { token: member.token })
    for (const uid of [group, sibling]) {
      expectFailure(await spec.call('GetGroup', { uid }, { token: member.token }), { code: 5 })
      expectFailure(await spec.call('DeleteGroup', { uid }, { token: member.token }), { code: 5 })
      const identity = { name: 'intruder', claimMatch: claimMatch() }
      expectFailure(await spec.call('CreateIdentity', { parent: uid, identity }, { token: member.token }), { code: 5 })
    }
    const all = await spec.ok('ListGroups', {}, { token: member.token })
    expect(itemsOf(all, 'groups').map(uidOf)).toEqual([sub, deep])
    expect(all['totalCount']).toBe('2')
    const outside = await spec.ok('ListGroups', { uidp: { descendantsOf: group } }, { token: member.token })
    expect(itemsOf(outside, 'groups').map(uidOf)).toEqual([sub, deep])
    expect(await spec.ok('ListIdentities', { uidp: { childrenOf: group } }, { token: member.token })).toMatchObject({ identities: [], totalCount: '0' })
  })

  // docs/spec/iam.md#last-owner
  test('role bindings of the last owner of a root group are protected: every removal or change is code 9', async () => {
    const { group, owner, binding, token } = await soleOwner()
    const member = await makeMember(spec.server, group)
    const refused = [
      await spec.call('DeleteRoleBinding', { uid: binding }, { token }),
      await spec.call('UpdateRoleBinding', { roleBinding: { uid: binding, roleUid: roleUid('viewer') } }, { token }),
      await spec.call('DeleteIdentity', { uid: owner }, { token }),
    ]
    for (const reply of refused) expectFailure(reply, { code: 9, reason: 'LAST_OWNER', violations: ['LAST_OWNER'] })
    expect((await bind(group, member.uid, 'owner', token)).code).toBe(0)
    await spec.ok('DeleteRoleBinding', { uid: binding }, { token: member.token })
    expectFailure(await spec.call('GetGroup', { uid: group }, { token }), { code: 5 })
  })

  // docs/spec/iam.md#last-owner
  test('role bindings of the last owner may move to another identity in one update', async () => {
    const { group, binding, token } = await soleOwner()
    const member = await makeMember(spec.server, group)
    await spec.ok('UpdateRoleBinding', { roleBinding: { uid: binding, identityUid: member.uid } }, { token })
    await spec.ok('GetGroup', { uid: group }, { token: member.token })
  })

  // docs/spec/iam.md#last-owner
  test('role bindings of operators may be removed, and subgroups need no owner', async () => {
    const { group, binding, token } = await soleOwner()
    const sub = await subgroup(spec, group, token)
    const member = await makeMember(spec.server, group)
    const made = await bind(sub, member.uid, 'owner', token)
    await spec.ok('DeleteRoleBinding', { uid: uidOf(made.body) }, { token })
    await spec.ok('DeleteRoleBinding', { uid: binding }, { token: await spec.server.operatorToken() })
  })

  // docs/spec/iam.md#last-owner
  test('role bindings of the last two owners are not both removed at the same time', async () => {
    const { group, binding, token } = await soleOwner()
    const member = await makeMember(spec.server, group)
    const second = uidOf((await bind(group, member.uid, 'owner', token)).body)
    const replies = await Promise.all([
      spec.call('DeleteRoleBinding', { uid: binding }, { token: member.token }),
      spec.call('DeleteRoleBinding', { uid: second }, { token }),
    ])
    // The later one fails on the guard, or finds that it lost its own rights to the earlier one.
    expect(replies.filter(({ code }) => code === 0)).toHaveLength(1)
    const bindings = await spec.ok('ListRoleBindings', { group, role: roleUid('owner') }, { token: await spec.server.operatorToken() })
    expect(bindings['totalCount']).toBe('1')
  })
})

specSuite('role bindings in batches', (spec) => {
  const members = async (group: string, count: number): Promise<string[]> => {
    const made = await Promise.all(Array.from({ length: count }, () => makeMember(spec.server, group)))
    return made.map(({ uid }) => uid)
  }
  const count = async (group: string, token: string): Promise<unknown> => (await spec.ok('ListRoleBindings', { group }, { token }))['totalCount']

  // docs/spec/iam.md#role-binding-batches
  test('role bindings in batches are returned in the order of the request; an item without role inherits that of the batch', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const identities = (await members(group, 3)).reverse()
    const requests = identities.map((identityUid, at) => ({ roleBinding: at === 1 ? { identityUid, roleUid: roleUid('viewer') } : { identityUid } }))
    const answer = await spec.ok('BatchCreateRoleBindings', { parent: group, requests, roleUid: roleUid('viewer') }, { token })
    const made = itemsOf(answer, 'roleBindings')
    expect(made.map((binding) => uidOf(binding['identity'] as JsonObject))).toEqual(identities)
    for (const binding of made) {
      expect(binding).toMatchObject({ role: { name: 'viewer' }, group: { uid: group } })
      expect(await spec.ok('GetRoleBinding', { uid: uidOf(binding) }, { token })).toEqual(binding)
    }
  })

  // docs/spec/iam.md#role-binding-batches
  test('role bindings in batches have 1 to 25 items', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const identities = await members(group, 26)
    const requests = identities.map((identityUid) => ({ parent: group, roleBinding: { identityUid, roleUid: roleUid('viewer') } }))
    expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests: [] }, { token }), { code: 3, fields: ['requests'] })
    expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests }, { token }), { code: 3, fields: ['requests'] })
    const before = Number(await count(group, token))
    const made = await spec.ok('BatchCreateRoleBindings', { parent: group, requests: requests.slice(1) }, { token })
    expect(itemsOf(made, 'roleBindings')).toHaveLength(25)
    expect(await count(group, token)).toBe(String(before + 25))
  })

  // docs/spec/iam.md#role-binding-batches
  test('role bindings in batches are created all or none', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [one = '', other = ''] = await members(group, 2)
    const role = { roleUid: roleUid('viewer') }
    const good = { roleBinding: { identityUid: one, ...role } }
    await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: other, ...role } }, { token })
    const before = await count(group, token)
    const missing = { roleBinding: { identityUid: `${group}/0000000000000000`, ...role } }
    const rows = [
      [[good, missing], 3],
      [[good, { roleBinding: { identityUid: other, ...role } }], 6],
      [[good, { roleBinding: { identityUid: one } }], 3],
      [[good, good], 3],
    ] as const
    for (const [requests, code] of rows) {
      expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests: [...requests] }, { token }), { code })
      expect(await count(group, token)).toBe(before)
    }
  })

  // docs/spec/iam.md#role-binding-batches
  test('role bindings in batches are code 3 with an item of another role or parent than the batch', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token)
    const [identityUid = ''] = await members(group, 1)
    const otherRole = { parent: group, requests: [{ roleBinding: { identityUid, roleUid: roleUid('editor') } }], roleUid: roleUid('viewer') }
    expectFailure(await spec.call('BatchCreateRoleBindings', otherRole, { token }), { code: 3, fields: [/^requests\[0\]\..*role_uid/] })
    const otherParent = { parent: group, requests: [{ parent: sub, roleBinding: { identityUid } }], roleUid: roleUid('viewer') }
    expectFailure(await spec.call('BatchCreateRoleBindings', otherParent, { token }), { code: 3, fields: [/^requests\[0\]\.parent/] })
  })
})
