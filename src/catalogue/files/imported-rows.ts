import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { PutOutcome } from './catalogue-writer.ts'

/** Number of rows after which the open transaction is committed: what it holds in memory would grow with it. */
const rowsPerCommit = 5_000

/** A row of the file: its number, and the hash of what it says. */
interface StoredRow {
  readonly id: number
  readonly hash: Uint8Array
}

/**
 * The rows that an import put, in the table `temp.seen` with the column `id`, and its open transaction. Writes happen in it: call `written` after each row, and
 * `end` after the last one.
 */
export class ImportedRows {
  readonly #database: DatabaseSync
  readonly #see: StatementSync
  #pending = 0

  constructor(database: DatabaseSync) {
    this.#database = database
    database.exec('CREATE TEMP TABLE seen (id INTEGER PRIMARY KEY); BEGIN')
    this.#see = database.prepare('INSERT INTO temp.seen (id) VALUES (?) ON CONFLICT DO NOTHING')
  }

  /** Marks a row as put. Returns false if it was already. */
  see(id: number): boolean {
    return this.#see.run(id).changes > 0
  }

  /** Marks a row that the file has as put. Returns what becomes of it: the row must be written if it is `changed`. */
  outcomeOf({ id, hash: before }: StoredRow, hash: Buffer): Exclude<PutOutcome, 'added'> {
    if (!this.see(id)) return 'repeated'
    return hash.equals(before) ? 'unchanged' : 'changed'
  }

  /** Returns the number of rows that were put. */
  count(): number {
    return Number(this.#database.prepare('SELECT count(*) AS n FROM temp.seen').get()?.['n'])
  }

  /** Counts a row that was written. Commits from time to time. */
  written(): void {
    this.#pending += 1
    if (this.#pending >= rowsPerCommit) this.commit()
  }

  /** Commits what was written so far. */
  commit(): void {
    this.#pending = 0
    this.#database.exec('COMMIT; BEGIN')
  }

  /** Commits, and lets SQLite count what indexes contain. */
  end(): void {
    this.#database.exec('COMMIT; ANALYZE')
  }
}
