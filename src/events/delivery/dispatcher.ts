import { errorText } from '../../base/error-text.ts'
import { Alarm, untilAborted } from '../../base/timing.ts'
import { rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import { outboxTimeMs } from '../../engine/log/outbox-keys.ts'
import { deadLettersLimit, limitsOf, mebibyte } from '../../engine/quota/limits.ts'
import type { Services } from '../../engine/services.ts'
import type { LogEntry } from '../../engine/log/log-index.ts'
import type { EventLog } from '../../engine/log/event-log.ts'
import { pagesOf } from '../../store/pages.ts'
import type { Store } from '../../store/store.ts'
import { recordKey } from '../../store/keys.ts'
import { failedPrefix, failedPrefixOf, progressPrefix, redeliveryPrefix } from '../records/progress.ts'
import { secretsPrefix } from '../records/webhook-secrets.ts'
import { apiTypePrefix } from '../records/event-types.ts'
import { CopyRoom } from './failed-deliveries.ts'
import { SubscriptionWorker, type DeliveryObserver, type WorkerContext } from './subscription-worker.ts'
import { WaitingSlots } from './waiting-slots.ts'
import { WorkersByGroup } from './workers-by-group.ts'

/** Type of the event for an update, pause or resumption of a subscription. */
const updatedType = `${apiTypePrefix}events.subscription.updated.v1`
/** Maximum number of concurrent deliveries for one organisation, and for all together. */
const deliverySlots = { each: 64, all: 256 }
const restartMs = 1_000
const observeEveryMs = 5_000

/** Receives the dispatcher's measurements, for metrics. */
export interface DispatchObserver extends DeliveryObserver {
  /**
   * Called every few seconds while this process delivers events, and with zeros when it stops. `failing` is the number of failing
   * subscriptions.
   */
  state(state: { readonly failing: number; readonly oldestWaitingMs: number }): void
}

/** Dependencies of a dispatcher. */
export interface DispatcherOptions extends Pick<WorkerContext, 'requestOf' | 'standardRequestOf' | 'send'> {
  readonly services: Services
  readonly observer?: DispatchObserver
}

/**
 * Delivers the events of all subscriptions, with one worker for each. Only one process, the leader, runs it at a time. If the process
 * ends, events whose delivery was not recorded are delivered again (docs/spec/events.md#delivery).
 */
export class Dispatcher {
  readonly #options: DispatcherOptions
  readonly #workers = new Map<Uid, { readonly worker: SubscriptionWorker; readonly ended: Promise<void>; readonly stop: AbortController }>()
  readonly #byGroup = new WorkersByGroup()

  constructor(options: DispatcherOptions) {
    this.#options = options
  }

  /** Delivers events until `signal` aborts. Rejects with StoreError or the signal's reason, after all workers have stopped. */
  async run(signal: AbortSignal): Promise<void> {
    const { services, observer, requestOf, standardRequestOf, send } = this.#options
    const { log, ended: logEnded, release } = await services.eventLog.acquire(signal)
    const slots = new WaitingSlots(deliverySlots)
    const forgetRecent = services.recentDeliveries.begin()
    this.#byGroup.startAfter(log.last)
    const copies = new CopyRoom((root) => (limitsOf(services.cache.tables, root)?.[deadLettersLimit] ?? Infinity) * mebibyte)
    const takeSlot: WorkerContext['takeSlot'] = (root, end) => slots.take(root, end)
    const context: WorkerContext = { services, log, observer, requestOf, standardRequestOf, send, takeSlot, copies }
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    const start = (uid: Uid): void => this.#start(uid, context, either)
    const { cache } = services
    const forget = [
      log.onAppend((entry) => this.#appended(entry, either)),
      cache.onRecord((kind, old, record) => {
        // Its status decides whether events of the organisation are delivered.
        if (kind === 'Group' && record !== undefined && rootOf(record.uid) === record.uid) this.#wake(record.uid)
        if (kind !== 'Subscription') return
        if (record !== undefined) start(record.uid)
        else if (old !== undefined) void this.#stopped(old.uid, either)
      }),
      cache.onReset(() => this.#startAll(start)),
    ]
    const timer = setInterval(() => this.#observe(log), observeEveryMs)
    try {
      this.#startAll(start)
      await removeOrphans(services, either)
      await untilAborted(logEnded, either)
    } finally {
      release()
      clearInterval(timer)
      for (const end of forget) end()
      ended.abort(new Error('the dispatcher ended'))
      await Promise.allSettled([...this.#workers.values()].map((running) => running.ended))
      forgetRecent()
      observer?.state({ failing: 0, oldestWaitingMs: 0 })
    }
  }

  #startAll(start: (uid: Uid) => void): void {
    for (const record of this.#options.services.cache.tables.table('Subscription').records()) start(record.uid)
  }

  #wake(root: Uid): void {
    for (const [uid, { worker }] of this.#workers) if (rootOf(uid) === root) worker.wake()
  }

  /** Wakes the workers of subscriptions that want the event. */
  #appended(entry: LogEntry, signal: AbortSignal): void {
    const { type, subject, revision } = entry
    if (type === updatedType) void this.#changed(trustedUid(subject), revision, signal)
    this.#byGroup.offer(entry)
  }

  /** Called after a change of a subscription. Once this process has read the change, its worker continues at once with the new settings. */
  async #changed(uid: Uid, revision: number, signal: AbortSignal): Promise<void> {
    const { cache, log } = this.#options.services
    try {
      // a cast: the revision is of the same store
      await cache.reached(revision as Parameters<typeof cache.reached>[0], signal)
    } catch (error) {
      if (!signal.aborted) log.debug('the change of a subscription is not in memory yet', { subscription: uid, error: errorText(error) })
    }
    this.#workers.get(uid)?.worker.changed()
  }

  #start(uid: Uid, context: WorkerContext, signal: AbortSignal): void {
    const running = this.#workers.get(uid)
    if (running !== undefined) {
      running.worker.recordChanged()
      this.#byGroup.changed(running.worker)
      return
    }
    const worker = new SubscriptionWorker(uid, context)
    this.#byGroup.add(worker)
    // Not AbortSignal.any(), whose signals take much longer to read.
    const stop = new AbortController()
    const onAbort = (): void => stop.abort(signal.reason)
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
    const ended = this.#keep(worker, stop.signal).finally(() => {
      signal.removeEventListener('abort', onAbort)
      this.#workers.delete(uid)
      this.#byGroup.remove(worker)
    })
    this.#workers.set(uid, { worker, ended, stop })
  }

  /** Runs a worker until `signal` aborts. If the store fails, waits and starts the worker again. Never rejects. */
  async #keep(worker: SubscriptionWorker, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options.services
    while (!signal.aborted) {
      try {
        await worker.run(signal)
      } catch (error) {
        if (signal.aborted) return
        log.warn('deliveries of a subscription start again', { subscription: worker.uid, error: errorText(error) })
        await new Alarm().until(clock.now() + restartMs, { clock, signal })
      }
    }
  }

  /** Called after the removal of a subscription. Stops its worker and removes its stored deliveries. */
  async #stopped(uid: Uid, signal: AbortSignal): Promise<void> {
    const running = this.#workers.get(uid)
    running?.stop.abort(new Error('the subscription was removed'))
    await running?.ended
    const { services } = this.#options
    services.recentDeliveries.forget(uid)
    try {
      await removeFailed(services.store, uid, signal)
    } catch (error) {
      // The next leader removes them.
      if (!signal.aborted) services.log.warn('failed deliveries of a removed subscription are left', { subscription: uid, error: errorText(error) })
    }
  }

  #observe(log: EventLog): void {
    const { observer, services } = this.#options
    if (observer === undefined) return
    const workers = [...this.#workers.values()].map(({ worker }) => worker)
    const waits = workers.map((worker) => worker.oldestWaiting(log)).filter((entry) => entry !== undefined)
    const nowMs = services.clock.now()
    const oldestMs = Math.min(nowMs, ...waits.map(({ key }) => outboxTimeMs(key)))
    observer.state({ failing: workers.filter(({ isFailing }) => isFailing).length, oldestWaitingMs: nowMs - oldestMs })
  }
}

const pageEntries = 100

/** Removes the stored failed deliveries of a subscription, unless the store still has its record. */
async function removeFailed(store: Store, uid: Uid, signal: AbortSignal): Promise<void> {
  for await (const entries of pagesOf(store, { prefix: failedPrefixOf(uid), limit: pageEntries }, signal)) {
    await removeOf(store, uid, { keys: entries.map(({ key }) => key), signal })
  }
}

/**
 * Removes keys only if the store has no record of the subscription. The cache does not decide this, since it lacks records that cannot be
 * read.
 */
async function removeOf(store: Store, uid: Uid, { keys, signal }: { keys: readonly string[]; signal: AbortSignal }): Promise<void> {
  const guards = [{ kind: 'absent', key: recordKey('Subscription', uid) } as const]
  await store.transact({ guards, writes: keys.map((key) => ({ kind: 'delete', key })) }, signal)
}

/**
 * Removes the stored deliveries of subscriptions that no longer exist. They were removed with their group, or while no process delivered
 * events.
 */
async function removeOrphans({ store, cache }: Services, signal: AbortSignal): Promise<void> {
  for (const [prefix, end] of [
    [progressPrefix, undefined],
    [secretsPrefix, undefined],
    [redeliveryPrefix, undefined],
    [failedPrefix, ':'],
  ] as const) {
    for await (const entries of pagesOf(store, { prefix, limit: pageEntries }, signal)) {
      for (const { key } of entries) {
        const uid = trustedUid(key.slice(prefix.length).split(end ?? '\0', 1)[0] ?? '')
        if (cache.tables.get('Subscription', uid) === undefined) await removeOf(store, uid, { keys: [key], signal })
      }
    }
  }
}
