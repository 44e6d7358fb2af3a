import { create, type DescMessage } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { everywhere } from '../../../../src/authz/effective-permissions.ts'
import { trustedUid, type Uid } from '../../../../src/base/uid.ts'
import { setOf } from '../../../../src/base/capability.ts'
import { roleCapabilities } from '../../../../src/gen/roles.ts'
import { GroupSchema } from '../../../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../../../src/gen/taproot/iam/v2/identities_pb.ts'
import { createManaged, deleteManaged, releaseManaged, updateManaged, type ObjectCaller } from '../../../../src/domains/managed-records.ts'
import { managedByText } from '../../../../src/engine/ownership.ts'
import { envelopeBytes } from '../../../../src/engine/record-codec.ts'
import type { Resource } from '../../../../src/cache/records/cached-record.ts'
import { managedKey, recordKey } from '../../../../src/store/keys.ts'
import { freshName, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { expectFailure, specSuite, uidOf, type Spec } from '../spec-suite.ts'

/** An object that may do what the built-in role `role` may, everywhere. */
function objectCaller(managedBy: string, role = 'owner'): ObjectCaller {
  return {
    managedBy,
    identity: trustedUid('0'.repeat(40)),
    permissions: () => ({ operator: false, grants: [{ group: everywhere, capabilities: setOf(roleCapabilities[role] ?? []) }] }),
    authorize: () => undefined,
    requestId: 'test',
    signal: AbortSignal.timeout(30_000),
  }
}

function record(desc: DescMessage, fields: Record<string, unknown>): Resource {
  // Every resource has what Resource adds.
  return create(desc, fields) as unknown as Resource
}

/** A group that an object owns, in an organisation of its own. */
async function managedGroup(spec: Spec) {
  const organisation = await makeOrganisation(spec.server)
  const owner = { clusterId: 'cluster-1', namespace: freshName('ns'), name: 'team' }
  const caller = objectCaller(managedByText(owner))
  const { services } = spec.server.running.engine
  const group = await createManaged(services, caller, { kind: 'Group', parent: organisation.group, record: record(GroupSchema, { name: 'team' }), paths: [] })
  return { ...organisation, owner, caller, services, uid: group.uid as Uid }
}

specSuite('records that Kubernetes objects own', (spec) => {
  // docs/spec/kubernetes.md#ownership
  test('records that Kubernetes objects own show managedBy in get and list', async () => {
    const { uid, token, owner, group } = await managedGroup(spec)
    const managedBy = `cluster-1/${owner.namespace}/team`
    expect(await spec.ok('GetGroup', { uid }, { token })).toMatchObject({ uid, managedBy })
    expect(await spec.ok('ListGroups', { uidp: { childrenOf: group } }, { token })).toMatchObject({ groups: [{ uid, managedBy }] })
  })

  // docs/spec/kubernetes.md#api-refusals
  test.each([
    ['an update', 'UpdateGroup', (uid: string) => ({ group: { uid, description: 'mine' } })],
    ['a delete', 'DeleteGroup', (uid: string) => ({ uid })],
  ])('records that Kubernetes objects own refuse %s by the API and name the object; with force the API takes the record over', async (_title, rpc, request) => {
    const { uid, token, owner, services, caller } = await managedGroup(spec)
    const refused = await spec.call(rpc, request(uid), { token })
    expectFailure(refused, { code: 9, reason: 'MANAGED_BY_KUBERNETES', violations: ['MANAGED_BY_KUBERNETES'] })
    expect(refused.details['ErrorInfo']).toMatchObject({ metadata: { cluster: 'cluster-1', namespace: owner.namespace, name: 'team' } })
    expect(await spec.ok('GetGroup', { uid }, { token })).toMatchObject({ description: '', managedBy: caller.managedBy })
    await spec.ok(rpc, request(uid), { token, forceOwnership: 'true' })
    expect(services.cache.tables.get('Group', uid)?.managedBy ?? '').toBe('')
    expect(services.cache.tables.entry(managedKey('Group', caller.managedBy))).toBeUndefined()
  })

  test('records that Kubernetes objects own are taken by force only with all rights of the owner role; forceOwnership accepts true and false only', async () => {
    const { uid, group, token } = await managedGroup(spec)
    const editor = uidOf(
      await spec.ok('CreateIdentity', { parent: group, identity: { name: 'e', claimMatch: { issuer: 'https://i.example', subject: 's' } } }, { token }),
    )
    const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'updaters', capabilities: ['CAP_IAM_GROUPS_UPDATE'] } }, { token }))
    await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: editor, roleUid: role } }, { token })
    const request = { group: { uid, description: 'mine' } }
    const asEditor = await spec.server.tokenFor(editor)
    expectFailure(await spec.call('UpdateGroup', request, { token: asEditor }), { code: 9, reason: 'MANAGED_BY_KUBERNETES' })
    expectFailure(await spec.call('UpdateGroup', request, { token: asEditor, forceOwnership: 'true' }), { code: 7 })
    expectFailure(await spec.call('UpdateGroup', request, { token, forceOwnership: 'yes' }), { code: 3 })
    expectFailure(await spec.call('UpdateGroup', request, { token, forceOwnership: 'false' }), { code: 9, reason: 'MANAGED_BY_KUBERNETES' })
  })

  // docs/spec/kubernetes.md#ownership
  test('records that Kubernetes objects own are unique for an object and kind, also if two controllers create at once', async () => {
    const { group, services } = await managedGroup(spec)
    const caller = objectCaller(managedByText({ clusterId: 'cluster-1', namespace: freshName('ns'), name: 'twice' }))
    const make = (name: string) => createManaged(services, caller, { kind: 'Group', parent: group, record: record(GroupSchema, { name }), paths: ['name'] })
    const outcomes = await Promise.allSettled(['one', 'two', 'three'].map(make))
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    for (const outcome of outcomes) if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 6, reason: 'OWNED_ALREADY' })
  })

  // docs/spec/kubernetes.md#ownership
  test('records that Kubernetes objects own are written and deleted only by their own object', async () => {
    const { uid, services, group } = await managedGroup(spec)
    const other = objectCaller(managedByText({ clusterId: 'cluster-1', namespace: freshName('ns'), name: 'other' }))
    const change = { kind: 'Group', uid, record: record(GroupSchema, { description: 'stolen' }), paths: ['description'] }
    for (const adopts of [false, true])
      await expect(updateManaged(services, other, { ...change, adopts })).rejects.toMatchObject({ code: 9, reason: 'NOT_OWNED' })
    await deleteManaged(services, other, { kind: 'Group', uid })
    await releaseManaged(services, other, { kind: 'Group', uid })
    expect(services.cache.tables.get('Group', uid)?.managedBy).toContain('/team')
    await expect(updateManaged(services, other, { ...change, uid: trustedUid(group), adopts: false })).rejects.toMatchObject({ reason: 'NOT_OWNED' })
  })

  test('records that Kubernetes objects own have only their differing fields written in an update', async () => {
    const { uid, services, caller } = await managedGroup(spec)
    const change = { kind: 'Group', uid, record: record(GroupSchema, { description: 'a team' }), paths: ['description'], adopts: false }
    expect(await updateManaged(services, caller, change)).toMatchObject({ written: true })
    const { etag } = services.cache.tables.get('Group', uid) ?? {}
    expect(await updateManaged(services, caller, change)).toMatchObject({ written: false })
    expect(services.cache.tables.get('Group', uid)?.etag).toBe(etag)
  })

  test('records that Kubernetes objects own keep the fields that the object sets through writes of others, and drop them with the owner', async () => {
    const { uid, services, caller, token, group } = await managedGroup(spec)
    const own = () => services.cache.tables.get('Group', uid)
    const change = { kind: 'Group', uid, record: record(GroupSchema, { name: 'team', description: 'a team' }), adopts: false }
    await updateManaged(services, caller, { ...change, paths: ['name', 'description'] })
    expect(own()?.ownedFields).toEqual(['name', 'description'])
    const root = objectCaller(managedByText({ clusterId: 'cluster-1', namespace: freshName('ns'), name: 'root' }))
    const organisation = { kind: 'Group', uid: trustedUid(group), record: record(GroupSchema, { description: 'root' }), paths: ['description'], adopts: true }
    await updateManaged(services, root, organisation)
    await spec.ok('SetGroupLimits', { uid: group, resourceLimits: { record_mib: 7 } }, { token: await spec.server.operatorToken() })
    expect(services.cache.tables.get('Group', group)?.ownedFields).toEqual(['description'])
    await spec.ok('UpdateGroup', { group: { uid, name: 'ours' } }, { token, forceOwnership: 'true' })
    expect(own()).toMatchObject({ managedBy: '', ownedFields: [] })
    await updateManaged(services, caller, { ...change, adopts: true, paths: ['name'] })
    expect(own()?.message).toMatchObject({ name: 'team', description: 'a team' })
    await releaseManaged(services, caller, { kind: 'Group', uid })
    expect(own()?.envelope.ownedFields).toEqual([])
  })

  test('records that Kubernetes objects own look unchanged to readers when only the set of managed fields changes', async () => {
    const { uid, services, caller } = await managedGroup(spec)
    const before = services.cache.tables.get('Group', uid)
    const change = { kind: 'Group', uid, record: record(GroupSchema, { name: 'team' }), paths: ['name'], adopts: false }
    expect(await updateManaged(services, caller, change)).toMatchObject({ written: false })
    const after = services.cache.tables.get('Group', uid)
    expect(after).toMatchObject({ etag: before?.etag, updateMs: before?.updateMs, ownedFields: ['name'] })
    expect(await updateManaged(services, caller, change)).toMatchObject({ written: false })
    expect(services.cache.tables.get('Group', uid)?.revision).toBe(after?.revision)
  })

  test('records that Kubernetes objects own skip a field of a later version in the set of managed fields', async () => {
    const { uid, services, caller } = await managedGroup(spec)
    const cached = services.cache.tables.get('Group', uid)
    if (cached === undefined) throw new Error('no record')
    const value = envelopeBytes({ ...cached.envelope, ownedFields: ['description', 'field_of_a_later_version'] })
    const outcome = await services.store.transact({ guards: [], writes: [{ kind: 'put', key: recordKey('Group', uid), value }] }, caller.signal)
    if (outcome.committed) await services.cache.reached(outcome.revision, caller.signal)
    await updateManaged(services, caller, { kind: 'Group', uid, record: record(GroupSchema, { name: 'team' }), paths: ['name'], adopts: false })
    expect(services.cache.tables.get('Group', uid)?.ownedFields).toEqual(['name'])
  })

  // docs/spec/kubernetes.md#release
  test('records that Kubernetes objects own belong to the API unchanged after their release, and to the object after their adoption', async () => {
    const { uid, services, caller, token } = await managedGroup(spec)
    await releaseManaged(services, caller, { kind: 'Group', uid })
    expect(await spec.ok('UpdateGroup', { group: { uid, description: 'mine' } }, { token })).toMatchObject({ name: 'team', description: 'mine' })
    const change = { kind: 'Group', uid, record: record(GroupSchema, { description: 'theirs' }), paths: ['description'] }
    await expect(updateManaged(services, caller, { ...change, adopts: false })).rejects.toMatchObject({ reason: 'NOT_OWNED' })
    await updateManaged(services, caller, { ...change, adopts: true })
    expect(services.cache.tables.entry(managedKey('Group', caller.managedBy))).toBeDefined()
    expectFailure(await spec.call('DeleteGroup', { uid }, { token }), { code: 9, reason: 'MANAGED_BY_KUBERNETES' })
    await deleteManaged(services, caller, { kind: 'Group', uid })
    expectFailure(await spec.call('GetGroup', { uid }, { token }), { code: 5 })
    expect(services.cache.tables.entry(managedKey('Group', caller.managedBy))).toBeUndefined()
  })

  // docs/spec/kubernetes.md#adoption
  test('identities that Kubernetes objects own are adopted only by a caller who could grant all their rights', async () => {
    const { group, services, token } = await managedGroup(spec)
    const claimMatch = { issuer: 'https://i.example', subject: 's' }
    const uid = uidOf(await spec.ok('CreateIdentity', { parent: group, identity: { name: 'robot', claimMatch } }, { token })) as Uid
    await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: uid, roleUid: roleUid('owner') } }, { token })
    const managedBy = managedByText({ clusterId: 'cluster-1', namespace: freshName('ns'), name: 'robot' })
    const change = {
      kind: 'Identity',
      uid,
      record: record(IdentitySchema, { description: 'adopted' }),
      paths: ['description'],
      adopts: true,
    }
    await expect(updateManaged(services, objectCaller(managedBy, 'viewer'), change)).rejects.toMatchObject({ code: 7 })
    expect(await updateManaged(services, objectCaller(managedBy), change)).toMatchObject({ written: true })
  })
})
