import { hash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { RecentMap } from '../../base/recent-map.ts'
import type { Order, SortKey } from '../../cache/lists/order.ts'
import { firstAtLeast, NumberSet, numbersIn } from './number-set.ts'
import { orderedOrdinals, type AfterPlace } from './ordered-ordinals.ts'
import { noOrdinal, readLists, type RowLists } from './row-lists.ts'

/** Maximum size of the remembered sets, in bytes. */
const rememberedBytes = 32 * 1024 * 1024

/** Number of rows that a list skips from which on it remembers the place, and of places to remember for each set. */
const farAway = 1_000
const rememberedPlaces = 100

/** How a row is read. */
export interface RowKeys {
  /** Returns the uid of the row with this number. */
  uidOf(id: number): string
  /** Returns its name; absent for rows without names. */
  nameOf?(id: number): string
}

/** A part of a list. */
interface PagePlace {
  readonly order: Order
  readonly after: SortKey | undefined
  readonly skip: number
  readonly limit: number
}

/** The listed rows of a finished catalogue, by ordinal: finds and orders them. */
export class RowIndex {
  readonly lists: RowLists
  /** The number of rows. */
  readonly count: number
  /** Ordinal by the number of a row. */
  readonly #ordinals: Uint32Array
  readonly #database: DatabaseSync
  readonly #keys: RowKeys
  readonly #few: number | undefined
  readonly #sets = new RecentMap<string, NumberSet>(rememberedBytes, (set) => set.byteLength)

  readonly #places = new WeakMap<NumberSet, RecentMap<string, number>>()

  /** `few` is for tests with few rows. */
  constructor(database: DatabaseSync, keys: RowKeys, few: number | undefined) {
    this.#database = database
    this.#keys = keys
    this.#few = few
    this.lists = readLists(database)
    const { ids } = this.lists
    this.count = ids.length
    this.#ordinals = new Uint32Array(ids.reduce((most, id) => Math.max(most, id), 0) + 1).fill(noOrdinal)
    for (let ordinal = 0; ordinal < ids.length; ordinal += 1) this.#ordinals[ids[ordinal] ?? 0] = ordinal
  }

  /** Returns the set of this name. `find` makes it, unless it is remembered. */
  remembered(name: string, find: () => NumberSet): NumberSet {
    // Names may be long: they list groups.
    const key = hash('sha256', name)
    const known = this.#sets.get(key)
    if (known !== undefined) return known
    const found = find()
    this.#sets.set(key, found)
    return found
  }

  /** Returns the set with these content and size, as the file has them. */
  read(bytes: Uint8Array, size: number): NumberSet {
    return NumberSet.read(bytes, size, this.count)
  }

  union(sets: readonly NumberSet[]): NumberSet {
    return NumberSet.union(sets, this.count)
  }

  /** Returns the rows with a text that contains `text`, which is in lower case. */
  withText(text: string): NumberSet {
    // No imported text has control characters, and a line break separates the texts.
    if (/[\u0000-\u001f]/.test(text)) return NumberSet.of(new Uint32Array(), this.count)
    return this.remembered(`text ${text}`, () => NumberSet.of(ordinalsWith(this.#database, Buffer.from(text)), this.count))
  }

  /** Returns the listed rows of these numbers. */
  withIds(ids: readonly number[]): NumberSet {
    const ordinals = ids.map((id) => this.#ordinals[id] ?? noOrdinal).filter((ordinal) => ordinal !== noOrdinal)
    return NumberSet.of(Uint32Array.from(new Set(ordinals)).sort(), this.count)
  }

  /** Returns a page of the set. */
  page(set: NumberSet, { order, after, skip, limit }: PagePlace): number[] {
    const few = this.#few === undefined ? {} : { few: this.#few }
    const places = skip < Math.min(farAway, this.#few ?? farAway) ? undefined : this.#placesIn(set)
    const key = JSON.stringify([order.id, skip, after && [after.uid, after.name, after.createMs, after.updateMs]])
    const known = places?.get(key)
    const place = known !== undefined ? this.#placeAt(known) : after === undefined ? undefined : this.#placeOf(after, order)
    const toSkip = known === undefined ? skip : 0
    // The last row that is skipped is the place of the page.
    const listing = { lists: this.lists, order, after: place, skip: Math.max(0, toSkip - 1), ...few }
    const page: number[] = []
    let isBefore = toSkip > 0
    for (const ordinal of orderedOrdinals(set, listing)) {
      if (isBefore) places?.set(key, ordinal)
      else if (page.push(ordinal) >= limit) break
      isBefore = false
    }
    return page
  }

  idAt(ordinal: number): number {
    return this.lists.ids[ordinal] ?? 0
  }

  /** Returns the last rows that pages of the set skipped, where they skipped many. */
  #placesIn(set: NumberSet): RecentMap<string, number> {
    const known = this.#places.get(set)
    if (known !== undefined) return known
    const places = new RecentMap<string, number>(rememberedPlaces)
    this.#places.set(set, places)
    return places
  }

  #placeAt(ordinal: number): AfterPlace {
    const { createMs, updateMs, names } = this.lists
    return { createMs: createMs[ordinal] ?? 0, updateMs: updateMs[ordinal] ?? 0, name: names[ordinal] ?? 0, ordinal, isRow: true }
  }

  #bound(uid: string): { readonly ordinal: number; readonly isRow: boolean } {
    const uidAt = (at: number): string => this.#keys.uidOf(this.idAt(at))
    const ordinal = firstAtLeast(this.count, (at) => uidAt(at) >= uid)
    return { ordinal, isRow: ordinal < this.count && uidAt(ordinal) === uid }
  }

  #placeOf(key: SortKey, { terms }: Order): AfterPlace {
    const name = terms.some(({ field }) => field === 'name') ? this.#rankOf(key.name) : 0
    return { createMs: key.createMs, updateMs: key.updateMs, name, ...this.#bound(key.uid) }
  }

  /** Returns the place of a name among the names: between two places if no row has it. */
  #rankOf(name: string): number {
    const { byName, names } = this.lists
    const nameAt = (at: number): string => this.#keys.nameOf?.(this.idAt(byName[at] ?? 0)) ?? ''
    const at = firstAtLeast(byName.length, (one) => nameAt(one) >= name)
    if (at === byName.length) return Infinity
    const rank = names[byName[at] ?? 0] ?? 0
    return nameAt(at) === name ? rank : rank - 0.5
  }
}

/** Returns the ordinals of the texts that contain `wanted`. */
function ordinalsWith(database: DatabaseSync, wanted: Buffer): Uint32Array {
  const ordinals: number[] = []
  for (const row of database.prepare('SELECT first, ends, texts FROM search_text ORDER BY first').iterate()) {
    const [first, ends] = [Number(row['first']), numbersIn(row['ends'] as Uint8Array)] // a BLOB column
    const bytes = row['texts'] as Uint8Array // a BLOB column
    const texts = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    let at = 0
    for (let found = texts.indexOf(wanted); found >= 0; found = texts.indexOf(wanted, ends[at - 1])) {
      while ((ends[at] ?? Infinity) <= found) at += 1
      ordinals.push(first + at)
      at += 1
    }
  }
  return new Uint32Array(ordinals)
}
