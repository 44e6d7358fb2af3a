import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Reply } from '../../support/api-clients.ts'
import { freshName, ok, roleUid } from '../../support/test-server.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { until } from '../../store/store-harness.ts'
import { identityFields, listAll, make, startReplicas, type Client, type Replicas } from './replicas.ts'
import { expectSoundStore, ownersOf, storedRecords } from './store-invariants.ts'

const times = (count: number): number[] => Array.from({ length: count }, (_, index) => index)
const viewer = roleUid('viewer')
const owner = roleUid('owner')

function expectCodes(replies: readonly Reply[], allowed: readonly number[]): void {
  for (const reply of replies) expect(allowed, `${reply.message} ${JSON.stringify(reply.details)}`).toContain(reply.code)
}

const succeeded = (replies: readonly Reply[]): number => replies.filter((reply) => reply.code === 0).length

describeOnStores('concurrent writers', (kind) => {
  let replicas: Replicas
  let operator: Client
  let root: string

  beforeAll(async () => {
    replicas = await startReplicas(kind)
    operator = replicas.operator
    root = await make(operator, 'CreateGroup', { group: { name: freshName('root') } })
  })
  afterAll(() => replicas.stop())

  const newGroup = (parent: string): Promise<string> => make(operator, 'CreateGroup', { parent, group: { name: freshName('group') } })
  const newIdentity = (parent: string): Promise<string> => make(operator, 'CreateIdentity', { parent, identity: identityFields() })
  const bind = (parent: string, identityUid: string, role: string): Promise<Reply> =>
    operator.call('CreateRoleBinding', { parent, roleBinding: { identityUid, roleUid: role } })

  test('concurrent writers never create a child under a group that is being deleted', async () => {
    const member = await newIdentity(root)
    let deletedOnce = 0
    for (const round of times(16)) {
      const group = await newGroup(root)
      const remove = (): Promise<Reply> => operator.call('DeleteGroup', { uid: group })
      const blocking = [
        () => operator.call('CreateGroup', { parent: group, group: { name: 'child' } }),
        () => operator.call('CreateIdentity', { parent: group, identity: identityFields() }),
        () => operator.call('CreateRole', { parent: group, role: { name: 'role', capabilities: ['CAP_IAM_GROUPS_LIST'] } }),
      ].slice(0, round % 4)
      const removing = [remove(), ...(round % 2 === 0 ? [remove()] : [])]
      const creating = blocking.map((create) => create())
      const binding = [bind(group, member, viewer), bind(group, member, owner)]
      const removed = await Promise.all(removing)
      const created = await Promise.all(creating)
      expectCodes(removed, [0, 5, 9])
      expectCodes(created, [0, 5])
      expectCodes(await Promise.all(binding), [0, 5])
      for (const reply of removed.filter(({ code }) => code === 9)) {
        expect(reply.details['PreconditionFailure']?.['violations']).toEqual(expect.arrayContaining([expect.objectContaining({ type: 'RESOURCE_NOT_EMPTY' })]))
      }
      expect(succeeded(removed) > 0, 'deleted exactly where nothing was made in it').toBe(succeeded(created) === 0)
      expect(succeeded(removed)).toBeLessThanOrEqual(1)
      deletedOnce += succeeded(removed)
      for (const replica of [0, 1]) {
        expect((await operator.at(replica, 'GetGroup', { uid: group })).code).toBe(succeeded(removed) > 0 ? 5 : 0)
        const list = ok(await operator.at(replica, 'ListRoleBindings', { uidp: { childrenOf: group } }))
        if (succeeded(removed) > 0) expect(list['totalCount']).toBe('0')
      }
    }
    expect(deletedOnce).toBeGreaterThan(0)
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers get a name only once, however many want it', async () => {
    for (const round of times(4)) {
      const parent = await newGroup(root)
      const asGroup = await Promise.all(times(10).map(() => operator.call('CreateGroup', { parent, group: { name: 'same name' } })))
      const asRole = await Promise.all(
        times(10).map(() => operator.call('CreateRole', { parent, role: { name: 'same name', capabilities: ['CAP_IAM_GROUPS_LIST'] } })),
      )
      const name = freshName('organisation')
      const asRoot = await Promise.all(times(6).map(() => operator.call('CreateGroup', { group: { name } })))
      const member = await newIdentity(parent)
      const asBinding = await Promise.all(times(8).map(() => bind(parent, member, viewer)))
      for (const replies of [asGroup, asRole, asRoot, asBinding]) {
        expectCodes(replies, [0, 6])
        expect(succeeded(replies), `round ${round}`).toBe(1)
      }
      // Renames want it too; the one who has it may give it up at the same time.
      const others = await Promise.all(times(5).map(() => newGroup(parent)))
      const renames = await Promise.all(others.map((uid) => operator.call('UpdateGroup', { group: { uid, name: 'wanted' } })))
      expectCodes(renames, [0, 6])
      expect(succeeded(renames)).toBe(1)
      const winner = others[renames.findIndex(({ code }) => code === 0)] ?? ''
      const away = operator.call('UpdateGroup', { group: { uid: winner, name: 'given up' } })
      const again = await Promise.all(others.filter((uid) => uid !== winner).map((uid) => operator.call('UpdateGroup', { group: { uid, name: 'wanted' } })))
      expect((await away).code).toBe(0)
      expectCodes(again, [0, 6])
      expect(succeeded(again)).toBeLessThanOrEqual(1)
      const names = (await listAll(operator, 'ListGroups', { uidp: { childrenOf: parent } })).map((group) => group['name'])
      expect(new Set(names).size).toBe(names.length)
    }
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers lose no update: with If-Match each increment counts once, and masks touch no other field', async () => {
    const group = await newGroup(root)
    ok(await operator.call('UpdateGroup', { group: { uid: group, description: '0' } }))
    let increments = 0
    let conflicts = 0
    await Promise.all(
      times(6).map(async () => {
        for (let done = 0; done < 6;) {
          const { description, etag } = ok(await operator.call('GetGroup', { uid: group })) as { description: string; etag: string }
          const reply = await operator.call(
            'UpdateGroup',
            { group: { uid: group, description: String(Number(description) + 1) }, updateMask: 'description' },
            { ifMatch: etag },
          )
          expectCodes([reply], [0, 10])
          if (reply.code === 0) {
            increments += 1
            done += 1
          } else conflicts += 1
        }
      }),
    )
    expect(increments).toBe(36)
    expect(conflicts).toBeGreaterThan(0)
    expect(ok(await operator.call('GetGroup', { uid: group }))['description']).toBe('36')
    // Without If-Match the last one wins, field by field.
    const change = async (field: string): Promise<string> => {
      let last = ''
      for (const step of times(12)) {
        last = `${field}-${step}`
        const reply = await operator.call('UpdateGroup', { group: { uid: group, [field]: last }, updateMask: field })
        expectCodes([reply], [0])
        expect(reply.body[field]).toBe(last)
      }
      return last
    }
    const [name, description] = await Promise.all([change('name'), change('description')])
    expect(ok(await operator.call('GetGroup', { uid: group }))).toMatchObject({ name, description })
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers always leave an owner in a root group', async () => {
    for (const round of times(5)) {
      const org = await make(operator, 'CreateGroup', { group: { name: freshName('owned') } })
      const owners = await Promise.all(times(5).map(() => newIdentity(org)))
      const bindings = await Promise.all(
        owners.map((uid) => make(operator, 'CreateRoleBinding', { parent: org, roleBinding: { identityUid: uid, roleUid: owner } })),
      )
      const clients = await Promise.all(owners.map((uid) => replicas.clientOf(uid)))
      // The operator, who made the group, leaves: from here on there are only those five.
      const all = await listAll(operator, 'ListRoleBindings', { uidp: { childrenOf: org }, role: owner })
      const own = all.filter((binding) => !bindings.includes(String(binding['uid'])))
      for (const binding of own) ok(await operator.call('DeleteRoleBinding', { uid: String(binding['uid']) }))
      let over = false
      const seen: number[] = []
      const watching = (async () => {
        for (let turn = 0; !over; turn++) {
          const list = ok(await operator.at(turn, 'ListRoleBindings', { uidp: { childrenOf: org }, role: owner }))
          seen.push(Number(list['totalCount']))
        }
      })()
      const attack = async (at: number): Promise<Reply[]> => {
        const replies: Reply[] = []
        const self = clients[at] ?? operator
        for (const step of times(5)) {
          const other = (at + 1 + step) % owners.length
          const binding = bindings[other] ?? ''
          const deeds = [
            () => self.call('DeleteRoleBinding', { uid: binding }),
            () => self.call('DeleteIdentity', { uid: owners[other] ?? '' }),
            () => self.call('UpdateRoleBinding', { roleBinding: { uid: binding, roleUid: viewer } }),
            () => self.call('UpdateRoleBinding', { roleBinding: { uid: bindings[at] ?? '', identityUid: owners[other] ?? '' } }),
          ]
          replies.push(await (deeds[(at + step + round) % deeds.length] ?? deeds[0]!)())
        }
        return replies
      }
      const replies = (await Promise.all(times(owners.length).map(attack))).flat()
      over = true
      await watching
      // Gone, no longer allowed, last owner, too contended, signed out, bound already, or pointed at someone who is gone.
      expectCodes(replies, [0, 3, 5, 6, 7, 9, 10, 16])
      for (const reply of replies.filter(({ code }) => code === 9)) expect(reply.details['ErrorInfo']).toMatchObject({ reason: 'LAST_OWNER' })
      expect(Math.min(...seen), 'owners that a reader saw').toBeGreaterThan(0)
      expect(ownersOf(await storedRecords(replicas.store), org).length, 'owners in the store').toBeGreaterThan(0)
      // The last one can not go, except by an operator's hand.
      const left = await listAll(operator, 'ListRoleBindings', { uidp: { childrenOf: org }, role: owner })
      const identities = left.map((binding) => String((binding['identity'] as JsonObject)['uid']))
      for (const [at, binding] of left.entries()) {
        const client = await replicas.clientOf(identities[at] ?? '')
        const last = at === left.length - 1
        const reply = await client.call('DeleteRoleBinding', { uid: String(binding['uid']) })
        expect(reply.code, reply.message).toBe(last ? 9 : 0)
        if (last) {
          expect((await client.call('DeleteIdentity', { uid: identities[at] ?? '' })).details['ErrorInfo']).toMatchObject({ reason: 'LAST_OWNER' })
          expect(
            (await client.call('UpdateRoleBinding', { roleBinding: { uid: String(binding['uid']), roleUid: viewer } })).details['ErrorInfo'],
          ).toMatchObject({ reason: 'LAST_OWNER' })
          ok(await operator.call('DeleteRoleBinding', { uid: String(binding['uid']) }))
        }
      }
    }
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers leave no binding and no key of an identity that gets a binding during its deletion', async () => {
    const groups = await Promise.all(times(6).map(() => newGroup(root)))
    for (const round of times(8)) {
      const member = await newIdentity(root)
      const another = await newIdentity(root)
      const early = await make(operator, 'CreateRoleBinding', { parent: root, roleBinding: { identityUid: member, roleUid: viewer } })
      const binding = groups.map((group) => bind(group, member, viewer))
      const batch = operator.call('BatchCreateRoleBindings', {
        parent: root,
        roleUid: owner,
        requests: [another, member].map((uid) => ({ roleBinding: { identityUid: uid } })),
      })
      const moving = operator.call('UpdateRoleBinding', { roleBinding: { uid: early, identityUid: another } })
      const [removed] = await Promise.all([operator.call('DeleteIdentity', { uid: member }), ...binding, batch, moving])
      expectCodes([removed], [0])
      expectCodes(await Promise.all(binding), [0, 3, 10])
      expectCodes([await batch], [0, 3, 10])
      const moved = await moving
      expectCodes([moved], [0, 5, 10])
      for (const replica of [0, 1]) {
        expect(ok(await operator.at(replica, 'ListRoleBindings', { identity: member }))['totalCount'], `round ${round}`).toBe('0')
        // What was moved away in time stays, and all at once.
        expect((await operator.at(replica, 'GetRoleBinding', { uid: early })).code).toBe(moved.code === 0 ? 0 : 5)
      }
      const records = await storedRecords(replicas.store)
      await expectSoundStore(replicas.store)
      expect(records.some((record) => record.kind === 'Identity' && record.uid === member)).toBe(false)
    }
  })

  test('concurrent writers either delete a role or bind it, never both', async () => {
    const member = await newIdentity(root)
    const groups = await Promise.all(times(4).map(() => newGroup(root)))
    for (const _round of times(8)) {
      const role = await make(operator, 'CreateRole', { parent: root, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } })
      const binding = groups.map((group) => bind(group, member, role))
      const removing = times(2).map(() => operator.call('DeleteRole', { uid: role }))
      const bound = await Promise.all(binding)
      const removed = await Promise.all(removing)
      expectCodes(bound, [0, 3])
      expectCodes(removed, [0, 5, 9])
      for (const reply of removed.filter(({ code }) => code === 9)) expect(reply.details['ErrorInfo']).toMatchObject({ reason: 'ROLE_IN_USE' })
      expect(succeeded(removed)).toBe(succeeded(bound) === 0 ? 1 : 0)
      expect((await operator.call('GetRole', { uid: role })).code).toBe(succeeded(removed) === 0 ? 0 : 5)
      // A role whose only bindings go with their identity can go at once, also while they are still being swept.
      if (succeeded(removed) === 0) {
        const short = await newIdentity(root)
        ok(await bind(root, short, role))
        for (const reply of bound) if (reply.code === 0) ok(await operator.call('DeleteRoleBinding', { uid: String(reply.body['uid']) }))
        ok(await operator.call('DeleteIdentity', { uid: short }))
        ok(await operator.call('DeleteRole', { uid: role }))
      }
    }
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers create batches completely or not at all', async () => {
    const group = await newGroup(root)
    const members = await Promise.all(times(12).map(() => newIdentity(root)))
    const batches = times(10).map((at) => times(5).map((step) => members[(at * 3 + step * 2) % members.length] ?? ''))
    const replies = await Promise.all(
      batches.map((uids) =>
        operator.call('BatchCreateRoleBindings', { parent: group, roleUid: viewer, requests: uids.map((uid) => ({ roleBinding: { identityUid: uid } })) }),
      ),
    )
    expectCodes(replies, [0, 6])
    expect(succeeded(replies)).toBeGreaterThan(0)
    const made = batches.filter((_, at) => replies[at]?.code === 0).flat()
    expect(new Set(made).size, 'no identity in two batches that were made').toBe(made.length)
    const list = await listAll(operator, 'ListRoleBindings', { uidp: { childrenOf: group } })
    expect(list.map((binding) => String((binding['identity'] as JsonObject)['uid'])).sort()).toEqual(made.sort())
    for (const reply of replies.filter(({ code }) => code === 0)) {
      const at = replies.indexOf(reply)
      const order = (reply.body['roleBindings'] as JsonObject[]).map((binding) => (binding['identity'] as JsonObject)['uid'])
      expect(order, 'answered in the order of the request').toEqual(batches[at])
    }
    await expectSoundStore(replicas.store)
  })

  test('concurrent writers see on one replica what another acknowledged, a thousand times in a row', async () => {
    const chains = await Promise.all(times(8).map(() => newGroup(root)))
    let reads = 0
    await Promise.all(
      chains.map(async (uid, chain) => {
        for (const step of times(125)) {
          const description = `step ${step}`
          const writer = (chain + step) % 2
          const made = ok(await operator.at(writer, 'UpdateGroup', { group: { uid, description } }))
          const read = ok(await operator.at(writer + 1, 'GetGroup', { uid }))
          expect(read).toEqual(made)
          reads += 1
        }
      }),
    )
    expect(reads).toBe(1000)
  })

  test('concurrent writers find no trace on one replica of a group that was created and deleted through the other, in any list', async () => {
    const group = await newGroup(root)
    const member = await newIdentity(root)
    ok(await bind(group, member, viewer))
    const client = await replicas.clientOf(member)
    expect((await client.at(0, 'GetGroup', { uid: group })).code).toBe(0)
    ok(await operator.at(0, 'DeleteGroup', { uid: group }))
    for (const replica of [1, 0]) {
      expect(ok(await operator.at(replica, 'ListRoleBindings', { identity: member }))['totalCount']).toBe('0')
      expect((await client.at(replica, 'GetGroup', { uid: group })).code).toBe(5)
      expect(ok(await client.at(replica, 'ListGroups', {}))['totalCount']).toBe('0')
    }
    await until(async () => (await storedRecords(replicas.store)).every((record) => record.parent !== group))
    await expectSoundStore(replicas.store)
  })
})
