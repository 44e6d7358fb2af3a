declare const revisionBrand: unique symbol

/** A commit's place in the store's one total order of commits; greater is later. Never compared across stores. */
export type Revision = number & { readonly [revisionBrand]: true }

/** Marks a number that an adapter got from its store as a revision. */
export function storeRevision(value: number): Revision {
  return value as Revision
}

/** A key, its value and the revision of the commit that wrote it last. */
export interface Entry {
  readonly key: string
  readonly value: Uint8Array
  readonly revision: Revision
}

/** What must hold for a transaction to commit. All guards are tested at one revision, together with the writes. */
export type Guard =
  | { readonly kind: 'unchanged'; readonly key: string; readonly revision: Revision }
  | { readonly kind: 'absent'; readonly key: string }
  | { readonly kind: 'exists'; readonly key: string }
  /** No key starts with `prefix`. On etcd this reads the range: use it only where the range is believed empty. */
  | { readonly kind: 'empty'; readonly prefix: string }
  /** No key that starts with `prefix` was written after `revision`; what was deleted is not noticed. On etcd this reads the range. */
  | { readonly kind: 'quiet'; readonly prefix: string; readonly revision: Revision }

/** One change of a transaction. A key may occur once (TypeError otherwise). */
export type Write = Put | { readonly kind: 'delete'; readonly key: string }

/** Gives a key a value. */
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

/** A guard did not hold; nothing was written. */
export interface Conflict {
  readonly committed: false
}

/** Committed and durable. */
export interface Committed {
  readonly committed: true
  readonly revision: Revision
}

/** One key's change in a commit: `value` is undefined where the key was deleted. */
export interface Change {
  readonly key: string
  readonly value: Uint8Array | undefined
  readonly revision: Revision
}

/**
 * Whole commits, in order: a commit is never split over two batches. `revision` is that of the last. Without changes a batch only says that
 * the watch has come so far.
 */
export interface ChangeBatch {
  readonly revision: Revision
  readonly changes: readonly Change[]
}

/** A slice of keys in byte order, as of `revision`. */
export interface RangeResult {
  readonly entries: readonly Entry[]
  /** True where keys follow that `limit` cut off. */
  readonly more: boolean
  /** The revision at which the range was read. */
  readonly revision: Revision
}

/** Which keys a range reads. */
export interface RangeQuery {
  readonly prefix: string
  /** Only keys after this one. */
  readonly after?: string
  /** Only keys before this one. */
  readonly before?: string
  readonly limit: number
  /** Read as of this revision; throws StoreError `compacted` where history does not reach so far. */
  readonly revision?: Revision
}

/**
 * Why a store call failed:
 * - `unavailable`: no answer, or one that says to come again. Nothing was written.
 * - `indeterminate`: a transaction was sent and its outcome is unknown. It may have committed, and may still commit until `fence` resolves.
 * - `compacted`: the revision asked for is no longer kept. Reload.
 * - `replaced`: the store is another one than before or went back in time (a restored backup). Reload everything.
 * - `exhausted`: the store has no room (etcd quota, full disk). What is written is settled: nothing, but for the one transaction that fills an etcd, which etcd
 *   applies and answers so all the same. A read afterwards tells.
 * - `too_large`: the transaction is over the store's limits. Nothing was written.
 * - `damaged`: what the store holds there can't be read, now or later. Nothing was written.
 * - `closed`: this adapter was closed.
 */
export type StoreErrorKind = 'unavailable' | 'damaged' | 'indeterminate' | 'compacted' | 'replaced' | 'exhausted' | 'too_large' | 'closed'

/** The one error class of the store port; adapters translate their driver's errors into it by code. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

/** Leadership that `elect` won. `lost` aborts when it ends; `resign` ends it and resolves when another may win. */
export interface Leadership {
  readonly lost: AbortSignal
  resign(): Promise<void>
}

/**
 * The store port. Keys are ASCII text in byte order; values are bytes. Every method rejects with StoreError, or with the signal's
 * reason once `signal` aborts. Two adapters pass one contract suite: test/store/contract.ts.
 */
export interface Store {
  /** Linearizable read of one key. */
  get(key: string, signal: AbortSignal): Promise<Entry | undefined>
  /** Linearizable (or as of `revision`) read of a range of keys in byte order. */
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
   * Every commit after `after` that touches one of `prefixes`, in order, exactly once, as batches. The iteration ends only by throwing:
   * StoreError `unavailable` (resume from the last batch's revision), `compacted` or `replaced` (reload), `closed`; or the signal's reason.
   * Throws early rather than go silent: a watch that can't know whether it is current ends with `unavailable`.
   */
  watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncIterable<ChangeBatch>
  /**
   * Returns a linearizable revision R. Every transaction on the watched prefixes acknowledged before this call has a revision <= R. A watch of those prefixes
   * will deliver a batch whose revision is >= R (unless R is not newer than the watch's start).
   */
  revision(signal: AbortSignal): Promise<Revision>
  /**
   * Waits until this process leads under `name`. One leader at a time, among all processes on this store. Rejects with `unavailable` where the
   * wait itself breaks: call again.
   */
  elect(name: string, signal: AbortSignal): Promise<Leadership>
  /** Releases everything; running calls reject with `closed`. */
  close(): Promise<void>
}
