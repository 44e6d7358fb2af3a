import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { Random } from '../../base/runtime.ts'
import {
  KubeError,
  type KubeApi,
  type KubeErrorReason,
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

/**
 * Returns true if `one` is a later resource version than `other` of the same type. Versions are decimal numbers of any length. Other forms
 * (none are known) count as later.
 */
function isLater(one: string, other: string): boolean {
  if (!decimal.test(one) || !decimal.test(other)) return true
  return one.length === other.length ? one > other : one.length > other.length
}

const pageLimit = 500
const refused: Backoff = { firstMs: 500, maxMs: 30_000 }
/** Delays of an informer after each kind of failure. They are short if the server does not answer, since an outage may end at any moment. */
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
} as const satisfies Record<KubeErrorReason, Backoff>
/** A watch that ends before this time without an event counts as failed, in milliseconds. */
const shortWatchMs = 1_000

/**
 * The state of an informer:
 * - `new`: not started; `run` changes it to `listing`
 * - `listing`: reading all objects, page by page. Becomes `watching`, or `waiting` or `absent` on failure
 * - `watching`: the cache has every change up to `resourceVersion`. A watch that ends is resumed there. Becomes `waiting` on failure, `listing` if the version
 *   has expired
 * - `waiting`: the last call failed and is retried after a delay. Becomes `watching` or `listing`, whichever was interrupted
 * - `absent`: the server does not know the type (its CRD is missing); asked again after a delay. Becomes `listing`
 * - `stopped`: the signal given to `run` has aborted; the final state
 *
 * In all states but `watching` the cache may be stale.
 */
export type InformerState =
  | { readonly is: 'new' }
  | { readonly is: 'listing' }
  | { readonly is: 'watching'; readonly resourceVersion: string }
  | { readonly is: 'waiting'; readonly failures: number; readonly error: KubeError }
  | { readonly is: 'absent' }
  | { readonly is: 'stopped' }

/** Receives measurements of an informer, for metrics. */
export interface InformerObserver {
  /** Called if the kind of state changed, not only its resource version. */
  state(type: ObjectType, state: InformerState): void
  /** Called after a whole list was read, with the number of objects. */
  listed(type: ObjectType, objects: number): void
}

/** Options of an informer. */
export interface InformerOptions {
  readonly api: Pick<KubeApi, 'list' | 'watch'>
  readonly type: ObjectType
  /** Absent: all objects of the type. */
  readonly selection?: Selection
  readonly log: Log
  readonly random: Random
  /** Default: the process's timers. */
  readonly timers?: Timers
  readonly observer?: InformerObserver
}

/**
 * The source of a change. `watch`: a watch event or the response to a write. `list`: a new list, which does not show the changes in
 * between.
 */
export type ChangeSource = 'watch' | 'list'

/**
 * Called after every change of the cache. `before` is undefined for a new object, `after` for a deleted one. If an object was replaced by another of the same
 * name while no watch ran, both are set and their `metadata.uid` differ. Must not throw; may call the informer.
 */
export type ChangeListener = (before: KubeObject | undefined, after: KubeObject | undefined, by: ChangeSource) => void

/**
 * A current cache of the objects of one type. Its objects lack `metadata.managedFields`. They are shared, so callers must not change them.
 *
 * Objects never go back to an older resource version, except by a new list. If the type is missing, the cache keeps its objects until the type is back: the
 * server may still be starting.
 */
export interface Informer {
  readonly type: ObjectType
  readonly state: InformerState
  /** Resolves once all objects have been read, which requires that the type exists. Never rejects. */
  readonly synced: Promise<void>
  readonly size: number
  get(ref: ObjectRef): KubeObject | undefined
  /** Returns all objects, in no order. */
  list(): Iterable<KubeObject>
  /** Returns the objects of one namespace, in no order. The cost depends only on their number. */
  byNamespace(namespace: string): Iterable<KubeObject>
  /** Adds a listener and returns a function that removes it. It is not called for objects already in the cache. */
  onChange(listener: ChangeListener): () => void
  /**
   * Puts the response of a write into the cache, so that readers see it before the watch reports it. Ignored if the cache has a later
   * version. The caller must ensure that the object is in the selection.
   */
  observe(object: KubeObject): void
  /** Keeps the cache current until `signal` aborts, then resolves. Call it once. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Creates an informer. It does nothing before `run`. */
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
  /** The cache has every change up to this resource version. If undefined, the next step is a new list. */
  #position: string | undefined
  /** Number of consecutive failures of the same kind. A watch event resets it. */
  #failing: { readonly reason: KubeErrorReason; readonly times: number } | undefined
  /** Objects that were passed to `observe` while a list was being read. */
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

  /** Replaces the content of the cache by a list. Versions may be earlier if a backup was restored. */
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
      this.#notify(cached, undefined, 'list')
    }
    for (const object of objects.values()) {
      const before = this.#cache.get(object.metadata)
      if (before?.metadata.uid === object.metadata.uid && before.metadata.resourceVersion === object.metadata.resourceVersion) continue
      this.#cache.put(object)
      this.#notify(before, object, 'list')
    }
    this.#become({ is: 'watching', resourceVersion })
  }

  async #follow(position: string, signal: AbortSignal): Promise<void> {
    const startedAt = this.#timers.now()
    // An open watch without events sends nothing. So a watch that has not failed for a while counts as open.
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
    if (this.#position !== undefined && isLater(this.#position, resourceVersion)) throw new KubeError('expired', 'the API server returned an earlier version')
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
    this.#notify(before, after, 'watch')
  }

  #drop(object: KubeObject): void {
    const before = this.#cache.get(object.metadata)
    if (before === undefined || isLater(before.metadata.resourceVersion, object.metadata.resourceVersion)) return
    this.#cache.remove(object.metadata)
    this.#notify(before, undefined, 'watch')
  }

  #notify(...[before, after, by]: Parameters<ChangeListener>): void {
    for (const listener of this.#listeners) {
      try {
        listener(before, after, by)
      } catch (error) {
        // A failing listener must not affect the other listeners or the cache.
        this.#options.log.error('a listener of an informer threw', { kind: this.type.kind, error: errorText(error) })
      }
    }
  }

  /** Records a failure and waits. An expired version needs no wait, unless the next one expires too. */
  async #failed(failure: unknown, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    const { log, random } = this.#options
    const error = failure instanceof KubeError ? failure : new KubeError('unavailable', 'the response of the API server is not valid', { cause: failure })
    const { reason } = error
    const failures = this.#failing?.reason === reason ? this.#failing.times + 1 : 1
    this.#failing = { reason, times: failures }
    const absent = reason === 'not_found'
    if (absent || reason === 'expired') this.#position = undefined
    if (reason === 'expired' && failures === 1) return
    this.#become(absent ? { is: 'absent' } : { is: 'waiting', failures, error })
    const waitMs = Math.max(backoffMs(backoffs[reason], failures, random), error.retryAfterMs ?? 0)
    const fields = { kind: this.type.kind, reason, failures, error: errorText(error), afterMs: Math.round(waitMs) }
    if (absent) log.debug('the API server does not know a resource type; its CRD may be missing', fields)
    else if (isPowerOfTwo(failures)) log.warn('could not list or watch a resource type; trying again', fields)
    await pause(waitMs, signal, this.#timers)
  }

  #become(state: InformerState): void {
    const changed = state.is !== this.#state.is
    this.#state = state
    if (changed) this.#options.observer?.state(this.type, state)
  }
}

/** True for 1, 2, 4, 8 and so on. It limits the log lines of a long outage. */
function isPowerOfTwo(count: number): boolean {
  return Number.isInteger(Math.log2(count))
}

function keyOf({ namespace = '', name }: ObjectRef): string {
  return `${namespace}/${name}`
}

/** Returns the object without `managedFields`, which only the API server needs, and which are often the largest part. */
function slim(object: KubeObject): KubeObject {
  if (!('managedFields' in object.metadata)) return object
  // a cast: the port's type omits this field
  const { managedFields: _, ...metadata } = object.metadata as ObjectMeta & { readonly managedFields: unknown }
  return { ...object, metadata }
}
