import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { prefixEnd } from '../keys.ts'
import {
  StoreError,
  storeRevision,
  type Committed,
  type Conflict,
  type Entry,
  type Guard,
  type RangeQuery,
  type Revision,
  type Transaction,
  type Write,
} from '../store.ts'
import type { Commit, HistoryStep } from './commit-history.ts'
import { sqliteOpenError } from './sqlite-errors.ts'

/** `PRAGMA application_id` of Taproot's files ('TAPR'), and the version of the database schema below. */
const applicationId = 0x54415052
const schemaVersion = 1

const schema = `
  CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO meta VALUES ('revision', 0);
  PRAGMA application_id = ${applicationId};
  PRAGMA user_version = ${schemaVersion};
`

/** Greater than every key; the end of a range without an end. */
const afterAllKeys = '\u{10ffff}'

/** The result of a group of transactions: the outcome of each, in order, and the commits that changed a key. */
export interface GroupOutcome {
  readonly outcomes: readonly (Committed | Conflict)[]
  readonly commits: readonly Commit[]
}

/**
 * The SQLite file: the newest version of every key, and the revision of the last commit. It locks the file from open to close; the system releases the lock if
 * the process dies. All methods are synchronous and throw node:sqlite's errors.
 */
export class SqliteDatabase {
  readonly #database: DatabaseSync
  readonly #statements: Record<keyof typeof statementTexts, StatementSync>

  private constructor(database: DatabaseSync) {
    this.#database = database
    const prepared = Object.entries(statementTexts).map(([name, text]) => [name, database.prepare(text)])
    // fromEntries loses the names in its type; they are those of statementTexts.
    this.#statements = Object.fromEntries(prepared) as Record<keyof typeof statementTexts, StatementSync>
  }

  /**
   * Opens or creates the file (mode 0600). Throws StoreError `unavailable` if another process holds it or Taproot did not write it; such a file is left
   * unchanged.
   */
  static open(path: string, maxBytes: number | undefined): SqliteDatabase {
    let database: DatabaseSync | undefined
    try {
      createPrivateFile(path)
      database = new DatabaseSync(path)
      prepareFile(database, path, maxBytes)
      return new SqliteDatabase(database)
    } catch (error) {
      database?.close()
      throw sqliteOpenError(path, error)
    }
  }

  /**
   * Moves the whole write-ahead log into the main file and flushes both. Afterwards no data depends on an earlier flush of the log, which may have failed
   * silently. Throws if the disk fails or is full.
   */
  emptyLog(): void {
    this.#database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  }

  lastRevision(): Revision {
    return storeRevision(Number(this.#statements.lastRevision.get()?.['value']))
  }

  get(key: string): Entry | undefined {
    const row = this.#statements.get.get(key)
    return row === undefined ? undefined : entryOf(row)
  }

  /** Returns at most `limit` entries in byte order: those with keys that start with `prefix` and lie between `after` and `before`, excluding both. */
  range({ prefix, after = '', before = afterAllKeys, limit }: RangeQuery): Entry[] {
    const prefixed = prefixEnd(prefix) ?? afterAllKeys
    const end = before < prefixed ? before : prefixed
    const rows = after < prefix ? this.#statements.rangeFrom.all(prefix, end, limit) : this.#statements.rangeAfter.all(after, end, limit)
    return rows.map(entryOf)
  }

  /** Runs the transactions in sequence and makes them durable together. If it throws, none of them committed, unless the disk failed. */
  commit(transactions: readonly Transaction[]): GroupOutcome {
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      const group = this.#apply(transactions)
      this.#database.exec('COMMIT')
      return group
    } catch (error) {
      // SQLite has already rolled back after some errors.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
  }

  /** Closes the file. Idempotent. */
  close(): void {
    if (this.#database.isOpen) this.#database.close()
  }

  #apply(transactions: readonly Transaction[]): GroupOutcome {
    let revision = this.lastRevision()
    const outcomes: (Committed | Conflict)[] = []
    const commits: Commit[] = []
    for (const { guards, writes } of transactions) {
      if (!guards.every((guard) => this.#holds(guard))) {
        outcomes.push({ committed: false })
        continue
      }
      const next = storeRevision(revision + 1)
      const steps = writes.flatMap((write) => this.#write(write, next))
      if (steps.length > 0) {
        commits.push({ revision: next, steps })
        revision = next
      }
      outcomes.push({ committed: true, revision })
    }
    if (commits.length > 0) this.#statements.setRevision.run(revision)
    return { outcomes, commits }
  }

  #holds(guard: Guard): boolean {
    if ('prefix' in guard) return this.#hasNone(guard)
    const revision = this.#statements.revisionOf.get(guard.key)?.['revision']
    if (guard.kind === 'absent') return revision === undefined
    return guard.kind === 'exists' ? revision !== undefined : revision === guard.revision
  }

  #hasNone(guard: Extract<Guard, { prefix: string }>): boolean {
    const end = prefixEnd(guard.prefix) ?? afterAllKeys
    if (guard.kind === 'quiet') return this.#statements.writtenAfter.get(guard.prefix, end, guard.revision) === undefined
    return this.#statements.any.get(guard.prefix, end) === undefined
  }

  /** Executes one write and returns the changes for the history: one, or none if an absent key is deleted. */
  #write(write: Write, revision: Revision): HistoryStep[] {
    const { key } = write
    const before = this.get(key)
    if (write.kind === 'delete') {
      if (before === undefined) return []
      this.#statements.delete.run(key)
      return [{ key, before, after: undefined }]
    }
    this.#statements.put.run(key, write.value, revision)
    // Copy the value, because the caller may reuse its buffer.
    return [{ key, before, after: { key, value: Uint8Array.from(write.value), revision } }]
  }
}

const statementTexts = {
  get: 'SELECT key, value, revision FROM kv WHERE key = ?',
  revisionOf: 'SELECT revision FROM kv WHERE key = ?',
  rangeFrom: 'SELECT key, value, revision FROM kv WHERE key >= ? AND key < ? ORDER BY key LIMIT ?',
  rangeAfter: 'SELECT key, value, revision FROM kv WHERE key > ? AND key < ? ORDER BY key LIMIT ?',
  writtenAfter: 'SELECT 1 FROM kv WHERE key >= ? AND key < ? AND revision > ? LIMIT 1',
  any: 'SELECT 1 FROM kv WHERE key >= ? AND key < ? LIMIT 1',
  put: 'INSERT INTO kv VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision',
  delete: 'DELETE FROM kv WHERE key = ?',
  lastRevision: "SELECT value FROM meta WHERE name = 'revision'",
  setRevision: "UPDATE meta SET value = ? WHERE name = 'revision'",
} as const

function entryOf(row: Record<string, unknown>): Entry {
  // The casts match the column types of the database schema.
  return { key: row['key'] as string, value: row['value'] as Uint8Array, revision: storeRevision(row['revision'] as number) }
}

/** Creates the file with mode 0600, because SQLite would use the umask. Never opens an existing file: closing it would release this process's locks on it. */
function createPrivateFile(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  }
}

/** Sets the file mode to 0600. An existing database may have another mode, and SQLite gives its write-ahead log the same one. */
function makePrivate(path: string): void {
  for (const file of [path, `${path}-wal`]) if (existsSync(file)) chmodSync(file, 0o600)
}

function pragma(database: DatabaseSync, name: 'application_id' | 'user_version' | 'page_size'): number {
  return Number(database.prepare(`PRAGMA ${name}`).get()?.[name])
}

/** Returns true for an empty file and false for a file that Taproot wrote. Throws for any other file. Writes nothing. */
function isEmpty(database: DatabaseSync, path: string): boolean {
  const [application, version] = [pragma(database, 'application_id'), pragma(database, 'user_version')]
  const tables = Number(database.prepare('SELECT count(*) AS count FROM sqlite_schema').get()?.['count'])
  if (tables === 0 && application === 0 && version === 0) return true
  if (application !== applicationId) throw new StoreError('unavailable', `the embedded store ${path}: Taproot did not create this file`)
  if (version > schemaVersion) throw new StoreError('unavailable', `the embedded store ${path}: a newer version of Taproot wrote this file`)
  return false
}

/**
 * Locks the file until it is closed, then checks it, or creates the database schema if it is empty. The lock is exclusive before the first access, so that
 * SQLite needs no shared memory file.
 */
function prepareFile(database: DatabaseSync, path: string, maxBytes: number | undefined): void {
  database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE')
  const fresh = isEmpty(database, path)
  database.exec('ROLLBACK')
  makePrivate(path)
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE')
  if (fresh) database.exec(schema)
  database.exec('COMMIT')
  if (maxBytes === undefined) return
  database.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(maxBytes / pragma(database, 'page_size')))}`)
}
