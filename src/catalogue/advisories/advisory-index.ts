import type { DatabaseSync } from 'node:sqlite'
import { bytesOf, NumberSet, numbersIn } from './number-set.ts'

/** The ordinal of an advisory that lists leave out. */
const noOrdinal = 0xffffffff
/** Size of a piece of the texts to search, in bytes. */
const pieceBytes = 256 * 1024
/** Maximum number of advisories of terms that are collected together: 64 MiB. */
const collectedTogether = 16 * 1024 * 1024

/** The listed advisories by ordinal: their place in the order of uids, from 0. */
export interface AdvisoryLists {
  /** Number of a row in `advisory`, by ordinal. */
  readonly ids: Uint32Array
  /** Times in milliseconds since 1970, by ordinal. */
  readonly createMs: Float64Array
  readonly updateMs: Float64Array
  /** Ordinals in the order of the time, then of the ordinal. */
  readonly byCreate: Uint32Array
  readonly byUpdate: Uint32Array
}

const listNames = ['ids', 'createMs', 'updateMs', 'byCreate', 'byUpdate'] as const satisfies readonly (keyof AdvisoryLists)[]

/** Returns the lists of a finished catalogue. */
export function readLists(database: DatabaseSync): AdvisoryLists {
  const read = database.prepare('SELECT content FROM number_list WHERE name = ?')
  const numbers = (name: keyof AdvisoryLists): Uint32Array => numbersIn(read.get(name)?.['content'] as Uint8Array) // a BLOB column
  const times = (name: keyof AdvisoryLists): Float64Array => new Float64Array(numbers(name).buffer)
  return {
    ids: numbers('ids'),
    createMs: times('createMs'),
    updateMs: times('updateMs'),
    byCreate: numbers('byCreate'),
    byUpdate: numbers('byUpdate'),
  }
}

function sortedBy(times: Float64Array): Uint32Array {
  return Uint32Array.from(times.keys()).sort((one, other) => (times[one] ?? 0) - (times[other] ?? 0) || one - other)
}

/** Collects the texts of advisories, and stores them in pieces. */
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

/** Writes the set of advisories of each place. */
function writePlaces(database: DatabaseSync, ordinals: Uint32Array, limit: number): void {
  const rows = database.prepare('SELECT id FROM advisory WHERE place = ? AND listed = 1')
  const write = database.prepare('UPDATE place SET listed = ?, ordinals = ? WHERE id = ?')
  for (const { id } of database.prepare('SELECT id FROM place').all()) {
    const found = Uint32Array.from(rows.all(Number(id)), (row) => ordinals[Number(row['id'])] ?? noOrdinal)
    const set = NumberSet.of(found.sort(), limit)
    write.run(set.size, set.bytes(), Number(id))
  }
}

/** Calls `found` with each listed advisory and its terms. */
function eachTerms(database: DatabaseSync, found: (id: number, terms: Uint32Array) => void): void {
  const rows = database.prepare('SELECT id, terms FROM advisory WHERE listed = 1')
  for (const { id, terms } of rows.iterate()) found(Number(id), numbersIn(terms as Uint8Array)) // a BLOB column
}

/** Writes the set of advisories of each term, and deletes terms without advisories. */
function writeTerms(database: DatabaseSync, ordinals: Uint32Array, limit: number): void {
  const { last = 0 } = database.prepare('SELECT max(id) AS last FROM term').get() ?? {}
  const counts = new Uint32Array(Number(last) + 1)
  eachTerms(database, (_, terms) => terms.forEach((term) => (counts[term] = (counts[term] ?? 0) + 1)))
  const write = database.prepare('INSERT INTO term_set (term, listed, ordinals) VALUES (?, ?, ?)')
  for (let first = 1; first < counts.length;) {
    // The terms from `first` to before `end` are collected in one array, one after the other.
    const starts: number[] = []
    let [end, total] = [first, 0]
    while (end < counts.length && (end === first || total + (counts[end] ?? 0) <= collectedTogether)) {
      starts.push(total)
      total += counts[end] ?? 0
      end += 1
    }
    const all = new Uint32Array(total)
    const next = Uint32Array.from(starts)
    eachTerms(database, (id, terms) => {
      for (const term of terms) {
        if (term < first || term >= end) continue
        const at = next[term - first] ?? 0
        all[at] = ordinals[id] ?? noOrdinal
        next[term - first] = at + 1
      }
    })
    for (const [at, start] of starts.entries()) {
      if (next[at] === start) continue
      const set = NumberSet.of(all.slice(start, next[at]).sort(), limit)
      write.run(first + at, set.size, set.bytes())
    }
    first = end
  }
  database.exec('DELETE FROM term WHERE id NOT IN (SELECT term FROM term_set)')
}

/** Makes the tables that lists read from the others. Each listed advisory gets an ordinal. */
export function writeIndex(database: DatabaseSync): void {
  database.exec('DELETE FROM number_list; DELETE FROM term_set; DELETE FROM search_text')
  const { listed, last } = database.prepare('SELECT sum(listed) AS listed, max(id) AS last FROM advisory').get() ?? {}
  const count = Number(listed ?? 0)
  const [ids, ordinals] = [new Uint32Array(count), new Uint32Array(Number(last ?? 0) + 1).fill(noOrdinal)]
  const [createMs, updateMs] = [new Float64Array(count), new Float64Array(count)]
  const pieces = new TextPieces(database)
  const rows = database.prepare(
    `SELECT a.id, a.create_ms, a.update_ms, a.search FROM advisory a JOIN place p ON p.id = a.place WHERE a.listed = 1 ORDER BY p.uid || '/' || a.segment`,
  )
  let ordinal = 0
  for (const row of rows.iterate()) {
    ids[ordinal] = Number(row['id'])
    ordinals[Number(row['id'])] = ordinal
    createMs[ordinal] = Number(row['create_ms'])
    updateMs[ordinal] = Number(row['update_ms'])
    pieces.add(String(row['search']))
    ordinal += 1
  }
  pieces.store()
  writePlaces(database, ordinals, count)
  writeTerms(database, ordinals, count)
  const lists: AdvisoryLists = { ids, createMs, updateMs, byCreate: sortedBy(createMs), byUpdate: sortedBy(updateMs) }
  const write = database.prepare('INSERT INTO number_list (name, content) VALUES (?, ?)')
  for (const name of listNames) write.run(name, bytesOf(lists[name]))
}
