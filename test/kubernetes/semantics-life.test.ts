import { keysWrittenSince, revisionOf } from '../support/store-changes.ts'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { finalizer, uidAnnotation, type PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { KubeError, type KubeObject } from '../../src/kubernetes/kube-api.ts'
import type { Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { reinstate, suspend } from '../support/suspend.ts'
import { ok, type Organisation } from '../support/test-server.ts'
import { describeOnStoresWithParts } from '../support/parts/require-part.ts'
import { polling, startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'

const signal = AbortSignal.timeout(900_000)

/** Returns the cells of one object in the output of `kubectl get`, by column. */
function cellsOf(printed: string): Readonly<Record<string, string>> {
  const [header = '', row = ''] = printed.split('\n')
  // A cell may be empty: it begins at the position of its column.
  const columns = [...header.matchAll(/\S+(?: \S+)*/g)]
  return Object.fromEntries(columns.map(({ 0: name, index }, at) => [name, row.slice(index, columns[at + 1]?.index).trim()]))
}

/** Returns the conditions as `type=status reason`. */
function conditionsOf({ status }: PlatformObject): readonly string[] {
  return (status?.conditions ?? []).map(({ type, status: is, reason }) => `${type}=${is} ${reason}`).sort()
}

/** Returns the fields of an object by their manager, from the API server's records: `manager` -> paths of two steps. */
function writersOf({ metadata }: KubeObject): Readonly<Record<string, readonly string[]>> {
  const { managedFields = [] } = metadata as unknown as { managedFields?: readonly { manager: string; fieldsV1: Record<string, object> }[] }
  const written: Record<string, string[]> = {}
  for (const { manager, fieldsV1 } of managedFields)
    for (const [field, inner] of Object.entries(fieldsV1)) for (const name of Object.keys(inner)) (written[manager] ??= []).push(`${field}.${name}`)
  return written
}

describeOnStoresWithParts(['kube-apiserver'], 'the life of a Kubernetes object', (store) => {
  let world: ControllerWorld
  let organisation: Organisation
  let namespace: string

  beforeAll(async () => {
    world = await startControllerWorld({ store })
    organisation = await world.organisation()
    namespace = await world.namespace(organisation)
  })
  afterAll(() => world?.stop())

  /** Applies a group and waits until it is in sync. */
  async function group(name: string, spec: Readonly<Record<string, unknown>> = {}): Promise<PlatformObject> {
    await world.put('group', namespace, name, { parentRef: { uid: organisation.group }, ...spec })
    return world.until('group', namespace, name, 'InSync')
  }
  const remove = (name: string): Promise<void> => world.api.delete(objectTypes.group, { namespace, name }, {}, signal)

  test('conditions: Ready and Synced have reason, message and generation; others exist only while they are true', async () => {
    await world.put('group', namespace, 'conditions', { parentRef: { name: 'conditions-parent' } })
    const waiting = await world.until('group', namespace, 'conditions', 'RefNotFound')
    expect(conditionsOf(waiting)).toEqual(['Ready=False RefNotFound', 'Reconciling=True RefNotFound', 'Synced=False RefNotFound'])
    await group('conditions-parent')
    const ready = await world.until('group', namespace, 'conditions', 'InSync')
    expect(conditionsOf(ready)).toEqual(['Ready=True InSync', 'Synced=True InSync'])
    expect(ready.status?.conditions?.every(({ message, observedGeneration }) => message !== '' && observedGeneration === ready.metadata.generation)).toBe(true)
  })

  test('status: uid, etag, time of the last write, resolved references', async () => {
    const { status } = await group('status')
    const record = world.record('Group', status?.uid)
    expect(status).toMatchObject({ etag: record?.etag, observedGeneration: 1, resolved: { parent: organisation.group } })
    expect(Date.parse(status?.lastSyncTime ?? '')).toBeGreaterThan(Date.now() - 600_000)
  })

  test('observedGeneration: an object is never Ready for a generation that was not processed', async () => {
    const uid = uidOf(await group('generations'))
    for (let round = 2; round <= 12; round++) {
      await world.put('group', namespace, 'generations', { description: `round ${round}` })
      const seen = await world.object('group', namespace, 'generations')
      const isCurrent = seen.status?.observedGeneration === seen.metadata.generation
      // If it reports InSync for this generation, the record is in sync.
      if (isCurrent) expect(world.record('Group', uid)?.message).toMatchObject({ description: `round ${round}` })
    }
    const last = await world.until('group', namespace, 'generations', 'InSync')
    expect(last.status?.observedGeneration).toBe(12)
    expect(world.record('Group', uid)?.message).toMatchObject({ description: 'round 12' })
  })

  test('spec: a removed field is reset', async () => {
    const uid = uidOf(await group('unset', { description: 'as applied' }))
    const { token } = organisation
    await world.api.patch(objectTypes.group, { namespace, name: 'unset' }, { spec: { description: null } }, signal)
    await world.until('group', namespace, 'unset', 'InSync')
    expect((world.record('Group', uid)?.message as unknown as Group).description).toBe('')
    expect(await world.server.rest.call('UpdateGroup', { group: { uid, description: 'by the API' } }, { token })).toMatchObject({ code: 9 })
  })

  test('finalizer: there is one, on the object only; it is removed with the record', async () => {
    const object = await group('held')
    expect(object.metadata.finalizers).toEqual([finalizer])
    const uid = uidOf(object)
    await remove('held')
    await world.gone('group', namespace, 'held')
    expect(world.record('Group', uid)).toBeUndefined()
    const spaces = await world.api.list(objectTypes.namespace, { limit: 500 }, signal)
    expect(spaces.items.filter(({ metadata }) => (metadata.finalizers ?? []).length > 0)).toEqual([])
  })

  test("finalizer: those of others stay, and the object's record is deleted all the same", async () => {
    const uid = uidOf(await group('held-twice'))
    await world.api.patch(objectTypes.group, { namespace, name: 'held-twice' }, { metadata: { finalizers: ['example.com/mine', finalizer] } }, signal)
    await remove('held-twice')
    await vi.waitFor(async () => expect((await world.object('group', namespace, 'held-twice')).metadata.finalizers).toEqual(['example.com/mine']), polling)
    expect(world.record('Group', uid)).toBeUndefined()
    await world.api.patch(objectTypes.group, { namespace, name: 'held-twice' }, { metadata: { finalizers: [] } }, signal)
    await world.gone('group', namespace, 'held-twice')
  })

  test('finalizer: an object that is deleted before it was processed creates no record', async () => {
    await world.stopControllers()
    await world.put('group', namespace, 'never', { parentRef: { uid: organisation.group } }, { finalizers: ['example.com/mine'] })
    await remove('never')
    world.startController()
    await group('after-never')
    expect((await world.object('group', namespace, 'never')).metadata.finalizers).toEqual(['example.com/mine'])
    await world.api.patch(objectTypes.group, { namespace, name: 'never' }, { metadata: { finalizers: [] } }, signal)
    await world.gone('group', namespace, 'never')
    expect(world.server.running.engine.cache.tables.table('Group').child(organisation.group, 'never')).toBeUndefined()
  })

  test('deletion policy Orphan: the record stays and belongs to the API', async () => {
    const uid = uidOf(await group('orphan', { deletionPolicy: 'Orphan' }))
    await remove('orphan')
    await world.gone('group', namespace, 'orphan')
    expect(world.record('Group', uid)?.managedBy).toBe('')
    ok(await world.server.rest.call('UpdateGroup', { group: { uid, description: 'free' } }, { token: organisation.token }))
  })

  test('deletion policy Delete: a group with children is not deleted, reports them, and is deleted once it is empty', async () => {
    const uid = uidOf(await group('full'))
    const { token } = organisation
    const child = String(ok(await world.server.rest.call('CreateGroup', { parent: uid, group: { name: 'child' } }, { token }))['uid'])
    await remove('full')
    const blocked = await world.until('group', namespace, 'full', 'DeletionBlocked')
    expect(blocked.status?.conditions?.find(({ type }) => type === 'Ready')?.message).toBe(
      `FAILED_PRECONDITION: Precondition failed: cannot delete group with child groups: Group "child" (${child})`,
    )
    expect(world.record('Group', child)).toBeDefined()
    ok(await world.server.rest.call('DeleteGroup', { uid: child }, { token }))
    await world.gone('group', namespace, 'full')
    expect(world.record('Group', uid)).toBeUndefined()
  })

  test('a suspended organisation: its objects change nothing, like its members, until it is open again', async () => {
    const closed = await world.organisation()
    const theirs = await world.namespace(closed)
    const spec = { parentRef: { uid: closed.group } }
    await world.put('group', theirs, 'early', spec)
    const uid = uidOf(await world.until('group', theirs, 'early', 'InSync'))
    await suspend(world.server, closed.group)
    await world.put('group', theirs, 'early', { ...spec, description: 'changed' })
    await world.put('group', theirs, 'late', spec)
    const [early, late] = await Promise.all(['early', 'late'].map((name) => world.until('group', theirs, name, 'OrganizationSuspended')))
    expect(early?.status?.uid).toBe(uid)
    expect(late?.status?.uid).toBeUndefined()
    await world.api.delete(objectTypes.group, { namespace: theirs, name: 'early' }, {}, signal)
    await vi.waitFor(async () => expect((await world.object('group', theirs, 'early')).status?.observedGeneration).toBe(3), polling)
    expect(world.record('Group', uid)).toMatchObject({ message: { description: '' } })
    expect(world.server.running.engine.cache.tables.table('Group').child(closed.group, 'late')).toBeUndefined()
    await reinstate(world.server, closed.group)
    // Sooner than by repeated processing, which may have deleted the object by now.
    for (const name of ['early', 'late'])
      await world.api.patch(objectTypes.group, { namespace: theirs, name }, { metadata: { labels: { again: 'yes' } } }, signal).catch((error: unknown) => {
        if (!(error instanceof KubeError && error.reason === 'not_found')) throw error
      })
    await world.gone('group', theirs, 'early')
    expect(world.record('Group', uid)).toBeUndefined()
    await world.until('group', theirs, 'late', 'InSync')
  })

  test('references: the referenced record may appear later, disappear, and appear again as another record', async () => {
    await world.put('group', namespace, 'late-child', { parentRef: { name: 'late-parent' } })
    await world.until('group', namespace, 'late-child', 'RefNotFound')
    const parent = uidOf(await group('late-parent', { deletionPolicy: 'Orphan' }))
    const child = uidOf(await world.until('group', namespace, 'late-child', 'InSync'))
    expect(child.startsWith(`${parent}/`)).toBe(true)
    await remove('late-parent')
    await world.gone('group', namespace, 'late-parent')
    await world.until('group', namespace, 'late-child', 'RefNotFound')
    expect(world.record('Group', child)).toBeDefined()
    await group('late-parent', { name: 'late-parent-2' })
    const misplaced = await world.until('group', namespace, 'late-child', 'Misplaced')
    expect(misplaced.status?.uid).toBe(child)
  })

  test('field managers: the controller writes only status, its finalizer and its annotation', async () => {
    await world.objects.kube.kubectl(
      ['apply', '--server-side', '-f', '-'],
      JSON.stringify({
        apiVersion: 'taproot.dev/v1alpha1',
        kind: 'PlatformGroup',
        metadata: { name: 'fields', namespace, labels: { team: 'a' } },
        spec: { parentRef: { uid: organisation.group } },
      }),
    )
    const object = await world.until('group', namespace, 'fields', 'InSync')
    const { 'taproot-controller': ours = [] } = writersOf(object)
    expect([...new Set(ours)].sort()).toEqual(
      [
        'f:metadata.f:annotations',
        'f:metadata.f:finalizers',
        ...['conditions', 'etag', 'lastSyncTime', 'observedGeneration', 'resolved', 'uid'].map((field) => `f:status.f:${field}`),
      ].sort(),
    )
    expect(object.metadata.annotations).toEqual({ [uidAnnotation]: uidOf(object) })
    expect(object.spec).toEqual({ parentRef: { uid: organisation.group }, deletionPolicy: 'Delete', adoptionPolicy: 'ByUid' })
    expect(object.metadata.generation).toBe(1)
  })

  test('the same manifest applied again, client-side and server-side, shows no difference and causes no write', async () => {
    const manifest = JSON.stringify({
      apiVersion: 'taproot.dev/v1alpha1',
      kind: 'PlatformGroup',
      metadata: { name: 'manifest', namespace },
      spec: { parentRef: { uid: organisation.group }, description: 'x' },
    })
    const { kubectl } = world.objects.kube
    await kubectl(['apply', '-f', '-'], manifest)
    const before = await world.until('group', namespace, 'manifest', 'InSync')
    // kubectl diff fails if there is a difference.
    expect(await kubectl(['diff', '-f', '-'], manifest)).toBe('')
    expect(await kubectl(['apply', '-f', '-'], manifest)).toContain('unchanged')
    const after = await world.object('group', namespace, 'manifest')
    expect(after.metadata.resourceVersion).toBe(before.metadata.resourceVersion)
  })

  /** Waits until the status of the grant counts every object with a record: it is written a moment later. */
  async function grantCounted(): Promise<void> {
    const { items } = JSON.parse(await world.objects.kube.kubectl(['get', 'platform', '-n', namespace, '-o', 'json'])) as { items: PlatformObject[] } // a list
    const objectCount = items.filter(({ status }) => status?.uid !== undefined).length
    await vi.waitFor(async () => {
      const grant = await world.api.get(objectTypes.grant, { name: namespace }, signal)
      expect(grant?.status).toMatchObject({ objectCount })
    }, polling)
  }

  test('without changes a restarted controller writes nothing', async () => {
    await group('steady')
    await world.put('group', namespace, 'steady-waiting', { parentRef: { name: 'nothing' } })
    await world.until('group', namespace, 'steady-waiting', 'RefNotFound')
    await grantCounted()
    await world.stopControllers()
    const before = world.writes.length
    const versions = async (): Promise<readonly string[]> =>
      (await world.api.list(objectTypes.group, { limit: 500 }, signal)).items.map(({ metadata }) => metadata.resourceVersion)
    const known = await versions()
    const revision = await revisionOf(world.server.running.engine.store)
    const { settled } = world.startController()
    await settled()
    expect(world.writes.slice(before)).toEqual([])
    expect(await versions()).toEqual(known)
    expect(await keysWrittenSince(world.server.running.engine.store, revision)).toEqual([])
  })

  test('print columns: READY SYNCED UID PARENT AGE, wide: REASON MESSAGE; ISSUER SUBJECT; ROLE IDENTITY', async () => {
    const { kubectl } = world.objects.kube
    const printed = await group('columns')
    const columns = cellsOf(await kubectl(['get', 'pg', 'columns', '-n', namespace, '-o', 'wide']))
    expect(columns).toMatchObject({ NAME: 'columns', READY: 'True', SYNCED: 'True', UID: uidOf(printed), PARENT: organisation.group, REASON: 'InSync' })
    await world.put('identity', namespace, 'columns-i', {
      parentRef: { name: 'columns' },
      claimMatch: { issuer: 'https://issuer.example', subject: 'columns' },
    })
    await world.put('roleBinding', namespace, 'columns-b', {
      parentRef: { name: 'columns' },
      identityRef: { name: 'columns-i' },
      roleRef: { builtIn: 'viewer' },
    })
    const binding = await world.until('roleBinding', namespace, 'columns-b', 'InSync')
    expect(cellsOf(await kubectl(['get', 'pid', 'columns-i', '-n', namespace]))).toMatchObject({
      READY: 'True',
      ISSUER: 'https://issuer.example',
      SUBJECT: 'columns',
      PARENT: 'columns',
    })
    expect(cellsOf(await kubectl(['get', 'prb', 'columns-b', '-n', namespace]))).toMatchObject({
      READY: 'True',
      UID: uidOf(binding),
      ROLE: 'viewer',
      IDENTITY: 'columns-i',
    })
    expect(await kubectl(['wait', '--for=condition=Ready', 'pg/columns', '-n', namespace, '--timeout=10s'])).toContain('condition met')
    expect((await kubectl(['get', 'platform', '-n', namespace, '-o', 'name'])).split('\n')).toContain('platformgroup.taproot.dev/columns')
  })
})
