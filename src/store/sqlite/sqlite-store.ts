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
  /** The file; missing directories are created. */
  readonly path: string
  readonly log: Log
  /** Memory for recent commits, used to resume watches and to read old revisions; 32 MiB by default. */
  readonly historyBytes?: number
  /** The maximum file size; above it transactions fail with `exhausted`. No limit by default. */
  readonly maxBytes?: number
}

/**
 * Creates the embedded store: one file, one process. Commits are durable (WAL, synchronous=FULL). Commits that wait in one turn of the event loop share one
 * disk flush. Throws StoreError `unavailable` if another process has the file or it cannot be used. The history holds `historyBytes` and starts empty with each
 * open.
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
 * States:
 * - usable (`#ended` undefined). -> broken if the disk fails a commit. A full disk or a damaged page only refuses that commit
 * - broken (`unavailable`): a flush failed, so the disk's content is unknown, and a second flush would not reveal it. Calls fail, watches and leaderships have
 *   ended. -> usable once the file was closed, reopened and fully flushed again, which is retried until it succeeds
 * - closed. Final.
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
      // A full disk does not prevent reads.
      this.#log.warn('the log of the embedded store cannot be truncated yet', { error })
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

  /** After a failed commit, first opens the file again: then it shows whether the commit happened. */
  async fence(signal: AbortSignal): Promise<void> {
    this.#assertUsable(signal)
  }

  async *watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncGenerator<ChangeBatch, never> {
    this.#assertUsable(signal)
    if (after > this.#history.last) throw new StoreError('replaced', 'the store is older than the watch')
    for (let at = after; ;) {
      const commits = this.#history.since(at, maxBatchCommits)
      if (commits === undefined) throw new StoreError('compacted', 'the watch starts before the kept history')
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

  /** Returns the range at a past revision: the present with all later changes undone. Without a revision, returns the present. */
  #rangeAt(query: RangeQuery): RangeResult {
    const { prefix, after = '', before, limit, revision = this.#history.last } = query
    if (revision > this.#history.last) throw new StoreError('replaced', 'the store is older than the requested revision')
    const later = this.#history.since(revision)
    if (later === undefined) throw new StoreError('compacted', 'the revision is before the kept history')
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

  /** Commits the members one by one. A transaction without space, or with a damaged page, must not make the others of its group fail. */
  #commitFailed(group: readonly WaitingTransaction[], error: unknown): void {
    const refused = error instanceof StoreError && (error.kind === 'exhausted' || error.kind === 'damaged')
    if (refused && group.length > 1) {
      for (const waiting of group) {
        // An earlier member may have ended the store because of a disk failure.
        if (this.#ended === undefined) this.#commitGroup([waiting])
        else waiting.done.reject(this.#ended)
      }
      return
    }
    const unknown = error instanceof StoreError && !refused ? new StoreError('indeterminate', 'the embedded store failed a commit', error) : error
    for (const waiting of group) waiting.done.reject(unknown)
    if (refused || !(error instanceof StoreError)) return
    this.#log.error('the embedded store failed a commit and is opened again', { error })
    this.#end(new StoreError('unavailable', 'the embedded store failed a commit', error))
    this.#reopenAfter(firstReopenMs)
  }

  #reopenAfter(delayMs: number): void {
    this.#reopening = setTimeout(() => {
      try {
        this.#reopen()
      } catch (error) {
        this.#log.error('the embedded store cannot be opened yet', { error })
        this.#reopenAfter(Math.min(2 * delayMs, maxReopenMs))
      }
    }, delayMs)
  }

  /** Opens the file again. Watches continue if the failed commit did not happen, and reload if it did. */
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
