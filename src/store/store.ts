declare const revisionBrand: unique symbol

/** The position of a commit in the store's total order of commits; later commits have greater revisions. Never compare revisions of different stores. */
export type Revision = number & { readonly [revisionBrand]: true }

/** Marks a number that came from a store as a revision. */
export function storeRevision(value: number): Revision {
  return value as Revision
}

/** A key, its value and the revision of the last commit that wrote it. */
export interface Entry {
  readonly key: string
  readonly value: Uint8Array
  readonly revision: Revision
}

/** A condition for a transaction to commit. All guards are checked at one revision, atomically with the writes. */
export type Guard =
  | { readonly kind: 'unchanged'; readonly key: string; readonly revision: Revision }
  | { readonly kind: 'absent'; readonly key: string }
  | { readonly kind: 'exists'; readonly key: string }
  /** Holds if no key starts with `prefix`. On etcd the check reads all such keys, so use it only if none are expected. */
  | { readonly kind: 'empty'; readonly prefix: string }
  /** Holds if no key that starts with `prefix` was written after `revision`. Deletions are not detected. On etcd the check reads all such keys. */
  | { readonly kind: 'quiet'; readonly prefix: string; readonly revision: Revision }

/** One change of a transaction. A key must not occur in two writes of a transaction (TypeError). */
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
 * The changes of whole commits, in order: no commit is split over two batches. `revision` is that of the last commit. A batch without changes only reports how
 * far the watch has progressed.
 */
export interface ChangeBatch {
  readonly revision: Revision
  readonly changes: readonly Change[]
}

/** The entries of a range in byte order of their keys, as of `revision`. */
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
  /** The revision to read at. If the store no longer keeps it, the read throws StoreError `compacted`. */
  readonly revision?: Revision
}

/**
 * The reason why a store call failed:
 * - `unavailable`: the store did not answer, or had a temporary error. Nothing was written.
 * - `indeterminate`: a transaction was sent and its outcome is unknown. It may have committed, and may still commit until `fence` resolves.
 * - `compacted`: the store no longer keeps the requested revision. Reload the data.
 * - `replaced`: the store was replaced, or restored from a backup. Reload all data.
 * - `exhausted`: the store has no space (etcd quota, full disk). Nothing was written. Exception: etcd executes the transaction that fills it and still returns
 *   this error. A later read shows which case it is.
 * - `too_large`: the transaction exceeds the limits of the store. Nothing was written.
 * - `damaged`: the stored data cannot be read, now or later. Nothing was written.
 * - `closed`: this store object was closed.
 */
export type StoreErrorKind = 'unavailable' | 'damaged' | 'indeterminate' | 'compacted' | 'replaced' | 'exhausted' | 'too_large' | 'closed'

/** The only error class of the store port. Implementations translate the errors of their drivers into it by code. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

/** The leadership of an election, won through `elect`. `lost` aborts when it ends. `resign` ends it, and resolves when another process can win. */
export interface Leadership {
  readonly lost: AbortSignal
  resign(): Promise<void>
}

/**
 * The store port. Keys are ASCII text in byte order; values are bytes. Every method rejects with StoreError, or with the signal's reason once `signal` aborts.
 * Both implementations pass the same tests: test/store/contract.ts.
 */
export interface Store {
  /** Reads one key. The read is linearizable. */
  get(key: string, signal: AbortSignal): Promise<Entry | undefined>
  /** Reads a range of keys in byte order, either linearizable or as of `revision`. */
  range(query: RangeQuery, signal: AbortSignal): Promise<RangeResult>
  /**
   * Commits all writes if every guard holds; otherwise writes nothing and returns a Conflict. Committed writes are durable. Rejects with `indeterminate` if
   * the transaction may have reached the store, even if the signal aborts then. Rejects with the signal's reason only if the transaction will never be sent.
   */
  transact(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict>
  /**
   * Makes the outcome of every `indeterminate` transaction of this process final. Once it resolves, none of them can commit any more, and a read shows which
   * did. Each later transaction first does the same. The exception is a transaction that only deletes while the store is full. Rejects with StoreError or the
   * signal's reason if outcomes are not final yet; call again then.
   */
  fence(signal: AbortSignal): Promise<void>
  /**
   * Yields every commit after `after` that changes a key with one of the `prefixes`: in order, exactly once, in batches. The iteration ends only by throwing
   * StoreError `unavailable` (resume from the last batch's revision), `compacted` or `replaced` (reload), `closed`, or the signal's reason. A watch that
   * cannot know whether it is current throws `unavailable` instead of staying silent.
   */
  watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncIterable<ChangeBatch>
  /**
   * Returns a linearizable revision R. Every transaction on the watched prefixes that was acknowledged before this call has a revision <= R. A watch of those
   * prefixes will deliver a batch whose revision is >= R, unless it started at R or later.
   */
  revision(signal: AbortSignal): Promise<Revision>
  /**
   * Resolves when this process is the leader of the election `name`. At most one process on this store is its leader at a time. Rejects with `unavailable` if
   * the wait itself failed; call again then.
   */
  elect(name: string, signal: AbortSignal): Promise<Leadership>
  /** Releases all resources; running calls reject with `closed`. */
  close(): Promise<void>
}
