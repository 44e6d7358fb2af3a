import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite'
import { trustedUid, type Uid } from '../../base/uid.ts'
import {
  maxPageBytes,
  type AdvisoryFilter,
  type AdvisoryPage,
  type AdvisoryQuery,
  type FacetValues,
  type FoundAdvisory,
  type OriginAdvisory,
  type OriginQuery,
  type PackageAdvisory,
  type PackageAdvisoryQuery,
} from '../../cache/lists/advisory-source.ts'
import { metaOf, openForReading } from '../../store/sqlite/catalogue-file.ts'
import { NumberSet } from '../files/number-set.ts'
import { RowIndex } from '../files/row-index.ts'
import { advisoryTables, facets } from './advisory-tables.ts'
import { foldCase, type FactFacet } from './facts.ts'

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

/** Advisories of one id. */
export interface AdvisoriesOfId {
  readonly id: string
  readonly advisories: readonly PackageAdvisory[]
}

interface Place {
  readonly id: number
  readonly uid: Uid
  /** The ordinals of its advisories. */
  readonly listed: NumberSet
}

/** A catalogue of advisories: one file, open for reading. It never changes. Synchronous: AdvisoryThread reads it in a thread. */
export class AdvisoryReader {
  readonly #database: DatabaseSync
  readonly #places: readonly Place[]
  readonly #placeUids: ReadonlyMap<number, Uid>
  readonly #placeIds: ReadonlyMap<string, number>
  readonly #row: StatementSync
  readonly #key: StatementSync
  readonly #id: StatementSync
  readonly #index: RowIndex

  readonly #pageBytes: number

  /** `few` and `pageBytes` are for tests with small files. Throws CatalogueError if the file is no catalogue of this version. */
  constructor(path: string, { few, pageBytes = maxPageBytes }: { readonly few?: number; readonly pageBytes?: number } = {}) {
    this.#pageBytes = pageBytes
    this.#database = openForReading(path, advisoryTables)
    this.#row = this.#database.prepare('SELECT place, segment, origin, facts, body FROM advisory WHERE id = ?')
    this.#key = this.#database.prepare('SELECT place, segment FROM advisory WHERE id = ?')
    this.#id = this.#database.prepare('SELECT id FROM advisory WHERE place = ? AND segment = ?')
    this.#index = new RowIndex(this.#database, { uidOf: (id) => this.#uidIn(this.#key.get(id)) }, few)
    this.#places = this.#database
      .prepare('SELECT id, uid, listed, ordinals FROM place ORDER BY uid')
      .all()
      .map(({ id, uid, listed, ordinals }) => ({
        id: Number(id),
        uid: trustedUid(String(uid)),
        // A BLOB column.
        listed: this.#index.read(ordinals as Uint8Array, Number(listed)),
      }))
    this.#placeUids = new Map(this.#places.map(({ id, uid }) => [id, uid]))
    this.#placeIds = new Map(this.#places.map(({ id, uid }) => [uid, id]))
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
    const id = this.#idOf(uid)
    return id === undefined ? undefined : this.#advisory(id).body
  }

  /** Returns one page, in the order of the query. */
  page({ filter, order, after, skip, limit }: AdvisoryQuery): AdvisoryPage {
    const set = this.#matching(filter)
    if (skip >= set.size) return { advisories: [], hasMore: false, total: set.size }
    // One extra row shows whether another page follows.
    const ordinals = this.#index.page(set, { order, after, skip, limit: limit + 1 })
    const advisories: FoundAdvisory[] = []
    let bytes = 0
    for (const ordinal of ordinals.slice(0, limit)) {
      const found = this.#found(ordinal)
      bytes += found.body.length
      if (bytes > this.#pageBytes && advisories.length > 0) break
      advisories.push(found)
    }
    return { advisories, hasMore: ordinals.length > advisories.length, total: set.size }
  }

  /**
   * Returns all advisories that match, in any order; undefined if they are beyond the bounds. The cost of a query without origin and ids is within the bounds.
   * `withOsv` also returns their OsvFacts.
   */
  byOrigin({ groups, origin, ids, maxAdvisories, maxBytes }: OriginQuery, withOsv = false): (OriginAdvisory & PackageAdvisory)[] | undefined {
    const needed = [this.#inGroups(groups)]
    if (origin !== undefined) needed.push(this.#withOneOf(['origin', [origin]]))
    if (ids !== undefined) needed.push(this.#index.union([this.#withOneOf(['advisoryId', ids]), this.#withOneOf(['alias', ids])]))
    const set = NumberSet.intersection(needed)
    if (set.size > maxAdvisories) return undefined
    const found: (OriginAdvisory & PackageAdvisory)[] = []
    let bytes = 0
    for (const ordinal of set.ascending(0)) {
      const row = this.#advisory(this.#index.idAt(ordinal))
      const advisory = withOsv ? row : { ...row, osv: undefined }
      bytes += sizeOf(advisory)
      if (bytes > maxBytes) return undefined
      found.push(advisory)
    }
    return found
  }

  /** Returns the advisories of packages with these names, in any order; undefined if they have more bytes than the bound. */
  ofPackages({ groups, names, maxBytes }: PackageAdvisoryQuery): PackageAdvisory[] | undefined {
    const set = NumberSet.intersection([this.#inGroups(groups), this.#withOneOf(['packageName', names])])
    const found: PackageAdvisory[] = []
    let bytes = 0
    for (const ordinal of set.ascending(0)) {
      const { body, osv } = this.#advisory(this.#index.idAt(ordinal))
      bytes += sizeOf({ body, osv })
      if (bytes > maxBytes) return undefined
      found.push({ body, osv })
    }
    return found
  }

  /**
   * Returns advisories by id, from the first id after `after` in the order of bytes. The number of ids and, after the first one of them, advisories and bytes
   * are bounded. Of an id with more than `maxPerId` advisories, the first ones are returned.
   */
  byId({ groups, after, maxIds, maxAdvisories, maxBytes }: IdQuery): { readonly found: AdvisoriesOfId[]; readonly next: string | undefined } {
    const visible = this.#inGroups(groups)
    const terms = this.#database.prepare('SELECT value FROM term WHERE facet = ? AND value > ? ORDER BY value LIMIT ?')
    const found: AdvisoriesOfId[] = []
    let [advisories, bytes, last] = [0, 0, after]
    const rows = terms.all(facets.advisoryId, after, maxIds)
    for (const { value } of rows) {
      if (advisories >= maxAdvisories || bytes >= maxBytes) return { found, next: last }
      last = String(value)
      const set = NumberSet.intersection([visible, this.#withOneOf(['advisoryId', [last]])])
      const ofId = set
        .ascending(0)
        .take(maxPerId)
        .map((ordinal) => this.#advisory(this.#index.idAt(ordinal)))
        .toArray()
      advisories += ofId.length
      bytes += ofId.reduce((sum, one) => sum + sizeOf(one), 0)
      if (ofId.length > 0) found.push({ id: last, advisories: ofId })
    }
    return { found, next: rows.length < maxIds ? undefined : last }
  }

  /** Closes the file. */
  close(): void {
    this.#database.close()
  }

  /** Returns the set of ordinals that match. */
  #matching(filter: AdvisoryFilter): NumberSet {
    const { groups, uids, anyOf, noneOf, text } = filter
    return this.#index.remembered(JSON.stringify([groups, uids, anyOf, noneOf, text]), () => {
      const needed = [this.#inGroups(groups)]
      for (const values of anyOf) needed.push(this.#withOneOf(values))
      if (uids !== undefined) needed.push(this.#index.withIds(uids.flatMap((uid) => this.#idOf(uid) ?? [])))
      // A search reads all texts.
      if (text !== '' && needed.every(({ size }) => size > 0)) needed.push(this.#index.withText(foldCase(text)))
      return noneOf.reduce((set, values) => set.without(this.#withOneOf(values)), NumberSet.intersection(needed))
    })
  }

  /** Returns the number of an advisory; undefined if there is none under this uid. */
  #idOf(uid: string): number | undefined {
    const end = uid.lastIndexOf('/')
    const place = this.#placeIds.get(uid.slice(0, Math.max(end, 0)))
    const row = place === undefined ? undefined : this.#id.get(place, uid.slice(end + 1))
    return row === undefined ? undefined : Number(row['id'])
  }

  #inGroups(groups: readonly Uid[]): NumberSet {
    const wanted = new Set<string>(groups)
    return this.#index.union(this.#places.filter(({ uid }) => wanted.has(uid)).map(({ listed }) => listed))
  }

  #withOneOf([facet, values]: FacetValues | readonly [facet: FactFacet, values: readonly string[]]): NumberSet {
    const terms = this.#database
      .prepare('SELECT s.listed, s.ordinals FROM term t JOIN term_set s ON s.term = t.id WHERE t.facet = ? AND t.value IN (SELECT value FROM json_each(?))')
      .all(facets[facet], JSON.stringify(values))
    return this.#index.union(terms.map(({ listed, ordinals }) => this.#index.read(ordinals as Uint8Array, Number(listed)))) // a BLOB column
  }

  #found(ordinal: number): FoundAdvisory {
    const { createMs, updateMs } = this.#index.lists
    const { uid, body } = this.#advisory(this.#index.idAt(ordinal))
    return { uid, name: '', createMs: createMs[ordinal] ?? 0, updateMs: updateMs[ordinal] ?? 0, body }
  }

  #advisory(id: number): OriginAdvisory & PackageAdvisory {
    const row = this.#row.get(id)
    const { origin, facts, body } = row ?? {}
    return { uid: this.#uidIn(row), origin: String(origin), body: body as Uint8Array, osv: typeof facts === 'string' ? facts : undefined } // a BLOB column
  }

  /** Returns the uid of an advisory in a row with its place and segment. */
  #uidIn(row: Readonly<Record<string, SQLOutputValue>> | undefined): Uid {
    return trustedUid(`${this.#placeUids.get(Number(row?.['place'])) ?? ''}/${String(row?.['segment'])}`)
  }
}

/** Returns the size of an advisory, in bytes or characters. */
function sizeOf({ body, osv = '' }: PackageAdvisory): number {
  return body.length + osv.length
}
