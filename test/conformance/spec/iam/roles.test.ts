import { createHash } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'
import { subgroup } from '../spec-kinds.ts'

const capabilities = ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_IDENTITY_LIST']

specSuite('roles', (spec) => {
  const custom = (parent: string, token: string, role: JsonObject = {}): Promise<JsonObject> =>
    spec.ok('CreateRole', { parent, role: { name: freshName('role'), capabilities, ...role } }, { token })

  // docs/spec/iam.md#built-in-roles
  test('GET /iam/v2/roles needs no parameters and shows the built-in role viewer', async () => {
    const { group } = await makeOrganisation(spec.server)
    const { token } = await makeMember(spec.server, group, { role: 'viewer' })
    const roles = itemsOf(await spec.ok('ListRoles', {}, { token }), 'roles')
    const viewer = roles.find((role) => role['name'] === 'viewer')
    expect(viewer).toMatchObject({ name: 'viewer', description: 'Viewer Role (built-in)' })
    expect(await spec.ok('GetRole', { uid: uidOf(viewer ?? {}) }, { token })).toEqual(viewer)
  })

  // docs/spec/resources.md#fixed-uids
  test('built-in roles have a fixed uid of 40 hex digits', async () => {
    const { token } = await makeOrganisation(spec.server)
    const roles = itemsOf(await spec.ok('ListRoles', { uidp: { inRoot: true }, pageSize: 200 }, { token }), 'roles')
    expect(roles.length).toBeGreaterThan(2)
    for (const role of roles) {
      const name = String(role['name'])
      expect(uidOf(role)).toBe(createHash('sha256').update(`taproot:role:${name}`).digest('hex').slice(0, 40))
      expect(String(role['description'])).toMatch(/ Role \(built-in\)$/)
    }
  })

  // docs/spec/conventions.md#list-reach
  test('a list without filter shows built-in roles and reachable custom roles, not those of other tenants', async () => {
    const [one, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const mine = await custom(one.group, one.token)
    const theirs = await custom(other.group, other.token)
    const uids = itemsOf(await spec.ok('ListRoles', { pageSize: 200 }, { token: one.token }), 'roles').map(uidOf)
    expect(uids).toContain(uidOf(mine))
    expect(uids).toContain(roleUid('owner'))
    expect(uids).not.toContain(uidOf(theirs))
  })

  // docs/spec/iam.md#built-in-roles
  test('built-in roles can not be changed or deleted, not even by an operator', async () => {
    const owner = await makeOrganisation(spec.server)
    const uid = roleUid('viewer')
    for (const token of [owner.token, await spec.server.operatorToken()]) {
      expectFailure(await spec.call('UpdateRole', { role: { uid, description: 'mine' } }, { token }), { code: 7 })
      expectFailure(await spec.call('DeleteRole', { uid }, { token }), { code: 7 })
    }
    expect(await spec.ok('GetRole', { uid }, { token: owner.token })).toMatchObject({ description: 'Viewer Role (built-in)' })
  })

  // docs/spec/iam.md#custom-roles
  test('a custom role is created, read and deleted', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await custom(group, token, { name: 'auditor', description: 'reads' })
    expect(made).toMatchObject({ name: 'auditor', description: 'reads', capabilities })
    expect(uidOf(made)).toMatch(new RegExp(`^${group}/[0-9a-f]{16}$`))
    expect(await spec.ok('GetRole', { uid: uidOf(made) }, { token })).toEqual(made)
    expect(await spec.ok('DeleteRole', { uid: uidOf(made) }, { token })).toEqual({})
    expectFailure(await spec.call('GetRole', { uid: uidOf(made) }, { token }), { code: 5 })
  })

  // docs/spec/iam.md#custom-roles
  test('create with an empty body is code 3 on name and capabilities', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    expectFailure(await spec.call('CreateRole', { parent: group, role: {} }, { token }), { code: 3, fields: ['name', 'capabilities'] })
  })

  // docs/spec/iam.md#custom-roles
  test('capabilities are returned in the order of their numbers, without duplicates', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const shuffled = ['CAP_IAM_IDENTITY_LIST', 'CAP_IAM_GROUPS_LIST', 'CAP_IAM_IDENTITY_LIST']
    const sorted = await custom(group, token, { capabilities: shuffled })
    expect(sorted['capabilities']).toHaveLength(2)
    const other = await custom(group, token, { capabilities: [...shuffled].reverse() })
    expect(other['capabilities']).toEqual(sorted['capabilities'])
  })

  const refuses = (rows: readonly [what: string, capability: string | number][]): void =>
    // docs/spec/iam.md#custom-roles
    test.each(rows)('a capability that is %s is code 3 on capabilities', async (_, capability) => {
      const { group, token } = await makeOrganisation(spec.server)
      const role = { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST', capability] }
      expectFailure(await spec.call('CreateRole', { parent: group, role }, { token }), { code: 3, fields: [/^capabilities/] })
    })
  refuses([
    ['internal only', 'CAP_INTERNAL'],
    ['unspecified', 'CAP_UNSPECIFIED'],
    ['no capability at all', 99_999],
  ])
  // Names that the schema does not have can't be sent over gRPC.
  spec.only('rest', () =>
    refuses([
      ['deprecated', 'policy.list'],
      ['unknown', 'vuln.list'],
    ]),
  )

  // docs/spec/iam.md#custom-roles
  test('an update without capabilities keeps them; an explicit empty list is code 3', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await custom(group, token)
    const uid = uidOf(made)
    expect(await spec.ok('UpdateRole', { role: { uid, description: 'new' } }, { token })).toMatchObject({ description: 'new', capabilities })
    const empty = await spec.call('UpdateRole', { role: { uid, capabilities: [] }, updateMask: 'capabilities' }, { token })
    expectFailure(empty, { code: 3, fields: ['capabilities'] })
    expect(await spec.ok('GetRole', { uid }, { token })).toMatchObject({ capabilities })
  })

  // docs/spec/resources.md#unique-names
  test('a role name is unique in its group, also after a rename', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token)
    await custom(group, token, { name: 'taken' })
    await custom(sub, token, { name: 'taken' })
    expectFailure(await spec.call('CreateRole', { parent: group, role: { name: 'taken', capabilities } }, { token }), { code: 6 })
    const other = await custom(group, token, { name: 'other' })
    expectFailure(await spec.call('UpdateRole', { role: { uid: uidOf(other), name: 'taken' } }, { token }), { code: 6 })
    await spec.ok('UpdateRole', { role: { uid: uidOf(other), name: 'renamed' } }, { token })
    await custom(group, token, { name: 'other' })
  })

  // docs/spec/conventions.md#deletion-order
  test('a bound role can not be deleted (code 9 ROLE_IN_USE); an unbound one can', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await custom(group, token)
    const member = await makeMember(spec.server, group)
    const binding = await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: member.uid, roleUid: uidOf(role) } }, { token })
    expectFailure(await spec.call('DeleteRole', { uid: uidOf(role) }, { token }), { code: 9, reason: 'ROLE_IN_USE', violations: ['ROLE_IN_USE'] })
    await spec.ok('DeleteRoleBinding', { uid: uidOf(binding) }, { token })
    await spec.ok('DeleteRole', { uid: uidOf(role) }, { token })
  })

  // docs/spec/conventions.md#deletion-order
  test('a role is unbound as soon as the identity with that role is deleted', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await custom(group, token)
    const member = await makeMember(spec.server, group, { role: uidOf(role) })
    await spec.ok('DeleteIdentity', { uid: member.uid }, { token })
    await spec.ok('DeleteRole', { uid: uidOf(role) }, { token })
  })

  // docs/spec/iam.md#live-rights
  test('a changed role applies at once, also for tokens already issued', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await custom(group, token, { capabilities: ['CAP_IAM_IDENTITY_LIST'] })
    const member = await makeMember(spec.server, group, { role: uidOf(role) })
    expectFailure(await spec.call('GetGroup', { uid: group }, { token: member.token }), { code: 7 })
    await spec.ok('UpdateRole', { role: { uid: uidOf(role), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token })
    await spec.ok('GetGroup', { uid: group }, { token: member.token })
  })

  // docs/spec/iam.md#no-escalation
  test('a caller cannot create a role with, or add to it, capabilities that they do not hold', async () => {
    const { group, token: ownerToken } = await makeOrganisation(spec.server)
    const maker = await custom(group, ownerToken, { capabilities: ['CAP_IAM_ROLES_CREATE', 'CAP_IAM_ROLES_UPDATE', 'CAP_IAM_ROLES_LIST'] })
    const { token } = await makeMember(spec.server, group, { role: uidOf(maker) })
    const small = await custom(group, token, { capabilities: ['CAP_IAM_ROLES_LIST'] })
    expectFailure(await spec.call('CreateRole', { parent: group, role: { name: 'more', capabilities: ['CAP_IAM_GROUPS_DELETE'] } }, { token }), { code: 7 })
    expectFailure(await spec.call('UpdateRole', { role: { uid: uidOf(small), capabilities: ['CAP_IAM_GROUPS_DELETE'] } }, { token }), { code: 7 })
  })

  // docs/spec/conventions.md#list-reach
  test('a caller who may list roles nowhere sees no built-in role', async () => {
    const { group } = await makeOrganisation(spec.server)
    const { token } = await makeMember(spec.server, group)
    expectFailure(await spec.call('GetRole', { uid: roleUid('viewer') }, { token }), { code: 5 })
    expect(await spec.ok('ListRoles', {}, { token })).toMatchObject({ roles: [], totalCount: '0' })
  })

  spec.only('rest', () => {
    // docs/spec/resources.md#json-form
    test('capabilities are also accepted as numbers and dotted names', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      expect(await custom(group, token, { capabilities: ['groups.list', 'identity.list'] })).toMatchObject({ capabilities })
    })
  })
})
