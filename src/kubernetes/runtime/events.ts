import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { KubeError, type KubeApi, type ObjectMeta, type ObjectType } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import { backoffMs, pause, systemTimers, type Backoff, type Timers } from '../../base/timing.ts'
import { microTimeOf } from './micro-time.ts'

const eventType = objectTypes.event
/** Namespace of the Events for cluster-scoped objects. */
const clusterNamespace = 'default'
/** Maximum number of series to keep, in total and for each object. */
const mostSeries = 1_000
const mostPerObject = 20
/** Idle time after which a series may be removed to make room, in milliseconds. */
const forgetMs = 10 * 60_000
/** Minimum time between two writes of a series, in milliseconds. */
const seriesEveryMs = 60_000
/** Pause between two writes, in milliseconds. */
const gapMs = 100
const lastWordsMs = 1_000
const mostFailures = 5
const backoff: Backoff = { firstMs: 1_000, maxMs: 60_000 }
/** Limits of the API server for an Event, in bytes or characters. */
const mostNote = 1_024
const mostName = 253

/** An event of an object, as `kubectl describe` shows it. */
export interface ObjectEvent {
  readonly type: ObjectType
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'uid' | 'resourceVersion'>
  readonly severity: 'Normal' | 'Warning'
  /** The reason in one word: `NotGranted`. At most 128 characters. */
  readonly reason: string
  /** The action in one word: `Reconcile`. At most 128 characters. */
  readonly action: string
  /** Message for people, cut at 1 KiB. It must not contain a secret. */
  readonly note: string
}

/** Options of a recorder. */
export interface EventRecorderOptions {
  readonly api: Pick<KubeApi, 'create' | 'patch'>
  /** The reporting controller, as in `taproot.dev/controller`. */
  readonly controller: string
  /** The reporting process, at most 128 characters. */
  readonly instance: string
  readonly clock: Clock
  readonly log: Log
  readonly random: Random
  /** Default: the process's timers. */
  readonly timers?: Timers
  /** Receives the number of dropped events, for metrics. */
  readonly onDropped?: (count: number) => void
}

/**
 * Writes Kubernetes Events (events.k8s.io/v1). Equal events of an object (severity, reason, action, note) form a series: one Event whose
 * count is updated from time to time. Events that cannot be written or exceed the limits are dropped and counted.
 */
export interface EventRecorder {
  /** Queues an event. Never waits and never throws. */
  record(event: ObjectEvent): void
  /** Writes events until `signal` aborts, then the remaining ones for at most one second. Call it once. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Creates a recorder. It queues events at once; `run` writes them. */
export function createEventRecorder(options: EventRecorderOptions): EventRecorder {
  return new SeriesRecorder(options)
}

/**
 * An event and its repetitions. States: unwritten -> written (`writtenAs`) -> repeated (`unwritten` > 0), written again at `dueAt` or
 * later -> ... It is removed after an idle time, to make room, or if it cannot be written.
 */
interface Series {
  readonly event: ObjectEvent
  readonly firstAt: number
  lastAt: number
  count: number
  /** The part of `count` that has not been written to the API server yet. */
  unwritten: number
  writtenAs: string | undefined
  failures: number
  /** The earliest time of the next write, on the timers' clock. `lastAt` and `firstAt` are wall time. */
  dueAt: number
  seenAt: number
}

class SeriesRecorder implements EventRecorder {
  readonly #options: EventRecorderOptions
  readonly #timers: Timers
  /** Series in order of their last occurrence, oldest first. */
  readonly #series = new Map<string, Series>()
  readonly #perObject = new Map<string, number>()
  #wake: () => void = () => undefined

  constructor(options: EventRecorderOptions) {
    this.#options = options
    this.#timers = options.timers ?? systemTimers
  }

  record(event: ObjectEvent): void {
    const [now, wallNow] = [this.#timers.now(), this.#options.clock.now()]
    const key = keyOf(event)
    const known = this.#series.get(key)
    if (known === undefined && !this.#makeRoom(event, now)) return this.#options.onDropped?.(1)
    const series = known ?? { event, firstAt: wallNow, lastAt: 0, count: 0, unwritten: 0, writtenAs: undefined, failures: 0, dueAt: now, seenAt: now }
    series.count++
    series.unwritten++
    series.lastAt = wallNow
    series.seenAt = now
    if (known === undefined) this.#perObject.set(objectKeyOf(event), (this.#perObject.get(objectKeyOf(event)) ?? 0) + 1)
    this.#series.delete(key)
    this.#series.set(key, series)
    this.#wake()
  }

  async run(signal: AbortSignal): Promise<void> {
    const late = new AbortController()
    let stopLate = (): void => undefined
    const onAbort = (): void => {
      stopLate = this.#timers.start(lastWordsMs, () => late.abort(new Error('the time to write events at shutdown is over')))
      this.#wake()
    }
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    while (!late.signal.aborted) {
      const now = this.#timers.now()
      const due = this.#series.entries().find(([, { unwritten, dueAt }]) => unwritten > 0 && (signal.aborted || dueAt <= now))
      if (due !== undefined) await this.#write(due, late.signal)
      else if (signal.aborted) break
      if (!signal.aborted) await this.#rest(due !== undefined, signal)
    }
    stopLate()
    signal.removeEventListener('abort', onAbort)
  }

  /** Waits until the next write is allowed. */
  async #rest(wrote: boolean, signal: AbortSignal): Promise<void> {
    if (wrote) return pause(gapMs, signal, this.#timers)
    const woken = new AbortController()
    this.#wake = () => woken.abort()
    const next = this.#series.values().reduce((least, { unwritten, dueAt }) => (unwritten > 0 ? Math.min(least, dueAt) : least), Number.POSITIVE_INFINITY)
    await pause(next - this.#timers.now(), AbortSignal.any([signal, woken.signal]), this.#timers)
  }

  /** Removes an old series if there are too many. Returns false if none can be removed. */
  #makeRoom(event: ObjectEvent, now: number): boolean {
    const full = this.#series.size >= mostSeries
    const tooMany = (this.#perObject.get(objectKeyOf(event)) ?? 0) >= mostPerObject
    if (!full && !tooMany) return true
    for (const [key, series] of this.#series) {
      const old = now - series.seenAt > forgetMs
      if (series.unwritten === 0 && (old || (full && !tooMany))) this.#forget(key, series)
      if (!old && (tooMany || this.#series.size < mostSeries)) break
    }
    return this.#series.size < mostSeries && (this.#perObject.get(objectKeyOf(event)) ?? 0) < mostPerObject
  }

  #forget(key: string, { event }: Series): void {
    this.#series.delete(key)
    const left = (this.#perObject.get(objectKeyOf(event)) ?? 1) - 1
    if (left === 0) this.#perObject.delete(objectKeyOf(event))
    else this.#perObject.set(objectKeyOf(event), left)
  }

  async #write([key, series]: [string, Series], signal: AbortSignal): Promise<void> {
    const { random, log, onDropped } = this.#options
    const writing = series.unwritten
    try {
      await this.#send(series, signal)
      series.unwritten -= writing
      series.failures = 0
      series.dueAt = this.#timers.now() + seriesEveryMs
    } catch (error) {
      series.failures++
      const again = error instanceof KubeError && (error.reason === 'unavailable' || error.reason === 'throttled') && series.failures <= mostFailures
      if (again && !signal.aborted) {
        series.dueAt = this.#timers.now() + Math.max(backoffMs(backoff, series.failures, random), error.retryAfterMs ?? 0)
        return
      }
      log.debug('an event could not be written', { reason: series.event.reason, error: errorText(error) })
      onDropped?.(series.unwritten)
      this.#forget(key, series)
    }
  }

  async #send(series: Series, signal: AbortSignal): Promise<void> {
    const { api, random } = this.#options
    const { event, count, lastAt, writtenAs } = series
    const ref = { namespace: event.metadata.namespace ?? clusterNamespace, name: writtenAs ?? nameOf(event, randomHex(random, 8)) }
    const seriesField = count > 1 ? { series: { count, lastObservedTime: microTimeOf(lastAt) } } : {}
    if (writtenAs !== undefined) {
      try {
        await api.patch(eventType, ref, seriesField, signal)
        return
      } catch (error) {
        // The API server deletes Events after an hour. Then a new Event is created.
        if (!(error instanceof KubeError) || error.reason !== 'not_found') throw error
        series.writtenAs = undefined
        return this.#send(series, signal)
      }
    }
    await api.create(eventType, { metadata: ref, ...this.#bodyOf(series), ...seriesField }, signal)
    series.writtenAs = ref.name
  }

  #bodyOf({ event, firstAt }: Series): Readonly<Record<string, unknown>> {
    const { controller, instance } = this.#options
    const { type, metadata, severity, reason, action, note } = event
    const { name, namespace, uid, resourceVersion } = metadata
    return {
      eventTime: microTimeOf(firstAt),
      reportingController: controller,
      reportingInstance: instance,
      type: severity,
      reason,
      action,
      note: cut(note),
      regarding: { apiVersion: type.group === '' ? type.version : `${type.group}/${type.version}`, kind: type.kind, namespace, name, uid, resourceVersion },
    }
  }
}

function objectKeyOf({ type, metadata }: ObjectEvent): string {
  return [type.group, type.kind, metadata.namespace, metadata.name, metadata.uid].join('\0')
}

function keyOf(event: ObjectEvent): string {
  return [objectKeyOf(event), event.severity, event.reason, event.action, event.note].join('\0')
}

/** Returns a unique name: the object's name, shortened if needed, and a suffix. */
function nameOf({ metadata }: ObjectEvent, suffix: string): string {
  return `${metadata.name.slice(0, mostName - suffix.length - 1).replace(/[^a-z0-9]+$/, '')}.${suffix}`
}

function cut(note: string): string {
  const bytes = Buffer.from(note)
  // If the cut splits a character, it becomes a replacement character of three bytes.
  return bytes.length <= mostNote ? note : `${bytes.subarray(0, mostNote - 6).toString()}...`
}
