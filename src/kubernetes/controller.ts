import type { AuditTrail } from '../base/audit-line.ts'
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

/** Interval of full resyncs, in milliseconds. Up to a tenth is added at random, so that installations do not resync at the same time. */
const resyncMs = 600_000
/** Number of workers for each queue. They mostly wait for the store and the API server. */
const workers = 16

/** Receives measurements of the controller, for metrics. */
export interface ControllerObserver extends ReconcileObserver {
  leading(leads: boolean): void
  readonly objects: WorkQueueObserver
  readonly mirrors: WorkQueueObserver
  readonly pullSecrets: WorkQueueObserver
  readonly grants: WorkQueueObserver
  readonly informers: InformerObserver
  eventsDropped(count: number): void
  /** Reports how many records have no mirror object because the limit is reached. */
  unmirrored(count: number): void
}

/** Options of a controller. */
export interface ControllerOptions {
  readonly api: KubeApi
  /** A separate client for the Lease, so that its calls never wait for others. */
  readonly leaseApi: KubeApi
  readonly services: Services
  readonly cluster: Cluster
  readonly mirror: MirrorSettings
  readonly lease: { readonly namespace: string; readonly name: string }
  /** Absent if the controller may not write Secrets. */
  readonly pullSecrets?: Pick<PullSecretOptions, 'registryHost' | 'mint'>
  /** Identifies this process; no other process has the same value. */
  readonly instance: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly auditLog: AuditTrail
  readonly observer: ControllerObserver
  /** Default: the process's timers. */
  readonly timers?: Timers
}

/** A running controller. */
export interface Controller {
  /** Resolves once all objects have been read, on the leader and on standbys. */
  readonly allSynced: Promise<void>
  /** Resolves after the signal given to `startController` has aborted, the work has ended and the Lease is released. Never rejects. */
  readonly ended: Promise<void>
}

/**
 * Starts the controller, which runs until `signal` aborts. The leader reconciles objects and records in both directions. A standby keeps
 * its caches current, so that it can take over at once.
 */
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
  // One informer for each kind in the table.
  const objects = Object.fromEntries(recordKinds.map((kind) => [kind, informer(rowOf(kind).type)])) as Record<RecordKind, Informer>
  const [grants, namespaces] = [informer(objectTypes.grant), informer(objectTypes.namespace)]
  const onDropped = (count: number): void => observer.eventsDropped(count)
  return {
    services,
    api,
    cluster,
    mirror,
    writesSecrets: options.pullSecrets !== undefined,
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

/** The informers that the controller uses. */
interface Caches {
  readonly world: World
  /** Undefined if no pull Secrets are kept for service accounts. */
  readonly accounts: Informer | undefined
  readonly onReturn: Returns['onReturn']
}

/** Detects when the API server or the store answers again after an outage. */
interface Returns {
  readonly onReturn: (listener: () => void) => () => void
  /** Observes outages of the API server. Every informer reports its states here. */
  readonly informers: InformerObserver
}

function createReturns({ services, observer }: Pick<ControllerOptions, 'services' | 'observer'>): Returns {
  const listeners = new Set<() => void>()
  const unanswered = new Set<string>()
  return {
    onReturn: (listener) => {
      listeners.add(listener)
      const stop = services.cache.onReturn(listener)
      return () => {
        listeners.delete(listener)
        stop()
      }
    },
    informers: {
      listed: (type, objects) => observer.informers.listed(type, objects),
      state: (type, state) => {
        observer.informers.state(type, state)
        if (state.is === 'waiting' && state.error.reason === 'unavailable') unanswered.add(type.plural)
        if (state.is !== 'watching' || !unanswered.has(type.plural)) return
        // One response proves that the server answers again for all informers.
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

/** A job of the leader: how to reconcile a key, which changes add keys, and the list of all keys. A key is `<kind>/<namespace>/<name>`. */
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

/** Runs all jobs of the leader until the leadership ends. */
async function work(options: ControllerOptions, caches: Caches, leadership: LeaseLeadership): Promise<void> {
  const { random, log, timers = systemTimers } = options
  const running = jobsOf(options, caches, leadership).map(async (job) => {
    const queue = createWorkQueue({
      // After the Lease is lost, no further work starts.
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

/** Adds all keys at the start, and then at intervals, to find changes that no event reported. */
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
