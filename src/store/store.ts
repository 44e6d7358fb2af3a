declare const revisionBrand: unique symbol

/** A commit's position in the store's total order of commits; greater is later. Never compare revisions of different stores. */
export type Revision = number & { readonly [revisionBrand]: true }

/** Marks a number from an adapter's store as a revision. */
export function storeRevision(value: number): Revision {
  return value as Revision
}

/** A key, its value and the revision of the last commit that wrote it. */
export interface Entry {
  readonly key: string
  readonly value: Uint8Array
  readonly revision: Revision
}

/** A condition for a transaction to commit. All guards are tested at one revision, together with the writes. */
export type Guard =
  | { readonly kind: 'unchanged'; readonly key: string; readonly revision: Revision }
  | { readonly kind: 'absent'; readonly key: string }
  | { readonly kind: 'exists'; readonly key: string }
  /** No key starts with `prefix`. On etcd this reads the range: use it only if the range is expected to be empty. */
  | { readonly kind: 'empty'; readonly prefix: string }
  /** No key that starts with `prefix` was written after `revision`; deletions are not detected. On etcd this reads the range. */
  | { readonly kind: 'quiet'; readonly prefix: string; readonly revision: Revision }

/** One change of a transaction. A key may occur once (TypeError otherwise). */
export type Write = Put | { readonly kind: 'delete'; readonly key: string }

/** Sets the value of a key. */
export interface Put {
  readonly kind: 'put'
  readonly key: string
  readonly value: Uint8Array
}

/** Guards and writes that commit together or not at all. Limits: transaction-limits.ts. */
export interface Transaction {
  readonly guards: readonly Guard[]
  readonly writes: readonly Write[]
}

/** The result if a guard did not hold; nothing was written. */
export interface Conflict {
  readonly committed: false
}

/** The result of a committed, durable transaction. */
export interface Committed {
  readonly committed: true
  readonly revision: Revision
}

/** One key's change in a commit: `value` is undefined if the key was deleted. */
export interface Change {
  readonly key: string
  readonly value: Uint8Array | undefined
  readonly revision: Revision
}

/**
 * Whole commits, in order: no commit is split over two batches. `revision` is that of the last commit. A batch without changes only reports the progress of the
 * watch.
 */
export interface ChangeBatch {
  readonly revision: Revision
  readonly changes: readonly Change[]
}

/** A slice of keys in byte order, as of `revision`. */
export interface RangeResult {
  readonly entries: readonly Entry[]
  /** True if `limit` cut off further keys. */
  readonly more: boolean
  /** The revision at which the range was read. */
  readonly revision: Revision
}

/** The keys to read in a range. */
export interface RangeQuery {
  readonly prefix: string
  /** Only keys after this one. */
  readonly after?: string
  /** Only keys before this one. */
  readonly before?: string
  readonly limit: number
  /** Read as of this revision; throws StoreError `compacted` if the history no longer includes it. */
  readonly revision?: Revision
}

/**
 * The reason why a store call failed:
 * - `unavailable`: no answer, or a temporary error. Nothing was written.
 * - `indeterminate`: a transaction was sent and its outcome is unknown. It may have committed, and may still commit until `fence` resolves.
 * - `compacted`: the requested revision is no longer kept. Reload.
 * - `replaced`: the store was replaced or went back in time (a restored backup). Reload everything.
 * - `exhausted`: the store has no space (etcd quota, full disk). The outcome is final: nothing was written. Exception: etcd applies the transaction that fills
 *   it, but still returns this error. A read afterwards shows which.
 * - `too_large`: the transaction exceeds the store's limits. Nothing was written.
 * - `damaged`: the stored data there is unreadable, now and later. Nothing was written.
 * - `closed`: this adapter was closed.
 */
export type StoreErrorKind = 'unavailable' | 'damaged' | 'indeterminate' | 'compacted' | 'replaced' | 'exhausted' | 'too_large' | 'closed'

/** The only error class of the store port; adapters translate their driver's errors into it by code. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

/** Leadership won through `elect`. `lost` aborts when it ends; `resign` ends it and resolves when another process may win. */
export interface Leadership {
  readonly lost: AbortSignal
  resign(): Promise<void>
}

/**
 * The store port. Keys are ASCII text in byte order; values are bytes. Every method rejects with StoreError, or with the signal's reason once `signal` aborts.
 * Both adapters pass one contract suite: test/store/contract.ts.
 */
export interface Store {
  /** Reads one key, linearizable. */
  get(key: string, signal: AbortSignal): Promise<Entry | undefined>
  /** Reads a range of keys in byte order, linearizable or as of `revision`. */
  range(query: RangeQuery, signal: AbortSignal): Promise<RangeResult>
  /**
   * Commits all writes if every guard holds. Durable when it resolves. Rejects with `indeterminate` if the transaction may have reached the store, even if the
   * signal aborts then. Rejects with the signal's reason only if the transaction will never be sent.
   */
  transact(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict>
  /**
   * Settles every transaction of this process that rejected with `indeterminate` before. Once this resolves, none of them can commit any more, and a read shows
   * which did. Each later transaction does the same first for those that the store did not answer. Transactions that only delete are exempt while the store is
   * full. Rejects with StoreError, or the signal's reason, if that is not certain yet: call again.
   */
  fence(signal: AbortSignal): Promise<void>
  /**
   * Yields every commit after `after` that touches one of `prefixes`, in order, exactly once, in batches. The iteration ends only by throwing. Errors:
   * StoreError `unavailable` (resume from the last batch's revision), `compacted` or `replaced` (reload), `closed`; or the signal's reason. Throws early
   * instead of going silent: a watch that cannot know whether it is current ends with `unavailable`.
   */
  watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncIterable<ChangeBatch>
  /**
   * Returns a linearizable revision R. Every transaction on the watched prefixes acknowledged before this call has a revision <= R. A watch of those prefixes
   * will deliver a batch whose revision is >= R (unless R is not newer than the watch's start).
   */
  revision(signal: AbortSignal): Promise<Revision>
  /**
   * Waits until this process leads under `name`. There is one leader at a time among all processes on this store. Rejects with `unavailable` if the wait itself
   * breaks: call again.
   */
  elect(name: string, signal: AbortSignal): Promise<Leadership>
  /** Releases all resources; running calls reject with `closed`. */
  close(): Promise<void>
}
