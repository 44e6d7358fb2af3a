import type { DatabaseSync } from 'node:sqlite'
import { NumberSet } from '../files/number-set.ts'
import { noOrdinal, writeLists, type ListedRow } from '../files/row-lists.ts'
import { knownEcosystems } from './artifact-facts.ts'

function* listedRows(database: DatabaseSync): Generator<ListedRow, void, undefined> {
  const rows = database.prepare('SELECT id, name, create_ms, update_ms FROM artifact WHERE ecosystem = ? ORDER BY name')
  for (const ecosystem of knownEcosystems) {
    for (const row of rows.iterate(ecosystem))
      yield { id: Number(row['id']), createMs: Number(row['create_ms']), updateMs: Number(row['update_ms']), text: String(row['name']).toLowerCase() }
  }
}

function* namesOf(database: DatabaseSync): Generator<{ readonly id: number; readonly name: string }, void, undefined> {
  for (const { id, name } of database.prepare('SELECT id, name FROM artifact ORDER BY name').iterate()) yield { id: Number(id), name: String(name) }
}

/** The terms of all artifacts. */
const terms = `
  SELECT ecosystem, remediated AS most, '' AS cuda, id FROM artifact
  UNION ALL SELECT a.ecosystem, a.remediated, c.value, a.id FROM cuda c JOIN artifact a ON a.id = c.artifact
  ORDER BY 1, 3`

/** Makes the tables that lists read from the others. */
export function writeIndex(database: DatabaseSync): void {
  const { count, last } = database.prepare('SELECT count(*) AS count, max(id) AS last FROM artifact').get() ?? {}
  const ordinals = writeLists(database, {
    rows: listedRows(database),
    count: Number(count),
    lastId: Number(last ?? 0),
    names: namesOf(database),
  })
  database.exec('DELETE FROM term')
  const write = database.prepare('INSERT INTO term (ecosystem, remediated, cuda, listed, ordinals) VALUES (?, ?, ?, ?, ?)')
  const store = (ecosystem: number, cuda: string, found: readonly (readonly number[])[]): void => {
    for (const [remediated, members] of found.entries()) {
      const set = NumberSet.of(Uint32Array.from(members).sort(), Number(count))
      if (set.size > 0) write.run(ecosystem, remediated, cuda, set.size, set.bytes())
    }
  }
  let current: { readonly ecosystem: number; readonly cuda: string } | undefined
  let found: [all: number[], remediated: number[]] = [[], []]
  for (const row of database.prepare(terms).iterate()) {
    const [ecosystem, cuda] = [Number(row['ecosystem']), String(row['cuda'])]
    if (current?.ecosystem !== ecosystem || current.cuda !== cuda) {
      if (current !== undefined) store(current.ecosystem, current.cuda, found)
      current = { ecosystem, cuda }
      found = [[], []]
    }
    const ordinal = ordinals[Number(row['id'])] ?? noOrdinal
    found[0].push(ordinal)
    if (row['most'] === 1) found[1].push(ordinal)
  }
  if (current !== undefined) store(current.ecosystem, current.cuda, found)
}
