import type { Uid } from '../base/uid.ts'
import { ChildIndex } from './lists/child-index.ts'
import { Difference, type Ranked } from './lists/difference.ts'
import { OrderTree } from './lists/order-tree.ts'
import { uidOrder } from './lists/order.ts'
import { filterReaders, type FilterReader, type KindIndex, type CachedRecord } from './records/cached-record.ts'
import { sortInSlices, Turns, type Slices } from './slices.ts'
import { UidMap } from './uid-map.ts'
import { Matches, ValueIndex } from './lists/value-index.ts'
import { Views } from './lists/views.ts'

/** The parent filter, which every kind has: the uid one level up, `/` for roots. */
export const parentFilter = 'parent'
/** The name filter, which every kind has: the record's name. */
export const nameFilter = 'name'

const parentOf: FilterReader = (row) => row.parent
const nameOf: FilterReader = (row) => row.name

/** Returns the value of a hex digit. */
function digitOf(code: number): number {
  return code > 57 ? code - 87 : code - 48
}

function emptyStages(): CachedRecord[][] {
  return Array.from({ length: 16 }, () => [])
}

const noRows = new OrderTree<CachedRecord>(uidOrder.compare)

/** Inserting a row among the hidden ones costs about as much as iterating over this many of them. */
const rowsPerInsert = 16

function isHidden(row: CachedRecord): boolean {
  return row.isHidden
}

/** All records of one kind: by uid, in uid order with counts, by each exact filter, and in the views that lists need. */
export class KindTable {
  readonly index: KindIndex
  readonly views: Views
  readonly #rows = new UidMap()
  readonly #valueOf: ReadonlyMap<string, FilterReader>
  readonly #byValue: ReadonlyMap<string, ValueIndex>
  /** The indexes of #byValue, each once, and #children. */
  readonly #indexes: readonly (ValueIndex | ChildIndex)[]
  readonly #children: ChildIndex | undefined
  /** Staged rows by the first digit of the uid: rows that arrive in the order of one digit's uids need no sorting. */
  #staged = emptyStages()
  #byUid = new OrderTree<CachedRecord>(uidOrder.compare)
  /** The hidden rows of #byUid, and the rows that remain visible. */
  #hidden = noRows
  #visible = new Difference(this.#byUid, noRows, isHidden)

  /** `turns` are for filling views; a new object by default. */
  constructor(index: KindIndex, turns = new Turns()) {
    this.index = index
    const readers = filterReaders(index)
    const filters = Object.entries(index.filters).map(([name, source], at) => ({ name, isParent: 'parent' in source, read: readers[at] ?? parentOf }))
    this.#valueOf = new Map([[parentFilter, parentOf], [nameFilter, nameOf], ...filters.map(({ name, read }) => [name, read] as const)])
    const byParent = new ValueIndex(parentOf)
    this.#byValue = new Map([
      [parentFilter, byParent],
      ...(index.name === undefined ? [] : [[nameFilter, new ValueIndex(nameOf)] as const]),
      ...filters.map(({ name, isParent, read }) => [name, isParent ? byParent : new ValueIndex(read)] as const),
    ])
    this.#children = index.foundByPath === true ? new ChildIndex() : undefined
    this.#indexes = [...new Set(this.#byValue.values()), ...(this.#children === undefined ? [] : [this.#children])]
    this.views = new Views(this, turns)
  }

  /** All records in uid order. */
  get byUid(): Ranked<CachedRecord> {
    return this.#hidden.size === 0 ? this.#byUid : this.#visible
  }

  get size(): number {
    return this.#rows.size - this.#hidden.size
  }

  /** The record under `uid`, if there is one. */
  get(uid: string): CachedRecord | undefined {
    const row = this.#rows.get(uid)
    return row?.isHidden === true ? undefined : row
  }

  /** All records, in no order. */
  *rows(): Generator<CachedRecord> {
    for (const row of this.#rows.values()) if (!row.isHidden) yield row
  }

  /** Returns the records whose `filter` has exactly this value; if `below` is given, only those strictly below it. */
  matching(filter: string, value: string, below?: Uid): Matches {
    return this.#byValue.get(filter)?.matching(value, { hidden: this.#hidden, below }) ?? new Matches(noRows, { from: 0, to: 0 })
  }

  /** Returns the records that have a value for `filter`, ordered by value and uid. */
  having(filter: string): Matches {
    return this.#byValue.get(filter)?.all(this.#hidden) ?? new Matches(noRows, { from: 0, to: 0 })
  }

  /** Returns the record of this name directly below `parent` (`/` for roots). Throws TypeError for a kind without `foundByPath`. */
  child(parent: string, name: string): CachedRecord | undefined {
    if (this.#children === undefined) throw new TypeError(`${this.index.kind} is not found by path`)
    return this.#children.find(parent, name)
  }

  /** The value that `row` has for `filter`. */
  valueOf(row: CachedRecord, filter: string): string | undefined {
    return this.#valueOf.get(filter)?.(row)
  }

  /** Returns the ranks in uid order of `uid` (if `inclusive`) and everything below it. */
  rangeWithin(uid: Uid, inclusive: boolean): { from: number; to: number } {
    const from = this.byUid.rankBy(inclusive ? (row) => row.uid < uid : (row) => row.uid <= uid)
    // '0' follows '/' in ASCII, so `uid0` is the first text after everything that starts with `uid/`.
    const end = `${uid}0`
    const to = this.byUid.rankBy((row) => row.uid < end)
    // Nothing sorts between `uid` and `uid/...`: segments are hex digits, all greater than '/'.
    return { from, to }
  }

  /** Adds a row while the table loads: until `settle` it is found by uid only. Its uid must be new. */
  stage(row: CachedRecord): void {
    this.#rows.set(row)
    this.#staged[digitOf(row.uid.charCodeAt(0)) & 15]?.push(row)
  }

  /** Ends the loading: sorts the existing and the staged rows, in slices. */
  async settle(slices: Slices): Promise<void> {
    const rows = [...this.#byUid.items(0, this.#byUid.size)].concat(...this.#staged)
    this.#staged = emptyStages()
    const sorted = await sortInSlices(rows, uidOrder.compare, slices)
    this.#byUid = OrderTree.ofAscending(sorted, uidOrder.compare)
    this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    for (const index of this.#indexes) await index.load(sorted, slices)
  }

  /**
   * Hides visible rows of the table, given in uid order. From now on readers do not find them; each must be removed later. Costs far less than removing them.
   */
  hide(rows: readonly CachedRecord[]): void {
    for (const row of rows) row.isHidden = true
    if (rows.length * rowsPerInsert < this.#hidden.size) {
      for (const row of rows) this.#hidden.insert(row)
    } else {
      const all = this.#hidden.size === 0 ? rows : [...this.#hidden.items(0, this.#hidden.size), ...rows].sort(uidOrder.compare)
      this.#hidden = OrderTree.ofAscending(all, uidOrder.compare)
      this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    }
    this.views.hidden(rows)
  }

  /** Adds a row, or replaces the row with its uid, even a hidden one. */
  put(row: CachedRecord): CachedRecord | undefined {
    const old = this.#rows.get(row.uid)
    // The map's key is the uid string of the row that added it, and keeps that row's string alive.
    if (old !== undefined) this.#rows.delete(row.uid)
    this.#rows.set(row)
    this.#byUid.insert(row)
    for (const index of this.#indexes) index.put(old, row)
    this.#changed(old, row)
    if (old !== row) old?.release()
    return old
  }

  /** Removes the row under `uid`, even a hidden one. If `only` is given, removes only that very row. */
  remove(uid: string, only?: CachedRecord): CachedRecord | undefined {
    const old = this.#rows.get(uid)
    if (old === undefined || (only !== undefined && old !== only)) return undefined
    this.#rows.delete(uid)
    this.#byUid.delete(old)
    for (const index of this.#indexes) index.remove(old)
    this.#changed(old, undefined)
    old.release()
    return old
  }

  /** Reports a change to the views. They removed a hidden row earlier. */
  #changed(old: CachedRecord | undefined, row: CachedRecord | undefined): void {
    if (old?.isHidden !== true) this.views.changed(old, row)
    else {
      this.#hidden.delete(old)
      if (row !== undefined) this.views.changed(undefined, row)
    }
  }
}
