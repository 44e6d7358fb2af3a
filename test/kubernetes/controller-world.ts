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

/** The cluster's name in what records say of their owner. */
export const clusterId = 'cluster-1'

/** A running controller between a real API server and a whole Taproot server. */
export interface ControllerWorld {
  readonly objects: ObjectApi
  readonly server: TestServer
  readonly api: KubeClient
  /** Between controllers and the Kubernetes API, where the world is `proxied`. */
  readonly network: TcpProxy
  /** The calls of all controllers that were to change something at the API server, as `<method> <kind> <namespace>/<name>`, in their order. */
  readonly writes: readonly string[]
  /** Creates a namespace of its own, with a grant unless `grant` is false. */
  namespace(organisation: Pick<Organisation, 'group'>, grant?: Readonly<Record<string, unknown>> | false): Promise<string>
  /** Applies an object as a person does. */
  put(type: TestType, namespace: string, name: string, spec: Readonly<Record<string, unknown>>, metadata?: Partial<ObjectDraft['metadata']>): Promise<void>
  /** The object as the API server has it; throws where it is gone. */
  object(type: TestType, namespace: string, name: string): Promise<PlatformObject>
  /** Waits until the object's Ready condition is of this reason, and of its newest generation. */
  until(type: TestType, namespace: string, name: string, reason: string): Promise<PlatformObject>
  gone(type: TestType, namespace: string, name: string): Promise<void>
  /** The record that the object says it has. */
  record(kind: string, uid: string | undefined): CachedRecord | undefined
  organisation(): Promise<Organisation>
  /** One more controller; the first runs from the beginning. */
  startController(): RunningController
  /** Stops all controllers: then nothing follows anything. */
  stopControllers(): Promise<void>
  stop(): Promise<void>
}

/** One controller process's worth of controller. */
export interface RunningController {
  readonly controller: Controller
  /** Waits until it leads, has looked at every object and record that there is, and has nothing left to do at once. */
  settled(): Promise<void>
  /** Waits until it has tried to deal with something, whether that went well or not. */
  attempted(): Promise<void>
  stop(): Promise<void>
}

const silent = (): undefined => undefined
const queue = { depth: silent, started: silent, finished: silent, retry: silent }

/** An observer that looks away. */
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

/** An observer that knows whether all was looked at. */
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

/** How long what a test waits for may take. */
export const polling = { timeout: 20_000, interval: 50 }

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
  // Every method of the port that writes takes a type, and a reference or a draft.
  const { kind } = type as ObjectType
  const { namespace = '', name } = target as ObjectRef
  const { metadata = { namespace, name } } = target as Partial<ObjectDraft>
  return `${method} ${kind} ${metadata.namespace ?? ''}/${metadata.name}`
}

/** What a world is made of. */
export interface WorldOptions {
  readonly store?: TestServerOptions['store']
  /** The etcd of the store; that of the worker where absent and needed. */
  readonly etcd?: EtcdSpace
  readonly mirror?: Partial<MirrorSettings>
  /** A Kubernetes API of its own, and what more it has; that of the worker where absent. */
  readonly kube?: KubeOptions
  /** `TAPROOT_*` settings of the server. */
  readonly env?: Readonly<Record<string, string>>
  /** Called with each write of a controller to the Kubernetes API; the write waits for a returned promise. */
  readonly beforeWrite?: (call: string) => Promise<void> | undefined
  /** The server's and the controllers'; the process's where absent. */
  readonly clock?: Clock
  /** The controllers' own; the process's where absent. */
  readonly timers?: Timers
  /** Tells the token with which controllers call the Kubernetes API: they are administrators where absent. */
  readonly controllerToken?: (objects: ObjectApi) => Promise<string>
  /** False if the controllers may not write Secrets. */
  readonly writesSecrets?: boolean
  /** True where controllers reach the Kubernetes API through `network`; `objects`: all of it but the Lease. */
  readonly proxied?: boolean | 'objects'
}

/** Starts a Kubernetes API with our kinds, a Taproot server and a controller. */
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

/** All that a namespace may be granted in a group. */
export function grantOf(namespace: string, groupUid: string): Readonly<Record<string, unknown>> {
  return {
    namespaceSelector: { matchNames: [namespace] },
    groupUid,
    allowedKinds: Object.values(objectKinds).map(({ type }) => type.kind),
    maxRole: { builtIn: 'owner' },
  }
}

/** Creates the object, or puts its spec in place of the one that it has. */
async function asPerson(api: KubeApi, type: TestType, draft: ObjectDraft, signal: AbortSignal): Promise<void> {
  const { name, namespace } = draft.metadata
  const ref = { name, ...(namespace === undefined ? {} : { namespace }) }
  const found = await api.get(objectTypes[type], ref, signal)
  if (found === undefined) await api.create(objectTypes[type], draft, signal)
  else await api.patch(objectTypes[type], ref, { spec: draft.spec }, signal)
}

/** A record's uid, which a test knows to be there. */
export function uidOf(object: PlatformObject): Uid {
  const uid = object.status?.uid
  if (uid === undefined) throw new Error(`${object.metadata.name} has no record`)
  return uid as Uid
}
