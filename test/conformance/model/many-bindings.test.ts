import { afterAll, beforeAll, expect, test } from 'vitest'
import { freshName, ok, roleUid } from '../../support/test-server.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { until } from '../../store/store-harness.ts'
import { identityFields, listAll, make, startReplicas, type Client, type Replicas } from './replicas.ts'
import { entriesOf, expectSoundStore } from './store-invariants.ts'

const count = 500
const viewer = roleUid('viewer')

/** Runs `work` for every item, some at once. */
async function forAll<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (let at = 0; at < items.length; at += 25) results.push(...(await Promise.all(items.slice(at, at + 25).map(work))))
  return results
}

describeOnStores('an identity with 500 bindings', (kind) => {
  let replicas: Replicas
  let operator: Client
  let root: string
  let groups: string[]

  beforeAll(async () => {
    replicas = await startReplicas(kind)
    operator = replicas.operator
    root = await make(operator, 'CreateGroup', { group: { name: freshName('root') } })
    const names = Array.from({ length: count }, (_, at) => `group ${String(at).padStart(3, '0')}`)
    groups = await forAll(names, (name) => make(operator, 'CreateGroup', { parent: root, group: { name } }))
  })
  afterAll(() => replicas.stop())

  test('an identity with 500 bindings lists what it can see in any order, is deleted in one call, and disappears at once for every reader', async () => {
    const identity = await make(operator, 'CreateIdentity', { parent: root, identity: identityFields() })
    const other = await make(operator, 'CreateIdentity', { parent: root, identity: identityFields() })
    const bindings = await forAll(groups, (parent) => make(operator, 'CreateRoleBinding', { parent, roleBinding: { identityUid: identity, roleUid: viewer } }))
    const kept = await make(operator, 'CreateRoleBinding', { parent: groups[0] ?? '', roleBinding: { identityUid: other, roleUid: viewer } })
    const client = await replicas.clientOf(identity)
    for (const orderBy of ['name desc', 'created_at', 'uid']) {
      const seen = (await listAll(client, 'ListGroups', { orderBy })).map((group) => String(group['uid']))
      expect(seen).toEqual(orderBy === 'name desc' ? groups.toReversed() : orderBy === 'uid' ? groups.toSorted() : expect.arrayContaining(groups))
      expect(seen.length).toBe(count)
    }
    expect(ok(await client.call('ListRoleBindings', { identity }))['totalCount']).toBe(String(count))

    expect((await operator.at(0, 'DeleteIdentity', { uid: identity })).code).toBe(0)

    // Asked at once, on both replicas, long before all keys can be gone.
    for (const replica of [1, 0]) {
      expect((await operator.at(replica, 'GetIdentity', { uid: identity })).code).toBe(5)
      expect(ok(await operator.at(replica, 'ListRoleBindings', { identity }))['totalCount']).toBe('0')
      const left = ok(await operator.at(replica, 'ListRoleBindings', { uidp: { descendantsOf: root }, role: viewer }))
      expect(left).toMatchObject({ totalCount: '1', roleBindings: [{ uid: kept }] })
      expect((await operator.at(replica, 'GetRoleBinding', { uid: bindings[count - 1] ?? '' })).code).toBe(5)
      expect((await operator.at(replica, 'DeleteRoleBinding', { uid: bindings[count - 2] ?? '' })).code).toBe(5)
      expect((await client.at(replica, 'ListGroups', {})).code, 'its tokens are refused').toBe(16)
      const bound = await operator.at(replica, 'CreateRoleBinding', { parent: groups[1] ?? '', roleBinding: { identityUid: identity, roleUid: viewer } })
      expect(bound.code).toBe(3)
    }
    // Swept behind: not one key that names it is left.
    await until(async () => (await entriesOf(replicas.store, 'i/')).every((entry) => !entry.key.includes(identity)))
    await until(async () => (await entriesOf(replicas.store, 'r/RoleBinding/')).length === 2)
    await expectSoundStore(replicas.store)
    expect((await operator.call('GetRoleBinding', { uid: kept })).code).toBe(0)
    expect((await operator.call('DeleteIdentity', { uid: identity })).code).toBe(5)
  })

  test('an identity with 500 bindings does not block the deletion of a role or group, if its bindings are deleted in the same step', async () => {
    const team = await make(operator, 'CreateGroup', { parent: root, group: { name: freshName('team') } })
    const role = await make(operator, 'CreateRole', { parent: root, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } })
    const identity = await make(operator, 'CreateIdentity', { parent: root, identity: identityFields() })
    await forAll([team, ...groups.slice(0, 150)], (parent) =>
      make(operator, 'CreateRoleBinding', { parent, roleBinding: { identityUid: identity, roleUid: role } }),
    )
    expect((await operator.call('DeleteRole', { uid: role })).details['ErrorInfo']).toMatchObject({ reason: 'ROLE_IN_USE' })
    ok(await operator.call('DeleteIdentity', { uid: identity }))
    ok(await operator.call('DeleteRole', { uid: role }))
    ok(await operator.call('DeleteGroup', { uid: team }))
    await expectSoundStore(replicas.store)
  })
})
