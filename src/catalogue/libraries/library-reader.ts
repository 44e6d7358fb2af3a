import type { DatabaseSync } from 'node:sqlite'
import { RecentMap } from '../../base/recent-map.ts'
import { trustedUid } from '../../base/uid.ts'
import type { ArtifactFilter, ArtifactPage, ArtifactQuery, VersionPage, VersionQuery } from '../../cache/lists/library-source.ts'
import type { Order, SortKey } from '../../cache/lists/order.ts'
import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openForReading } from '../files/catalogue-file.ts'
import {
  type Term,
  type Listed,
  type Ranks,
  type Clause,
  type SearchSql,
  type From,
  type PlaceInOrder,
  type PagePlace,
  type Search,
  columns,
  type RankTerm,
  rankTerms,
  sortBy,
  joined,
  merged,
  few,
  scanned,
} from './artifact-search.ts'
import { artifactOf, isKnownEcosystem, knownEcosystems, prefixes } from './artifact-facts.ts'
import { libraryTables } from './library-tables.ts'
import { versionPage } from './version-page.ts'
import type { KnownEcosystem } from './version-orders.ts'

/** Up to this number of artifacts, a search sorts what it finds. Above it, it walks an index in the order of the list. */
const defaultFewArtifacts = 5_000
/** Number of counts to remember. */
const rememberedCounts = 1_000
/** Number of searches whose matches are remembered: with 5,000 ranks each, these are 4 MB. */
const rememberedMatches = 200
/** Number of places to remember that lists skipped to, and the shortest way to one that is worth it. */
const rememberedPlaces = 1_000
const defaultFarAway = 1_000
/** The trigram index finds texts of at least this length, in characters. */
const trigramLength = 3

/** A catalogue of library artifacts: one file, open for reading. It never changes. Synchronous: LibraryThread reads it in a thread. */
export class LibraryReader {
  readonly #database: DatabaseSync
  readonly #fewArtifacts: number
  readonly #farAway: number
  readonly #terms: readonly Term[]
  readonly #ranks = new Map<KnownEcosystem, Ranks>()
  readonly #counts = new RecentMap<string, number>(rememberedCounts)
  /** The ranks of searches with few matches. */
  readonly #matches = new RecentMap<string, Uint32Array>(rememberedMatches)
  readonly #places = new RecentMap<string, SortKey>(rememberedPlaces)

  /** The options are for tests with small files. Throws CatalogueError if the file is no catalogue of this version. */
  constructor(
    path: string,
    { fewArtifacts = defaultFewArtifacts, farAway = defaultFarAway }: { readonly fewArtifacts?: number; readonly farAway?: number } = {},
  ) {
    this.#fewArtifacts = fewArtifacts
    this.#farAway = farAway
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
    const key = JSON.stringify([filter, order.id, after, skip])
    const place = this.#places.get(key)
    const found = this.#page(searches, order, place === undefined ? { after, skip, limit } : { after: place, skip: 0, limit })
    if (place === undefined && skip >= this.#farAway && found.before !== undefined) this.#places.set(key, found.before)
    const body = this.#database.prepare('SELECT body FROM artifact WHERE id = (SELECT artifact FROM listed WHERE rank = ?)')
    // A BLOB column.
    return { artifacts: found.page.map(({ rank, ...one }) => ({ ...one, body: body.get(rank)?.['body'] as Uint8Array })), total }
  }

  /** Returns the artifacts of a page, and the one before it if the list skips some. */
  #page(searches: readonly Search[], order: Order, { after, skip, limit }: PagePlace): { readonly page: Listed[]; readonly before: Listed | undefined } {
    const [only] = searches
    // SQLite skips faster than this class.
    const isFar = only !== undefined && searches.length === 1 && skip >= this.#farAway
    const rows = isFar
      ? this.#found(only, order, { after, skip: skip - 1 })
      : merged(
          searches.map((search) => this.#found(search, order, { after, skip: 0 })),
          order,
        )
    const toSkip = isFar ? 1 : skip
    const page: Listed[] = []
    let before: Listed | undefined
    let skipped = 0
    for (const artifact of rows) {
      if (skipped < toSkip) {
        skipped += 1
        before = artifact
      } else if (page.push(artifact) >= limit) break
    }
    return { page, before }
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
  #byTrigrams(term: Term, text: string, { first, last }: Ranks): SearchSql {
    return {
      from: 'search s CROSS JOIN entry e ON e.rank = s.rowid CROSS JOIN listed l ON l.rank = e.rank',
      where: { text: 's.name MATCH ? AND s.rowid BETWEEN ? AND ? AND e.term = ?', values: [`"${text.replaceAll('"', '""')}"`, first, last, term.id] },
    }
  }

  /** Returns what to search for all matches of a text, in no order. */
  #matching(term: Term, text: string): SearchSql {
    if (term.listed > this.#fewArtifacts && text.length >= trigramLength) return this.#byTrigrams(term, text, this.#ranksOf(term))
    if (term.remediated || term.cuda !== '') return scanned(term, text)
    // All artifacts of the ecosystem.
    const { first, last } = this.#ranksOf(term)
    return { from: 'listed e', where: { text: 'e.rank BETWEEN ? AND ? AND instr(lower(e.name), ?) > 0', values: [first, last, text] } }
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
  #found(search: Search, order: Order, from: From): Iterator<Listed> & Iterable<Listed> {
    const { term, text, matches } = search
    const { after, skip } = from
    if (text !== '' && matches <= this.#fewArtifacts) {
      const all = this.#rows(search, few(term, this.#ranksWith(term, text)))
      return all
        .filter((row) => after === undefined || order.compare(row, after) > 0)
        .toArray()
        .sort(order.compare)
        .slice(skip)
        .values()
    }
    return term.ties > this.#fewArtifacts && skip === 0 ? this.#tied(search, order, after) : this.#walked(search, order, from)
  }

  /** Returns the ranks of the artifacts of a search with few matches. */
  #ranksWith(term: Term, text: string): Uint32Array {
    const key = `${term.id} ${text}`
    const known = this.#matches.get(key)
    if (known !== undefined) return known
    const { from, where } = this.#matching(term, text)
    const rows = this.#database.prepare(`SELECT e.rank FROM ${from} WHERE ${where.text}`).all(...where.values)
    const ranks = Uint32Array.from(rows, (row) => Number(row['rank']))
    this.#matches.set(key, ranks)
    return ranks
  }

  /** Yields the artifacts that a statement finds. */
  *#rows({ term }: Pick<Search, 'term'>, { from, where }: SearchSql): Generator<Listed, void, undefined> {
    const statement = this.#database.prepare(`SELECT e.rank, e.create_ms, e.update_ms, l.name FROM ${from} WHERE ${where.text}`)
    for (const row of statement.iterate(...where.values)) {
      const name = String(row['name'])
      const uid = trustedUid(`${prefixes[term.ecosystem]}${name}`)
      yield { rank: Number(row['rank']), uid, name, createMs: Number(row['create_ms']), updateMs: Number(row['update_ms']) }
    }
  }

  /** Yields artifacts by an index, after a place. SQLite sorts those that share the first field. */
  #walked(search: Search, order: Order, { after, skip }: From): Generator<Listed, void, undefined> {
    const { term, text } = search
    const terms = rankTerms(order)
    const [first] = terms
    if (first?.column === 'rank' && text.length >= trigramLength) {
      const place = after === undefined ? undefined : this.#rankAt(term, first, { order, after })
      const ranks = this.#ranksOf(term)
      const within = place === undefined ? ranks : first.descending ? { ...ranks, last: Math.ceil(place) - 1 } : { ...ranks, first: Math.floor(place) + 1 }
      const { from, where } = this.#byTrigrams(term, text, within)
      return this.#rows(search, { from, where: joined([where], `s.rowid${first.descending ? ' DESC' : ''}`, skip) })
    }
    const { from, where } = scanned(term, text)
    return this.#rows(search, { from, where: joined([where, ...this.#comesAfter(term, terms, after && { order, after })], sortBy(terms), skip) })
  }

  /** Yields artifacts of an order by time where many share one: each time by itself, so that no more are sorted than are wanted. */
  *#tied(search: Search, order: Order, after: SortKey | undefined): Generator<Listed, void, undefined> {
    const { term, text } = search
    const [first, ...rest] = rankTerms(order)
    if (first === undefined || first.column === 'rank') {
      yield* this.#walked(search, order, { after, skip: 0 })
      return
    }
    const { column, descending } = first
    const name = columns[column]
    const next = this.#database.prepare(
      `SELECT ${name} AS ms FROM entry e WHERE e.term = ? AND ${name} ${descending ? '<' : '>'} ? ORDER BY ${name}${descending ? ' DESC' : ''} LIMIT 1`,
    )
    const { from, where } = scanned(term, text)
    const rowsAt = (ms: number, bounds: readonly Clause[]): Generator<Listed, void, undefined> =>
      this.#rows(search, { from, where: joined([where, { text: `${name} = ?`, values: [ms] }, ...bounds], sortBy(rest), 0) })
    let ms = after === undefined ? (descending ? Number.MAX_SAFE_INTEGER : -1) : after[column]
    if (after !== undefined) yield* rowsAt(ms, this.#comesAfter(term, rest, { order, after }))
    for (let row = next.get(term.id, ms); row !== undefined; row = next.get(term.id, ms)) {
      ms = Number(row['ms'])
      yield* rowsAt(ms, [])
    }
  }

  /** Returns the condition that an artifact comes after a place. */
  #comesAfter(term: Term, terms: readonly RankTerm[], place: PlaceInOrder | undefined): Clause[] {
    if (place === undefined) return []
    const bounds = terms.map((one) => ({
      name: columns[one.column],
      sign: one.descending ? '<' : '>',
      value: one.column === 'rank' ? this.#rankAt(term, one, place) : place.after[one.column],
    }))
    const ways = bounds.map(({ name, sign, value }, at) => {
      const equal = bounds.slice(0, at)
      return { text: `(${[...equal.map((one) => `${one.name} = ?`), `${name} ${sign} ?`].join(' AND ')})`, values: [...equal.map((one) => one.value), value] }
    })
    const [first] = bounds
    if (first === undefined) return []
    // The first field alone bounds the part of the index to read.
    return [
      { text: `${first.name} ${first.sign}= ?`, values: [first.value] },
      { text: `(${ways.map(({ text }) => text).join(' OR ')})`, values: ways.flatMap(({ values }) => values) },
    ]
  }

  /** Returns the rank of a place in the ecosystem, by name or by uid: strictly after it come the artifacts that the order puts there. */
  #rankAt(term: Term, { by, descending }: RankTerm, { order, after }: PlaceInOrder): number {
    const ranks = this.#ranksOf(term)
    const prefix = prefixes[term.ecosystem]
    const { uid, name } = after
    if (by === 'uid' && !uid.startsWith(prefix)) return uid < prefix ? ranks.first - 0.5 : ranks.last + 0.5
    const wanted = by === 'uid' ? uid.slice(prefix.length) : name
    const nameAt = this.#database.prepare('SELECT name FROM listed WHERE rank = ?')
    let [low, high] = [ranks.first, ranks.last + 1]
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      const found = String(nameAt.get(middle)?.['name'])
      if (found < wanted) low = middle + 1
      else if (found > wanted) high = middle
      else {
        // An artifact with the name of the place may come after it, by its times or its ecosystem.
        const [row] = this.#rows({ term }, few(term, [middle]))
        const isAfter = row !== undefined && order.compare(row, after) > 0
        return isAfter ? middle + (descending ? 0.5 : -0.5) : middle
      }
    }
    return low - 0.5
  }
}
