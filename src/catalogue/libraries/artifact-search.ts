import type { SQLInputValue } from 'node:sqlite'
import type { ArtifactQuery } from '../../cache/lists/library-source.ts'
import type { Order, SortField, SortKey } from '../../cache/lists/order.ts'
import type { KnownEcosystem } from './version-orders.ts'

/** What lists filter by, with the number of its artifacts, and the greatest number of them that share a time. */
export interface Term {
  readonly id: number
  readonly ecosystem: KnownEcosystem
  readonly remediated: boolean
  readonly cuda: string
  readonly listed: number
  readonly ties: number
}

/** An artifact's place in the file and in any order. */
export interface Listed extends SortKey {
  readonly rank: number
}

/** The artifacts of an ecosystem lie next to each other in `listed`: from the first to the last rank. */
export interface Ranks {
  readonly first: number
  readonly last: number
}

/** A part of a statement with its parameters. */
export interface Clause {
  readonly text: string
  readonly values: readonly SQLInputValue[]
}

/** The tables and the condition of a statement. */
export interface SearchSql {
  readonly from: string
  readonly where: Clause
}

/** Where a search starts: after a place, and that many artifacts later. */
export type From = Pick<ArtifactQuery, 'after' | 'skip'>

/** A place in an order. */
export interface PlaceInOrder {
  readonly order: Order
  readonly after: SortKey
}

/** A part of a list. */
export type PagePlace = Pick<ArtifactQuery, 'after' | 'skip' | 'limit'>

/** What a search is about: artifacts of a term whose names contain a text. `matches` is their number. */
export interface Search {
  readonly term: Term
  readonly text: string
  readonly matches: number
}

export const columns = { createMs: 'e.create_ms', updateMs: 'e.update_ms', rank: 'e.rank' } as const

/** A field of an order of artifacts of one ecosystem. `by` is the field of the order. */
export interface RankTerm {
  readonly column: keyof typeof columns
  readonly by: SortField
  readonly descending: boolean
}

/** The fields of an order of artifacts of one ecosystem: uids and names have the order of ranks, and no two artifacts have the same. */
export function rankTerms({ terms }: Order): RankTerm[] {
  const found: RankTerm[] = []
  for (const { field, descending } of terms) {
    if (field !== 'createMs' && field !== 'updateMs') return [...found, { column: 'rank', by: field, descending }]
    found.push({ column: field, by: field, descending })
  }
  return found
}

export function sortBy(terms: readonly RankTerm[]): string {
  return terms.map(({ column, descending }) => `${columns[column]}${descending ? ' DESC' : ''}`).join(', ')
}

export function joined(clauses: readonly Clause[], sorting: string, skip: number): Clause {
  const condition = clauses.map(({ text }) => text).join(' AND ')
  const offset = skip === 0 ? '' : ` LIMIT -1 OFFSET ${String(skip)}`
  return { text: `${condition} ORDER BY ${sorting}${offset}`, values: clauses.flatMap(({ values }) => values) }
}

/** Yields what all sources have, in the order. Each source is in the order. */
export function* merged(sources: readonly Iterator<Listed>[], order: Order): Generator<Listed, void, undefined> {
  const heads = sources.map((source) => ({ source, head: source.next() }))
  for (;;) {
    let first: (typeof heads)[number] | undefined
    for (const one of heads) {
      if (one.head.done === true) continue
      if (first === undefined || first.head.done === true || order.compare(one.head.value, first.head.value) < 0) first = one
    }
    if (first === undefined || first.head.done === true) return
    yield first.head.value
    first.head = first.source.next()
  }
}

/** Returns the entries with these ranks. */
export function few(term: Term, ranks: Iterable<number>): SearchSql {
  const from = 'json_each(?) j CROSS JOIN entry e ON e.rank = j.value CROSS JOIN listed l ON l.rank = e.rank'
  return { from, where: { text: 'e.term = ?', values: [JSON.stringify([...ranks]), term.id] } }
}

/** Returns the entries of a term whose names contain a text, by looking at each. */
export function scanned(term: Term, text: string): SearchSql {
  const from = 'entry e CROSS JOIN listed l ON l.rank = e.rank'
  if (text === '') return { from, where: { text: 'e.term = ?', values: [term.id] } }
  return { from, where: { text: 'e.term = ? AND instr(lower(l.name), ?) > 0', values: [term.id, text] } }
}
