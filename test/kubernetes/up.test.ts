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

/** What is done before a write of the controller. */
const meanwhile = new Map<string, () => Promise<void>>()

describeWithPart('kube-apiserver', 'objects that people apply', () => {
  beforeAll(async () => {
    world = await startControllerWorld({
      beforeWrite(call) {
        const work = meanwhile.get(call)
        meanwhile.delete(call)
        return work?.()
      },
    })
  }, 120_000)
  afterAll(() => world.stop())

  test('a group is made, followed and deleted with its object', async () => {
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

  test('order of apply never matters: a binding waits for its identity, its role and its group', async () => {
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

  test('a binding to deleted records is still bounded by the grant', async () => {
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

  test('the capabilities of a role of another tenant are not shown', async () => {
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

  test('the conflicting record is deleted while its conflict is reported: the object has its record at once', async () => {
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

  test('an object that is labelled as a mirror says nothing, and is no rival of another', async () => {
    const organisation = await world.organisation()
    const [first, second] = [await world.namespace(organisation), await world.namespace(organisation)]
    const spec = { parentRef: { uid: organisation.group }, name: 'same' }
    await world.put('group', first, 'older', spec, { labels: { [originLabel]: 'api' } })
    // Times of creation are whole seconds.
    const { creationTimestamp = '' } = (await world.object('group', first, 'older')).metadata
    await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(Date.parse(creationTimestamp) + 1_000), polling)
    await world.put('group', second, 'younger', spec)
    await world.until('group', second, 'younger', 'InSync')
    expect((await world.object('group', first, 'older')).status).toEqual(unobservedStatus)
  })

  test('a record whose object was deleted without the controller, its finalizer taken off, is reported and left as it is', async () => {
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

  /** A user takes the finalizer off and deletes the object, before the controller puts the finalizer back: no controller releases the record. */
  async function strip(namespace: string, name: string): Promise<void> {
    await world.stopControllers()
    await world.api.patch(objectTypes.roleBinding, { namespace, name }, { metadata: { finalizers: null } }, signal)
    await world.api.delete(objectTypes.roleBinding, { namespace, name }, {}, signal)
    world.startController()
  }

  /** What an object that says nothing any more could be meant to escape. */
  const silenced: readonly [string, (namespace: string, name: string) => Promise<void>][] = [
    ['went without its finalizer', strip],
    [
      'is labelled as a mirror',
      async (namespace, name) =>
        void (await world.api.patch(objectTypes.roleBinding, { namespace, name }, { metadata: { labels: { [originLabel]: 'api' } } }, signal)),
    ],
  ]
  const narrow: string[] = ['CAP_IAM_GROUPS_LIST']
  const wide = [...narrow, 'CAP_IAM_GROUPS_DELETE']

  /** A binding of a narrow role, in a namespace that may give no more, whose object is then silenced. */
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
    // It stays, for it is within the grant: seen once what comes later was dealt with.
    await world.put('group', namespace, 'later', { parentRef })
    await world.until('group', namespace, 'later', 'InSync')
    expect(world.record('RoleBinding', uid)).toBeDefined()
    return { uid, namespace, role, token }
  }

  describe.each(silenced)('a binding whose object %s', (_, silence) => {
    const removed = (uid: string): Promise<void> => vi.waitFor(() => expect(world.record('RoleBinding', uid)).toBeUndefined(), polling)

    test('goes when its role grows beyond the grant', async () => {
      const { uid, role, namespace, token } = await silencedBinding(silence)
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      await removed(uid)
      const audited = { method: 'kubernetes/deleteRoleBinding', subject: uid, outcome: 'done', actorSubject: `${clusterId}/${namespace}/b` }
      await vi.waitFor(
        () => expect(world.server.logs).toContainEqual(expect.objectContaining({ message: 'audit', fields: expect.objectContaining(audited) })),
        polling,
      )
    })

    test('goes when the grant shrinks', async () => {
      const { uid, namespace } = await silencedBinding(silence)
      await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: null } }, signal)
      await removed(uid)
    })

    test('goes when its role grew beyond the grant while no controller ran', async () => {
      const { uid, role, token } = await silencedBinding(silence)
      await world.stopControllers()
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      world.startController()
      await removed(uid)
    })

    test('stays where its namespace has no grant at all any more, as with every object', async () => {
      const { uid, role, namespace, token } = await silencedBinding(silence)
      await world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
      await world.until('group', namespace, 'later', 'NotGranted')
      ok(await world.server.rest.call('UpdateRole', { role: { uid: role, capabilities: wide } }, { token }))
      await world.stopControllers()
      await world.startController().settled()
      expect(world.record('RoleBinding', uid)).toBeDefined()
    })
  })

  test('an object that is labelled as a mirror says nothing once its record is gone', async () => {
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

  test('a namespace without a grant can do nothing', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation, false)
    await world.put('group', namespace, 'g', { parentRef: { uid: organisation.group }, name: 'gee' })
    const refused = await world.until('group', namespace, 'g', 'NotGranted')
    expect(refused.status?.uid).toBeUndefined()
  })

  test('the API refuses to change what an object owns; by force it takes it, and the object is in conflict', async () => {
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
