import type { Log } from '../core/log.ts'
import type { Clock, Random } from '../core/runtime.ts'
import type { Services } from '../resources/services.ts'
import { createMirror, type Mirror } from './down/mirror.ts'
import type { RecordKind } from './object-kinds.ts'
import type { KubeApi } from './port/kube-api.ts'
import { objectTypes } from './port/object-types.ts'
import { createEventRecorder } from './runtime/events.ts'
import { createInformer, type Informer, type InformerObserver } from './runtime/informer.ts'
import { lead, type Leadership } from './runtime/leader.ts'
import { pause, systemTimers, type Timers } from './runtime/timers.ts'
import { createWorkQueue, type WorkQueueObserver } from './runtime/work-queue.ts'
import { createReconciler, type ReconcileObserver, type Reconciler } from './up/reconciler.ts'
import { parseKey, recordKinds, rowOf, type Cluster, type MirrorSettings, type World } from './world.ts'

/** How often everything is looked at again, in milliseconds; up to a tenth more, so that not all installations do so at once. */
const resyncMs = 600_000
/** Both queues' workers: what they wait for is the store and the API server. */
const workers = 16

/** Told what the controller does, for the metrics. */
export interface ControllerObserver extends ReconcileObserver {
  leading(leads: boolean): void
  readonly objects: WorkQueueObserver
  readonly mirrors: WorkQueueObserver
  readonly informers: InformerObserver
  eventsDropped(count: number): void
  /** Records that are not shown for want of room. */
  unmirrored(count: number): void
}

/** What a controller is made of. */
export interface ControllerOptions {
  readonly api: KubeApi
  /** For the Lease alone: its calls wait for nobody else's. */
  readonly leaseApi: KubeApi
  readonly services: Services
  readonly cluster: Cluster
  readonly mirror: MirrorSettings
  readonly lease: { readonly namespace: string; readonly name: string }
  /** Of this process alone. */
  readonly instance: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly observer: ControllerObserver
  /** The process's own where absent. */
  readonly timers?: Timers
}

/** A running controller. */
export interface Controller {
  /** Resolves when all objects have been read once: a standby is ready too. */
  readonly allSynced: Promise<void>
  /** Resolves when the work has ended and the Lease is given back, once the signal that it was started with has aborted. Never rejects. */
  readonly ended: Promise<void>
}

/** Reconciles both ways while it leads, until `signal` aborts. Its caches are kept all the time, so that it takes over at once. */
export function startController(options: ControllerOptions, signal: AbortSignal): Controller {
  const { leaseApi, lease, instance, clock, random, log, observer } = options
  const world = createWorld(options)
  const informers = [...Object.values(world.objects), world.grants, world.namespaces]
  const allSynced = Promise.all(informers.map((informer) => informer.synced)).then(() => undefined)
  const campaign = lead(
    {
      api: leaseApi,
      lease,
      identity: instance,
      clock,
      log,
      random,
      onLeading: (leads) => observer.leading(leads),
      ...(options.timers === undefined ? {} : { timers: options.timers }),
    },
    async (leadership) => {
      await Promise.race([allSynced, whenAborted(leadership.signal)])
      if (!leadership.signal.aborted) await work(options, world, leadership)
    },
    signal,
  )
  const running = [campaign, world.events.run(signal), ...informers.map((informer) => informer.run(signal))]
  return { allSynced, ended: Promise.all(running).then(() => undefined) }
}

function createWorld(options: ControllerOptions): World {
  const { api, services, cluster, mirror, instance, clock, random, log, observer, timers } = options
  const timed = timers === undefined ? {} : { timers }
  const informer = (type: Informer['type']): Informer => createInformer({ api, type, log, random, observer: observer.informers, ...timed })
  // Every kind of the table gets its informer.
  const objects = Object.fromEntries(recordKinds.map((kind) => [kind, informer(rowOf(kind).type)])) as Record<RecordKind, Informer>
  const onDropped = (count: number): void => observer.eventsDropped(count)
  return {
    services,
    api,
    cluster,
    mirror,
    clock,
    objects,
    grants: informer(objectTypes.grant),
    namespaces: informer(objectTypes.namespace),
    events: createEventRecorder({ api, controller: 'taproot.dev/controller', instance, clock, log, random, onDropped, ...timed }),
  }
}

function whenAborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  if (signal.aborted) resolve()
  else signal.addEventListener('abort', () => resolve(), { once: true })
  return promise
}

/** Works as the leader until it is the leader no more. */
async function work(options: ControllerOptions, world: World, leadership: Leadership): Promise<void> {
  const { random, log, observer } = options
  const reconciler = createReconciler(world, observer)
  const mirror = world.mirror.enabled ? createMirror(world) : undefined
  const shared = {
    workers,
    log,
    random,
    groupOf: (key: string) => parseKey(key).namespace,
    ...(options.timers === undefined ? {} : { timers: options.timers }),
  }
  // What is begun after the Lease is lost is not begun at all.
  const whileLeading =
    (reconcile: Reconciler['reconcile']): Reconciler['reconcile'] =>
    (key, signal) =>
      leadership.held() ? reconcile(key, signal) : Promise.resolve(undefined)
  const objects = createWorkQueue({ ...shared, work: whileLeading((key, signal) => reconciler.reconcile(key, signal)), observer: observer.objects })
  const mirrors = createWorkQueue({
    ...shared,
    work: whileLeading((key, signal) => mirror?.reconcile(key, signal) ?? Promise.resolve(undefined)),
    observer: observer.mirrors,
  })
  const addObject = (key: string): void => objects.add(key)
  const addMirror = (key: string): void => mirrors.add(key)
  const stops = [reconciler.watch(addObject), mirror?.watch(addMirror)]
  try {
    await Promise.all([
      objects.run(leadership.signal),
      mirrors.run(leadership.signal),
      resync(options, { reconciler, mirror, addObject, addMirror }, leadership.signal),
    ])
  } finally {
    for (const stop of stops) stop?.()
  }
}

/** Looks at everything, at first and again and again: what no event told of is found too. */
async function resync(
  { timers = systemTimers, random, observer }: ControllerOptions,
  all: { reconciler: Reconciler; mirror: Mirror | undefined; addObject: (key: string) => void; addMirror: (key: string) => void },
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    for (const key of all.reconciler.keys()) all.addObject(key)
    for (const key of all.mirror?.keys() ?? []) all.addMirror(key)
    observer.unmirrored(all.mirror?.left ?? 0)
    await pause(timers, resyncMs * (1 + (random.bytes(1)[0] ?? 0) / 2550), signal)
  }
}
