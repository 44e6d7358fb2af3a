import { errorText } from '../base/error-text.ts'
import type { Log } from '../base/log.ts'
import { backoffMs, pause, retry, type Backoff } from '../base/timing.ts'
import { watchedPrefixes } from '../store/keys.ts'
import { StoreError, storeRevision, type Change, type Revision, type Store } from '../store/store.ts'
import { loadTables } from './load.ts'
import type { KindIndex, CachedRecord } from './records/cached-record.ts'
import { RecordTables, type HideListener, type RecordListener } from './record-tables.ts'
import { SharedQuestion } from './shared-question.ts'
import { Waiters } from './waiters.ts'

/**
 * The state of the cache's connection to its store:
 * - `loading`: the first load of all data is under way, and reads cannot be answered. Then `live`
 * - `live`: the watch on the store runs. `broken` when it ends
 * - `broken`: the watch ended, and reads fail with UNAVAILABLE. `live` again once a new watch or a reload has reached a revision read after the break
 * - `closed`: close() was called. Final
 */
export type RecordCacheState =
  | { readonly kind: 'loading'; readonly records: number }
  | { readonly kind: 'live' }
  | { readonly kind: 'broken'; readonly cause: unknown }
  | { readonly kind: 'closed' }

/** The dependencies and options of a record cache. */
export interface RecordCacheOptions {
  readonly store: Store
  readonly kinds: readonly KindIndex[]
  readonly builtIns: readonly CachedRecord[]
  readonly log: Log
  /** Maximum time in milliseconds for which a read waits until the watch has caught up. */
  readonly barrierTimeoutMs?: number
}

const backoff: Backoff = { firstMs: 50, maxMs: 2_000 }

/**
 * Keeps all records of the store in memory (RecordTables). It loads them at the start, then follows one watch, and reloads if the watch cannot resume.
 * `barrier` makes reads linearizable: it resolves once the snapshot contains every commit acknowledged before the call
 * (docs/spec/storage.md#consistent-reads).
 */
export class RecordCache {
  readonly #options: Required<RecordCacheOptions>
  readonly #stop = new AbortController()
  readonly #waiters = new Waiters()
  readonly #recordListeners = new Set<RecordListener>()
  readonly #hideListeners = new Set<HideListener>()
  readonly #resetListeners = new Set<() => void>()
  readonly #keyListeners = new Set<(key: string) => void>()
  readonly #returnListeners = new Set<() => void>()
  #tables: RecordTables
  #state: RecordCacheState = { kind: 'loading', records: 0 }
  #revision: Revision = storeRevision(0)
  #running: Promise<void> | undefined
  readonly #question = new SharedQuestion<Revision, void>(
    () => this.#options.store.revision(this.#stop.signal),
    (revision) => this.reached(revision),
  )

  constructor(options: RecordCacheOptions) {
    this.#options = { barrierTimeoutMs: 5_000, ...options }
    this.#tables = this.#emptyTables()
  }

  get state(): RecordCacheState {
    return this.#state
  }

  /** The current snapshot of the records. Get it again after every await, because a reload replaces it. */
  get tables(): RecordTables {
    return this.#tables
  }

  /** The revision of the last commit that the snapshot contains. */
  get revision(): Revision {
    return this.#revision
  }

  /** Calls `listener` for every record that changes. The returned function ends that. */
  onRecord(listener: RecordListener): () => void {
    this.#recordListeners.add(listener)
    return () => this.#recordListeners.delete(listener)
  }

  /** Calls `listener` for records that are hidden at once, because a record on which they depend was removed. The returned function ends that. */
  onHide(listener: HideListener): () => void {
    this.#hideListeners.add(listener)
    return () => this.#hideListeners.delete(listener)
  }

  /** Calls `listener` after a reload replaced the whole snapshot. The returned function ends that. */
  onReset(listener: () => void): () => void {
    this.#resetListeners.add(listener)
    return () => this.#resetListeners.delete(listener)
  }

  /** Calls `listener` when the cache follows the store again after an interruption. The returned function ends that. */
  onReturn(listener: () => void): () => void {
    this.#returnListeners.add(listener)
    return () => this.#returnListeners.delete(listener)
  }

  /** Calls `listener` with each changed key under `meta/`, and the key of each deletion mark that changes. The returned function ends that. */
  onKey(listener: (key: string) => void): () => void {
    this.#keyListeners.add(listener)
    return () => this.#keyListeners.delete(listener)
  }

  /**
   * Loads the snapshot and starts to follow the store. Resolves once the state is `live`. Rejects if the first load cannot succeed: the store is damaged, or
   * `signal` aborts.
   */
  async start(signal: AbortSignal): Promise<void> {
    const waitMs = (error: unknown, failures: number): number | undefined => {
      if (error instanceof StoreError && (error.kind === 'closed' || error.kind === 'damaged')) return undefined
      this.#options.log.warn('the store cannot be read; trying again', { error: errorText(error) })
      return backoffMs(backoff, failures)
    }
    await retry(() => this.#load(signal), { waitMs, signal })
    this.#state = { kind: 'live' }
    this.#running = this.#follow()
  }

  /** Stops the watch. Resolves when it has ended. */
  async close(): Promise<void> {
    this.#state = { kind: 'closed' }
    this.#stop.abort(new StoreError('closed', 'the record cache was closed'))
    this.#waiters.fail(new StoreError('closed', 'the record cache was closed'))
    await this.#running
  }

  /**
   * Resolves once the snapshot contains every commit acknowledged before this call. Calls that arrive while a query to the store is under way share the next
   * query. Rejects with StoreError `unavailable` if the store cannot be queried, or the watch is broken or too slow.
   */
  async barrier(signal?: AbortSignal): Promise<void> {
    this.#assertLive()
    await this.#question.result()
    signal?.throwIfAborted()
  }

  /** Resolves once the snapshot contains the commit `revision`. Rejects like `barrier`. */
  async reached(revision: Revision, signal?: AbortSignal): Promise<void> {
    if (this.#revision >= revision) return
    this.#assertLive()
    await this.#waiters.wait(revision, this.#options.barrierTimeoutMs, signal)
  }

  /** Throws unless the watch runs. Bounded reads check this instead of calling `barrier`. */
  assertLive(): void {
    this.#assertLive()
  }

  #assertLive(): void {
    if (this.#state.kind !== 'live') throw new StoreError('unavailable', `the record cache does not follow the store (state: ${this.#state.kind})`)
  }

  #emptyTables(): RecordTables {
    const { kinds, builtIns, log } = this.#options
    const tables = new RecordTables({
      kinds,
      builtIns,
      listener: (kind, old, record) => {
        // Listeners must not receive the hidden records that a replaced snapshot is still removing.
        if (tables === this.#tables) for (const listener of this.#recordListeners) listener(kind, old, record)
      },
      onHide: (kind, records) => {
        if (tables === this.#tables) for (const listener of this.#hideListeners) listener(kind, records)
      },
      onUnreadable: ({ key, cause }) => log.error('a stored record cannot be read', { key, error: errorText(cause) }),
    })
    return tables
  }

  /** Loads everything as of one commit into a new snapshot, and makes it the current one. */
  async #load(signal: AbortSignal): Promise<void> {
    const { store, kinds, log } = this.#options
    const tables = this.#emptyTables()
    const { revision, records } = await loadTables(tables, {
      store,
      kinds: kinds.map(({ kind }) => kind),
      log,
      signal,
      progress: (count) => {
        if (this.#state.kind === 'loading') this.#state = { kind: 'loading', records: count }
      },
    })
    this.#tables = tables
    this.#revision = revision
    for (const listener of this.#resetListeners) listener()
    this.#waiters.reached(this.#revision)
    log.debug('the snapshot is loaded', { records, revision })
  }

  /** Follows the store until the cache is closed: restarts the watch or reloads when it ends. */
  async #follow(): Promise<void> {
    const { signal } = this.#stop
    let failures = 0
    let stale = false
    while (!signal.aborted) {
      const startedAt = this.#revision
      try {
        // Wait for the reload: a revision from before the store was replaced has no meaning for the new one.
        if (stale) await this.#load(signal)
        stale = false
        await this.#watch(signal)
      } catch (error) {
        if (signal.aborted) return
        this.#options.log.warn(stale ? 'reloading all records from the store failed' : 'the watch ended', { error: errorText(error) })
        this.#state = { kind: 'broken', cause: error }
        this.#waiters.fail(new StoreError('unavailable', 'the watch on the store ended', error))
        stale ||= error instanceof StoreError && (error.kind === 'compacted' || error.kind === 'replaced')
        failures = this.#revision > startedAt ? 1 : failures + 1
        await pause(backoffMs(backoff, failures), signal)
      }
    }
  }

  /** Runs one watch until it ends. Throws the error that ended it. */
  async #watch(signal: AbortSignal): Promise<void> {
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    const caughtUp = this.#state.kind === 'live' ? Promise.resolve() : this.#goLive(either)
    try {
      for await (const batch of this.#options.store.watch(watchedPrefixes, this.#revision, either)) this.#apply(batch.revision, batch.changes)
    } finally {
      ended.abort(new StoreError('unavailable', 'the watch ended'))
      await Promise.allSettled([caughtUp])
    }
  }

  /** Changes the state from `broken` to `live` once the new watch has reached the store's current revision. */
  async #goLive(signal: AbortSignal): Promise<void> {
    const { store, log } = this.#options
    while (!signal.aborted && this.#state.kind === 'broken') {
      try {
        const revision = await store.revision(signal)
        if (this.#revision < revision) await this.#waiters.wait(revision, this.#options.barrierTimeoutMs, signal)
        if (this.#state.kind !== 'broken') return
        this.#state = { kind: 'live' }
        log.info('the watch on the store runs again', { revision: this.#revision })
        for (const listener of this.#returnListeners) listener()
      } catch (error) {
        if (!signal.aborted) log.debug('the record cache has not caught up with the store; trying again', { error: errorText(error) })
        await pause(backoff.firstMs, signal)
      }
    }
  }

  #apply(revision: Revision, changes: readonly Change[]): void {
    this.#tables.apply(changes)
    if (revision > this.#revision) this.#revision = revision
    this.#waiters.reached(this.#revision)
    for (const { key } of changes) {
      if (key.startsWith('meta/') || key.startsWith('i/sweep/')) for (const listener of this.#keyListeners) listener(key)
    }
  }
}
