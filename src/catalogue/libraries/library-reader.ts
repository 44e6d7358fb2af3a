import type { DatabaseSync, SQLInputValue } from 'node:sqlite'
import { RecentMap } from '../../base/recent-map.ts'
import { trustedUid } from '../../base/uid.ts'
import type { ArtifactFilter, ArtifactPage, ArtifactQuery, VersionPage, VersionQuery } from '../../cache/lists/library-source.ts'
import type { Order, SortField, SortKey } from '../../cache/lists/order.ts'
import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openForReading } from '../files/catalogue-file.ts'
import { artifactOf, isKnownEcosystem, knownEcosystems, prefixes } from './artifact-facts.ts'
import { libraryTables } from './library-tables.ts'
import { versionPage } from './version-page.ts'
import type { KnownEcosystem } from './version-orders.ts'

/** Up to this number of artifacts, a search sorts what it finds. Above it, it walks an index in the order of the list. */
const defaultFewArtifacts = 5_000
/** Number of counts to remember. */
const rememberedCounts = 1_000
/** The trigram index finds texts of at least this length, in characters. */
const trigramLength = 3

/** What lists filter by, with the number of its artifacts, and the greatest number of them that share a time. */
interface Term {
  readonly id: number
  readonly ecosystem: KnownEcosystem
  readonly remediated: boolean
  readonly cuda: string
  readonly listed: number
  readonly ties: number
}

/** An artifact's place in the file and in any order. */
interface Listed extends SortKey {
  readonly rank: number
}

/** The artifacts of an ecosystem lie next to each other in `listed`: from the first to the last rank. */
interface Ranks {
  readonly first: number
  readonly last: number
}

/** A part of a statement with its parameters. */
interface Clause {
  readonly text: string
  readonly values: readonly SQLInputValue[]
}

/** The tables and the condition of a statement. */
interface Matches {
  readonly from: string
  readonly where: Clause
}

/** What a search is about: artifacts of a term whose names contain a text. `matches` is their number. */
interface Search {
  readonly term: Term
  readonly text: string
  readonly matches: number
}

const columns = { createMs: 'e.create_ms', updateMs: 'e.update_ms', rank: 'e.rank' } as const

/** A field of an order of artifacts of one ecosystem. `by` is the field of the order. */
interface RankTerm {
  readonly column: keyof typeof columns
  readonly by: SortField
  readonly descending: boolean
}

/** The fields of an order of artifacts of one ecosystem: uids and names have the order of ranks, and no two artifacts have the same. */
function rankTerms({ terms }: Order): RankTerm[] {
  const found: RankTerm[] = []
  for (const { field, descending } of terms) {
    if (field !== 'createMs' && field !== 'updateMs') return [...found, { column: 'rank', by: field, descending }]
    found.push({ column: field, by: field, descending })
  }
  return found
}

function sortBy(terms: readonly RankTerm[]): string {
  return terms.map(({ column, descending }) => `${columns[column]}${descending ? ' DESC' : ''}`).join(', ')
}

function joined(clauses: readonly Clause[], sorting: string): Clause {
  return { text: `${clauses.map(({ text }) => text).join(' AND ')} ORDER BY ${sorting}`, values: clauses.flatMap(({ values }) => values) }
}

/** Yields what all sources have, in the order. Each source is in the order. */
function* merged(sources: readonly Iterator<Listed>[], order: Order): Generator<Listed, void, undefined> {
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

/** A catalogue of library artifacts: one file, open for reading. It never changes. Synchronous: LibraryThread reads it in a thread. */
export class LibraryReader {
  readonly #database: DatabaseSync
  readonly #fewArtifacts: number
  readonly #terms: readonly Term[]
  readonly #ranks = new Map<KnownEcosystem, Ranks>()
  readonly #counts = new RecentMap<string, number>(rememberedCounts)

  /** `fewArtifacts` is for tests of the walk with small files. Throws CatalogueError if the file is no catalogue of this version. */
  constructor(path: string, { fewArtifacts = defaultFewArtifacts }: { readonly fewArtifacts?: number } = {}) {
    this.#fewArtifacts = fewArtifacts
    this.#database = openForReading(path, libraryTables)
    this.#terms = this.#database
      .prepare('SELECT id, ecosystem, remediated, cuda, listed, ties FROM term')
      .all()
      .map((row) => ({
        id: Number(row['id']),
        ecosystem: Number(row['ecosystem']) as KnownEcosystem, // the builder's
        remediated: row['remediated'] === 1,
        cuda: String(row['cuda']),
        listed: Number(row['listed']),
        ties: Number(row['ties']),
      }))
    let last = 0
    for (const ecosystem of knownEcosystems.toSorted((a, b) => a - b)) {
      const first = last + 1
      last += this.#termOf({ ecosystem, remediated: false, cuda: '' })?.listed ?? 0
      this.#ranks.set(ecosystem, { first, last })
    }
  }

  /** Returns the number of artifacts in each ecosystem that has some. */
  counts(): ReadonlyMap<Ecosystem, number> {
    return new Map(this.#terms.filter(({ remediated, cuda }) => !remediated && cuda === '').map(({ ecosystem, listed }) => [ecosystem, listed]))
  }

  /** Returns one page of artifacts, in the order of the query. */
  artifacts({ filter, order, after, skip, limit }: ArtifactQuery): ArtifactPage {
    const searches = this.#searchesFor(filter)
    const total = searches.reduce((sum, { matches }) => sum + matches, 0)
    if (skip >= total) return { artifacts: [], total }
    const found: Listed[] = []
    let skipped = 0
    for (const artifact of merged(
      searches.map((search) => this.#found(search, order, after)),
      order,
    )) {
      if (skipped < skip) skipped += 1
      else if (found.push(artifact) >= limit) break
    }
    const body = this.#database.prepare('SELECT body FROM artifact WHERE id = (SELECT artifact FROM listed WHERE rank = ?)')
    // A BLOB column.
    return { artifacts: found.map(({ rank, ...key }) => ({ ...key, body: body.get(rank)?.['body'] as Uint8Array })), total }
  }

  /** Returns one page of the versions of an artifact; undefined if there is no such artifact. */
  versions(query: VersionQuery): VersionPage | undefined {
    const known = artifactOf(query.artifact)
    return known === undefined ? undefined : versionPage(this.#database, known, query)
  }

  /** Closes the file. */
  close(): void {
    this.#database.close()
  }

  #termOf(wanted: Pick<Term, 'ecosystem' | 'remediated' | 'cuda'>): Term | undefined {
    return this.#terms.find(({ ecosystem, remediated, cuda }) => ecosystem === wanted.ecosystem && remediated === wanted.remediated && cuda === wanted.cuda)
  }

  /** Returns a search for each ecosystem that has matches. */
  #searchesFor({ ecosystems, text, cuda = '', remediated }: ArtifactFilter): Search[] {
    const wanted = text.toLowerCase()
    // Names are printable ASCII.
    if (!/^[!-~]*$/.test(wanted)) return []
    return ecosystems.filter(isKnownEcosystem).flatMap((ecosystem) => {
      const term = this.#termOf({ ecosystem, remediated, cuda: ecosystem === Ecosystem.PYTHON ? cuda : '' })
      if (term === undefined) return []
      const matches = wanted === '' ? term.listed : this.#countOf(term, wanted)
      return matches === 0 ? [] : [{ term, text: wanted, matches }]
    })
  }

  /** Returns the entries of a term that contain a text, by trigrams, in the order of ranks. */
  #byTrigrams(term: Term, text: string, { first, last }: Ranks): Matches {
    return {
      from: 'search s CROSS JOIN entry e ON e.rank = s.rowid CROSS JOIN listed l ON l.rank = e.rank',
      where: { text: 's.name MATCH ? AND s.rowid BETWEEN ? AND ? AND e.term = ?', values: [`"${text.replaceAll('"', '""')}"`, first, last, term.id] },
    }
  }

  #matching(term: Term, text: string): Matches {
    return term.listed > this.#fewArtifacts && text.length >= trigramLength ? this.#byTrigrams(term, text, this.#ranksOf(term)) : scanned(term, text)
  }

  #countOf(term: Term, text: string): number {
    const key = `${term.id} ${text}`
    const known = this.#counts.get(key)
    if (known !== undefined) return known
    const { from, where } = this.#matching(term, text)
    const count = Number(this.#database.prepare(`SELECT count(*) AS n FROM ${from} WHERE ${where.text}`).get(...where.values)?.['n'])
    this.#counts.set(key, count)
    return count
  }

  #ranksOf({ ecosystem }: Term): Ranks {
    return this.#ranks.get(ecosystem) ?? { first: 1, last: 0 }
  }

  /** Yields the artifacts of a search after a place, in the order. */
  *#found(search: Search, order: Order, after: SortKey | undefined): Generator<Listed, void, undefined> {
    const { term, text, matches } = search
    const rows =
      text !== '' && matches <= this.#fewArtifacts
        ? this.#rows(search, this.#matching(term, text)).toArray().sort(order.compare)
        : term.ties > this.#fewArtifacts
          ? this.#tied(search, order, after)
          : this.#walked(search, order, after)
    // The bound of a walk includes the place.
    for (const row of rows) if (after === undefined || order.compare(row, after) > 0) yield row
  }

  /** Yields the artifacts that a statement finds. */
  *#rows({ term }: Search, { from, where }: Matches): Generator<Listed, void, undefined> {
    const statement = this.#database.prepare(`SELECT e.rank, e.create_ms, e.update_ms, l.name FROM ${from} WHERE ${where.text}`)
    for (const row of statement.iterate(...where.values)) {
      const name = String(row['name'])
      const uid = trustedUid(`${prefixes[term.ecosystem]}${name}`)
      yield { rank: Number(row['rank']), uid, name, createMs: Number(row['create_ms']), updateMs: Number(row['update_ms']) }
    }
  }

  /** Yields artifacts by an index, from a place on. SQLite sorts those that share the first field. */
  #walked(search: Search, order: Order, after: SortKey | undefined): Generator<Listed, void, undefined> {
    const { term, text } = search
    const terms = rankTerms(order)
    const [first] = terms
    if (first?.column === 'rank' && text.length >= trigramLength) {
      const rank = after === undefined ? undefined : this.#rankAt(term, first.by, after)
      const ranks = this.#ranksOf(term)
      const within = rank === undefined ? ranks : first.descending ? { ...ranks, last: rank } : { ...ranks, first: rank }
      const { from, where } = this.#byTrigrams(term, text, within)
      return this.#rows(search, { from, where: joined([where], `s.rowid${first.descending ? ' DESC' : ''}`) })
    }
    const { from, where } = scanned(term, text)
    return this.#rows(search, { from, where: joined([where, ...this.#bounds(term, first, after)], sortBy(terms)) })
  }

  /** Yields artifacts of an order by time where many share one: each time by itself, so that no more are sorted than are wanted. */
  *#tied(search: Search, order: Order, after: SortKey | undefined): Generator<Listed, void, undefined> {
    const { term, text } = search
    const [first, ...rest] = rankTerms(order)
    if (first === undefined || first.column === 'rank') {
      yield* this.#walked(search, order, after)
      return
    }
    const { column, descending } = first
    const name = columns[column]
    const next = this.#database.prepare(
      `SELECT ${name} AS ms FROM entry e WHERE e.term = ? AND ${name} ${descending ? '<' : '>'} ? ORDER BY ${name}${descending ? ' DESC' : ''} LIMIT 1`,
    )
    const { from, where } = scanned(term, text)
    const rowsAt = (ms: number, bounds: readonly Clause[]): Generator<Listed, void, undefined> =>
      this.#rows(search, { from, where: joined([where, { text: `${name} = ?`, values: [ms] }, ...bounds], sortBy(rest)) })
    let ms = after === undefined ? (descending ? Number.MAX_SAFE_INTEGER : -1) : after[column]
    if (after !== undefined) yield* rowsAt(ms, this.#bounds(term, rest[0], after))
    for (let row = next.get(term.id, ms); row !== undefined; row = next.get(term.id, ms)) {
      ms = Number(row['ms'])
      yield* rowsAt(ms, [])
    }
  }

  /** Returns the condition that an artifact is not before a place in one field. */
  #bounds(term: Term, first: RankTerm | undefined, after: SortKey | undefined): Clause[] {
    if (first === undefined || after === undefined) return []
    const { column, by, descending } = first
    return [{ text: `${columns[column]} ${descending ? '<=' : '>='} ?`, values: [column === 'rank' ? this.#rankAt(term, by, after) : after[column]] }]
  }

  /** Returns the first rank of the ecosystem whose artifact is not before the place, by name or by uid. It may be one after the last. */
  #rankAt(term: Term, by: SortField, { uid, name }: SortKey): number {
    const ranks = this.#ranksOf(term)
    const prefix = prefixes[term.ecosystem]
    if (by === 'uid' && !uid.startsWith(prefix)) return uid < prefix ? ranks.first : ranks.last + 1
    const wanted = by === 'uid' ? uid.slice(prefix.length) : name
    const nameAt = this.#database.prepare('SELECT name FROM listed WHERE rank = ?')
    let [low, high] = [ranks.first, ranks.last + 1]
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      if (String(nameAt.get(middle)?.['name']) < wanted) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** Returns the entries of a term whose names contain a text, by looking at each. */
function scanned(term: Term, text: string): Matches {
  const from = 'entry e CROSS JOIN listed l ON l.rank = e.rank'
  if (text === '') return { from, where: { text: 'e.term = ?', values: [term.id] } }
  return { from, where: { text: 'e.term = ? AND instr(lower(l.name), ?) > 0', values: [term.id, text] } }
}
