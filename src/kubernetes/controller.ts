import type { Log } from '../base/log.ts'
import { fractionOf, type Clock, type Random } from '../base/runtime.ts'
import type { Services } from '../engine/services.ts'
import { createMirror } from './mirror/mirror.ts'
import { createGrantStatuses } from './grant-status.ts'
import { recordKinds, rowOf, type RecordKind } from './object-kinds.ts'
import type { KubeApi } from './kube-api.ts'
import { objectTypes } from './object-types.ts'
import { createEventRecorder } from './runtime/events.ts'
import { createInformer, type Informer, type InformerObserver } from './runtime/informer.ts'
import { lead, type LeaseLeadership } from './runtime/leader.ts'
import { pause, systemTimers, type Timers } from '../base/timing.ts'
import { createWorkQueue, type WorkQueueObserver, type WorkResult } from './runtime/work-queue.ts'
import { ObjectClaims } from './reconcile/claims.ts'
import { GrantsByNamespace } from './reconcile/grants-by-namespace.ts'
import { Vanished } from './reconcile/vanished.ts'
import { createReconciler, type ReconcileObserver } from './reconcile/reconciler.ts'
import { createPullSecrets, type PullSecretOptions } from './pull-secret.ts'
import type { Cluster, MirrorSettings, World } from './world.ts'

/** How often everything is looked at again, in milliseconds; up to a tenth more, so that not all installations do so at once. */
const resyncMs = 600_000
/** Each queue's workers: what they wait for is the store and the API server. */
const workers = 16

/** Told what the controller does, for the metrics. */
export interface ControllerObserver extends ReconcileObserver {
  leading(leads: boolean): void
  readonly objects: WorkQueueObserver
  readonly mirrors: WorkQueueObserver
  readonly pullSecrets: WorkQueueObserver
  readonly grants: WorkQueueObserver
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
  /** Absent where no Secrets are kept for service accounts. */
  readonly pullSecrets?: Pick<PullSecretOptions, 'registryHost' | 'mint'>
  /** Of this process alone. */
  readonly instance: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly auditLog: Log
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
  const { leaseApi, lease, instance, clock, random, log } = options
  const returns = createReturns(options)
  const observer: ControllerObserver = { ...options.observer, informers: returns.informers }
  const world = createWorld({ ...options, observer })
  const accounts = options.pullSecrets === undefined ? undefined : informerOf({ ...options, observer }, objectTypes.serviceAccount)
  const informers = [...Object.values(world.objects), world.grants, world.namespaces, ...(accounts === undefined ? [] : [accounts])]
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
      if (!leadership.signal.aborted) await work(options, { world, accounts, onReturn: returns.onReturn }, leadership)
    },
    signal,
  )
  const running = [campaign, world.events.run(signal), ...informers.map((informer) => informer.run(signal))]
  return { allSynced, ended: Promise.all(running).then(() => undefined) }
}

function informerOf({ api, log, random, observer, timers }: ControllerOptions, type: Informer['type']): Informer {
  return createInformer({ api, type, log, random, observer: observer.informers, ...(timers === undefined ? {} : { timers }) })
}

function createWorld(options: ControllerOptions): World {
  const { api, services, cluster, mirror, instance, clock, random, log, auditLog, observer, timers = systemTimers } = options
  const informer = (type: Informer['type']): Informer => informerOf(options, type)
  // Every kind of the table gets its informer.
  const objects = Object.fromEntries(recordKinds.map((kind) => [kind, informer(rowOf(kind).type)])) as Record<RecordKind, Informer>
  const [grants, namespaces] = [informer(objectTypes.grant), informer(objectTypes.namespace)]
  const onDropped = (count: number): void => observer.eventsDropped(count)
  return {
    services,
    api,
    cluster,
    mirror,
    auditLog,
    clock,
    objects,
    grants,
    namespaces,
    grantsByNamespace: new GrantsByNamespace(grants, namespaces),
    claims: new ObjectClaims(objects),
    vanished: new Vanished(objects),
    events: createEventRecorder({ api, controller: 'taproot.dev/controller', instance, clock, log, random, onDropped, timers }),
  }
}

/** What is kept in memory of the API server. */
interface Caches {
  readonly world: World
  /** Undefined where no Secrets are kept for service accounts. */
  readonly accounts: Informer | undefined
  readonly onReturn: Returns['onReturn']
}

/** Tells when the API server or the store answers again after an outage. */
interface Returns {
  readonly onReturn: (listener: () => void) => () => void
  /** Notes outages of the API server: every informer has to tell it of its states. */
  readonly informers: InformerObserver
}

function createReturns({ services, observer }: Pick<ControllerOptions, 'services' | 'observer'>): Returns {
  const listeners = new Set<() => void>()
  const unanswered = new Set<string>()
  return {
    onReturn: (listener) => {
      listeners.add(listener)
      const stop = services.replica.onReturn(listener)
      return () => {
        listeners.delete(listener)
        stop()
      }
    },
    informers: {
      listed: (type, objects) => observer.informers.listed(type, objects),
      state: (type, state) => {
        observer.informers.state(type, state)
        if (state.is === 'waiting' && state.error.fault === 'unavailable') unanswered.add(type.plural)
        if (state.is !== 'watching' || !unanswered.has(type.plural)) return
        // The first that hears from the server again speaks for all.
        unanswered.clear()
        for (const listener of listeners) listener()
      },
    },
  }
}

function whenAborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  if (signal.aborted) resolve()
  else signal.addEventListener('abort', () => resolve(), { once: true })
  return promise
}

/** One thing that the leader does: work on keys, what tells of them, and all that there are. Keys are `<what>/<namespace>/<name>`. */
interface ControllerJob {
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  watch(add: (key: string) => void): () => void
  keys(): Iterable<string>
  readonly observer: WorkQueueObserver
}

function jobsOf({ observer, pullSecrets }: ControllerOptions, { world, accounts }: Caches, leadership: LeaseLeadership): ControllerJob[] {
  const jobs: ControllerJob[] = [{ ...createReconciler(world, observer, () => leadership.held()), observer: observer.objects }]
  if (world.mirror.enabled) {
    const mirror = createMirror(world, (left) => observer.unmirrored(left))
    jobs.push({ ...mirror, observer: observer.mirrors })
  }
  jobs.push({ ...createGrantStatuses(world), observer: observer.grants })
  if (pullSecrets !== undefined && accounts !== undefined)
    jobs.push({ ...createPullSecrets({ world, accounts, ...pullSecrets }), observer: observer.pullSecrets })
  return jobs
}

/** Works as the leader until it is the leader no more. */
async function work(options: ControllerOptions, caches: Caches, leadership: LeaseLeadership): Promise<void> {
  const { random, log, timers = systemTimers } = options
  const running = jobsOf(options, caches, leadership).map(async (job) => {
    const queue = createWorkQueue({
      // What is begun after the Lease is lost is not begun at all.
      work: (key, signal) => (leadership.held() ? job.reconcile(key, signal) : Promise.resolve(undefined)),
      workers,
      groupOf: (key) => key.split('/')[1] ?? '',
      log,
      random,
      timers,
      observer: job.observer,
    })
    const add = (key: string): void => queue.add(key)
    const stops = [job.watch(add), caches.onReturn(() => queue.retryFailed())]
    await Promise.all([queue.run(leadership.signal), resync({ random, timers }, { job, add }, leadership.signal)])
    for (const stop of stops) stop()
  })
  await Promise.all(running)
}

/** Looks at everything, at first and again and again: what no event told of is found too. */
async function resync(
  by: { random: Random; timers: Timers },
  { job, add }: { job: ControllerJob; add: (key: string) => void },
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    for (const key of job.keys()) add(key)
    await pause(resyncMs * (1 + fractionOf(by.random) / 10), signal, by.timers)
  }
}
