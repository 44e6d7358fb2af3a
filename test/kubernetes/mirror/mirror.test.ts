import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { create } from '@bufbuild/protobuf'
import { everywhere } from '../../../src/authz/effective-permissions.ts'
import { emptySet } from '../../../src/base/capability.ts'
import { builtInRoles } from '../../../src/base/roles.ts'
import { GroupSchema } from '../../../src/gen/taproot/iam/v2/groups_pb.ts'
import { mirrorName } from '../../../src/kubernetes/mirror/mirror-object.ts'
import { objectKinds } from '../../../src/kubernetes/object-kinds.ts'
import { originLabel, uidAnnotation, type PlatformObject } from '../../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { clusterIdentity } from '../../../src/kubernetes/world.ts'
import { createManaged, type ObjectCaller } from '../../../src/domains/managed-records.ts'
import { managedByText } from '../../../src/engine/ownership.ts'
import type { Resource } from '../../../src/cache/records/cached-record.ts'
import { freshName, makeMember, ok, roleUid, type Organisation } from '../../support/test-server.ts'
import { describeOnStoresWithParts, describeWithPart } from '../../support/parts/require-part.ts'
import { clusterId, polling, startControllerWorld, uidOf, type ControllerWorld } from '../controller-world.ts'

const signal = AbortSignal.timeout(900_000)
const place = 'default'

type MirroredType = 'group' | 'roleBinding' | 'subscription'
const kindOf = { group: objectKinds.Group, roleBinding: objectKinds.RoleBinding, subscription: objectKinds.Subscription } as const

/** The helpers of tests of mirrors. */
function mirrorsOf(world: ControllerWorld): {
  find(type: MirroredType, uid: string): Promise<PlatformObject | undefined>
  shown(type: MirroredType, uid: string, spec: object): Promise<PlatformObject>
  absent(type: MirroredType, uid: string): Promise<void>
  count(): Promise<number>
} {
  const find = async (type: MirroredType, uid: string): Promise<PlatformObject | undefined> =>
    (await world.api.get(objectTypes[type], { namespace: place, name: mirrorName(kindOf[type], uid) }, signal)) as PlatformObject | undefined
  return {
    find,
    shown: (type, uid, spec) =>
      vi.waitFor(async () => {
        const found = await find(type, uid)
        expect(found).toMatchObject({ spec, status: { uid, observedGeneration: found?.metadata.generation } })
        if (found === undefined) throw new Error('no mirror')
        return found
      }, polling),
    absent: (type, uid) => vi.waitFor(async () => expect(await find(type, uid)).toBeUndefined(), polling),
    async count() {
      const lists = await Promise.all(
        [objectTypes.group, objectTypes.roleBinding, objectTypes.subscription].map((type) => world.api.list(type, { namespace: place, limit: 5_000 }, signal)),
      )
      return lists.flatMap(({ items }) => items).length
    },
  }
}

describeOnStoresWithParts(['kube-apiserver'], 'mirrors', (store) => {
  let world: ControllerWorld
  let mirrors: ReturnType<typeof mirrorsOf>
  let organisation: Organisation

  beforeAll(async () => {
    world = await startControllerWorld({ store, mirror: { enabled: true, namespace: place } })
    mirrors = mirrorsOf(world)
  })
  beforeEach(async () => {
    organisation = await world.organisation()
  })
  afterAll(() => world?.stop())

  async function call(rpc: string, request: Parameters<ControllerWorld['server']['rest']['call']>[1], forceOwnership?: string): Promise<string> {
    const { token } = organisation
    return String(ok(await world.server.rest.call(rpc, request, { token, ...(forceOwnership !== undefined && { forceOwnership }) }))['uid'])
  }
  const group = (name: string): Promise<string> => call('CreateGroup', { parent: organisation.group, group: { name } })

  test('mirrors show a group and a binding of the API under a name derived from the uid, ready, with label and annotation', async () => {
    const uid = await group('shown')
    const object = await mirrors.shown('group', uid, { name: 'shown', parentRef: { uid: organisation.group } })
    expect(object.metadata).toMatchObject({ labels: { [originLabel]: 'api' }, annotations: { [uidAnnotation]: uid } })
    expect(object.metadata.name).toMatch(/^pg-[0-9a-f]{20}$/)
    expect(object.metadata.finalizers ?? []).toEqual([])
    expect(object.status).toMatchObject({
      etag: world.record('Group', uid)?.etag,
      conditions: [
        { type: 'Ready', status: 'True', reason: 'Mirrored' },
        { type: 'Synced', status: 'True' },
      ],
    })
    const { uid: identity } = await makeMember(world.server, organisation.group)
    const binding = await call('CreateRoleBinding', { parent: uid, roleBinding: { identityUid: identity, roleUid: roleUid('viewer') } })
    await mirrors.shown('roleBinding', binding, { parentRef: { uid }, identityRef: { uid: identity }, roleRef: { uid: roleUid('viewer') } })
  })

  test('mirrors of a root group have no parent', async () => {
    const { spec } = await mirrors.shown('group', organisation.group, {})
    expect(spec.parentRef).toBeUndefined()
  })

  test('mirrors follow changes and renames under the same name, and are deleted with the record', async () => {
    const uid = await group('before')
    const { metadata } = await mirrors.shown('group', uid, { name: 'before' })
    await call('UpdateGroup', { group: { uid, name: 'after', description: 'renamed' } })
    const renamed = await mirrors.shown('group', uid, { name: 'after', description: 'renamed' })
    expect(renamed.metadata).toMatchObject({ uid: metadata.uid, name: metadata.name })
    await call('DeleteGroup', { uid })
    await mirrors.absent('group', uid)
  })

  test("mirrors of bindings are deleted together with the identity's deletion", async () => {
    const { uid: identity } = await makeMember(world.server, organisation.group)
    const binding = await call('CreateRoleBinding', { parent: organisation.group, roleBinding: { identityUid: identity, roleUid: roleUid('viewer') } })
    await mirrors.shown('roleBinding', binding, {})
    await call('DeleteIdentity', { uid: identity })
    await mirrors.absent('roleBinding', binding)
  })

  test.each<[string, Readonly<Record<string, unknown>>]>([
    ['the spec', { spec: { name: 'drifted', description: 'drifted' } }],
    ['a field that is empty in the record', { spec: { description: 'added' } }],
    ['the annotation', { metadata: { annotations: { [uidAnnotation]: 'f'.repeat(40) } } }],
  ])('mirrors are restored after a foreign change of %s', async (_, patch) => {
    const uid = await group('drifts')
    const { metadata, spec } = await mirrors.shown('group', uid, { name: 'drifts' })
    await world.api.patch(objectTypes.group, { namespace: place, name: metadata.name }, patch, signal)
    await vi.waitFor(async () => {
      const repaired = await mirrors.find('group', uid)
      expect(repaired).toMatchObject({ spec, metadata: { labels: { [originLabel]: 'api' }, annotations: { [uidAnnotation]: uid } } })
      expect(repaired?.spec).toEqual(spec)
      expect(repaired?.metadata.generation).toBe(repaired?.status?.observedGeneration)
    }, polling)
    expect(world.record('Group', uid)?.message).toMatchObject({ name: 'drifts' })
  })

  test('mirrors are restored after a foreign change of the status', async () => {
    const uid = await group('lies')
    const { metadata } = await mirrors.shown('group', uid, {})
    const status = { uid: 'f'.repeat(40) }
    await world.objects.kube.kubectl(['patch', 'pg', metadata.name, '-n', place, '--subresource=status', '--type=merge', '-p', JSON.stringify({ status })])
    await mirrors.shown('group', uid, {})
  })

  test('mirrors are created again after their deletion, which does not delete the record', async () => {
    const uid = await group('deleted')
    const { metadata } = await mirrors.shown('group', uid, {})
    await world.api.delete(objectTypes.group, { namespace: place, name: metadata.name }, {}, signal)
    await vi.waitFor(async () => expect((await mirrors.find('group', uid))?.metadata.uid).not.toBe(metadata.uid), polling)
    await mirrors.shown('group', uid, { name: 'deleted' })
    expect(world.record('Group', uid)).toBeDefined()
  })

  test('mirrors are restored after deletions, changes and additions while no controller ran', async () => {
    const [deleted, changed] = [await group('deleted'), await group('changed')]
    const name = mirrorName(objectKinds.Group, deleted)
    await mirrors.shown('group', deleted, {})
    await mirrors.shown('group', changed, {})
    await world.stopControllers()
    await world.api.delete(objectTypes.group, { namespace: place, name }, {}, signal)
    await world.api.patch(objectTypes.group, { namespace: place, name: mirrorName(objectKinds.Group, changed) }, { spec: { description: 'drift' } }, signal)
    const stray = { metadata: { namespace: place, name: 'pg-stray', labels: { [originLabel]: 'api' } }, spec: { name: 'stray' } }
    await world.api.create(objectTypes.group, stray, signal)
    world.startController()
    await mirrors.shown('group', deleted, {})
    await vi.waitFor(async () => expect((await mirrors.find('group', changed))?.spec['description'] ?? '').toBe(''), polling)
    await world.gone('group', place, 'pg-stray')
  })

  test('mirrors do not exist for a record with an object in this cluster, until it is taken over; adoption removes the mirror', async () => {
    const namespace = await world.namespace(organisation, { allowAdoption: true })
    await world.put('group', namespace, 'owned', { parentRef: { uid: organisation.group } })
    const uid = uidOf(await world.until('group', namespace, 'owned', 'InSync'))
    // A later mirror exists already, so an earlier one would exist, too.
    await mirrors.shown('group', await group('later'), {})
    expect(await mirrors.find('group', uid)).toBeUndefined()
    await call('UpdateGroup', { group: { uid, description: 'taken' } }, 'true')
    await mirrors.shown('group', uid, { name: 'owned', description: 'taken' })
    await world.api.delete(objectTypes.group, { namespace, name: 'owned' }, {}, signal)
    await world.gone('group', namespace, 'owned')
    await world.put('group', namespace, 'again', { parentRef: { uid: organisation.group }, name: 'owned', adoptionPolicy: 'ByName' })
    expect(uidOf(await world.until('group', namespace, 'again', 'InSync'))).toBe(uid)
    await mirrors.absent('group', uid)
  })

  test('mirrors applied in another cluster have no effect', async () => {
    const uid = await group('copied')
    const { spec, metadata } = await mirrors.shown('group', uid, {})
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'copied', spec, { annotations: metadata.annotations ?? {} })
    await world.until('group', namespace, 'copied', 'InConflict')
    expect(world.record('Group', uid)?.managedBy).toBe('')
  })

  test('mirrors exist for a record with an object in another cluster', async () => {
    const { services } = world.server.running.engine
    const everything = builtInRoles.find(({ name }) => name === 'owner')?.capabilities ?? emptySet
    const caller: ObjectCaller = {
      managedBy: managedByText({ clusterId: `not-${clusterId}`, namespace: 'theirs', name: 'theirs' }),
      identity: clusterIdentity({ id: `not-${clusterId}` }),
      permissions: () => ({ operator: false, grants: [{ group: everywhere, capabilities: everything }] }),
      authorize: () => undefined,
      requestId: 'theirs',
      signal,
    }
    const record = create(GroupSchema, { name: 'theirs' }) as unknown as Resource
    const { uid } = await createManaged(services, caller, { kind: 'Group', parent: organisation.group, record, paths: ['name'] })
    await mirrors.shown('group', uid, { name: 'theirs' })
    expect(world.record('Group', uid)?.managedBy).toBe(caller.managedBy)
  })

  test('mirrors do not replace a foreign object of the same name', async () => {
    const uid = await group('crowded')
    const { metadata } = await mirrors.shown('group', uid, {})
    await world.stopControllers()
    await world.api.delete(objectTypes.group, { namespace: place, name: metadata.name }, {}, signal)
    await world.put('group', place, metadata.name, { parentRef: { uid: organisation.group }, name: 'foreign-name' })
    world.startController()
    await world.until('group', place, metadata.name, 'NotGranted')
    expect((await world.object('group', place, metadata.name)).spec['name']).toBe('foreign-name')
    await world.api.delete(objectTypes.group, { namespace: place, name: metadata.name }, {}, signal)
    await mirrors.shown('group', uid, { name: 'crowded' })
  })

  test('mirrors cause no writes when the controller starts again without changes', async () => {
    const uid = await group('steady')
    await mirrors.shown('group', uid, {})
    await world.stopControllers()
    const before = world.writes.length
    await world.startController().settled()
    expect(world.writes.slice(before)).toEqual([])
  })
})

describeWithPart('kube-apiserver', 'mirrored records', () => {
  test('mirrored records are limited to rootGroups by name, also when names change, and to the maximum number', async () => {
    const chosen = freshName('chosen')
    const world = await startControllerWorld({ mirror: { enabled: true, namespace: place, rootGroups: [chosen], limit: 5 } })
    try {
      const mirrors = mirrorsOf(world)
      const { server } = world
      const token = await server.operatorToken()
      const create = async (name: string, parent?: string): Promise<string> =>
        String(ok(await server.rest.call('CreateGroup', { ...(parent !== undefined && { parent }), group: { name } }, { token }))['uid'])
      const [other, root] = [await create(freshName('other')), await create(chosen)]
      const [outside, inside] = [await create('outside', other), await create('inside', root)]
      await mirrors.shown('group', inside, {})
      for (const uid of [other, outside]) expect(await mirrors.find('group', uid)).toBeUndefined()
      // When a name moves to another organisation, its mirrors follow.
      ok(await server.rest.call('UpdateGroup', { group: { uid: root, name: freshName('was') } }, { token }))
      await mirrors.absent('group', inside)
      ok(await server.rest.call('UpdateGroup', { group: { uid: other, name: chosen } }, { token }))
      await mirrors.shown('group', outside, {})
      for (let n = 0; n < 8; n++) await create(`many-${n}`, other)
      await vi.waitFor(async () => expect(await mirrors.count()).toBe(5), polling)
      await world.stopControllers()
      await world.startController().settled()
      expect(await mirrors.count()).toBe(5)
      // Records without a mirror get one when everything is processed again.
      ok(await server.rest.call('DeleteGroup', { uid: outside }, { token }))
      await mirrors.absent('group', outside)
      await world.stopControllers()
      await world.startController().settled()
      expect(await mirrors.count()).toBe(5)
    } finally {
      await world.stop()
    }
  })
})
