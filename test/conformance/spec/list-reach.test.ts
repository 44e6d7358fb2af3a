import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../support/test-server.ts'
import { create, identityUnder, specKinds, subgroup } from './spec-kinds.ts'
import { itemsOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

specSuiteEverywhere('list filters and reach', (spec) => {
  /** group > sub > deep, and a sibling of sub. */
  const tree = async () => {
    const organisation = await makeOrganisation(spec.server)
    const { group, token } = organisation
    const sub = await subgroup(spec, group, token)
    const sibling = await subgroup(spec, group, token)
    const deep = await subgroup(spec, sub, token)
    return { ...organisation, sub, sibling, deep }
  }
  const groups = async (uidp: JsonObject, token: string, more: JsonObject = {}): Promise<string[]> => {
    const page = await spec.ok('ListGroups', { uidp, ...more }, { token })
    const uids = itemsOf(page, 'groups').map(uidOf)
    expect(page['totalCount']).toBe(String(uids.length))
    return uids
  }

  // docs/spec/conventions.md#list-filters
  test('uidp.descendants_of returns everything below a group at any depth, without the group', async () => {
    const { group, sub, sibling, deep, token } = await tree()
    expect(await groups({ descendantsOf: group }, token)).toEqual([sub, sibling, deep].sort())
    expect(await groups({ descendantsOf: sub }, token)).toEqual([deep])
    expect(await groups({ descendantsOf: deep }, token)).toEqual([])
  })

  // docs/spec/conventions.md#list-filters
  test('uidp.children_of returns direct children only', async () => {
    const { group, sub, sibling, deep, token } = await tree()
    expect(await groups({ childrenOf: group }, token)).toEqual([sub, sibling].sort())
    expect(await groups({ childrenOf: sub }, token)).toEqual([deep])
  })

  // docs/spec/conventions.md#list-filters
  test('uidp.ancestors_of returns all groups above, ids the given uids, in_root the root groups; together they narrow', async () => {
    const { group, sub, sibling, deep, token } = await tree()
    expect(await groups({ ancestorsOf: deep }, token)).toEqual([group, sub])
    expect(await groups({ ids: [deep, group, `${group}/0000000000000000`] }, token)).toEqual([group, deep])
    expect(await groups({ inRoot: true }, token)).toEqual([group])
    expect(await groups({ childrenOf: group, ids: [sub, deep] }, token)).toEqual([sub])
    expect(await groups({ descendantsOf: sub, childrenOf: group }, token)).toEqual([])
    expect(await groups({ ancestorsOf: deep, descendantsOf: group }, token)).toEqual([sub])
    expect(await groups({ inRoot: true, ids: [sibling] }, token)).toEqual([])
  })

  // docs/spec/conventions.md#list-filters
  test('the hierarchy filters work for identities, roles and role bindings alike', async () => {
    const { group, sub, deep, token } = await tree()
    for (const kind of specKinds.filter(({ kind: name }) => name !== 'Group')) {
      const inSub = await create(spec, kind, { group: sub, draft: await kind.draft(spec, group) }, { token })
      const inDeep = await create(spec, kind, { group: deep, draft: await kind.draft(spec, group) }, { token })
      const list = async (uidp: JsonObject): Promise<string[]> => itemsOf(await spec.ok(kind.list, { uidp }, { token }), kind.plural).map(uidOf)
      expect(await list({ descendantsOf: sub })).toEqual([uidOf(inSub), uidOf(inDeep)].sort())
      expect(await list({ childrenOf: sub })).toEqual([uidOf(inSub)])
      expect(await list({ childrenOf: sub, ids: [uidOf(inDeep)] })).toEqual([])
    }
  })

  // docs/spec/conventions.md#list-reach
  test('a filter by a group out of reach returns an empty list, not an error', async () => {
    const [own, other] = [await tree(), await tree()]
    for (const uidp of [{ descendantsOf: other.group }, { childrenOf: other.sub }, { ids: [other.group, other.sub] }, { ancestorsOf: other.deep }]) {
      for (const kind of specKinds) {
        expect(await spec.ok(kind.list, { uidp }, { token: own.token })).toMatchObject({ [kind.plural]: [], totalCount: '0', skipped: 0 })
      }
    }
    expect(await groups({ descendantsOf: 'no uid' }, own.token)).toEqual([])
    expect(await groups({ descendantsOf: 'f'.repeat(40) }, own.token)).toEqual([])
  })

  // docs/spec/conventions.md#list-reach
  test('without a filter a caller sees and counts only records in reach', async () => {
    const own = await tree()
    await tree()
    expect(await groups({}, own.token)).toEqual([own.group, own.sub, own.sibling, own.deep].sort())
  })

  // docs/spec/conventions.md#list-reach
  test('a caller with bindings on two subgroups sees these and everything below', async () => {
    const { group, sub, sibling, deep, token } = await tree()
    const member = await makeMember(spec.server, group, { role: 'viewer', bindAt: deep })
    const roleBinding = { identityUid: member.uid, roleUid: roleUid('viewer') }
    await spec.ok('CreateRoleBinding', { parent: sibling, roleBinding }, { token })
    const below = await subgroup(spec, sibling, token)
    expect(await groups({}, member.token)).toEqual([deep, sibling, below].sort())
    expect(await groups({ descendantsOf: group }, member.token)).toEqual([deep, sibling, below].sort())
    expect(await groups({ childrenOf: group }, member.token)).toEqual([sibling])
    expect(await groups({ childrenOf: sub }, member.token)).toEqual([deep])
    expect(await groups({ ancestorsOf: deep }, member.token)).toEqual([])
  })

  // docs/spec/conventions.md#list-reach
  test('a caller without the capability anywhere gets an empty list', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await spec.ok('CreateRole', { parent: group, role: { name: 'narrow', capabilities: ['CAP_IAM_IDENTITY_LIST'] } }, { token })
    const member = await makeMember(spec.server, group, { role: uidOf(role) })
    expect(await spec.ok('ListGroups', {}, { token: member.token })).toMatchObject({ groups: [], totalCount: '0' })
    expect(itemsOf(await spec.ok('ListIdentities', {}, { token: member.token }), 'identities').length).toBeGreaterThan(1)
  })

  // docs/spec/tokens.md#narrowing
  test('a token narrowed to one group lists only that group', async () => {
    const { owner, sub, deep } = await tree()
    const restricted = await spec.server.tokenFor(owner, { scopes: [trustedUid(sub)] })
    expect(await groups({}, restricted)).toEqual([sub, deep])
  })

  // docs/spec/conventions.md#list-filters
  test('identities are filtered by relationship_type, where UNSPECIFIED means all', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const match = await identityUnder(spec, parent, token)
    const awsIdentity = { awsAccount: '123456789012', arn: 'arn', userId: 'id' }
    const aws = await spec.ok('CreateIdentity', { parent, identity: { name: 'aws', awsIdentity } }, { token })
    const rows = { CLAIM_MATCH: [match], AWS_IDENTITY: [aws], STATIC: [], UNSPECIFIED: [match, aws] }
    for (const [type, expected] of Object.entries(rows)) {
      const request = { uidp: { childrenOf: parent }, relationshipType: `RELATIONSHIP_TYPE_${type}` }
      const page = await spec.ok('ListIdentities', request, { token })
      expect(itemsOf(page, 'identities').map(uidOf)).toEqual(expected.map(uidOf).sort())
    }
  })

  // docs/spec/conventions.md#list-filters
  test('role bindings are filtered by identity, group and role, ANDed', async () => {
    const { group, sub, token } = await tree()
    const [one, other] = [await makeMember(spec.server, group, { role: 'viewer' }), await makeMember(spec.server, group, { role: 'viewer' })]
    const below = await spec.ok('CreateRoleBinding', { parent: sub, roleBinding: { identityUid: one.uid, roleUid: roleUid('editor') } }, { token })
    const count = async (filter: JsonObject): Promise<unknown> => (await spec.ok('ListRoleBindings', filter, { token }))['totalCount']
    expect(await count({ identity: one.uid })).toBe('2')
    expect(await count({ identity: other.uid })).toBe('1')
    expect(await count({ role: roleUid('viewer') })).toBe('2')
    expect(await count({ group: sub })).toBe('1')
    expect(await count({ identity: one.uid, role: roleUid('viewer') })).toBe('1')
    expect(await count({ identity: other.uid, group: sub })).toBe('0')
    const page = await spec.ok('ListRoleBindings', { identity: one.uid, group: sub, role: roleUid('editor') }, { token })
    expect(page).toMatchObject({ roleBindings: [below], totalCount: '1' })
  })

  // docs/spec/conventions.md#list-filters
  test('name filters groups and roles by their exact name', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('exact')
    const sub = await subgroup(spec, group, token, name)
    await subgroup(spec, group, token, `${name} more`)
    expect(await groups({}, token, { name })).toEqual([sub])
    expect(await spec.ok('ListRoles', { name: 'viewer' }, { token })).toMatchObject({ roles: [{ uid: roleUid('viewer') }], totalCount: '1' })
  })
})
