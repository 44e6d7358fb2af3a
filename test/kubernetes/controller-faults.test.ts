import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, expect, test, vi } from 'vitest'
import { create } from '@bufbuild/protobuf'
import { everywhere } from '../../src/authz/effective-permissions.ts'
import { allCapabilities } from '../../src/base/capability.ts'
import { GroupSchema, type Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { mirrorName } from '../../src/kubernetes/mirror/mirror-object.ts'
import { objectKinds } from '../../src/kubernetes/object-kinds.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { systemTimers } from '../../src/base/timing.ts'
import { finalizer, type PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { clusterIdentity } from '../../src/kubernetes/world.ts'
import { createManaged, type ObjectCaller } from '../../src/domains/managed-records.ts'
import { managedByText } from '../../src/engine/ownership.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import { ok, startTestServer, type Organisation } from '../support/test-server.ts'
import { startEtcd } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { campaignLength, timeoutUnlessSoaking } from '../soak/factor.ts'
import { startTcpProxy } from '../support/parts/tcp-proxy.ts'
import { sharedKey } from './client/key-file.ts'
import { compact } from './kube-bench.ts'
import { clusterId, startControllerWorld, uidOf, type ControllerWorld, type WorldOptions } from './controller-world.ts'

const signal = AbortSignal.timeout(3_600_000)
/** After a fault the next attempt may be half a minute away. */
const longTimeouts = { timeout: 120_000, interval: 100 }
const objects = 20
const names = Array.from({ length: objects }, (_, index) => `group-${index}`)
/** Duration of outages in milliseconds. */
const outageMs = campaignLength({ short: 2_000, full: 6_000 })

let world: ControllerWorld
let organisation: Organisation
let namespace: string

async function begin(options: WorldOptions = {}): Promise<void> {
  world = await startControllerWorld({ kube: {}, ...options })
  organisation = await world.organisation()
  namespace = await world.namespace(organisation)
}
afterEach(() => world?.stop())

const groups = (): readonly Group[] =>
  [...world.server.running.engine.cache.tables.table('Group').matching('parent', organisation.group)].map(({ message }) => message as unknown as Group)

async function apply(name: string, spec: Readonly<Record<string, unknown>> = {}): Promise<void> {
  await world.put('group', namespace, name, { parentRef: { uid: organisation.group }, ...spec })
}

/** Waits until every object is in sync, and exactly one record exists for each. */
async function allAre(description: string, wanted: readonly string[] = names): Promise<void> {
  await vi.waitFor(async () => {
    const { items } = await world.api.list(objectTypes.group, { namespace, limit: 500 }, signal)
    const states = items.map((item) => {
      // The type's objects are ours.
      const { metadata, status } = item as PlatformObject
      const ready = status?.conditions?.find(({ type }) => type === 'Ready')
      return `${metadata.name} ${ready?.reason ?? ''} ${status?.observedGeneration === metadata.generation ? 'current' : 'old'}`
    })
    expect(states.sort()).toEqual(wanted.map((name) => `${name} InSync current`).sort())
    expect(
      groups()
        .map((group) => `${group.name} ${group.description}`)
        .sort(),
    ).toEqual(wanted.map((name) => `${name} ${description}`).sort())
  }, longTimeouts)
}

/** Returns the controller's writes to objects, without Events. */
const writesTo = (from: number): readonly string[] => world.writes.slice(from).filter((call) => !call.includes(' Event '))

describeWithPart('etcd', 'the controller during faults', () => {
  test(
    'the Kubernetes API server is down for a while: afterwards changes on both sides are applied',
    async () => {
      await begin({ mirror: { enabled: true, namespace: 'default' } })
      for (const name of names) await apply(name)
      await allAre('')
      const shown = String(
        ok(await world.server.rest.call('CreateGroup', { parent: organisation.group, group: { name: 'api' } }, { token: organisation.token }))['uid'],
      )
      const { apiserver } = world.objects.kube
      const before = world.writes.length
      await apiserver.kill()
      ok(await world.server.rest.call('UpdateGroup', { group: { uid: shown, description: 'meanwhile' } }, { token: organisation.token }))
      await delay(outageMs)
      await apiserver.restart()
      for (const name of names) await apply(name, { description: 'after' })
      await vi.waitFor(async () => {
        const mirror = await world.api.get(objectTypes.group, { namespace: 'default', name: mirrorName(objectKinds.Group, shown) }, signal)
        expect(mirror?.spec).toMatchObject({ description: 'meanwhile' })
      }, longTimeouts)
      ok(await world.server.rest.call('DeleteGroup', { uid: shown }, { token: organisation.token }))
      await allAre('after')
      // One status per object, and the writes of the mirrors, including attempts on missing objects.
      expect(writesTo(before).filter((call) => call.includes(` ${namespace}/`)).length).toBeLessThanOrEqual(2 * objects)
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'a watch has expired: a new list finds changes and deletions in between',
    async () => {
      await begin({ proxied: true })
      for (const name of names) await apply(name)
      await allAre('')
      world.network.cut()
      const gone = names.slice(0, 5)
      for (const name of names.slice(5)) await apply(name, { description: 'unseen' })
      for (const name of gone) await world.api.delete(objectTypes.group, { namespace, name }, {}, signal)
      const { etcd, apiserver } = world.objects.kube
      const [member] = etcd.members
      if (member === undefined) throw new Error('no etcd')
      const { header } = (await member.call('kv/range', { key: Buffer.from('x').toString('base64') })) as { header: { revision: string } } // a cast of etcd's answer
      await member.call('kv/compaction', { revision: header.revision, physical: true })
      // Kills the API server, which could still send events from its memory.
      await apiserver.kill()
      await apiserver.restart()
      const before = world.server.logs.length
      world.network.resume()
      await allAre('unseen', names.slice(5))
      expect(world.server.logs.slice(before).filter(({ level }) => level === 'error')).toEqual([])
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'the Kubernetes API server loses its history while it is down: an object is ready within 3 seconds of its return',
    async () => {
      await begin()
      await apply('before')
      await allAre('', ['before'])
      const { kube } = world.objects
      await kube.apiserver.kill()
      await compact(kube)
      await delay(campaignLength({ short: 7_000, full: 60_000 }))
      await kube.apiserver.restart()
      const returnedAt = performance.now()
      await apply('after')
      await allAre('', ['after', 'before'])
      expect(performance.now() - returnedAt).toBeLessThan(3_000)
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'the Kubernetes API server does not answer a leader for a while: failed work is repeated within 3 seconds of its return',
    async () => {
      await begin({ proxied: 'objects', mirror: { enabled: true, namespace: 'default' } })
      const { rest } = world.server
      const token = { token: organisation.token }
      const create = async (name: string): Promise<string> =>
        String(ok(await rest.call('CreateGroup', { parent: organisation.group, group: { name } }, token))['uid'])
      const uids = await Promise.all(names.map(create))
      const descriptions = (): Promise<unknown[]> =>
        Promise.all(
          uids.map(async (uid) => {
            const mirror = await world.api.get(objectTypes.group, { namespace: 'default', name: mirrorName(objectKinds.Group, uid) }, signal)
            // A cast: every mirror of a group has its spec.
            return (mirror?.spec as { description?: string } | undefined)?.description ?? mirror?.metadata.name
          }),
        )
      await vi.waitFor(async () => expect(await descriptions()).toEqual(uids.map((uid) => mirrorName(objectKinds.Group, uid))), longTimeouts)
      world.network.cut()
      for (const uid of uids) ok(await rest.call('UpdateGroup', { group: { uid, description: 'meanwhile' } }, token))
      await delay(campaignLength({ short: 10_000, full: 60_000 }))
      world.network.resume()
      const returnedAt = performance.now()
      await vi.waitFor(async () => expect(await descriptions()).toEqual(uids.map(() => 'meanwhile')), longTimeouts)
      expect(performance.now() - returnedAt).toBeLessThan(3_000)
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'the store is down for a while: objects applied in between have exactly one record afterwards',
    async () => {
      const etcd = await startEtcd()
      try {
        await begin({ store: 'etcd', etcd })
        for (const name of names.slice(0, 10)) await apply(name)
        await allAre('', names.slice(0, 10))
        const before = world.writes.length
        await Promise.all(etcd.members.map((member) => member.kill()))
        for (const name of names) await apply(name, { description: 'unheard' })
        await delay(campaignLength({ short: 7_000, full: 60_000 }))
        await Promise.all(etcd.members.map((member) => member.restart()))
        const returnedAt = performance.now()
        await allAre('unheard')
        // The record cache retries within 2 seconds; keys then wait for nothing else.
        expect(performance.now() - returnedAt).toBeLessThan(5_000)
        // Finalizer, annotation and status of each object, and no writes for attempts.
        expect(writesTo(before).length).toBeLessThanOrEqual(4 * objects)
      } finally {
        await world.stop()
        await etcd.stop()
      }
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'other clients constantly write to the same objects: each becomes ready, and their fields are unchanged',
    async () => {
      await begin()
      const stormed = names.slice(0, 5)
      const storm = new AbortController()
      const touch = async (name: string): Promise<number> => {
        let touches = 0
        while (!storm.signal.aborted) {
          touches += 1
          await world.api.patch(objectTypes.group, { namespace, name }, { metadata: { labels: { touched: String(touches) } } }, signal)
        }
        return touches
      }
      const before = world.writes.length
      for (const name of stormed) await apply(name)
      const touching = stormed.flatMap((name) => [touch(name), touch(name)])
      for (const name of stormed) await apply(name, { description: 'stormed' })
      await allAre('stormed', stormed)
      storm.abort()
      const touches = (await Promise.all(touching)).reduce((sum, count) => sum + count, 0)
      await allAre('stormed', stormed)
      const writes = writesTo(before)
      // An attempt after a conflict waits: there is never one for each touch.
      expect({ touches, writes: writes.length }).toSatisfy((counts: { touches: number; writes: number }) => counts.writes < 20 * stormed.length)
      for (const name of stormed) expect((await world.object('group', namespace, name)).metadata.labels).toHaveProperty('touched')
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'an object is deleted while the snapshot is behind the store: its new record by another controller is deleted too',
    async () => {
      const etcd = await startEtcd()
      const network = await startTcpProxy(etcd.members[0]?.port ?? 0)
      const env = await sharedKey()
      const other = await startTestServer({ store: 'etcd', etcd, env })
      try {
        await begin({ store: 'etcd', env, etcd: { ...etcd, endpoints: [`http://127.0.0.1:${network.port}`] } })
        await world.stopControllers()
        const { services } = other.running.engine
        await services.cache.barrier(signal)
        await world.put('group', namespace, 'late', { parentRef: { uid: organisation.group } }, { finalizers: [finalizer] })
        network.stall()
        const caller: ObjectCaller = {
          managedBy: managedByText({ clusterId, namespace, name: 'late' }),
          identity: clusterIdentity({ id: clusterId }),
          permissions: () => ({ operator: false, grants: [{ group: everywhere, capabilities: allCapabilities }] }),
          authorize: () => undefined,
          requestId: 'late',
          signal,
        }
        const record = create(GroupSchema, { name: 'late' }) as unknown as Resource
        const { uid } = await createManaged(services, caller, { kind: 'Group', parent: organisation.group, record, paths: ['name'] })
        await world.api.delete(objectTypes.group, { namespace, name: 'late' }, {}, signal)
        const { attempted } = world.startController()
        await attempted()
        expect(world.record('Group', uid)).toBeUndefined()
        network.resume()
        await world.gone('group', namespace, 'late')
        await services.cache.barrier(signal)
        expect(services.cache.tables.get('Group', uid)).toBeUndefined()
      } finally {
        network.resume()
        await world.stop()
        await network.close()
        await other.stop()
        await etcd.stop()
      }
    },
    timeoutUnlessSoaking(300_000),
  )

  test('a record is already gone when its object is deleted, also if that happens while no controller runs', async () => {
    await begin()
    await apply('doomed')
    const uid = uidOf(await world.until('group', namespace, 'doomed', 'InSync'))
    await world.stopControllers()
    ok(await world.server.rest.call('DeleteGroup', { uid }, { token: organisation.token, forceOwnership: 'true' }))
    await world.api.delete(objectTypes.group, { namespace, name: 'doomed' }, {}, signal)
    world.startController()
    await world.gone('group', namespace, 'doomed')
    expect(groups()).toEqual([])
  })

  test('a leader that was suspended between object and record writes no record: the next leader does', async () => {
    let suspendedMs = 0
    const group = (name: string): boolean => groups().some((record) => record.name === name)
    const writes: { readonly method: string | undefined; readonly made: boolean }[] = []
    await begin({
      timers: { ...systemTimers, now: () => systemTimers.now() + suspendedMs },
      beforeWrite(call) {
        if (!call.endsWith(` PlatformGroup ${namespace}/late`)) return undefined
        writes.push({ method: call.split(' ')[0], made: group('late') })
        // Suspended for so long that another one may lead.
        if (writes.length === 1) suspendedMs += 60_000
        return undefined
      },
    })
    await apply('late')
    await world.until('group', namespace, 'late', 'InSync')
    // The finalizer; the next leader's read of the object; then its uid and status.
    expect(writes).toEqual([
      { method: 'apply', made: false },
      { method: 'patch', made: false },
      { method: 'patch', made: true },
      { method: 'apply', made: true },
    ])
  })
})
