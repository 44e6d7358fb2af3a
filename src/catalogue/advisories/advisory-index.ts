import type { DatabaseSync } from 'node:sqlite'
import { NumberSet, numbersIn } from '../files/number-set.ts'
import { noOrdinal, writeLists, type ListedRow } from '../files/row-lists.ts'

/** Maximum number of terms, and of their advisories, that are collected together: 32 MiB. */
const collectedTogether = 4 * 1024 * 1024

/** Writes the set of advisories of each place. */
function writePlaces(database: DatabaseSync, ordinals: Uint32Array, limit: number): void {
  const counts = database.prepare('SELECT p.id, (SELECT count(*) FROM advisory a WHERE a.place = p.id AND a.listed = 1) AS listed FROM place p').all()
  const rows = database.prepare('SELECT id FROM advisory WHERE place = ? AND listed = 1')
  const write = database.prepare('UPDATE place SET listed = ?, ordinals = ? WHERE id = ?')
  for (const { id, listed } of counts) {
    const found = new Uint32Array(Number(listed))
    let at = 0
    for (const row of rows.iterate(Number(id))) found[at++] = ordinals[Number(row['id'])] ?? noOrdinal
    const set = NumberSet.of(found.sort(), limit)
    write.run(set.size, set.bytes(), Number(id))
  }
}

/** Calls `found` with each listed advisory and its terms. */
function eachTerms(database: DatabaseSync, found: (id: number, terms: Uint32Array) => void): void {
  const rows = database.prepare('SELECT id, terms FROM advisory WHERE listed = 1')
  for (const { id, terms } of rows.iterate()) found(Number(id), numbersIn(terms as Uint8Array)) // a BLOB column
}

/** Returns the end of the terms from `first` that are collected together, and the number of their advisories. */
function collectedFrom(first: number, counts: Uint32Array): { readonly end: number; readonly total: number } {
  let [end, total] = [first + 1, counts[first] ?? 0]
  while (end < counts.length && end - first < collectedTogether && total + (counts[end] ?? 0) <= collectedTogether) {
    total += counts[end] ?? 0
    end += 1
  }
  return { end, total }
}

/** Writes the set of advisories of each term, and deletes terms without advisories. */
function writeTerms(database: DatabaseSync, ordinals: Uint32Array, limit: number): void {
  const { last = 0 } = database.prepare('SELECT max(id) AS last FROM term').get() ?? {}
  const counts = new Uint32Array(Number(last) + 1)
  eachTerms(database, (_, terms) => terms.forEach((term) => (counts[term] = (counts[term] ?? 0) + 1)))
  const write = database.prepare('INSERT INTO term_set (term, listed, ordinals) VALUES (?, ?, ?)')
  for (let first = 1; first < counts.length;) {
    const { end, total } = collectedFrom(first, counts)
    // The advisories of the terms from `first` to before `end`, one term after the other, and where the next one of each term goes.
    const all = new Uint32Array(total)
    const next = new Uint32Array(end - first)
    for (let at = 1; at < next.length; at += 1) next[at] = (next[at - 1] ?? 0) + (counts[first + at - 1] ?? 0)
    eachTerms(database, (id, terms) => {
      for (const term of terms) {
        if (term < first || term >= end) continue
        const at = next[term - first] ?? 0
        all[at] = ordinals[id] ?? noOrdinal
        next[term - first] = at + 1
      }
    })
    // Each term now ends where the one after it begins.
    for (const [at, to] of next.entries()) {
      const from = next[at - 1] ?? 0
      if (from === to) continue
      const set = NumberSet.of(all.slice(from, to).sort(), limit)
      write.run(first + at, set.size, set.bytes())
    }
    first = end
  }
  database.exec('DELETE FROM term WHERE id NOT IN (SELECT term FROM term_set)')
}

function* listedRows(database: DatabaseSync): Generator<ListedRow, void, undefined> {
  const rows = database.prepare(
    `SELECT a.id, a.create_ms, a.update_ms, a.search FROM advisory a JOIN place p ON p.id = a.place WHERE a.listed = 1 ORDER BY p.uid || '/' || a.segment`,
  )
  for (const row of rows.iterate())
    yield { id: Number(row['id']), createMs: Number(row['create_ms']), updateMs: Number(row['update_ms']), text: String(row['search']) }
}

/** Makes the tables that lists read from the others. */
export function writeIndex(database: DatabaseSync): void {
  const { listed, last } = database.prepare('SELECT sum(listed) AS listed, max(id) AS last FROM advisory').get() ?? {}
  const count = Number(listed ?? 0)
  const ordinals = writeLists(database, { rows: listedRows(database), count, lastId: Number(last ?? 0) })
  database.exec('DELETE FROM term_set')
  writePlaces(database, ordinals, count)
  writeTerms(database, ordinals, count)
}
