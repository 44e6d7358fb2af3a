import { expect, vi } from 'vitest'
import { pullTokens } from '../../src/server/controller-role.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import type { Clock } from '../../src/base/runtime.ts'
import type { Uid } from '../../src/base/uid.ts'
import { createKubeClient, type KubeClient } from '../../src/kubernetes/client/kube-client.ts'
import { startController, type Controller, type ControllerObserver } from '../../src/kubernetes/controller.ts'
import type { PlatformObject } from '../../src/kubernetes/platform-object.ts'
import type { KubeApi, ObjectDraft, ObjectRef, ObjectType } from '../../src/kubernetes/kube-api.ts'
import { objectKinds } from '../../src/kubernetes/object-kinds.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import type { MirrorSettings } from '../../src/kubernetes/world.ts'
import type { Timers } from '../../src/base/timing.ts'
import type { WorkQueueObserver } from '../../src/kubernetes/runtime/work-queue.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { freshName, makeOrganisation, startTestServer, type Organisation, type TestServer, type TestServerOptions } from '../support/test-server.ts'
import type { EtcdSpace } from '../support/parts/etcd.ts'
import type { KubeOptions } from '../support/parts/kubernetes/kube.ts'
import { soakFactor } from '../soak/factor.ts'
import { startTcpProxy, type TcpProxy } from '../support/parts/tcp-proxy.ts'
import { startObjectApi, type ObjectApi } from './object-api.ts'

/** The kinds that tests apply. */
export type TestType = 'group' | 'identity' | 'role' | 'roleBinding' | 'repo' | 'subscription'

/** The cluster's name in the owner of records. */
export const clusterId = 'cluster-1'

/** A running controller between a real API server and a whole Taproot server. */
export interface ControllerWorld {
  readonly objects: ObjectApi
  readonly server: TestServer
  readonly api: KubeClient
  /** The network between controllers and the Kubernetes API, if the world is `proxied`. */
  readonly network: TcpProxy
  /** Writing calls of all controllers to the API server in order, as `<method> <kind> <namespace>/<name>`. */
  readonly writes: readonly string[]
  /** Creates a new namespace, with a grant unless `grant` is false. */
  namespace(organisation: Pick<Organisation, 'group'>, grant?: Readonly<Record<string, unknown>> | false): Promise<string>
  /** Applies an object like a person. */
  put(type: TestType, namespace: string, name: string, spec: Readonly<Record<string, unknown>>, metadata?: Partial<ObjectDraft['metadata']>): Promise<void>
  /** Returns the object in the API server. Throws if it is gone. */
  object(type: TestType, namespace: string, name: string): Promise<PlatformObject>
  /** Waits until the object's Ready condition has this reason for its newest generation. */
  until(type: TestType, namespace: string, name: string, reason: string): Promise<PlatformObject>
  gone(type: TestType, namespace: string, name: string): Promise<void>
  /** Returns the record of an object's uid. */
  record(kind: string, uid: string | undefined): CachedRecord | undefined
  organisation(): Promise<Organisation>
  /** Starts one more controller. The first runs from the beginning. */
  startController(): RunningController
  /** Stops all controllers, so that no change is processed. */
  stopControllers(): Promise<void>
  stop(): Promise<void>
}

/** One controller, like that of a process. */
export interface RunningController {
  readonly controller: Controller
  /** Waits until it leads, has processed every object and record, and has no work due. */
  settled(): Promise<void>
  /** Waits until it has made an attempt, successful or not. */
  attempted(): Promise<void>
  stop(): Promise<void>
}

const silent = (): undefined => undefined
const queue = { depth: silent, started: silent, finished: silent, retry: silent }

/** An observer that ignores everything. */
export const noObserver: ControllerObserver = {
  abandoned: silent,
  reconciled: silent,
  leading: silent,
  objects: queue,
  mirrors: queue,
  pullSecrets: queue,
  grants: queue,
  informers: { state: silent, listed: silent },
  eventsDropped: silent,
  unmirrored: silent,
}

/** Creates an observer that knows whether everything was processed. */
function watchfulObserver(): { observer: ControllerObserver; isSettled: () => boolean; hasStarted: () => boolean } {
  const counts = { waiting: 0, underWork: 0, started: 0, begun: false }
  const counting = (): WorkQueueObserver => {
    let waiting = 0
    return {
      ...queue,
      depth(keys) {
        counts.waiting += keys - waiting
        waiting = keys
        counts.begun ||= keys > 0
      },
      started() {
        counts.underWork += 1
        counts.started += 1
      },
      finished: () => void (counts.underWork -= 1),
    }
  }
  return {
    observer: { ...noObserver, objects: counting(), mirrors: counting() },
    hasStarted: () => counts.started > 0,
    isSettled: () => counts.begun && counts.waiting === 0 && counts.underWork === 0,
  }
}

/** Time limit and interval of waits. */
export const polling = { timeout: 120_000, interval: 50 }

function writing(api: KubeClient, wrote: (call: string) => Promise<void> | undefined): KubeClient {
  const counted = new Set(['create', 'replace', 'apply', 'patch', 'delete'])
  return new Proxy(api, {
    get(target, name, receiver) {
      const member: unknown = Reflect.get(target, name, receiver)
      if (typeof member !== 'function') return member
      return (...args: unknown[]): unknown => {
        const call = (): unknown => Reflect.apply(member, target, args)
        const before = counted.has(String(name)) ? wrote(callOf(String(name), args)) : undefined
        return before === undefined ? call() : before.then(call)
      }
    },
  })
}

function callOf(method: string, [type, target]: readonly unknown[]): string {
  // Every writing method of the port takes a type, and a reference or a draft.
  const { kind } = type as ObjectType
  const { namespace = '', name } = target as ObjectRef
  const { metadata = { namespace, name } } = target as Partial<ObjectDraft>
  return `${method} ${kind} ${metadata.namespace ?? ''}/${metadata.name}`
}

/** Options of a world. */
export interface WorldOptions {
  readonly store?: TestServerOptions['store']
  /** The etcd of the store; that of the worker if absent and needed. */
  readonly etcd?: EtcdSpace
  readonly mirror?: Partial<MirrorSettings>
  /** Options of its own Kubernetes API; that of the worker if absent. */
  readonly kube?: KubeOptions
  /** `TAPROOT_*` settings of the server. */
  readonly env?: Readonly<Record<string, string>>
  /** Called with each write of a controller to the Kubernetes API; the write waits for a returned promise. */
  readonly beforeWrite?: (call: string) => Promise<void> | undefined
  /** The clock of server and controllers; the process's if absent. */
  readonly clock?: Clock
  /** The timers of the controllers; the process's if absent. */
  readonly timers?: Timers
  /** Returns the token with which controllers call the Kubernetes API. If absent, they are administrators. */
  readonly controllerToken?: (objects: ObjectApi) => Promise<string>
  /** False if the controllers may not write Secrets. */
  readonly writesSecrets?: boolean
  /** True if controllers reach the Kubernetes API through `network`; `objects`: everything except the Lease. */
  readonly proxied?: boolean | 'objects'
}

/** Starts a Kubernetes API with the kinds of crds/, a Taproot server and a controller. */
export async function startControllerWorld(options: WorldOptions = {}): Promise<ControllerWorld> {
  const objects = await startObjectApi(options.kube)
  const server = await startTestServer({
    store: options.store ?? 'sqlite',
    env: options.env ?? {},
    ...(options.etcd !== undefined && { etcd: options.etcd }),
    ...(options.clock !== undefined && { clock: options.clock }),
  })
  const network = await startTcpProxy(objects.kube.apiserver.port)
  const { server: direct, caPem, token } = objects.kube.access
  const client = (url: string, by = token): KubeClient =>
    createKubeClient({
      endpoint: { from: 'token', server: url, ca: caPem, token: by },
      userAgent: 'taproot-test',
      random: systemRandom,
      rate: { perSecond: 1_000, burst: 1_000 },
    })
  const api = client(direct)
  const through = `https://127.0.0.1:${network.port}`
  const url = options.proxied === undefined || options.proxied === false ? direct : through
  const writes: string[] = []
  const controllerToken = await options.controllerToken?.(objects)
  const working = writing(client(url, controllerToken), (call) => {
    writes.push(call)
    return options.beforeWrite?.(call)
  })
  const leaseApi = client(options.proxied === 'objects' ? direct : url, controllerToken)
  const mirror = { enabled: false, namespace: 'default', rootGroups: [], limit: 10_000, ...options.mirror }
  const { services } = server.running.engine
  const signal = AbortSignal.timeout(600_000 * soakFactor)
  const running = new Set<RunningController>()
  const begin = (): RunningController => {
    const stopping = new AbortController()
    const { observer, isSettled, hasStarted } = watchfulObserver()
    const controller = startController(
      {
        api: working,
        leaseApi,
        services,
        cluster: { id: clusterId, issuer: 'https://kubernetes.default.svc.cluster.local' },
        mirror,
        lease: { namespace: 'default', name: 'taproot-controller' },
        instance: freshName('controller'),
        clock: options.clock ?? systemClock,
        random: systemRandom,
        log: services.log,
        auditLog: { record: (line) => services.log.info('audit', { audit: true, ...line }) },
        ...(options.writesSecrets !== false && { pullSecrets: pullTokens({ config: server.config, tokens: server.running.signIn.tokens }) }),
        observer,
        ...(options.timers !== undefined && { timers: options.timers }),
      },
      stopping.signal,
    )
    const started = {
      controller,
      attempted: () => vi.waitFor(() => expect(hasStarted()).toBe(true), polling),
      settled: () => vi.waitFor(() => expect(isSettled()).toBe(true), polling),
      async stop() {
        stopping.abort(new Error('stopped'))
        await controller.ended
        running.delete(started)
      },
    }
    running.add(started)
    return started
  }
  const stopControllers = async (): Promise<void> => void (await Promise.all([...running].map((one) => one.stop())))
  begin()
  const object = async (type: TestType, namespace: string, name: string): Promise<PlatformObject> => {
    const found = await api.get(objectTypes[type], { namespace, name }, signal)
    if (found === undefined) throw new Error(`no ${type} ${namespace}/${name}`)
    return found as PlatformObject
  }
  return {
    objects,
    server,
    api,
    network,
    object,
    writes,
    async namespace({ group }, grant = {}) {
      const name = freshName('ns')
      await api.create(objectTypes.namespace, { metadata: { name, labels: { tenant: name } } }, signal)
      if (grant !== false) await api.create(objectTypes.grant, { metadata: { name }, spec: { ...grantOf(name, group), ...grant } }, signal)
      return name
    },
    async put(type, namespace, name, spec, metadata = {}) {
      await asPerson(api, type, { metadata: { namespace, name, ...metadata }, spec }, signal)
    },
    until: (type, namespace, name, reason) =>
      vi.waitFor(async () => {
        const found = await object(type, namespace, name)
        const ready = found.status?.conditions?.find((condition) => condition.type === 'Ready')
        expect({ reason: ready?.reason, message: ready?.message, generation: found.status?.observedGeneration }).toMatchObject({
          reason,
          generation: found.metadata.generation,
        })
        return found
      }, polling),
    gone: (type, namespace, name) => vi.waitFor(async () => expect(await api.get(objectTypes[type], { namespace, name }, signal)).toBeUndefined(), polling),
    record: (kind, uid) => services.cache.tables.get(kind, uid ?? ''),
    organisation: () => makeOrganisation(server),
    startController: begin,
    stopControllers,
    async stop() {
      await stopControllers()
      await Promise.all([api.close(), working.close(), leaseApi.close()])
      await network.close()
      await server.stop()
      await objects.stop()
    },
  }
}

/** Returns a grant of everything in a group to a namespace. */
export function grantOf(namespace: string, groupUid: string): Readonly<Record<string, unknown>> {
  return {
    namespaceSelector: { matchNames: [namespace] },
    groupUid,
    allowedKinds: Object.values(objectKinds).map(({ type }) => type.kind),
    maxRole: { builtIn: 'owner' },
  }
}

/** Creates the object, or replaces its spec. */
async function asPerson(api: KubeApi, type: TestType, draft: ObjectDraft, signal: AbortSignal): Promise<void> {
  const { name, namespace } = draft.metadata
  const ref = { name, ...(namespace === undefined ? {} : { namespace }) }
  const found = await api.get(objectTypes[type], ref, signal)
  if (found === undefined) await api.create(objectTypes[type], draft, signal)
  else await api.patch(objectTypes[type], ref, { spec: draft.spec }, signal)
}

/** Returns the uid of a record that must exist. */
export function uidOf(object: PlatformObject): Uid {
  const uid = object.status?.uid
  if (uid === undefined) throw new Error(`${object.metadata.name} has no record`)
  return uid as Uid
}
