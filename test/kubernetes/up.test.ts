import { noSuchRole } from '../../src/iam/records/role-bindings.ts'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { unobservedStatus } from '../../src/kubernetes/crd/status-schema.ts'
import { originLabel, uidAnnotation } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import type { Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ok } from '../support/test-server.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { clusterId, polling, startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'

let world: ControllerWorld
const signal = AbortSignal.timeout(600_000)

/** Actions before a write of the controller. */
const meanwhile = new Map<string, () => Promise<void>>()

describeWithPart('kube-apiserver', 'applied Kubernetes objects', () => {
  beforeAll(async () => {
    world = await startControllerWorld({
      beforeWrite(call) {
        const work = meanwhile.get(call)
        meanwhile.delete(call)
        return work?.()
      },
    })
  })
  afterAll(() => world.stop())

  test('applied Kubernetes objects create, change and delete a group', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'team-a', { parentRef: { uid: organisation.group }, description: 'first' })
    const made = await world.until('group', namespace, 'team-a', 'InSync')
    const uid = uidOf(made)
    expect(made.metadata.annotations?.[uidAnnotation]).toBe(uid)
    expect(world.record('Group', uid)?.message).toMatchObject({ name: 'team-a', description: 'first' })
    expect(world.server.logs).toContainEqual(
      expect.objectContaining({
        message: 'audit',
        fields: expect.objectContaining({ method: 'kubernetes/createGroup', subject: uid, outcome: 'done', actorSubject: `${clusterId}/${namespace}/team-a` }),
      }),
    )
    await world.put('group', namespace, 'team-a', { description: 'second', name: 'team-renamed' })
    await vi.waitFor(
      () => expect(world.record('Group', uid)?.message as unknown as Group).toMatchObject({ name: 'team-renamed', description: 'second' }),
      polling,
    )
    await world.api.delete(objectTypes.group, { namespace, name: 'team-a' }, {}, signal)
    await world.gone('group', namespace, 'team-a')
    expect(world.record('Group', uid)).toBeUndefined()
  })

  test('applied Kubernetes objects may be applied in any order: a binding waits for its identity, its role and its group', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.put('roleBinding', namespace, 'b', { parentRef: { name: 'g' }, identityRef: { name: 'i' }, roleRef: { name: 'r' } })
    await world.until('roleBinding', namespace, 'b', 'RefNotFound')
    await world.put('role', namespace, 'r', { parentRef: { uid: organisation.group }, capabilities: ['CAP_IAM_GROUPS_LIST'] })
    await world.put('identity', namespace, 'i', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'gee' })
    const binding = await world.until('roleBinding', namespace, 'b', 'InSync')
    const identity = await world.until('identity', namespace, 'i', 'InSync')
    expect(binding.status?.resolved?.identity).toBe(uidOf(identity))
    expect(world.record('Identity', uidOf(identity))?.message).toMatchObject({
      relationship: { value: { sub: { value: `system:serviceaccount:${namespace}:deployer` } } },
    })
  })

  test('applied Kubernetes objects with a binding to deleted records are still limited by the grant', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const parentRef = { uid: organisation.group }
    await world.put('identity', namespace, 'i', { parentRef, serviceAccountRef: { name: 'deployer' }, deletionPolicy: 'Orphan' })
    await world.put('roleBinding', namespace, 'b', { parentRef, identityRef: { name: 'i' }, roleRef: { builtIn: 'editor' } })
    const uid = uidOf(await world.until('roleBinding', namespace, 'b', 'InSync'))
    await world.api.delete(objectTypes.identity, { namespace, name: 'i' }, {}, signal)
    await world.until('roleBinding', namespace, 'b', 'RefNotFound')
    expect(world.record('RoleBinding', uid)).toBeDefined()
    await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: { builtIn: 'viewer' } } }, signal)
    await vi.waitFor(() => expect(world.record('RoleBinding', uid)).toBeUndefined(), polling)
  })

  test("applied Kubernetes objects do not show the capabilities of another tenant's role", async () => {
    const [organisation, other] = [await world.organisation(), await world.organisation()]
    const namespace = await world.namespace(organisation, { maxRole: { builtIn: 'viewer' } })
    const role = { name: 'secret', capabilities: ['CAP_IAM_GROUPS_DELETE'] }
    const foreign = String(ok(await world.server.rest.call('CreateRole', { parent: other.group, role }, { token: other.token }))['uid'])
    const parentRef = { uid: organisation.group }
    await world.put('identity', namespace, 'i', { parentRef, serviceAccountRef: { name: 'deployer' } })
    for (const [name, uid] of [
      ['foreign', foreign],
      ['missing', `${organisation.group}/0000000000000000`],
    ] as const) {
      await world.put('roleBinding', namespace, name, { parentRef, identityRef: { name: 'i' }, roleRef: { uid } })
      const refused = await world.until('roleBinding', namespace, name, 'Invalid')
      expect(refused.status?.conditions?.[0]?.message).toBe(`Invalid argument: role_uid: ${noSuchRole}`)
    }
  })

  test('applied Kubernetes objects get their record at once when the conflicting record is deleted while the conflict is reported', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const { token, group } = organisation
    const uid = String(ok(await world.server.rest.call('CreateGroup', { parent: group, group: { name: 'taken' } }, { token }))['uid'])
    meanwhile.set(`apply PlatformGroup ${namespace}/g`, async () => void ok(await world.server.rest.call('DeleteGroup', { uid }, { token })))
    await world.put('group', namespace, 'g', { parentRef: { uid: group }, name: 'taken' })
    const object = await world.until('group', namespace, 'g', 'InSync')
    expect(meanwhile.size).toBe(0)
    expect(uidOf(object)).not.toBe(uid)
  })

  test('applied Kubernetes objects labelled as a mirror have no effect, and do not compete with others', async () => {
    const organisation = await world.organisation()
    const [first, second] = [await world.namespace(organisation), await world.namespace(organisation)]
    const spec = { parentRef: { uid: organisation.group }, name: 'same' }
    await world.put('group', first, 'older', spec, { labels: { [originLabel]: 'api' } })
    // Creation times are whole seconds.
    const { creationTimestamp = '' } = (await world.object('group', first, 'older')).metadata
    await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(Date.parse(creationTimestamp) + 1_000), polling)
    await world.put('group', second, 'younger', spec)
    await world.until('group', second, 'younger', 'InSync')
    expect((await world.object('group', first, 'older')).status).toEqual(unobservedStatus)
  })

  test('applied Kubernetes objects deleted without the controller, with their finalizer removed, leave a record that is reported and unchanged', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'left' })
    const uid = uidOf(await world.until('group', namespace, 'g', 'InSync'))
    await world.stopControllers()
    await world.api.patch(objectTypes.group, { namespace, name: 'g' }, { metadata: { finalizers: null } }, signal)
    await world.api.delete(objectTypes.group, { namespace, name: 'g' }, {}, signal)
    const before = world.server.logs.length
    world.startController()
    const reported = { message: 'records whose Kubernetes object is missing', fields: { count: 1, objects: [`Group/${namespace}/g`] } }
    await vi.waitFor(() => expect(world.server.logs.slice(before)).toContainEqual(expect.objectContaining(reported)), polling)
    await world.put('group', namespace, 'other', { parentRef: { uid: organisation.group } })
    await world.until('group', namespace, 'other', 'InSync')
    expect(world.record('Group', uid)?.managedBy).toBe(`${clusterId}/${namespace}/g`)
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'left' })
    expect(uidOf(await world.until('group', namespace, 'g', 'InSync'))).toBe(uid)
  })

  /** Removes the finalizer like a user and deletes the object, before the controller restores the finalizer: no controller releases the record. */
  async function strip(namespace: string, name: string): Promise<void> {
    await world.stopControllers()
    await world.api.patch(objectTypes.roleBinding, { namespace, name }, { metadata: { finalizers: null } }, signal)
    await world.api.delete(objectTypes.roleBinding, { namespace, name }, {}, signal)
    world.startController()
  }

  /** Ways to make an object ineffective, with which a user could try to evade a grant. */
  const silenced: readonly [string, (namespace: string, name: string) => Promise<void>][] = [
    ['was deleted with its finalizer removed', strip],
    [
      'is labelled as a mirror',
      async (namespace, name) =>
        void (await world.api.patch(objectTypes.roleBinding, { namespace, name }, { metadata: { labels: { [originLabel]: 'api' } } }, signal)),
    ],
  ]
  const narrow: string[] = ['CAP_IAM_GROUPS_LIST']
  const wide = [...narrow, 'CAP_IAM_GROUPS_DELETE']

  /** Creates a binding of a narrow role in a namespace that may grant no more, then makes its object ineffective. */
  async function silencedBinding(
    silence: (namespace: string, name: string) => Promise<void>,
  ): Promise<{ uid: string; namespace: string; role: string; token: string }> {
    const { group, token } = await world.organisation()
    const createRole = async (name: string, capabilities: string[]): Promise<string> =>
      String(ok(await world.server.rest.call('CreateRole', { parent: group, role: { name, capabilities } }, { token }))['uid'])
    const [role, bound] = [await createRole('given', narrow), await createRole('bound', narrow)]
    const namespace = await world.namespace({ group }, { maxRole: { uid: bound } })
    const parentRef = { uid: group }
    await world.put('identity', namespace, 'i', { parentRef, serviceAccountRef: { name: 'deployer' } })
    await world.put('roleBinding', namespace, 'b', { parentRef, identityRef: { name: 'i' }, roleRef: { uid: role } })
    const uid = uidOf(await world.until('roleBinding', namespace, 'b', 'InSync'))
    await silence(namespace, 'b')
    // The binding stays, because it is within the grant: checked after a later object was processed.
    await world.put('group', namespace, 'later', { parentRef })
    await world.until('group', namespace, 'later', 'InSync')
    expect(world.record('RoleBinding', uid)).toBeDefined()
    return { uid, namespace, role, token }
  }

  describe.each(silenced)('the record of a binding whose object %s', (_, silence) => {
    const removed = (uid: string): Promise<void> => vi.waitFor(() => expect(world.record('RoleBinding', uid)).toBeUndefined(), polling)

    test('the record of a PlatformRoleBinding is deleted when its role gets rights that its PlatformNamespaceGrant does not allow', async () => {
      const { uid, role, namespace, token } = await silencedBinding(silence)
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      await removed(uid)
      const audited = { method: 'kubernetes/deleteRoleBinding', subject: uid, outcome: 'done', actorSubject: `${clusterId}/${namespace}/b` }
      await vi.waitFor(
        () => expect(world.server.logs).toContainEqual(expect.objectContaining({ message: 'audit', fields: expect.objectContaining(audited) })),
        polling,
      )
    })

    test('the record of a PlatformRoleBinding is deleted when its PlatformNamespaceGrant no longer allows it', async () => {
      const { uid, namespace } = await silencedBinding(silence)
      await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: null } }, signal)
      await removed(uid)
    })

    test('the record of a binding without an effective object is deleted when its role was widened beyond the grant while no controller ran', async () => {
      const { uid, role, token } = await silencedBinding(silence)
      await world.stopControllers()
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      world.startController()
      await removed(uid)
    })

    test('the record of a binding without an effective object stays if its namespace no longer has any grant, as for every object', async () => {
      const { uid, role, namespace, token } = await silencedBinding(silence)
      await world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
      await world.until('group', namespace, 'later', 'NotGranted')
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      await world.stopControllers()
      await world.startController().settled()
      expect(world.record('RoleBinding', uid)).toBeDefined()
    })
  })

  test('applied Kubernetes objects labelled as a mirror have no effect once their record is gone', async () => {
    const { uid, namespace, role, token } = await silencedBinding(async (space, name) => {
      await world.api.patch(objectTypes.roleBinding, { namespace: space, name }, { metadata: { labels: { [originLabel]: 'api' } } }, signal)
    })
    ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
    await world.until('roleBinding', namespace, 'b', 'ExceedsGrant')
    expect(world.record('RoleBinding', uid)).toBeUndefined()
    ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: narrow } }, { token }))
    await world.put('group', namespace, 'last', { parentRef: { name: 'later' } })
    await world.until('group', namespace, 'last', 'InSync')
    await world.until('roleBinding', namespace, 'b', 'ExceedsGrant')
  })

  test('applied Kubernetes objects in a namespace without a grant have no effect', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation, false)
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'gee' })
    const refused = await world.until('group', namespace, 'g', 'NotGranted')
    expect(refused.status?.uid).toBeUndefined()
  })

  test('applied Kubernetes objects own their record: the API refuses changes; with force it takes the record over, and the object is in conflict', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'gee' })
    const uid = uidOf(await world.until('group', namespace, 'g', 'InSync'))
    const { token } = organisation
    expect(await world.server.rest.call('UpdateGroup', { group: { uid, description: 'x' } }, { token })).toMatchObject({ code: 9 })
    ok(await world.server.rest.call('UpdateGroup', { group: { uid, description: 'x' } }, { token, forceOwnership: 'true' }))
    const object = await world.until('group', namespace, 'g', 'InConflict')
    expect(object.status?.conditions).toContainEqual(expect.objectContaining({ type: 'InConflict', status: 'True' }))
    await world.api.delete(objectTypes.group, { namespace, name: 'g' }, {}, signal)
    await world.gone('group', namespace, 'g')
    expect(world.record('Group', uid)).toBeDefined()
  })
})
