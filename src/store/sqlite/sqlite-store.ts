import type { Log } from '../../base/log.ts'
import {
  StoreError,
  type ChangeBatch,
  type Committed,
  type Conflict,
  type Entry,
  type Leadership,
  type RangeQuery,
  type RangeResult,
  type Revision,
  type Store,
  type Transaction,
} from '../store.ts'
import { checkRange, checkTransaction } from '../transaction-limits.ts'
import { untilAborted } from '../../base/timing.ts'
import { CommitHistory, type Commit } from './commit-history.ts'
import { LocalElections } from './local-election.ts'
import { SqliteDatabase } from './sqlite-database.ts'
import { sqliteError } from './sqlite-errors.ts'

/** Path and size limits of the embedded store. */
export interface SqliteStoreOptions {
  /** Path of the database file. Missing directories are created. */
  readonly path: string
  readonly log: Log
  /** Memory in bytes for recent commits, from which watches resume and old revisions are read; 32 MiB by default. */
  readonly historyBytes?: number
  /** Maximum file size in bytes. Above it, transactions fail with `exhausted`. No limit by default. */
  readonly maxBytes?: number
}

/**
 * Creates the embedded store: one file that one process uses. Commits are durable (WAL, synchronous=FULL). Transactions that wait in one turn of the event
 * loop share a disk flush. Throws StoreError `unavailable` if another process uses the file or it cannot be opened. The history of recent commits is limited
 * to `historyBytes` and is empty after each open.
 */
export function createSqliteStore(options: SqliteStoreOptions): Store {
  return new SqliteStore(options)
}

const defaultHistoryBytes = 32 * 1024 * 1024

/** Maximum number of commits in one batch of a watch. */
const maxBatchCommits = 1000

/** A transaction that waits for the next group commit. */
interface WaitingTransaction {
  readonly transaction: Transaction
  readonly signal: AbortSignal
  readonly done: PromiseWithResolvers<Committed | Conflict>
}

const firstReopenMs = 100
const maxReopenMs = 5_000

/**
 * The states of the store:
 * - usable (`#ended` is undefined). A disk failure during a commit makes it broken; a full disk or a damaged page only fails that commit
 * - broken (`unavailable`): a flush failed, so the content of the disk is unknown, and a second flush would not show it. Calls fail, and watches and
 *   leaderships have ended. The store closes and opens the file again, with retries, and is usable once everything is flushed
 * - closed: final.
 */
class SqliteStore implements Store {
  readonly #options: SqliteStoreOptions
  readonly #log: Log
  #database: SqliteDatabase
  #history: CommitHistory
  #elections = new LocalElections()
  #reopening: NodeJS.Timeout | undefined
  #queue: WaitingTransaction[] = []
  #changed = Promise.withResolvers<void>()
  #ended: StoreError | undefined

  constructor(options: SqliteStoreOptions) {
    this.#options = options
    this.#log = options.log
    this.#database = this.#open()
    this.#history = this.#freshHistory()
    try {
      this.#database.emptyLog()
    } catch (error) {
      // A full disk does not prevent reads, so continue.
      this.#log.warn('the write-ahead log of the embedded store cannot be truncated; trying again', { error })
    }
  }

  async get(key: string, signal: AbortSignal): Promise<Entry | undefined> {
    return this.#read(signal, () => this.#database.get(key))
  }

  async range(query: RangeQuery, signal: AbortSignal): Promise<RangeResult> {
    checkRange(query)
    return this.#read(signal, () => this.#rangeAt(query))
  }

  async transact(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict> {
    this.#assertUsable(signal)
    checkTransaction(transaction)
    const waiting: WaitingTransaction = { transaction, signal, done: Promise.withResolvers() }
    if (this.#queue.push(waiting) === 1) setImmediate(() => this.#commitQueue())
    return untilAborted(waiting.done.promise, signal)
  }

  /**
   * Resolves when no earlier transaction can still commit. After a failed commit, it first opens the file again, which shows whether the transaction
   * committed.
   */
  async fence(signal: AbortSignal): Promise<void> {
    this.#assertUsable(signal)
  }

  async *watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncGenerator<ChangeBatch, never> {
    this.#assertUsable(signal)
    if (after > this.#history.last)
      throw new StoreError('replaced', 'the store has not reached the revision at which the watch starts: it was replaced or restored')
    for (let at = after; ;) {
      const commits = this.#history.since(at, maxBatchCommits)
      if (commits === undefined) throw new StoreError('compacted', 'the watch starts at a revision that the store no longer keeps')
      const newest = commits.at(-1)
      if (newest === undefined) await untilAborted(this.#changed.promise, signal)
      else {
        at = newest.revision
        yield { revision: at, changes: commits.flatMap((commit) => changesOf(commit, prefixes)) }
      }
      this.#assertUsable(signal)
    }
  }

  async revision(signal: AbortSignal): Promise<Revision> {
    this.#assertUsable(signal)
    return this.#history.last
  }

  async elect(name: string, signal: AbortSignal): Promise<Leadership> {
    this.#assertUsable(signal)
    return this.#elections.elect(name, signal)
  }

  async close(): Promise<void> {
    const first = this.#ended?.kind !== 'closed'
    clearTimeout(this.#reopening)
    this.#end(new StoreError('closed', 'the store was closed'))
    if (first) this.#database.close()
  }

  #open(): SqliteDatabase {
    return SqliteDatabase.open(this.#options.path, this.#options.maxBytes)
  }

  #freshHistory(): CommitHistory {
    return new CommitHistory(this.#database.lastRevision(), this.#options.historyBytes ?? defaultHistoryBytes)
  }

  #assertUsable(signal: AbortSignal): void {
    signal.throwIfAborted()
    if (this.#ended !== undefined) throw this.#ended
  }

  #read<T>(signal: AbortSignal, read: () => T): T {
    this.#assertUsable(signal)
    try {
      return read()
    } catch (error) {
      throw sqliteError(this.#options.path, error)
    }
  }

  /** Returns the range as of a past revision: the current range with all later changes undone. Without a revision, returns the current range. */
  #rangeAt(query: RangeQuery): RangeResult {
    const { prefix, after = '', before, limit, revision = this.#history.last } = query
    if (revision > this.#history.last) throw new StoreError('replaced', 'the store has not reached the requested revision: it was replaced or restored')
    const later = this.#history.since(revision)
    if (later === undefined) throw new StoreError('compacted', 'the store no longer keeps the requested revision')
    const then = new Map<string, Entry | undefined>()
    for (const step of later.flatMap((commit) => commit.steps)) {
      const asked = step.key.startsWith(prefix) && step.key > after && (before === undefined || step.key < before)
      if (asked && !then.has(step.key)) then.set(step.key, step.before)
    }
    let entries = this.#database.range({ ...query, limit: limit + 1 + then.size })
    if (then.size > 0) {
      entries = entries.filter((entry) => !then.has(entry.key)).concat([...then.values()].filter((entry) => entry !== undefined))
      entries.sort((a, b) => (a.key < b.key ? -1 : 1))
    }
    return { entries: entries.slice(0, limit), more: entries.length > limit, revision }
  }

  #commitQueue(): void {
    const group = this.#queue.filter((waiting) => !waiting.signal.aborted)
    this.#queue = []
    if (this.#ended === undefined && group.length > 0) this.#commitGroup(group)
  }

  #commitGroup(group: readonly WaitingTransaction[]): void {
    try {
      const { outcomes, commits } = this.#database.commit(group.map((waiting) => waiting.transaction))
      for (const commit of commits) this.#history.add(commit)
      if (commits.length > 0) this.#wakeWatches()
      for (const [index, waiting] of group.entries()) waiting.done.resolve(outcomes[index] ?? { committed: false })
    } catch (error) {
      this.#commitFailed(group, sqliteError(this.#options.path, error))
    }
  }

  /** Commits the transactions of a failed group one by one. One that lacks space or meets a damaged page then does not fail the others. */
  #commitFailed(group: readonly WaitingTransaction[], error: unknown): void {
    const refused = error instanceof StoreError && (error.kind === 'exhausted' || error.kind === 'damaged')
    if (refused && group.length > 1) {
      for (const waiting of group) {
        // The commit of an earlier transaction may have broken the store because of a disk failure.
        if (this.#ended === undefined) this.#commitGroup([waiting])
        else waiting.done.reject(this.#ended)
      }
      return
    }
    const unknown = error instanceof StoreError && !refused ? new StoreError('indeterminate', 'a commit of the embedded store failed', error) : error
    for (const waiting of group) waiting.done.reject(unknown)
    if (refused || !(error instanceof StoreError)) return
    this.#log.error('a commit of the embedded store failed: opening its file again', { error })
    this.#end(new StoreError('unavailable', 'a commit of the embedded store failed', error))
    this.#reopenAfter(firstReopenMs)
  }

  #reopenAfter(delayMs: number): void {
    this.#reopening = setTimeout(() => {
      try {
        this.#reopen()
      } catch (error) {
        this.#log.error('the embedded store cannot be opened; trying again', { error })
        this.#reopenAfter(Math.min(2 * delayMs, maxReopenMs))
      }
    }, delayMs)
  }

  /** Opens the file again. Watches can resume if the failed commit did not happen, and must reload if it did. */
  #reopen(): void {
    const acknowledged = this.#history.last
    this.#database.close()
    this.#database = this.#open()
    this.#database.emptyLog()
    this.#history = this.#freshHistory()
    this.#elections = new LocalElections()
    this.#ended = undefined
    const fields = { revision: this.#history.last, acknowledged }
    if (fields.revision < acknowledged) this.#log.error('the embedded store is open again, and the disk has lost acknowledged commits', fields)
    else this.#log.info('the embedded store is open again', fields)
  }

  #wakeWatches(): void {
    this.#changed.resolve()
    this.#changed = Promise.withResolvers()
  }

  #end(error: StoreError): void {
    this.#ended = error
    for (const waiting of this.#queue) waiting.done.reject(error)
    this.#queue = []
    this.#elections.close(error)
    this.#wakeWatches()
  }
}

function changesOf({ revision, steps }: Commit, prefixes: readonly string[]): ChangeBatch['changes'] {
  return steps.filter(({ key }) => prefixes.some((prefix) => key.startsWith(prefix))).map(({ key, after }) => ({ key, value: after?.value, revision }))
}
