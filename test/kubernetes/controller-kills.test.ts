import { randomInt } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import type { PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { etcdSettings, shareEtcd } from '../support/parts/etcd.ts'
import { freePorts } from '../support/parts/free-port.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { freshDirectory, isReady, startProcess, type TaprootProcess } from '../e2e/process/harness/taproot-process.ts'
import { campaignLength, timeoutUnlessSoaking } from '../soak/factor.ts'
import { sharedKey } from './client/key-file.ts'
import { clusterId, startControllerWorld, type ControllerWorld } from './controller-world.ts'

const signal = AbortSignal.timeout(7_200_000)
const kills = campaignLength({ short: 3, full: 10 })
const objects = campaignLength({ short: 20, full: 50 })
/** Number of objects that exist at any time, or one less. */
const kept = objects / 5
const longTimeouts = { timeout: 120_000, interval: 200 }
const lease = { namespace: 'default', name: 'taproot-controller' }

/** An installation whose controllers run in their own processes. */
interface Installation {
  readonly world: ControllerWorld
  /** Starts `taproot controller`. Resolves when it is ready, leading or not. */
  start(): Promise<TaprootProcess>
}

async function install(): Promise<Installation> {
  const cwd = await freshDirectory()
  const key = await sharedKey()
  const etcd = await shareEtcd()
  const world = await startControllerWorld({ store: 'etcd', etcd, env: key })
  onTestFinished(() => world.stop())
  await world.stopControllers()
  return {
    world,
    async start() {
      const [opsPort = 0] = await freePorts(1)
      const env = {
        TAPROOT_BASE_URL: world.server.config.baseUrl,
        TAPROOT_DATA_DIR: join(cwd, 'controller'),
        TAPROOT_LISTEN: '127.0.0.1',
        TAPROOT_OPS_PORT: String(opsPort),
        ...etcdSettings(etcd),
        ...key,
        TAPROOT_KUBERNETES_KUBECONFIG: world.objects.kube.kubeconfigFile,
        TAPROOT_KUBERNETES_CLUSTER_ID: clusterId,
        TAPROOT_KUBERNETES_ISSUER: 'https://kubernetes.default.svc',
        TAPROOT_KUBERNETES_MIRROR_ENABLED: 'false',
      }
      const started = startProcess({ args: ['controller'], env, cwd })
      await started.until(() => isReady(opsPort))
      return started
    },
  }
}

/** Returns the number of seen versions of each object, by name and uid. */
function countVersions(world: ControllerWorld, namespace: string): Map<string, number> {
  const versions = new Map<string, number>()
  const stop = new AbortController()
  const count = async (): Promise<void> => {
    // The server ends a watch after some minutes; the next continues at its position.
    for (let resourceVersion = '0'; !stop.signal.aborted;) {
      for await (const event of world.api.watch(objectTypes.group, { namespace, resourceVersion }, stop.signal)) {
        if (event.type === 'bookmark') {
          resourceVersion = event.resourceVersion
          continue
        }
        const { name, uid, resourceVersion: seen = resourceVersion } = event.object.metadata
        resourceVersion = seen
        versions.set(`${name} ${uid}`, (versions.get(`${name} ${uid}`) ?? 0) + 1)
      }
    }
  }
  // The abort ends it as expected.
  const counting = count().catch((error: unknown) => error)
  onTestFinished(async () => {
    stop.abort()
    await counting
  })
  return versions
}

/** The contents of a person's manifests by object name, with the number of changes since each creation. */
type Wanted = Map<string, { readonly description: string; readonly changes: number }>

/** Creates, changes and deletes objects at random until it has created `objects` and is asked to stop. Below `kept` objects, it creates one more. */
async function change(world: ControllerWorld, at: { namespace: string; group: string; wanted: Wanted }, until: AbortSignal): Promise<void> {
  const { namespace, group, wanted } = at
  for (let made = 0; made < objects || !until.aborted;) {
    const names = [...wanted.keys()]
    const name = names.length < kept ? undefined : names[randomInt(names.length)]
    if (name === undefined || (made < objects && randomInt(2) === 0)) {
      const fresh = `object-${(made += 1)}`
      await world.put('group', namespace, fresh, { parentRef: { uid: group } })
      wanted.set(fresh, { description: '', changes: 1 })
    } else if (randomInt(8) === 0) {
      await world.api.delete(objectTypes.group, { namespace, name }, {}, signal)
      wanted.delete(name)
    } else {
      const changes = (wanted.get(name)?.changes ?? 0) + 1
      await world.api.patch(objectTypes.group, { namespace, name }, { spec: { description: `change ${changes}` } }, signal)
      wanted.set(name, { description: `change ${changes}`, changes })
    }
    // A person's pace, so that changes are spread over the kills.
    await delay(randomInt(60))
  }
}

const groupsIn = (world: ControllerWorld, parent: string): readonly (Group & { managedBy: string })[] =>
  [...world.server.running.engine.cache.tables.table('Group').matching('parent', parent)].map(({ message }) => message as unknown as Group)

describeWithPart('etcd', 'controllers that are killed', () => {
  test(
    `killed ${kills} times during changes of ${objects} objects: each object has exactly one record, and no other record exists`,
    async () => {
      const { world, start } = await install()
      const organisation = await world.organisation()
      const namespace = await world.namespace(organisation)
      const versions = countVersions(world, namespace)
      const wanted: Wanted = new Map()
      const enough = new AbortController()
      const changing = change(world, { namespace, group: organisation.group, wanted }, enough.signal)
      let leading = await start()
      for (let kill = 0; kill < kills; kill += 1) {
        // It runs alone, so that its Lease is never taken from a working controller.
        await vi.waitFor(async () => {
          const held = await world.api.get(objectTypes.lease, lease, signal)
          expect((held?.['spec'] as { holderIdentity?: string } | undefined)?.holderIdentity ?? '').not.toBe('')
        }, longTimeouts)
        const next = await start()
        await delay(randomInt(400))
        await leading.end('SIGKILL')
        // It has expired, as it would after a while.
        await world.api.delete(objectTypes.lease, lease, {}, signal)
        leading = next
      }
      enough.abort()
      await changing
      await vi.waitFor(async () => {
        const { items } = await world.api.list(objectTypes.group, { namespace, limit: 5_000 }, signal)
        const ready = (items as readonly PlatformObject[]).map(({ metadata, status }) => {
          const reason = status?.conditions?.find(({ type }) => type === 'Ready')?.reason
          return `${metadata.name} ${status?.observedGeneration === metadata.generation ? reason : 'not looked at'}`
        })
        expect(ready.sort()).toEqual([...wanted.keys()].map((name) => `${name} InSync`).sort())
        const records = groupsIn(world, organisation.group).map(({ name, description, managedBy }) => `${name} ${description} ${managedBy}`)
        expect(records.sort()).toEqual([...wanted].map(([name, { description }]) => `${name} ${description} ${clusterId}/${namespace}/${name}`).sort())
      }, longTimeouts)
      // A person's own write and the controller's status for each change; finalizer and annotation once.
      const excess = [...wanted].flatMap(([name, { changes }]) => {
        const seen = Math.max(0, ...[...versions].filter(([key]) => key.startsWith(`${name} `)).map(([, count]) => count))
        return seen > 0 && seen <= 2 * changes + 4 ? [] : [`${name}: ${seen} versions for ${changes} changes`]
      })
      expect(excess).toEqual([])
      const most = Math.max(
        ...[...wanted].map(
          ([name, { changes }]) => [...versions].filter(([key]) => key.startsWith(`${name} `)).reduce((sum, [, count]) => sum + count, 0) / changes,
        ),
      )
      process.stdout.write(`${kills} kills, ${versions.size} objects, ${wanted.size} left: at most ${most.toFixed(1)} versions per change\n`)
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'the leader is killed: another takes over within 15 s',
    async () => {
      const { world, start } = await install()
      const organisation = await world.organisation()
      const namespace = await world.namespace(organisation)
      const leader = await start()
      await world.put('group', namespace, 'before', { parentRef: { uid: organisation.group } })
      await world.until('group', namespace, 'before', 'InSync')
      await start()
      const killedAt = performance.now()
      await leader.end('SIGKILL')
      await world.put('group', namespace, 'after', { parentRef: { uid: organisation.group } })
      await world.until('group', namespace, 'after', 'InSync')
      const handoverMs = Math.round(performance.now() - killedAt)
      process.stdout.write(`handover after kill -9: ${handoverMs} ms\n`)
      expect(handoverMs).toBeLessThan(15_000)
    },
    timeoutUnlessSoaking(300_000),
  )

  test(
    'the leader is asked to stop: another takes over at once',
    async () => {
      const { world, start } = await install()
      const organisation = await world.organisation()
      const namespace = await world.namespace(organisation)
      const leader = await start()
      await world.put('group', namespace, 'before', { parentRef: { uid: organisation.group } })
      await world.until('group', namespace, 'before', 'InSync')
      await start()
      const { code } = await leader.end('SIGTERM')
      const stoppedAt = performance.now()
      await world.put('group', namespace, 'after', { parentRef: { uid: organisation.group } })
      await world.until('group', namespace, 'after', 'InSync')
      expect({ code, handoverMs: performance.now() - stoppedAt }).toSatisfy(
        (ending: { code: number; handoverMs: number }) => ending.code === 0 && ending.handoverMs < 6_000,
      )
    },
    timeoutUnlessSoaking(300_000),
  )
})
