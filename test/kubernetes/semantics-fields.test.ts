import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import type { PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { uidAnnotation } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { envelopeBytes } from '../../src/engine/record-codec.ts'
import { recordKey } from '../../src/store/keys.ts'
import { ok, type Organisation } from '../support/test-server.ts'
import { describeOnStoresWithParts } from '../support/parts/require-part.ts'
import { startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'

const signal = AbortSignal.timeout(900_000)

describeOnStoresWithParts(['kube-apiserver'], 'a field that is removed from an object', (store) => {
  let world: ControllerWorld
  let organisation: Organisation
  let namespace: string

  beforeAll(async () => {
    world = await startControllerWorld({ store })
  })
  beforeEach(async () => {
    organisation = await world.organisation()
    namespace = await world.namespace(organisation, { allowAdoption: true })
  })
  afterAll(() => world?.stop())

  const full = { description: 'from the object', aliases: ['example.com/app:latest'], activeTags: ['latest'] }
  const empty = { description: '', aliases: [], activeTags: [] }
  const recordOf = (uid: string): unknown => world.record('Repo', uid)?.message
  /** Applies changes of the object's spec; null removes a field. Waits until the record follows. */
  async function put(spec: Readonly<Record<string, unknown>>): Promise<PlatformObject> {
    await world.put('repo', namespace, 'app', { parentRef: { uid: organisation.group }, ...spec })
    return world.until('repo', namespace, 'app', 'InSync')
  }
  const clearStatus = (): Promise<string> =>
    world.objects.kube.kubectl(['patch', 'platformrepo', 'app', '-n', namespace, '--subresource=status', '--type=merge', '-p', '{"status":null}'])
  /** Writes the record like a version without the set of managed fields. */
  async function writtenByEarlierVersion(uid: string): Promise<void> {
    const record = world.record('Repo', uid)
    if (record === undefined) throw new Error('no record')
    const { services } = world.server.running.engine
    const value = envelopeBytes({ ...record.envelope, ownedFields: [] })
    const outcome = await services.store.transact({ guards: [], writes: [{ kind: 'put', key: recordKey('Repo', trustedUid(uid)), value }] }, signal)
    if (outcome.committed) await services.cache.reached(outcome.revision, signal)
  }
  /** Deletes the object without the controller, so that its record stays unchanged. */
  async function lose(): Promise<void> {
    await world.stopControllers()
    await world.api.patch(objectTypes.repo, { namespace, name: 'app' }, { metadata: { finalizers: null } }, signal)
    await world.api.delete(objectTypes.repo, { namespace, name: 'app' }, {}, signal)
  }

  test('a field that is removed from an object is reset, and a field that was never set stays as it is', async () => {
    const uid = uidOf(await put({ description: full.description, aliases: full.aliases }))
    ok(await world.server.rest.call('UpdateRepo', { repo: { uid, activeTags: ['latest'] } }, { token: organisation.token, forceOwnership: 'true' }))
    await world.until('repo', namespace, 'app', 'InConflict')
    await lose()
    await world.put(
      'repo',
      namespace,
      'app',
      { parentRef: { uid: organisation.group }, description: 'mine', aliases: full.aliases },
      { annotations: { [uidAnnotation]: uid } },
    )
    world.startController()
    const adopted = await world.until('repo', namespace, 'app', 'InSync')
    expect(adopted.status?.extraFields).toEqual(['activeTags'])
    const after = await put({ aliases: null })
    expect(recordOf(uid)).toMatchObject({ description: 'mine', aliases: [], activeTags: ['latest'] })
    expect(after.status?.extraFields).toEqual(['activeTags'])
  })

  test.each(['description', 'aliases', 'activeTags'] as const)(
    'a field that is removed from an object is reset although the status was cleared in between: %s',
    async (field) => {
      const uid = uidOf(await put(full))
      await world.stopControllers()
      await clearStatus()
      await world.put('repo', namespace, 'app', { parentRef: { uid: organisation.group }, [field]: null })
      world.startController()
      await world.until('repo', namespace, 'app', 'InSync')
      expect(recordOf(uid)).toMatchObject({ ...full, [field]: empty[field] })
    },
  )

  test('a field that is removed from an object is reset after the object was restored from an older backup, while the record remained its own', async () => {
    const backup = await put({ description: 'as in the backup' })
    const uid = uidOf(backup)
    await put(full)
    await lose()
    const { name, annotations = {} } = backup.metadata
    await world.put('repo', namespace, name, backup.spec, { annotations })
    world.startController()
    const restored = await world.until('repo', namespace, 'app', 'InSync')
    expect(recordOf(uid)).toMatchObject({ ...empty, description: 'as in the backup' })
    expect(restored.status).not.toHaveProperty('extraFields')
  })

  test('a field that is removed from an object stays if the previous controller version wrote the record last; the next removed field is reset', async () => {
    const uid = uidOf(await put(full))
    await world.stopControllers()
    await writtenByEarlierVersion(uid)
    const { etag } = world.record('Repo', uid) ?? {}
    await world.put('repo', namespace, 'app', { parentRef: { uid: organisation.group }, aliases: null })
    world.startController()
    const kept = await world.until('repo', namespace, 'app', 'InSync')
    expect(kept.status?.extraFields).toEqual(['aliases'])
    expect(recordOf(uid)).toMatchObject({ ...full, etag })
    const after = await put({ description: null })
    expect(recordOf(uid)).toMatchObject({ ...full, description: '' })
    expect(after.status?.extraFields).toEqual(['aliases'])
    const named = await put({ aliases: [] })
    expect(recordOf(uid)).toMatchObject({ ...empty, activeTags: full.activeTags })
    expect(named.status).not.toHaveProperty('extraFields')
  })
})
