import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { uidAnnotation, type PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { freshName, makeMember, ok, roleUid, type Organisation } from '../support/test-server.ts'
import { describeOnStoresWithParts } from '../support/parts/require-part.ts'
import { clusterId, polling, startControllerWorld, uidOf, type ControllerWorld, type TestType } from './controller-world.ts'

const signal = AbortSignal.timeout(900_000)

/** Returns the parts of an object in a backup: without status, owner references, and fields of the API server. */
function exported(object: PlatformObject): { name: string; spec: PlatformObject['spec']; annotations: Readonly<Record<string, string>> } {
  const { name, annotations = {} } = object.metadata
  return { name, spec: object.spec, annotations }
}

describeOnStoresWithParts(['kube-apiserver'], 'the ownership of records', (store) => {
  let world: ControllerWorld
  let organisation: Organisation

  beforeAll(async () => {
    world = await startControllerWorld({ store })
  })
  beforeEach(async () => {
    organisation = await world.organisation()
  })
  afterAll(() => world?.stop())

  const parentRef = (): { parentRef: { uid: string } } => ({ parentRef: { uid: organisation.group } })
  const ownerOf = (uid: string): string | undefined => world.record('Group', uid)?.managedBy
  const remove = (type: TestType, namespace: string, name: string): Promise<void> => world.api.delete(objectTypes[type], { namespace, name }, {}, signal)
  const conditionsOf = ({ status }: PlatformObject): readonly string[] =>
    (status?.conditions ?? []).filter(({ status: is }) => is === 'True').map(({ type }) => type)
  async function byApi(name: string): Promise<string> {
    return String(ok(await world.server.rest.call('CreateGroup', { parent: organisation.group, group: { name } }, { token: organisation.token }))['uid'])
  }
  async function restore(type: TestType, namespace: string, { name, spec, annotations }: ReturnType<typeof exported>): Promise<void> {
    await world.put(type, namespace, name, spec, { annotations })
  }

  describe('a namespace grant', () => {
    test.each<[string, () => Readonly<Record<string, unknown>> | false]>([
      ['no grant at all', () => false],
      ['a grant for other kinds', () => ({ allowedKinds: ['PlatformRepo'] })],
      ['a grant for another namespace', () => ({ namespaceSelector: { matchNames: ['elsewhere'] } })],
      ['a grant for labels that the namespace lacks', () => ({ namespaceSelector: { matchLabels: { team: 'other' } } })],
      ['a grant for another group', () => ({ groupUid: 'f'.repeat(40) })],
      ['a grant for a group below', () => ({ groupUid: `${organisation.group}/${'a'.repeat(16)}` })],
    ])('a namespace grant is missing with %s: NotGranted, and no record is created', async (_, grant) => {
      const namespace = await world.namespace(organisation, grant())
      await world.put('group', namespace, 'refused', parentRef())
      const refused = await world.until('group', namespace, 'refused', 'NotGranted')
      expect(conditionsOf(refused)).toEqual(['Stalled'])
      expect(refused.metadata.finalizers ?? []).toEqual([])
      expect(world.server.running.engine.cache.tables.table('Group').child(organisation.group, 'refused')).toBeUndefined()
    })

    test('a namespace grant takes effect when created; its deletion keeps the record, which no longer changes', async () => {
      const namespace = await world.namespace(organisation, false)
      await world.put('group', namespace, 'team', parentRef())
      await world.until('group', namespace, 'team', 'NotGranted')
      const grant = { namespaceSelector: { matchLabels: { tenant: namespace } }, groupUid: organisation.group, allowedKinds: ['PlatformGroup'] }
      await world.api.create(objectTypes.grant, { metadata: { name: namespace }, spec: grant }, signal)
      const uid = uidOf(await world.until('group', namespace, 'team', 'InSync'))
      await world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
      await world.put('group', namespace, 'team', { description: 'too late' })
      await world.until('group', namespace, 'team', 'NotGranted')
      expect(world.record('Group', uid)?.message).toMatchObject({ description: '' })
      await remove('group', namespace, 'team')
      await world.gone('group', namespace, 'team')
      // Without a grant nothing is deleted: the record belongs to the API.
      expect(ownerOf(uid)).toBe('')
    })

    test('a namespace grant ends for a namespace that loses the matching labels', async () => {
      const namespace = await world.namespace(organisation, { namespaceSelector: { matchLabels: { team: 'a' } } })
      const label = (team: string | null): Promise<unknown> =>
        world.api.patch(objectTypes.namespace, { name: namespace }, { metadata: { labels: { team } } }, signal)
      await label('a')
      await world.put('group', namespace, 'team', parentRef())
      await world.until('group', namespace, 'team', 'InSync')
      await label(null)
      await world.until('group', namespace, 'team', 'NotGranted')
    })

    test('a namespace grant is needed for everything to create a root group', async () => {
      const namespace = await world.namespace({ group: '/' })
      const name = freshName('root')
      await world.put('group', namespace, name, {})
      expect(uidOf(await world.until('group', namespace, name, 'InSync'))).toMatch(/^[0-9a-f]{40}$/)
    })

    test('a namespace grant limits a binding to maxRole, also when its role is widened or the grant is narrowed later', async () => {
      const namespace = await world.namespace(organisation, { maxRole: { builtIn: 'viewer' } })
      await world.put('identity', namespace, 'i', { ...parentRef(), serviceAccountRef: { name: 'deployer' } })
      await world.put('roleBinding', namespace, 'owner', { ...parentRef(), identityRef: { name: 'i' }, roleRef: { builtIn: 'owner' } })
      await world.put('roleBinding', namespace, 'viewer', { ...parentRef(), identityRef: { name: 'i' }, roleRef: { builtIn: 'viewer' } })
      await world.until('roleBinding', namespace, 'owner', 'ExceedsGrant')
      await world.until('roleBinding', namespace, 'viewer', 'InSync')
      const { token } = organisation
      const role = { name: 'narrow', capabilities: ['CAP_IAM_GROUPS_LIST'] }
      const roleRecord = String(ok(await world.server.rest.call('CreateRole', { parent: organisation.group, role }, { token }))['uid'])
      await world.put('roleBinding', namespace, 'custom', { ...parentRef(), identityRef: { name: 'i' }, roleRef: { uid: roleRecord } })
      const binding = uidOf(await world.until('roleBinding', namespace, 'custom', 'InSync'))
      ok(await world.server.rest.call('UpdateRole', { role: { uid: roleRecord, capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_GROUPS_DELETE'] } }, { token }))
      await world.until('roleBinding', namespace, 'custom', 'ExceedsGrant')
      expect(world.record('RoleBinding', binding)).toBeUndefined()
      ok(await world.server.rest.call('UpdateRole', { role: { uid: roleRecord, capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token }))
      await world.until('roleBinding', namespace, 'custom', 'InSync')
      await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: null } }, signal)
      await world.until('roleBinding', namespace, 'custom', 'ExceedsGrant')
      await world.until('roleBinding', namespace, 'viewer', 'ExceedsGrant')
      expect(
        [...world.server.running.engine.cache.tables.table('RoleBinding').matching('role', roleUid('viewer'))].filter(({ managedBy }) => managedBy !== ''),
      ).toEqual([])
    })
  })

  test('can not remove the last owner of an organisation: the binding is deleted once another owner exists', async () => {
    const { group, owner } = await world.organisation()
    const namespace = await world.namespace({ group }, { allowAdoption: true, maxRole: { builtIn: 'owner' } })
    const spec = { parentRef: { uid: group }, identityRef: { uid: owner }, roleRef: { builtIn: 'owner' }, adoptionPolicy: 'ByName' }
    await world.put('roleBinding', namespace, 'owner', spec)
    const uid = uidOf(await world.until('roleBinding', namespace, 'owner', 'InSync'))
    await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: { builtIn: 'viewer' } } }, signal)
    await world.until('roleBinding', namespace, 'owner', 'DeletionBlocked')
    expect(world.record('RoleBinding', uid)).toBeDefined()
    await makeMember(world.server, group, { role: 'owner' })
    await world.until('roleBinding', namespace, 'owner', 'ExceedsGrant')
    expect(world.record('RoleBinding', uid)).toBeUndefined()
  })

  test('hides roles and identities of groups above it like missing ones', async () => {
    const { token, group } = organisation
    const team = await byApi(freshName('team'))
    const role = { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_GROUPS_DELETE'] }
    const above = String(ok(await world.server.rest.call('CreateRole', { parent: group, role }, { token }))['uid'])
    const namespace = await world.namespace(organisation, { groupUid: team, maxRole: { builtIn: 'viewer' } })
    await world.put('identity', namespace, 'i', { parentRef: { uid: team }, serviceAccountRef: { name: 'deployer' } })
    await world.until('identity', namespace, 'i', 'InSync')
    const said = async (name: string, refs: Readonly<Record<string, unknown>>): Promise<unknown> => {
      await world.put('roleBinding', namespace, name, { parentRef: { uid: team }, identityRef: { name: 'i' }, roleRef: { builtIn: 'viewer' }, ...refs })
      const { status } = await world.until('roleBinding', namespace, name, 'Invalid')
      return status?.conditions?.map(({ type, reason, message }) => ({ type, reason, message }))
    }
    expect(await said('role-above', { roleRef: { uid: above } })).toEqual(await said('role-missing', { roleRef: { uid: `${group}/${'0'.repeat(16)}` } }))
    const identities = [organisation.owner, `${group}/${'0'.repeat(16)}`]
    const [there, missing] = await Promise.all(identities.map((uid, at) => said(`identity-${at}`, { identityRef: { uid } })))
    expect(there).toEqual(missing)
  })

  test('with a custom role as limit follows changes of that role', async () => {
    const { token } = organisation
    const both = ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_ROLES_LIST']
    const createRole = async (capabilities: string[]): Promise<string> =>
      String(ok(await world.server.rest.call('CreateRole', { parent: organisation.group, role: { name: freshName('role'), capabilities } }, { token }))['uid'])
    const [bound, given] = [await createRole(both), await createRole(both)]
    const namespace = await world.namespace(organisation, { maxRole: { uid: bound } })
    await world.put('identity', namespace, 'someone', { ...parentRef(), serviceAccountRef: { name: 'deployer' } })
    await world.put('roleBinding', namespace, 'binding', { ...parentRef(), identityRef: { name: 'someone' }, roleRef: { uid: given } })
    const uid = uidOf(await world.until('roleBinding', namespace, 'binding', 'InSync'))
    ok(await world.server.rest.call('UpdateRole', { role: { uid: bound, capabilities: both.slice(1) } }, { token }))
    await world.until('roleBinding', namespace, 'binding', 'ExceedsGrant')
    expect(world.record('RoleBinding', uid)).toBeUndefined()
    ok(await world.server.rest.call('UpdateRole', { role: { uid: bound, capabilities: both } }, { token }))
    await world.until('roleBinding', namespace, 'binding', 'InSync')
  })

  describe('the adoption of a record', () => {
    test('the adoption of a record by uid takes the record in the annotation, if the grant allows adoption', async () => {
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      const uid = await byApi('existing')
      await world.put('group', namespace, 'adopts', { ...parentRef(), name: 'existing', description: 'adopted' }, { annotations: { [uidAnnotation]: uid } })
      expect(uidOf(await world.until('group', namespace, 'adopts', 'InSync'))).toBe(uid)
      expect(world.record('Group', uid)?.message).toMatchObject({ description: 'adopted', managedBy: `${clusterId}/${namespace}/adopts` })
    })

    test.each([
      ['without allowAdoption', {}, 'ByUid'],
      ['if the object says Never', { allowAdoption: true }, 'Never'],
    ])('the adoption of a record by uid ends in InConflict %s', async (_, grant, adoptionPolicy) => {
      const namespace = await world.namespace(organisation, grant)
      const uid = await byApi('existing')
      await world.put('group', namespace, 'adopts', { ...parentRef(), name: 'existing', adoptionPolicy }, { annotations: { [uidAnnotation]: uid } })
      const refused = await world.until('group', namespace, 'adopts', 'InConflict')
      expect(conditionsOf(refused)).toEqual(['Stalled', 'InConflict'])
      expect(ownerOf(uid)).toBe('')
      await remove('group', namespace, 'adopts')
      await world.gone('group', namespace, 'adopts')
      expect(world.record('Group', uid)).toBeDefined()
    })

    test('the adoption of a record by uid never takes a record of another group', async () => {
      const other = await world.organisation()
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      await world.put('group', namespace, 'adopts', { ...parentRef(), adoptionPolicy: 'ByName' }, { annotations: { [uidAnnotation]: other.group } })
      await world.until('group', namespace, 'adopts', 'ExternalLost')
      expect(ownerOf(other.group)).toBe('')
    })

    test('the adoption of a record by name takes a group, an identity and a binding without an owner', async () => {
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      const { token } = organisation
      const group = await byApi('named')
      const identity = { name: 'named', claimMatch: { issuer: 'https://issuer.example', subject: freshName('s') } }
      const identityUid = String(ok(await world.server.rest.call('CreateIdentity', { parent: organisation.group, identity }, { token }))['uid'])
      const roleBinding = { identityUid, roleUid: roleUid('viewer') }
      const binding = String(ok(await world.server.rest.call('CreateRoleBinding', { parent: organisation.group, roleBinding }, { token }))['uid'])
      const byName = { ...parentRef(), adoptionPolicy: 'ByName' }
      await world.put('group', namespace, 'named', byName)
      await world.put('identity', namespace, 'named', { ...byName, claimMatch: identity.claimMatch })
      await world.put('roleBinding', namespace, 'named', { ...byName, identityRef: { name: 'named' }, roleRef: { builtIn: 'viewer' } })
      expect(uidOf(await world.until('group', namespace, 'named', 'InSync'))).toBe(group)
      expect(uidOf(await world.until('identity', namespace, 'named', 'InSync'))).toBe(identityUid)
      expect(uidOf(await world.until('roleBinding', namespace, 'named', 'InSync'))).toBe(binding)
    })

    test('the adoption of a record by name needs the policy: without it a taken name is InConflict, and used once it is free', async () => {
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      const uid = await byApi('taken')
      await world.put('group', namespace, 'taken', parentRef())
      const refused = await world.until('group', namespace, 'taken', 'InConflict')
      expect(refused.status?.uid).toBeUndefined()
      ok(await world.server.rest.call('DeleteGroup', { uid }, { token: organisation.token }))
      expect(uidOf(await world.until('group', namespace, 'taken', 'InSync'))).not.toBe(uid)
    })
  })

  describe('two objects for one record', () => {
    test('two objects for one record are resolved by age: the older is Ready, the younger InConflict without flapping; it follows when the older is deleted', async () => {
      const namespace = await world.namespace(organisation)
      await world.put('group', namespace, 'older', { ...parentRef(), name: 'one' })
      const uid = uidOf(await world.until('group', namespace, 'older', 'InSync'))
      await world.put('group', namespace, 'younger', { ...parentRef(), name: 'one', description: 'mine' })
      await world.until('group', namespace, 'younger', 'InConflict')
      const versions = async (): Promise<readonly string[]> =>
        Promise.all(['older', 'younger'].map(async (name) => (await world.object('group', namespace, name)).metadata.resourceVersion))
      const before = await versions()
      const { etag } = world.record('Group', uid) ?? {}
      await world.stopControllers()
      await world.startController().settled()
      expect(await versions()).toEqual(before)
      expect(world.record('Group', uid)).toMatchObject({ etag, managedBy: `${clusterId}/${namespace}/older` })
      await remove('group', namespace, 'older')
      await world.gone('group', namespace, 'older')
      expect(uidOf(await world.until('group', namespace, 'younger', 'InSync'))).not.toBe(uid)
    })

    test('two objects for one record are resolved by age also if both existed before the controller', async () => {
      const namespace = await world.namespace(organisation)
      await world.stopControllers()
      await world.put('group', namespace, 'z-older', { ...parentRef(), name: 'one' })
      const created = Date.parse((await world.object('group', namespace, 'z-older')).metadata.creationTimestamp ?? '')
      // Kubernetes times are whole seconds.
      await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(created + 1_100), polling)
      for (const name of ['a-younger', 'b-younger', 'c-younger']) await world.put('group', namespace, name, { ...parentRef(), name: 'one' })
      world.startController()
      await world.until('group', namespace, 'z-older', 'InSync')
      for (const name of ['a-younger', 'b-younger', 'c-younger']) await world.until('group', namespace, name, 'InConflict')
    })

    test('in different namespaces: a copy gets no record, and its deletion deletes none', async () => {
      const [from, to] = [await world.namespace(organisation), await world.namespace(organisation, { allowAdoption: true })]
      await world.put('group', from, 'team', parentRef())
      const original = await world.until('group', from, 'team', 'InSync')
      const uid = uidOf(original)
      await world.put(
        'group',
        to,
        'team',
        { ...original.spec, adoptionPolicy: 'ByName', description: 'copied' },
        { annotations: original.metadata.annotations ?? {} },
      )
      await world.until('group', to, 'team', 'InConflict')
      await world.api.apply(objectTypes.group, { metadata: { namespace: to, name: 'team' }, status: original.status }, { subresource: 'status' }, signal)
      await world.until('group', to, 'team', 'InConflict')
      await remove('group', to, 'team')
      await world.gone('group', to, 'team')
      expect(world.record('Group', uid)).toMatchObject({ etag: original.status?.etag, managedBy: `${clusterId}/${from}/team` })
    })
  })

  describe('ExternalLost', () => {
    test('is reported for a record deleted by force, which is not created again until the annotation is removed', async () => {
      const namespace = await world.namespace(organisation)
      await world.put('group', namespace, 'team', parentRef())
      const uid = uidOf(await world.until('group', namespace, 'team', 'InSync'))
      const { token } = organisation
      expect(await world.server.rest.call('DeleteGroup', { uid }, { token })).toMatchObject({ code: 9 })
      ok(await world.server.rest.call('DeleteGroup', { uid }, { token, forceOwnership: 'true' }))
      const lost = await world.until('group', namespace, 'team', 'ExternalLost')
      expect(conditionsOf(lost)).toEqual(['Stalled'])
      expect(lost.status?.uid).toBe(uid)
      await world.api.patch(objectTypes.group, { namespace, name: 'team' }, { metadata: { annotations: { [uidAnnotation]: null } } }, signal)
      expect(uidOf(await world.until('group', namespace, 'team', 'InSync'))).not.toBe(uid)
    })

    test('does not prevent the deletion of the object', async () => {
      const namespace = await world.namespace(organisation)
      await world.put('group', namespace, 'team', parentRef())
      const uid = uidOf(await world.until('group', namespace, 'team', 'InSync'))
      ok(await world.server.rest.call('DeleteGroup', { uid }, { token: organisation.token, forceOwnership: 'true' }))
      await world.until('group', namespace, 'team', 'ExternalLost')
      await remove('group', namespace, 'team')
      await world.gone('group', namespace, 'team')
    })
  })

  describe('after backup and restore', () => {
    test('objects without status find their records again, including references by name', async () => {
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      await world.put('group', namespace, 'team', { ...parentRef(), deletionPolicy: 'Orphan' })
      await world.put('role', namespace, 'r', { parentRef: { name: 'team' }, capabilities: ['CAP_IAM_GROUPS_LIST'], deletionPolicy: 'Orphan' })
      const backups: [TestType, ReturnType<typeof exported>][] = []
      for (const [type, name] of [
        ['group', 'team'],
        ['role', 'r'],
      ] as const)
        backups.push([type, exported(await world.until(type, namespace, name, 'InSync'))])
      for (const [type, { name }] of backups) await remove(type, namespace, name)
      for (const [type, { name }] of backups) await world.gone(type, namespace, name)
      for (const [type, backup] of backups.reverse()) await restore(type, namespace, backup)
      for (const [type, { name, annotations }] of backups) expect(uidOf(await world.until(type, namespace, name, 'InSync'))).toBe(annotations[uidAnnotation])
    })

    test('objects continue without adoption if their records still name them', async () => {
      const namespace = await world.namespace(organisation)
      await world.put('group', namespace, 'team', parentRef())
      const backup = exported(await world.until('group', namespace, 'team', 'InSync'))
      await world.stopControllers()
      // As in a lost cluster that is set up again: no controller released anything.
      await world.api.patch(objectTypes.group, { namespace, name: 'team' }, { metadata: { finalizers: [] } }, signal)
      await remove('group', namespace, 'team')
      world.startController()
      await restore('group', namespace, backup)
      expect(uidOf(await world.until('group', namespace, 'team', 'InSync'))).toBe(backup.annotations[uidAnnotation])
    })

    test('an object whose record was deleted is ExternalLost and gets no new record', async () => {
      const namespace = await world.namespace(organisation, { allowAdoption: true })
      await world.put('group', namespace, 'team', parentRef())
      const backup = exported(await world.until('group', namespace, 'team', 'InSync'))
      await remove('group', namespace, 'team')
      await world.gone('group', namespace, 'team')
      await restore('group', namespace, backup)
      await world.until('group', namespace, 'team', 'ExternalLost')
      expect(world.server.running.engine.cache.tables.table('Group').child(organisation.group, 'team')).toBeUndefined()
    })
  })
})
