import type { Log } from '../../core/log.ts'
import type { Random } from '../../core/runtime.ts'
import type { KubeApi, KubeError, KubeObject, ObjectRef, ObjectType, Selection } from '../port/kube-api.ts'
import type { Timers } from './timers.ts'

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
  readonly api: KubeApi
  readonly type: ObjectType
  /** All objects of the type where absent. */
  readonly selection?: Selection
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  readonly observer?: InformerObserver
}

/**
 * Told of every change of the cache, after it: `before` is undefined for an object that is new, `after` for one that is gone. Where an object went and another of the
 * same name came while nobody watched, both are there and their `metadata.uid` differ. Must not throw, and may call the informer.
 */
export type ChangeListener = (before: KubeObject | undefined, after: KubeObject | undefined) => void

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
export declare function createInformer(options: InformerOptions): Informer
