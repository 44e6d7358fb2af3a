import type { DatabaseSync, SQLInputValue, SQLOutputValue } from 'node:sqlite'
import { RecentMap } from '../../base/recent-map.ts'
import { isBelow, parentOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { AdvisoryFilter, AdvisoryPage, AdvisoryQuery, FacetValues, FoundAdvisory, OriginAdvisory, OriginQuery } from '../../cache/lists/advisory-source.ts'
import type { Order, SortKey } from '../../cache/lists/order.ts'
import { metaOf, openForReading } from '../files/catalogue-file.ts'
import { advisoryTables, facets } from './advisory-tables.ts'
import { foldCase } from './facts.ts'

/** Up to this number of candidates of one filter, a list sorts them. Above it, the list walks an index in its order and tests each advisory. */
const fewCandidates = 5_000
/** Number of counts to remember. */
const rememberedCounts = 1_000
/** The trigram index finds texts of at least this length, in characters. */
const trigramLength = 3

/** Number of advisories of one id that are read together. */
const maxPerId = 5_000

/** Which advisories to read by id, and how many. */
interface IdQuery {
  readonly groups: readonly Uid[]
  readonly after: string
  readonly maxIds: number
  readonly maxAdvisories: number
  readonly maxBytes: number
}

/** An advisory as the file has it. */
export interface StoredAdvisory {
  /** The Advisory as protobuf bytes. */
  readonly body: Uint8Array
  /** The OsvFacts as JSON; undefined if it has none. */
  readonly osv: string | undefined
}

/** Advisories of one id. */
export interface AdvisoriesOfId {
  readonly id: string
  readonly advisories: readonly StoredAdvisory[]
}

/** A part of a statement with its parameters. */
interface Sql {
  readonly text: string
  readonly values: readonly SQLInputValue[]
}

interface Place {
  readonly id: number
  readonly uid: Uid
  readonly listed: number
}

/** The terms of the filter that the fewest advisories match, and what else must be true of an advisory. */
interface Search {
  readonly conditions: readonly Sql[]
  readonly fewest: FoundTerms | undefined
}

/** The numbers of values that occur, and an upper bound of how many advisories have one of them. */
interface FoundTerms {
  readonly ids: readonly number[]
  readonly count: number
}

const columns = { uid: 'a.segment', createMs: 'a.create_ms', updateMs: 'a.update_ms' } as const

function all(parts: readonly Sql[], separator: string): Sql {
  return { text: parts.map(({ text }) => text).join(separator), values: parts.flatMap(({ values }) => values) }
}

/** Returns the segment to compare with that of an advisory in `place`. It stands for a whole uid, which may lie elsewhere. */
function boundIn(place: Uid, uid: string): string {
  if (isBelow(uid, place)) return uid.slice(place.length + 1)
  // Segments are hex digits: all of them come after the first text, and before the second.
  return `${place}/` > uid ? '' : '~'
}

/** The condition that an advisory of `place` comes after a place in the order. */
function comesAfter({ terms }: Order, after: SortKey, place: Uid): Sql {
  const bounds = terms.map(({ field, descending }) => {
    if (field === 'name') throw new TypeError('advisories have no name')
    return { column: columns[field], sign: descending ? '<' : '>', value: field === 'uid' ? boundIn(place, after[field]) : after[field] }
  })
  const ways = bounds.map(({ column, sign, value }, at): Sql => {
    const equal = bounds.slice(0, at).map((bound): Sql => ({ text: `${bound.column} = ?`, values: [bound.value] }))
    return all([...equal, { text: `${column} ${sign} ?`, values: [value] }], ' AND ')
  })
  const { text, values } = all(
    ways.map((way) => ({ ...way, text: `(${way.text})` })),
    ' OR ',
  )
  const [first] = bounds
  // The first term alone bounds the part of the index to read.
  return first === undefined ? { text: '1', values: [] } : { text: `${first.column} ${first.sign}= ? AND (${text})`, values: [first.value, ...values] }
}

function orderBy({ terms }: Order): string {
  return terms.map(({ field, descending }) => (field === 'name' ? '' : `${columns[field]}${descending ? ' DESC' : ''}`)).join(', ')
}

/** A catalogue of advisories: one file, open for reading. It never changes. Synchronous: AdvisoryThread reads it in a thread. */
export class AdvisoryReader {
  readonly #database: DatabaseSync
  readonly #places: readonly Place[]
  readonly #counts = new RecentMap<string, number>(rememberedCounts)

  /** Throws CatalogueError if the file is no catalogue of this version. */
  constructor(path: string) {
    this.#database = openForReading(path, advisoryTables)
    this.#places = this.#database
      .prepare('SELECT id, uid, listed FROM place ORDER BY uid')
      .all()
      .map(({ id, uid, listed }) => ({ id: Number(id), uid: trustedUid(String(uid)), listed: Number(listed) }))
  }

  /** When the catalogue was made, in milliseconds since 1970. */
  get builtMs(): number {
    return Number(metaOf(this.#database, 'built_ms') ?? 0)
  }

  /** Returns the groups that have advisories, in uid order. */
  groups(): readonly Uid[] {
    return this.#places.map(({ uid }) => uid)
  }

  /** Returns the Advisory as protobuf bytes; undefined if there is none under this uid. */
  get(uid: Uid): Uint8Array | undefined {
    const parent = parentOf(uid)
    const place = this.#places.find((one) => one.uid === parent)
    if (place === undefined) return undefined
    const row = this.#database.prepare('SELECT body FROM advisory WHERE place = ? AND segment = ?').get(place.id, uid.slice(parent.length + 1))
    return row?.['body'] as Uint8Array | undefined // a BLOB column
  }

  /** Returns one page, in the order of the query. */
  page({ filter, order, after, skip, limit }: AdvisoryQuery): AdvisoryPage {
    const groups = new Set(filter.groups)
    const places = this.#places.filter(({ uid }) => groups.has(uid))
    const search = this.#searchFor(filter)
    if (search === undefined || places.length === 0) return { advisories: [], total: 0 }
    const total = this.#countOf(filter, search, places)
    if (total === 0 || skip >= total) return { advisories: [], total }
    const [only] = places
    const rows =
      only !== undefined && places.length === 1
        ? this.#rows(only, search, { order, after, skip, limit })
        : places
            .flatMap((place) => this.#rows(place, search, { order, after, skip: 0, limit: skip + limit }))
            .sort(order.compare)
            .slice(skip, skip + limit)
    const body = this.#database.prepare('SELECT body FROM advisory WHERE id = ?')
    // A BLOB column.
    return { advisories: rows.map((row) => ({ ...row, body: body.get(row.id)?.['body'] as Uint8Array })), total }
  }

  /**
   * Returns all advisories that match, in any order; undefined if they are beyond the bounds. The cost of a query without origin and ids is within the bounds.
   * `withOsv` also returns their OsvFacts.
   */
  byOrigin(query: OriginQuery, withOsv = false): (OriginAdvisory & StoredAdvisory)[] | undefined {
    const { groups, origin, ids, maxAdvisories, maxBytes } = query
    const wanted = new Set(groups)
    const places = new Map(this.#places.filter(({ uid }) => wanted.has(uid)).map((place) => [place.id, place]))
    const all = [...places.values()].reduce((sum, { listed }) => sum + listed, 0)
    if (all === 0) return []
    if (origin === undefined && ids === undefined && all > maxAdvisories) return undefined
    const rows = this.#database.prepare(originStatement(query, withOsv)).iterate({
      places: JSON.stringify([...places.keys()]),
      ...(origin === undefined ? {} : { origin }),
      ...(ids === undefined ? {} : { ids: JSON.stringify(ids) }),
    })
    const found: (OriginAdvisory & StoredAdvisory)[] = []
    let bytes = 0
    for (const row of rows) {
      bytes += sizeOf(row)
      if (found.length === maxAdvisories || bytes > maxBytes) return undefined
      found.push({
        origin: String(row['origin']),
        uid: trustedUid(`${places.get(Number(row['place']))?.uid ?? ''}/${String(row['segment'])}`),
        ...storedIn(row),
      })
    }
    return found
  }

  /**
   * Returns advisories by id, from the first id after `after` in the order of bytes. The number of ids and, after the first one of them, advisories and bytes
   * are bounded. Of an id with more than `maxPerId` advisories, the first ones are returned.
   */
  byId({ groups, after, maxIds, maxAdvisories, maxBytes }: IdQuery): { readonly found: AdvisoriesOfId[]; readonly next: string | undefined } {
    const wanted = new Set(groups)
    const places = JSON.stringify(this.#places.filter(({ uid }) => wanted.has(uid)).map(({ id }) => id))
    const terms = this.#database.prepare('SELECT id, value FROM term WHERE facet = ? AND value > ? ORDER BY value LIMIT ?')
    const stored = this.#database.prepare(
      `SELECT a.body, o.facts FROM posting p CROSS JOIN advisory a ON a.id = p.advisory LEFT JOIN osv o ON o.advisory = a.id
       WHERE p.term = ? AND a.listed = 1 AND a.place IN (SELECT value FROM json_each(?)) ORDER BY a.place, a.segment LIMIT ?`,
    )
    const found: AdvisoriesOfId[] = []
    let [advisories, bytes, last] = [0, 0, after]
    const rows = terms.all(facets.advisoryId, after, maxIds)
    for (const { id, value } of rows) {
      if (advisories >= maxAdvisories || bytes >= maxBytes) return { found, next: last }
      last = String(value)
      const ofId: StoredAdvisory[] = []
      for (const row of stored.iterate(Number(id), places, maxPerId)) {
        ofId.push(storedIn(row))
        bytes += sizeOf(row)
      }
      advisories += ofId.length
      if (ofId.length > 0) found.push({ id: last, advisories: ofId })
    }
    return { found, next: rows.length < maxIds ? undefined : last }
  }

  /** Closes the file. */
  close(): void {
    this.#database.close()
  }

  #rows({ id, uid }: Place, { conditions, fewest }: Search, page: Omit<AdvisoryQuery, 'filter'>): (Omit<FoundAdvisory, 'body'> & { readonly id: number })[] {
    const { order, after, skip, limit } = page
    const isRare = fewest === undefined || fewest.count <= fewCandidates
    const where = all(
      [
        { text: 'a.place = ? AND a.listed = 1', values: [id] },
        ...(fewest === undefined || isRare ? [] : [hasTerm('EXISTS', fewest)]),
        ...(after === undefined ? [] : [comesAfter(order, after, uid)]),
        ...conditions,
      ],
      ' AND ',
    )
    const from = fewest !== undefined && isRare ? candidates(fewest) : 'advisory a'
    return this.#database
      .prepare(`SELECT a.id, a.segment, a.create_ms, a.update_ms FROM ${from} WHERE ${where.text} ORDER BY ${orderBy(order)} LIMIT ? OFFSET ?`)
      .all(...where.values, limit, skip)
      .map((row) => ({
        id: Number(row['id']),
        uid: trustedUid(`${uid}/${String(row['segment'])}`),
        name: '',
        createMs: Number(row['create_ms']),
        updateMs: Number(row['update_ms']),
      }))
  }

  /** Returns how to find what the filter allows, whatever the group. Undefined if nothing can match. */
  #searchFor({ uids, anyOf, noneOf, text }: AdvisoryFilter): Search | undefined {
    const terms = anyOf.map((values) => this.#termsOf(values)).sort((a, b) => a.count - b.count)
    if (terms.some(({ count }) => count === 0)) return undefined
    const [fewest, ...others] = terms
    const conditions = others.map((other) => hasTerm('EXISTS', other))
    for (const values of noneOf) conditions.push(hasTerm('NOT EXISTS', this.#termsOf(values)))
    if (text !== '') {
      const found = matchesText(foldCase(text))
      if (found === undefined) return undefined
      conditions.push(found)
    }
    if (uids !== undefined) {
      const segments = uids.map((uid) => uid.slice(uid.lastIndexOf('/') + 1))
      conditions.push({ text: 'a.segment IN (SELECT value FROM json_each(?))', values: [JSON.stringify(segments)] })
      const whole = "(SELECT uid FROM place WHERE id = a.place) || '/' || a.segment IN (SELECT value FROM json_each(?))"
      conditions.push({ text: whole, values: [JSON.stringify(uids)] })
    }
    return { conditions, fewest }
  }

  #termsOf([facet, values]: FacetValues): FoundTerms {
    const rows = this.#database
      .prepare(
        `SELECT t.id, (SELECT sum(listed) FROM term_count c WHERE c.term = t.id) AS n
         FROM term t WHERE t.facet = ? AND t.value IN (SELECT value FROM json_each(?))`,
      )
      .all(facets[facet], JSON.stringify(values))
    return { ids: rows.map(({ id }) => Number(id)), count: rows.reduce((sum, { n }) => sum + Number(n), 0) }
  }

  #countOf(filter: AdvisoryFilter, search: Search, places: readonly Place[]): number {
    const { uids, anyOf, noneOf, text } = filter
    const [first] = anyOf
    const isPlain = uids === undefined && noneOf.length === 0 && text === ''
    if (isPlain && first === undefined) return places.reduce((sum, { listed }) => sum + listed, 0)
    const ids = JSON.stringify(places.map(({ id }) => id))
    if (isPlain && first !== undefined && anyOf.length === 1 && first[1].length === 1) {
      const count = this.#database.prepare(
        `SELECT sum(c.listed) AS n FROM term t JOIN term_count c ON c.term = t.id
         WHERE t.facet = ? AND t.value = ? AND c.place IN (SELECT value FROM json_each(?))`,
      )
      return Number(count.get(facets[first[0]], first[1][0] ?? '', ids)?.['n'])
    }
    const key = JSON.stringify([ids, uids, anyOf, noneOf, text])
    const known = this.#counts.get(key)
    if (known !== undefined) return known
    const where = all([{ text: 'a.listed = 1 AND a.place IN (SELECT value FROM json_each(?))', values: [ids] }, ...search.conditions], ' AND ')
    const from = search.fewest === undefined ? 'advisory a' : candidates(search.fewest)
    const count = Number(this.#database.prepare(`SELECT count(*) AS n FROM ${from} WHERE ${where.text}`).get(...where.values)?.['n'])
    this.#counts.set(key, count)
    return count
  }
}

/** The advisories that have one of the terms, each once. They decide the order of the search: the planner must not start with all advisories. */
function candidates({ ids }: FoundTerms): string {
  return `(SELECT ${ids.length > 1 ? 'DISTINCT ' : ''}advisory FROM posting WHERE term IN (${ids.join()})) c CROSS JOIN advisory a ON a.id = c.advisory`
}

/** Returns an advisory in a row with its body, and its facts for OSV. */
function storedIn({ body, facts }: Readonly<Record<string, SQLOutputValue>>): StoredAdvisory {
  return { body: body as Uint8Array, osv: typeof facts === 'string' ? facts : undefined } // a BLOB column
}

/** Returns the size of such a row, in bytes or characters. */
function sizeOf(row: Readonly<Record<string, SQLOutputValue>>): number {
  const { body, osv = '' } = storedIn(row)
  return body.length + osv.length
}

function hasTerm(exists: 'EXISTS' | 'NOT EXISTS', { ids }: FoundTerms): Sql {
  return { text: `${exists} (SELECT 1 FROM posting p WHERE p.advisory = a.id AND p.term IN (${ids.join()}))`, values: [] }
}

const originFacet = `t.facet = ${facets.origin}`
const withOneOfIds = `t.facet IN (${facets.advisoryId}, ${facets.alias}) AND t.value IN (SELECT value FROM json_each(:ids))`

function advisoriesWith(terms: string): string {
  return `SELECT p.advisory FROM term t CROSS JOIN posting p ON p.term = t.id WHERE ${terms}`
}

/** The statement that finds advisories for documents. It starts with the advisories that have the terms, or with all of the groups. */
function originStatement({ origin, ids }: OriginQuery, withOsv: boolean): string {
  const found = [
    ...(ids === undefined ? [] : [advisoriesWith(withOneOfIds)]),
    ...(origin === undefined ? [] : [advisoriesWith(`${originFacet} AND t.value = :origin`)]),
  ]
  const from =
    found.length === 0
      ? 'json_each(:places) k CROSS JOIN advisory a ON a.place = k.value'
      : `(SELECT DISTINCT advisory FROM (${found.join(' INTERSECT ')})) c CROSS JOIN advisory a ON a.id = c.advisory`
  const ofOrigin = `SELECT t.value FROM posting p CROSS JOIN term t ON t.id = p.term WHERE p.advisory = a.id AND ${originFacet}`
  const [facts, osv] = withOsv ? ['o.facts', ' LEFT JOIN osv o ON o.advisory = a.id'] : ['NULL AS facts', '']
  return `SELECT a.place, a.segment, a.body, ${facts}, coalesce((${ofOrigin}), '') AS origin
    FROM ${from}${osv} WHERE a.listed = 1 AND a.place IN (SELECT value FROM json_each(:places))`
}

/** The condition that one of the texts contains `text`, which is in lower case. Undefined if none can: a line break separates aliases. */
function matchesText(text: string): Sql | undefined {
  // No imported text has control characters.
  if (/[\u0000-\u001f]/.test(text)) return undefined
  if ([...text].length >= trigramLength) return { text: 'a.id IN (SELECT rowid FROM search WHERE search MATCH ?)', values: [`"${text.replaceAll('"', '""')}"`] }
  return {
    text: 'a.id IN (SELECT rowid FROM search WHERE instr(artifact, ?) OR instr(component, ?) OR instr(aliases, ?))',
    values: [text, text, text],
  }
}
