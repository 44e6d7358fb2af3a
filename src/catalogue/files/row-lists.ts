import type { DatabaseSync } from 'node:sqlite'
import { bytesOf, numbersIn } from './number-set.ts'

/** The ordinal of a row that lists leave out. */
export const noOrdinal = 0xffffffff
/** Size of a piece of the texts to search, in bytes. */
const pieceBytes = 256 * 1024

/**
 * Tables that lists read. An ordinal is the place of a listed row in the order of uids, from 0.
 * - `number_list`: the arrays of RowLists
 * - `search_text`: the texts to search in the order of ordinals, in pieces. `first` is the first ordinal, `ends` has the end of each text in the piece
 */
export const listTables = `
CREATE TABLE number_list (name TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE search_text (first INTEGER PRIMARY KEY, ends BLOB NOT NULL, texts BLOB NOT NULL);
`

/** Arrays with a number for each listed row. Those whose names begin with `by` have ordinals in the order of a field, then of uids. */
export interface RowLists {
  /** Number of the row in its table, by ordinal. */
  readonly ids: Uint32Array
  /** Times in milliseconds since 1970, by ordinal. */
  readonly createMs: Float64Array
  readonly updateMs: Float64Array
  readonly byCreate: Uint32Array
  readonly byUpdate: Uint32Array
  /** The place of the row's name among all different names, by ordinal. Empty for rows without names. */
  readonly names: Uint32Array
  readonly byName: Uint32Array
}

const listNames = ['ids', 'createMs', 'updateMs', 'byCreate', 'byUpdate', 'names', 'byName'] as const satisfies readonly (keyof RowLists)[]

/** A listed row, in the order of uids. */
export interface ListedRow {
  readonly id: number
  readonly createMs: number
  readonly updateMs: number
  /** The lower-case texts to search, one on each line. */
  readonly text: string
}

/** The rows of a catalogue that are listed. */
export interface ListedRows {
  /** In the order of uids. */
  readonly rows: Iterable<ListedRow>
  readonly count: number
  /** The greatest number of a row. */
  readonly lastId: number
  /** The names of all rows in the order of names; absent for rows without names. */
  readonly names?: Iterable<{ readonly id: number; readonly name: string }>
}

/** Returns the lists of a finished catalogue. */
export function readLists(database: DatabaseSync): RowLists {
  const read = database.prepare('SELECT content FROM number_list WHERE name = ?')
  const numbers = (name: keyof RowLists): Uint32Array => numbersIn(read.get(name)?.['content'] as Uint8Array) // a BLOB column
  const times = (name: keyof RowLists): Float64Array => new Float64Array(numbers(name).buffer)
  return {
    ids: numbers('ids'),
    createMs: times('createMs'),
    updateMs: times('updateMs'),
    byCreate: numbers('byCreate'),
    byUpdate: numbers('byUpdate'),
    names: numbers('names'),
    byName: numbers('byName'),
  }
}

/** Numbers of this many values are sorted at a time. */
const radix = 4096

/** Returns the ordinals in the order of their values, which are whole, then of ordinals. It needs memory for two arrays of ordinals only. */
function sortedBy(values: Float64Array | Uint32Array): Uint32Array {
  let [sorted, next] = [new Uint32Array(values.length), new Uint32Array(values.length)]
  let [least, most] = [Infinity, -Infinity]
  for (let ordinal = 0; ordinal < values.length; ordinal += 1) {
    sorted[ordinal] = ordinal
    least = Math.min(least, values[ordinal] ?? 0)
    most = Math.max(most, values[ordinal] ?? 0)
  }
  // From the last digit to the first one, and each time equal digits keep their order.
  for (let unit = 1; unit <= most - least; unit *= radix) {
    const digitOf = (ordinal: number): number => Math.floor(((values[ordinal] ?? 0) - least) / unit) % radix
    const places = new Uint32Array(radix + 1)
    for (const ordinal of sorted) places[digitOf(ordinal) + 1] = (places[digitOf(ordinal) + 1] ?? 0) + 1
    for (let digit = 1; digit <= radix; digit += 1) places[digit] = (places[digit] ?? 0) + (places[digit - 1] ?? 0)
    for (const ordinal of sorted) {
      const digit = digitOf(ordinal)
      const place = places[digit] ?? 0
      next[place] = ordinal
      places[digit] = place + 1
    }
    ;[sorted, next] = [next, sorted]
  }
  return sorted
}

/** Collects the texts of rows, and stores them in pieces. */
class TextPieces {
  readonly #insert
  #texts: Buffer[] = []
  #ends: number[] = []
  #bytes = 0
  #first = 0

  constructor(database: DatabaseSync) {
    this.#insert = database.prepare('INSERT INTO search_text (first, ends, texts) VALUES (?, ?, ?)')
  }

  add(text: string): void {
    const bytes = Buffer.from(`${text}\n`)
    this.#texts.push(bytes)
    this.#ends.push((this.#bytes += bytes.length))
    if (this.#bytes >= pieceBytes) this.store()
  }

  store(): void {
    if (this.#ends.length > 0) this.#insert.run(this.#first, bytesOf(Uint32Array.from(this.#ends)), Buffer.concat(this.#texts))
    this.#first += this.#ends.length
    this.#texts = []
    this.#ends = []
    this.#bytes = 0
  }
}

/** Returns the place of each row's name among all different names. */
function ranksOf(names: ListedRows['names'], ordinals: Uint32Array, count: number): Uint32Array {
  if (names === undefined) return new Uint32Array()
  const ranks = new Uint32Array(count)
  let rank = -1
  let last: string | undefined
  for (const { id, name } of names) {
    if (name !== last) rank += 1
    last = name
    ranks[ordinals[id] ?? noOrdinal] = rank
  }
  return ranks
}

/** Writes the lists of the rows. Returns the ordinal of each row by its number; `noOrdinal` for one that is not listed. */
export function writeLists(database: DatabaseSync, { rows, count, lastId, names }: ListedRows): Uint32Array {
  database.exec('DELETE FROM number_list; DELETE FROM search_text')
  const [ids, ordinals] = [new Uint32Array(count), new Uint32Array(lastId + 1).fill(noOrdinal)]
  const [createMs, updateMs] = [new Float64Array(count), new Float64Array(count)]
  const pieces = new TextPieces(database)
  let ordinal = 0
  for (const row of rows) {
    ids[ordinal] = row.id
    ordinals[row.id] = ordinal
    createMs[ordinal] = row.createMs
    updateMs[ordinal] = row.updateMs
    pieces.add(row.text)
    ordinal += 1
  }
  pieces.store()
  const ranks = ranksOf(names, ordinals, count)
  const lists: RowLists = {
    ids,
    createMs,
    updateMs,
    byCreate: sortedBy(createMs),
    byUpdate: sortedBy(updateMs),
    names: ranks,
    byName: sortedBy(ranks),
  }
  const write = database.prepare('INSERT INTO number_list (name, content) VALUES (?, ?)')
  for (const name of listNames) write.run(name, bytesOf(lists[name]))
  return ordinals
}
