import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { Random } from '../../base/runtime.ts'
import {
  KubeError,
  type KubeApi,
  type KubeFault,
  type KubeObject,
  type ListPage,
  type ObjectMeta,
  type ObjectRef,
  type ObjectType,
  type Selection,
  type WatchEvent,
} from '../kube-api.ts'
import { ObjectCache } from './object-cache.ts'
import { backoffMs, pause, systemTimers, type Backoff, type Timers } from '../../base/timing.ts'

const decimal = /^[0-9]+$/

/** True where `one` is a later version than `other`, of the same type of objects. Versions are decimal numbers of any length; others (none that is known) count as later. */
function isLater(one: string, other: string): boolean {
  if (!decimal.test(one) || !decimal.test(other)) return true
  return one.length === other.length ? one > other : one.length > other.length
}

const pageLimit = 500
const refused: Backoff = { firstMs: 500, maxMs: 30_000 }
/** How long an informer waits after each fault. An outage ends at any moment, so what does not answer is asked again soon. */
const backoffs = {
  unavailable: { firstMs: 250, maxMs: 1_000 },
  not_found: { firstMs: 1_000, maxMs: 10_000 },
  expired: refused,
  throttled: refused,
  unauthorized: refused,
  forbidden: refused,
  conflict: refused,
  already_exists: refused,
  invalid: refused,
} as const satisfies Record<KubeFault, Backoff>
/** A watch that ends earlier without having told anything has failed. */
const shortWatchMs = 1_000

/**
 * How an informer stands to its server:
 * - `new`: not started; becomes `listing` by `run`
 * - `listing`: the objects are being read, in parts; becomes `watching`, or `waiting` or `absent` where that fails
 * - `watching`: every change up to `resourceVersion` is in the cache; watches that end are taken up where they were. Becomes `waiting` where one fails, `listing` where
 *   the version has expired
 * - `waiting`: the last call failed; it is repeated after a while. Becomes `watching` or `listing`, whichever was interrupted
 * - `absent`: the server does not know the type (a CRD that is not there, or not yet); asked again after a while. Becomes `listing`
 * - `stopped`: the signal given to `run` has aborted; the last state
 *
 * In all states but `watching` the cache may be behind.
 */
export type InformerState =
  | { readonly is: 'new' }
  | { readonly is: 'listing' }
  | { readonly is: 'watching'; readonly resourceVersion: string }
  | { readonly is: 'waiting'; readonly failures: number; readonly error: KubeError }
  | { readonly is: 'absent' }
  | { readonly is: 'stopped' }

/** Told what an informer does, for the metrics. */
export interface InformerObserver {
  /** The state changed, not only its resource version. */
  state(type: ObjectType, state: InformerState): void
  /** A whole list was read. */
  listed(type: ObjectType, objects: number): void
}

/** What an informer needs. */
export interface InformerOptions {
  readonly api: Pick<KubeApi, 'list' | 'watch'>
  readonly type: ObjectType
  /** All objects of the type where absent. */
  readonly selection?: Selection
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  readonly observer?: InformerObserver
}

/** What a change was learned by: an event or answer of its own, or a list that was read anew, which doesn't tell what happened meanwhile. */
export type ChangeSource = 'watch' | 'list'

/**
 * Told of every change of the cache, after it: `before` is undefined for an object that is new, `after` for one that is gone. Where an object went and another of the
 * same name came while nobody watched, both are there and their `metadata.uid` differ. Must not throw, and may call the informer.
 */
export type ChangeListener = (before: KubeObject | undefined, after: KubeObject | undefined, by: ChangeSource) => void

/**
 * A cache of the objects of one type, kept current. Its objects lack `metadata.managedFields`; they are shared and must not be changed.
 *
 * Objects never go back: what is older than what the cache has (by resource version) is dropped. Where the type is not there (any more), what was cached stays until
 * the type is there again: that it is missing may be a server that is starting.
 */
export interface Informer {
  readonly type: ObjectType
  readonly state: InformerState
  /** Resolves when all objects have been read once; not before the type is there. Never rejects. */
  readonly synced: Promise<void>
  readonly size: number
  get(ref: ObjectRef): KubeObject | undefined
  /** All objects, in no order. */
  list(): Iterable<KubeObject>
  /** The objects of one namespace, in no order. Costs what that namespace has. */
  byNamespace(namespace: string): Iterable<KubeObject>
  /** Returns what removes the listener. Objects that are in the cache already are not told. */
  onChange(listener: ChangeListener): () => void
  /**
   * Takes an object as a call of one's own answered it, so that what was written is read at once and not only once the watch has told it. Dropped where the watch is
   * past it. The caller answers for it being in the selection.
   */
  observe(object: KubeObject): void
  /** Keeps the cache current until `signal` aborts, then resolves. Once only. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Builds an informer, which does nothing before `run`. */
export function createInformer(options: InformerOptions): Informer {
  return new WatchingInformer(options)
}

class WatchingInformer implements Informer {
  readonly type: ObjectType
  readonly #options: InformerOptions
  readonly #timers: Timers
  readonly #selection: Selection
  readonly #cache = new ObjectCache()
  readonly #listeners = new Set<ChangeListener>()
  readonly #synced = Promise.withResolvers<void>()
  #state: InformerState = { is: 'new' }
  /** The cache has every change up to this version. Undefined: list anew. */
  #position: string | undefined
  /** Failures in a row with the same fault. A watch event ends the row. */
  #failing: { readonly fault: KubeFault; readonly times: number } | undefined
  /** What was observed while a list is being read. */
  #observed: KubeObject[] = []

  constructor(options: InformerOptions) {
    this.#options = options
    this.type = options.type
    this.#timers = options.timers ?? systemTimers
    this.#selection = options.selection ?? {}
  }

  get state(): InformerState {
    return this.#state
  }

  get synced(): Promise<void> {
    return this.#synced.promise
  }

  get size(): number {
    return this.#cache.size
  }

  get(ref: ObjectRef): KubeObject | undefined {
    return this.#cache.get(ref)
  }

  list(): Iterable<KubeObject> {
    return this.#cache.values()
  }

  byNamespace(namespace: string): Iterable<KubeObject> {
    return this.#cache.byNamespace(namespace)
  }

  onChange(listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  observe(object: KubeObject): void {
    if (this.#state.is === 'listing') this.#observed.push(object)
    if (this.#position !== undefined && !isLater(object.metadata.resourceVersion, this.#position)) return
    this.#take(object)
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#position === undefined) await this.#readAll(signal)
        else await this.#follow(this.#position, signal)
      } catch (error) {
        await this.#failed(error, signal)
      }
    }
    this.#become({ is: 'stopped' })
  }

  async #readAll(signal: AbortSignal): Promise<void> {
    const { api, observer } = this.#options
    this.#become({ is: 'listing' })
    this.#observed = []
    const objects = new Map<string, KubeObject>()
    let page: ListPage | undefined
    do {
      const token = page?.continueToken
      page = await api.list(this.type, { ...this.#selection, limit: pageLimit, ...(token !== undefined && { continueToken: token }) }, signal)
      for (const object of page.items) objects.set(keyOf(object.metadata), slim(object))
    } while (page.continueToken !== undefined)
    this.#replace(objects, page.resourceVersion)
    observer?.listed(this.type, objects.size)
    this.#synced.resolve()
  }

  /** Makes the cache what a list said, whatever it held: versions go back where a backup was restored. */
  #replace(objects: Map<string, KubeObject>, resourceVersion: string): void {
    for (const object of this.#observed) {
      const listed = objects.get(keyOf(object.metadata))
      if (isLater(object.metadata.resourceVersion, listed?.metadata.resourceVersion ?? resourceVersion)) objects.set(keyOf(object.metadata), slim(object))
    }
    this.#observed = []
    this.#position = resourceVersion
    for (const cached of [...this.#cache.values()]) {
      if (objects.has(keyOf(cached.metadata))) continue
      this.#cache.remove(cached.metadata)
      this.#tell(cached, undefined, 'list')
    }
    for (const object of objects.values()) {
      const before = this.#cache.get(object.metadata)
      if (before?.metadata.uid === object.metadata.uid && before.metadata.resourceVersion === object.metadata.resourceVersion) continue
      this.#cache.put(object)
      this.#tell(before, object, 'list')
    }
    this.#become({ is: 'watching', resourceVersion })
  }

  async #follow(position: string, signal: AbortSignal): Promise<void> {
    const startedAt = this.#timers.now()
    // Of a watch that is open and has nothing to tell nobody hears: one that has not failed for a while is open.
    const stop = this.#timers.start(shortWatchMs, () => this.#become({ is: 'watching', resourceVersion: position }))
    try {
      for await (const event of this.#options.api.watch(this.type, { ...this.#selection, resourceVersion: position }, signal)) {
        stop()
        this.#hear(event)
      }
    } finally {
      stop()
    }
    if (this.#position === position && this.#timers.now() - startedAt < shortWatchMs) throw new KubeError('unavailable', 'the API server ended a watch at once')
  }

  #hear(event: WatchEvent): void {
    const resourceVersion = event.type === 'bookmark' ? event.resourceVersion : event.object.metadata.resourceVersion
    if (this.#position !== undefined && isLater(this.#position, resourceVersion))
      throw new KubeError('expired', 'the API server has gone back to an earlier version')
    this.#position = resourceVersion
    this.#failing = undefined
    this.#become({ is: 'watching', resourceVersion })
    if (event.type === 'deleted') this.#drop(event.object)
    else if (event.type !== 'bookmark') this.#take(event.object)
  }

  #take(object: KubeObject): void {
    const before = this.#cache.get(object.metadata)
    if (before !== undefined && !isLater(object.metadata.resourceVersion, before.metadata.resourceVersion)) return
    const after = slim(object)
    this.#cache.put(after)
    this.#tell(before, after, 'watch')
  }

  #drop(object: KubeObject): void {
    const before = this.#cache.get(object.metadata)
    if (before === undefined || isLater(before.metadata.resourceVersion, object.metadata.resourceVersion)) return
    this.#cache.remove(object.metadata)
    this.#tell(before, undefined, 'watch')
  }

  #tell(...[before, after, by]: Parameters<ChangeListener>): void {
    for (const listener of this.#listeners) {
      try {
        listener(before, after, by)
      } catch (error) {
        // The others, and the cache, must not suffer from it.
        this.#options.log.error('a listener of an informer threw', { kind: this.type.kind, error: errorText(error) })
      }
    }
  }

  /** Notes a failure and waits as its fault asks for. An expired version costs no wait, except where the new one expires too. */
  async #failed(failure: unknown, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    const { log, random } = this.#options
    const error = failure instanceof KubeError ? failure : new KubeError('unavailable', 'the API server was not understood', { cause: failure })
    const { fault } = error
    const failures = this.#failing?.fault === fault ? this.#failing.times + 1 : 1
    this.#failing = { fault, times: failures }
    const absent = fault === 'not_found'
    if (absent || fault === 'expired') this.#position = undefined
    if (fault === 'expired' && failures === 1) return
    this.#become(absent ? { is: 'absent' } : { is: 'waiting', failures, error })
    const waitMs = Math.max(backoffMs(backoffs[fault], failures, random), error.retryAfterMs ?? 0)
    const fields = { kind: this.type.kind, fault, failures, error: errorText(error), afterMs: Math.round(waitMs) }
    if (absent) log.debug('a type is not there', fields)
    else if (isPowerOfTwo(failures)) log.warn('an informer failed and tries again', fields)
    await pause(waitMs, signal, this.#timers)
  }

  #become(state: InformerState): void {
    const changed = state.is !== this.#state.is
    this.#state = state
    if (changed) this.#options.observer?.state(this.type, state)
  }
}

/** True for 1, 2, 4, 8 and so on: an outage of hours is logged a few times, not thousands. */
function isPowerOfTwo(count: number): boolean {
  return Number.isInteger(Math.log2(count))
}

function keyOf({ namespace = '', name }: ObjectRef): string {
  return `${namespace}/${name}`
}

/** Without what only the API server needs, and what is often most of an object. */
function slim(object: KubeObject): KubeObject {
  if (!('managedFields' in object.metadata)) return object
  // A cast: the port leaves the field out.
  const { managedFields: _, ...metadata } = object.metadata as ObjectMeta & { readonly managedFields: unknown }
  return { ...object, metadata }
}
