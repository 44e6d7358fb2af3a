import type { AuditSegments } from '../audit/index.ts'
import { feedRequestPrefix } from '../catalogue/index.ts'
import { forgetGoneScanners, type ScanJob } from '../contents/index.ts'
import { errorText } from '../base/error-text.ts'
import { Alarm, backoffMs, pause, type Backoff } from '../base/timing.ts'
import { Expirer, expiredSorts, type ExpireCounts } from '../domains/expire.ts'
import { countUse } from '../domains/usage.ts'
import { forgetPending } from '../engine/membership.ts'
import { oneByOne } from '../engine/jobs/one-by-one.ts'
import type { Dispatcher } from '../events/index.ts'
import { forgetHeldNames } from '../iam/index.ts'
import { endExpiredSyncs, recountContent } from '../registry/index.ts'
import { createDelivery, type DeliveryOptions } from './delivery.ts'
import { createBackgroundMetrics, type BackgroundObserver } from './telemetry/background-metrics.ts'
import type { Engine } from './engine.ts'
import { cascadePrefix } from '../store/keys.ts'
import { StoreError, type Leadership } from '../store/store.ts'

/** Interval of key maintenance and of removing expired entries, in milliseconds. */
const maintainEveryMs = 10 * 60_000
/** Interval of garbage collection, in milliseconds. */
const collectEveryMs = 60 * 60_000
/** Interval at which the leader counts each organisation's data other than records, in milliseconds. The count reads all of that data. */
const countEveryMs = 60 * 60_000
/** Interval at which the leader looks for feeds that are due, in milliseconds. */
const feedsEveryMs = 60_000
/** Interval at which the active worker looks for images to read, in milliseconds. */
const contentsEveryMs = 1_000
/** Interval at which the active worker looks for tags whose vulnerabilities or life cycles changed, in milliseconds. */
const tagsEveryMs = 2_000
/** Interval at which the active worker forgets scanners that are not configured any more, in milliseconds. */
const forgetEveryMs = 60 * 60_000
const backoff: Backoff = { firstMs: 1_000, maxMs: 30_000 }
/**
 * How long a process that stops waits until its leadership is released, in milliseconds. If the store is unreachable, the lease must
 * expire anyway.
 */
const resignTimeoutMs = 1_000
/** Time after which every store has released a leadership that was given up, in milliseconds. */
const leaseLifeMs = 15_000

/** Work that the leader repeats. */
interface LeaderJob {
  readonly name: string
  readonly work: () => Promise<void>
  /** Time from the end of one run to the start of the next, in milliseconds. */
  readonly everyMs: number
  /** Ends the wait early, even the delay after a failure. */
  readonly alarm: Alarm
}

/** Dependencies that all jobs share. */
interface Background {
  readonly engine: Engine
  readonly observer: BackgroundObserver | undefined
  readonly dispatcher: Dispatcher | undefined
  readonly segments: AuditSegments | undefined
  /** One for each scanner. */
  readonly scans: readonly ScanJob[]
}

/** Repeats a job until `signal` aborts. A failure is logged, and the delay grows with each consecutive failure. */
async function keepDoing({ engine, observer }: Background, { name, work, everyMs, alarm }: LeaderJob, signal: AbortSignal): Promise<void> {
  const { clock, log } = engine.services
  let failures = 0
  while (!signal.aborted) {
    // Before the work, so that a change during the work starts another run.
    alarm.arm()
    try {
      await work()
      failures = 0
      await alarm.until(clock.now() + everyMs, { clock, signal })
    } catch (error) {
      if (signal.aborted) return
      observer?.failed(name)
      failures += 1
      const afterMs = backoffMs(backoff, failures)
      log.warn('background work failed and is tried again', { work: name, afterMs, error: errorText(error) })
      await alarm.within(afterMs, signal)
    }
  }
}

/** Maintains the keys of all kinds. If one kind fails, the others continue. */
async function maintainKeys({ signingKeys, eventKeys, pageKeys, registryKeys }: Engine, signal: AbortSignal): Promise<void> {
  const kinds = [signingKeys, eventKeys, pageKeys, ...(registryKeys === undefined ? [] : [registryKeys])]
  for (const outcome of await Promise.allSettled(kinds.map((keys) => keys.maintain(signal)))) {
    if (outcome.status === 'rejected') throw outcome.reason
  }
}

function report({ engine, observer }: Background, counts: ExpireCounts): void {
  for (const what of expiredSorts) observer?.expired(what, counts[what])
  if (expiredSorts.some((what) => counts[what] > 0)) engine.services.log.info('trimmed', counts)
}

async function maintainAudit(segments: AuditSegments, signal: AbortSignal): Promise<void> {
  while (await segments.maintain(signal)) signal.throwIfAborted()
}

/**
 * Runs the leader's jobs until `signal` aborts. Cascades start as soon as a deletion is marked, deliveries run all the time, and the other
 * jobs at intervals.
 */
async function lead(background: Background, signal: AbortSignal): Promise<void> {
  const { engine } = background
  const { store, cache, services } = engine
  const { clock } = services
  const marked = new Alarm()
  const forgetKeys = cache.onKey((key) => {
    if (key.startsWith(cascadePrefix)) marked.ring()
  })
  // A reload of the cache may contain deletion marks that the watch did not report.
  const forgetResets = cache.onReset(marked.ring)
  const expirer = new Expirer(store, { history: engine.history })
  const cascade = async (): Promise<void> => void (await services.cascader.finish(signal))
  const collect = async (): Promise<void> => {
    const collected = await engine.collector?.collect(signal)
    if (collected !== undefined && collected.manifests + collected.blobs > 0) services.log.info('garbage collection removed unused content', { ...collected })
  }
  const counts: readonly (() => Promise<unknown>)[] = [() => countUse(store, signal), () => recountContent(services, signal)]
  const count = (): Promise<void> => oneByOne(counts, (work) => work(), { signal })
  const endSyncs = async (): Promise<void> => {
    const ended = await endExpiredSyncs(services, signal)
    if (ended > 0) services.log.info('ended expired syncs of repos', { ended })
  }
  const expiries: readonly (() => Promise<unknown>)[] = [
    async () => report(background, await expirer.expire(clock.now(), signal)),
    () => forgetPending(services, signal),
    () => forgetHeldNames(services, signal),
  ]
  // This promise resolves only when the leadership ends.
  const { dispatcher, segments } = background
  const expire = (): Promise<void> => oneByOne(expiries, (work) => work(), { signal })
  try {
    await Promise.all([
      keepDoing(background, { name: 'sweep', work: cascade, everyMs: maintainEveryMs, alarm: marked }, signal),
      keepDoing(background, { name: 'trim', work: expire, everyMs: maintainEveryMs, alarm: new Alarm() }, signal),
      keepDoing(background, { name: 'count', work: count, everyMs: countEveryMs, alarm: new Alarm() }, signal),
      keepDoing(background, { name: 'syncs', work: endSyncs, everyMs: maintainEveryMs, alarm: new Alarm() }, signal),
      dispatcher === undefined
        ? undefined
        : keepDoing(background, { name: 'deliver', work: () => dispatcher.run(signal), everyMs: 0, alarm: new Alarm() }, signal),
      segments === undefined
        ? undefined
        : keepDoing(background, { name: 'audit', work: () => maintainAudit(segments, signal), everyMs: maintainEveryMs, alarm: new Alarm() }, signal),
      keepDoing(background, { name: 'collect', work: collect, everyMs: collectEveryMs, alarm: new Alarm() }, signal),
    ])
  } finally {
    forgetKeys()
    forgetResets()
  }
}

/** Runs the jobs of role `worker` until `signal` aborts. They may take long, and need much memory and disk space. */
async function doWork(background: Background, signal: AbortSignal): Promise<void> {
  const { feeds, contentsJob, vulnerabilityCounts, lifeCycles, cache } = background.engine
  const requested = new Alarm()
  const forget = cache.onKey((key) => {
    if (key.startsWith(feedRequestPrefix)) requested.ring()
  })
  // A reload of the cache may contain requests that the watch did not report.
  const forgetResets = cache.onReset(requested.ring)
  const unfollow = [vulnerabilityCounts.follow(), lifeCycles?.follow()]
  const count = (): Promise<void> => vulnerabilityCounts.run(signal)
  const scanners = new Set(background.scans.map(({ name }) => name))
  const forgetScanners = (): Promise<void> => forgetGoneScanners(background.engine.store, scanners, signal)
  try {
    await Promise.all([
      keepDoing(background, { name: 'counts', work: count, everyMs: tagsEveryMs, alarm: new Alarm() }, signal),
      lifeCycles === undefined
        ? undefined
        : keepDoing(background, { name: 'cycles', work: () => lifeCycles.run(signal), everyMs: tagsEveryMs, alarm: new Alarm() }, signal),
      keepDoing(background, { name: 'feeds', work: () => feeds.runDue(background.observer, signal), everyMs: feedsEveryMs, alarm: requested }, signal),
      contentsJob === undefined
        ? undefined
        : keepDoing(
            background,
            { name: 'contents', work: () => contentsJob.run(background.observer, signal, background.scans), everyMs: contentsEveryMs, alarm: new Alarm() },
            signal,
          ),
      keepDoing(background, { name: 'scanners', work: forgetScanners, everyMs: forgetEveryMs, alarm: new Alarm() }, signal),
      ...background.scans.map((job) =>
        keepDoing(background, { name: 'scans', work: () => job.run(background.observer, signal), everyMs: contentsEveryMs, alarm: new Alarm() }, signal),
      ),
    ])
  } finally {
    for (const end of unfollow) end?.()
    forget()
    forgetResets()
  }
}

/** A process waits for the leadership of this name and has it until it is lost. */
interface Candidacy {
  readonly name: 'leader' | 'worker'
  elected(elected: boolean): void
  run(signal: AbortSignal): Promise<void>
}

/** Waits for the leadership and runs its jobs until it is lost. A full etcd accepts no election. In that case every candidate removes expired data. */
async function candidate(background: Background, { name, elected, run }: Candidacy, signal: AbortSignal): Promise<void> {
  const { engine } = background
  const { store, services } = engine
  const leadership = await store.elect(name, signal).catch(async (error: unknown) => {
    if (error instanceof StoreError && error.kind === 'exhausted')
      report(background, await new Expirer(store, { history: engine.history }).expireOld(services.clock.now(), signal))
    throw error
  })
  try {
    elected(true)
    await run(AbortSignal.any([signal, leadership.lost]))
  } finally {
    elected(false)
    await resign(leadership, signal)
  }
}

function candidacies(background: Background, { leads = true, works = true }: Shares): readonly Candidacy[] {
  const { observer } = background
  const leader: Candidacy = { name: 'leader', elected: (is) => observer?.leading(is), run: (signal) => lead(background, signal) }
  const worker: Candidacy = { name: 'worker', elected: (is) => observer?.working(is), run: (signal) => doWork(background, signal) }
  return [...(leads ? [leader] : []), ...(works ? [worker] : [])]
}

/**
 * Gives up the leadership. If the store is unreachable, it is released only when the lease expires. The wait for that ends when the
 * process stops.
 */
async function resign(leadership: Leadership, signal: AbortSignal): Promise<void> {
  const done = new AbortController()
  const resigned = leadership.resign().finally(() => done.abort())
  await Promise.race([resigned, pause(leaseLifeMs, AbortSignal.any([signal, done.signal]))])
  if (signal.aborted) await Promise.race([resigned, pause(resignTimeoutMs, done.signal)])
}

/** What a process does in the background besides maintaining keys; by default all. */
interface Shares {
  /** Whether it may become the leader. */
  readonly leads?: boolean
  /** Whether it may become the active worker. */
  readonly works?: boolean
}

/**
 * Runs background work until `signal` aborts. Every replica rotates keys. The leader runs the other jobs, and delivers events if there is
 * a dispatcher. The active worker runs what takes long.
 */
export async function runBackground(
  engine: Engine,
  signal: AbortSignal,
  options: Shares & { observer?: BackgroundObserver; dispatcher?: Dispatcher; segments?: AuditSegments | undefined; scans?: readonly ScanJob[] } = {},
): Promise<void> {
  const { observer, dispatcher, segments, scans = [] } = options
  const background = { engine, observer, dispatcher, segments, scans }
  const changed = new Alarm()
  engine.cache.onKey((key) => {
    if (key.startsWith('meta/')) changed.ring()
  })
  // A reload of the cache may contain keys that the watch did not report.
  engine.cache.onReset(changed.ring)
  await Promise.all([
    keepDoing(background, { name: 'keys', work: () => maintainKeys(engine, signal), everyMs: maintainEveryMs, alarm: changed }, signal),
    ...candidacies(background, options).map((one) =>
      keepDoing(background, { name: one.name, work: () => candidate(background, one, signal), everyMs: 0, alarm: new Alarm() }, signal),
    ),
  ])
}

/**
 * Starts background work until `signal` aborts, and the delivery of events if this process may lead. Returns a function that waits for the
 * end of both.
 */
export function startBackground(
  { leads, works, segments, scans, ...parts }: DeliveryOptions & Required<Shares> & Pick<Background, 'segments' | 'scans'>,
  signal: AbortSignal,
): () => Promise<void> {
  const delivery = createDelivery(parts)
  const background = runBackground(parts.engine, signal, {
    observer: createBackgroundMetrics(parts.metrics),
    leads,
    works,
    segments,
    scans,
    ...(parts.config.events.deliver ? { dispatcher: delivery.dispatcher } : {}),
  })
  return async () => {
    await background
    await parts.engine.contentsJob?.close()
    await Promise.all(scans.map((job) => job.close()))
    await delivery.close()
  }
}
