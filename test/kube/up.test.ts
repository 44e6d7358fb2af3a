import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { uidAnnotation } from '../../src/kube/platform-object.ts'
import { objectTypes } from '../../src/kube/port/object-types.ts'
import type { Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ok } from '../harness/test-server.ts'
import { clusterId, patience, startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'

let world: ControllerWorld
const signal = AbortSignal.timeout(600_000)

beforeAll(async () => {
  world = await startControllerWorld()
}, 120_000)
afterAll(() => world.stop())

describe('objects that people apply', () => {
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
      patience,
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

  test('a binding that names what is no longer there is bounded by the grant all the same', async () => {
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
    await vi.waitFor(() => expect(world.record('RoleBinding', uid)).toBeUndefined(), patience)
  })

  test('what a role of another tenant may do is not told', async () => {
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
      expect(refused.status?.conditions?.[0]?.message).toBe('Invalid argument: role_uid: is no role that can be bound here')
    }
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
