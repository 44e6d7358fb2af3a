import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { KubeError, type KubeApi, type ObjectMeta, type ObjectType } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import { backoffMs, pause, systemTimers, type Backoff, type Timers } from '../../base/timing.ts'
import { microTimeOf } from './micro-time.ts'

const eventType = objectTypes.event
/** Where Events of objects of the cluster are. */
const clusterNamespace = 'default'
/** How many series are known at once, in all and of one object. */
const mostSeries = 1_000
const mostPerObject = 20
/** A series that has not gone on for so long makes room. */
const forgetMs = 10 * 60_000
/** A series is written again after so long at the earliest. */
const seriesEveryMs = 60_000
/** Between two writes. */
const gapMs = 100
const lastWordsMs = 1_000
const mostFailures = 5
const backoff: Backoff = { firstMs: 1_000, maxMs: 60_000 }
/** Bytes and characters that the API server takes. */
const mostNote = 1_024
const mostName = 253

/** Something that happened to an object, as `kubectl describe` shows it. */
export interface ObjectEvent {
  readonly type: ObjectType
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'uid' | 'resourceVersion'>
  readonly severity: 'Normal' | 'Warning'
  /** Why, as one word: `NotGranted`. At most 128 characters. */
  readonly reason: string
  /** What was done or tried, as one word: `Reconcile`. At most 128 characters. */
  readonly action: string
  /** For people; cut at 1 KiB. Never a secret. */
  readonly note: string
}

/** What a recorder needs. */
export interface EventRecorderOptions {
  readonly api: Pick<KubeApi, 'create' | 'patch'>
  /** Who reports, as in `taproot.dev/controller`. */
  readonly controller: string
  /** Which of its processes; at most 128 characters. */
  readonly instance: string
  readonly clock: Clock
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  /** Told how many events were dropped, for the metrics. */
  readonly onDropped?: (count: number) => void
}

/**
 * Writes Kubernetes Events (events.k8s.io/v1). What is the same of the same object (severity, reason, action, note) becomes a series of one Event, whose count is
 * written now and then. What can't be written, or is too much, is dropped and counted.
 */
export interface EventRecorder {
  /** Never waits and never throws. */
  record(event: ObjectEvent): void
  /** Writes until `signal` aborts, then what is left for a second at most, then resolves. Once only. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Builds a recorder, which takes events at once and writes them in `run`. */
export function createEventRecorder(options: EventRecorderOptions): EventRecorder {
  return new SeriesRecorder(options)
}

/**
 * What happened, once or again: unwritten -> written once (`writtenAs`) -> changed (`unwritten` > 0), written again not before `dueAt` -> ... -> forgotten, when it has
 * not happened for long or there is no room, or dropped, when it can't be written.
 */
interface Series {
  readonly event: ObjectEvent
  readonly firstAt: number
  lastAt: number
  count: number
  /** How many of `count` the API server does not know. */
  unwritten: number
  writtenAs: string | undefined
  failures: number
  /** By the timers, when it may be written; `lastAt` and `firstAt` are wall time. */
  dueAt: number
  seenAt: number
}

class SeriesRecorder implements EventRecorder {
  readonly #options: EventRecorderOptions
  readonly #timers: Timers
  /** The one that happened last is the last. */
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
      stopLate = this.#timers.start(lastWordsMs, () => late.abort(new Error('no time is left for events')))
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

  /** Until the next one may be written. */
  async #rest(wrote: boolean, signal: AbortSignal): Promise<void> {
    if (wrote) return pause(gapMs, signal, this.#timers)
    const woken = new AbortController()
    this.#wake = () => woken.abort()
    const next = this.#series.values().reduce((least, { unwritten, dueAt }) => (unwritten > 0 ? Math.min(least, dueAt) : least), Number.POSITIVE_INFINITY)
    await pause(next - this.#timers.now(), AbortSignal.any([signal, woken.signal]), this.#timers)
  }

  /** False where there is no room for another series. */
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
      const again = error instanceof KubeError && (error.fault === 'unavailable' || error.fault === 'throttled') && series.failures <= mostFailures
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
        // The API server forgets Events after an hour: another one begins.
        if (!(error instanceof KubeError) || error.fault !== 'not_found') throw error
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

/** The object's name, as far as there is room, and what makes it unique. */
function nameOf({ metadata }: ObjectEvent, suffix: string): string {
  return `${metadata.name.slice(0, mostName - suffix.length - 1).replace(/[^a-z0-9]+$/, '')}.${suffix}`
}

function cut(note: string): string {
  const bytes = Buffer.from(note)
  // A character that was cut through becomes one of three bytes.
  return bytes.length <= mostNote ? note : `${bytes.subarray(0, mostNote - 6).toString()}...`
}
