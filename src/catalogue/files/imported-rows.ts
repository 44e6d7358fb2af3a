import type { DatabaseSync } from 'node:sqlite'
import type { PutOutcome } from './catalogue-writer.ts'

/** Number of rows after which the open transaction is committed: what it holds in memory would grow with it. */
const rowsPerCommit = 5_000

/** A row of the file: its number, and the hash of what it says. */
interface StoredRow {
  readonly id: number
  readonly hash: Uint8Array
}

/** Numbers in a bitmap: 125 KB for a million rows. Numbers of rows are dense. */
class RowNumbers {
  #bits = new Uint8Array(1024)
  size = 0

  has(id: number): boolean {
    return ((this.#bits[id >>> 3] ?? 0) & (1 << (id & 7))) !== 0
  }

  add(id: number): void {
    const at = id >>> 3
    if (at >= this.#bits.length) {
      const grown = new Uint8Array(Math.max(at + 1, this.#bits.length * 2))
      grown.set(this.#bits)
      this.#bits = grown
    }
    this.#bits[at] = (this.#bits[at] ?? 0) | (1 << (id & 7))
    this.size += 1
  }

  *[Symbol.iterator](): Generator<number, void, undefined> {
    for (let id = 0; id < this.#bits.length * 8; id++) if (this.has(id)) yield id
  }
}

/** The rows that an import put, and its open transaction. Writes happen in it: call `written` after each row, and `end` after the last one. */
export class ImportedRows {
  readonly #database: DatabaseSync
  readonly #put = new RowNumbers()
  #pending = 0

  constructor(database: DatabaseSync) {
    this.#database = database
    database.exec('BEGIN')
  }

  /** True if the row was put. */
  hasPut(id: number): boolean {
    return this.#put.has(id)
  }

  /** Marks a new row as put. */
  see(id: number): void {
    this.#put.add(id)
  }

  /** Marks a row that the file has as put. Returns what becomes of it: the row must be written if it is `changed`. */
  outcomeOf({ id, hash: before }: StoredRow, hash: Buffer): Exclude<PutOutcome, 'added'> {
    if (this.#put.has(id)) return 'repeated'
    this.#put.add(id)
    return hash.equals(before) ? 'unchanged' : 'changed'
  }

  /** Returns the number of rows that were put. */
  get count(): number {
    return this.#put.size
  }

  /** Makes the table `temp.seen`, whose column `id` has the rows that were put. */
  makeTable(): void {
    this.#database.exec('CREATE TEMP TABLE seen (id INTEGER PRIMARY KEY)')
    const insert = this.#database.prepare('INSERT INTO temp.seen (id) VALUES (?)')
    for (const id of this.#put) insert.run(id)
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
