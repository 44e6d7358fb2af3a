import type { Uid } from '../core/uid.ts'
import { ChildIndex } from './child-index.ts'
import { OrderTree } from './order-tree.ts'
import { uidOrder } from './order.ts'
import { filterReaders, type FilterReader, type KindIndex, type Row } from './row.ts'
import { sortInSlices, Turns, type Slices } from './slices.ts'
import { UidMap } from './uid-map.ts'
import { Matches, ValueIndex } from './value-index.ts'
import { Views } from './views.ts'

/** The filter that every kind has: the uid one level up, `/` for roots. */
export const parentFilter = 'parent'
/** The filter that every kind has: the record's name. */
export const nameFilter = 'name'

const parentOf: FilterReader = (row) => row.parent
const nameOf: FilterReader = (row) => row.name

/** The number of a hex digit. */
function digitOf(code: number): number {
  return code > 57 ? code - 87 : code - 48
}

function emptyStages(): Row[][] {
  return Array.from({ length: 16 }, () => [])
}

const noRows = new OrderTree<Row>(uidOrder.compare)

/** All records of one kind: by uid, in uid order with counts, by each exact filter, and in the views that lists asked for. */
export class KindTable {
  readonly index: KindIndex
  readonly views: Views
  readonly #rows = new UidMap()
  readonly #valueOf: ReadonlyMap<string, FilterReader>
  readonly #byValue: ReadonlyMap<string, ValueIndex>
  /** Those of #byValue, each once, and #children. */
  readonly #indexes: readonly (ValueIndex | ChildIndex)[]
  readonly #children: ChildIndex | undefined
  /** By the first digit of the uid: what comes in the order of one digit's uids needs no sorting. */
  #staged = emptyStages()
  #byUid = new OrderTree<Row>(uidOrder.compare)

  /** `turns` are those in which views are filled; the table's own where absent. */
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
  get byUid(): OrderTree<Row> {
    return this.#byUid
  }

  get size(): number {
    return this.#rows.size
  }

  /** The record under `uid`, if there is one. */
  get(uid: string): Row | undefined {
    return this.#rows.get(uid)
  }

  /** All records, in no order. */
  rows(): Iterable<Row> {
    return this.#rows.values()
  }

  /** The records whose `filter` has exactly this value. */
  matching(filter: string, value: string): Matches {
    return this.#byValue.get(filter)?.matching(value) ?? new Matches(noRows, 0, 0)
  }

  /** The record of this name right below `parent` (`/` for roots). Throws TypeError for a kind that is not found by path. */
  child(parent: string, name: string): Row | undefined {
    if (this.#children === undefined) throw new TypeError(`${this.index.kind} is not found by path`)
    return this.#children.find(parent, name)
  }

  /** The value that `row` has for `filter`. */
  valueOf(row: Row, filter: string): string | undefined {
    return this.#valueOf.get(filter)?.(row)
  }

  /** The ranks in uid order of `uid` (where `inclusive`) and everything below it. */
  rangeWithin(uid: Uid, inclusive: boolean): { from: number; to: number } {
    const from = this.byUid.rankBy(inclusive ? (row) => row.uid < uid : (row) => row.uid <= uid)
    // '0' follows '/' in ASCII, so `uid0` is the first text after everything that starts with `uid/`.
    const end = `${uid}0`
    const to = this.byUid.rankBy((row) => row.uid < end)
    // Nothing sorts between `uid` and `uid/...`: segments are hex digits, all greater than '/'.
    return { from, to }
  }

  /** Adds a row of a table that is being loaded: until `settle` it is found by uid only. No other row has its uid. */
  stage(row: Row): void {
    this.#rows.set(row)
    this.#staged[digitOf(row.uid.charCodeAt(0)) & 15]?.push(row)
  }

  /** Ends the loading: brings what was there and what was staged in order, in slices. */
  async settle(slices: Slices): Promise<void> {
    const rows = [...this.#byUid.items(0, this.#byUid.size)].concat(...this.#staged)
    this.#staged = emptyStages()
    const sorted = await sortInSlices(rows, uidOrder.compare, slices)
    this.#byUid = OrderTree.ofAscending(sorted, uidOrder.compare)
    for (const index of this.#indexes) await index.load(sorted, slices)
  }

  /** Puts a row in place of the one with its uid. */
  put(row: Row): Row | undefined {
    const old = this.#rows.get(row.uid)
    // The map's key is the uid of the row that it came with, and lives as long as that.
    if (old !== undefined) this.#rows.delete(row.uid)
    this.#rows.set(row)
    this.#byUid.insert(row)
    for (const index of this.#indexes) index.put(old, row)
    this.views.changed(old, row)
    if (old !== row) old?.release()
    return old
  }

  /** Removes the row under `uid`. */
  remove(uid: string): Row | undefined {
    const old = this.#rows.get(uid)
    if (old === undefined) return undefined
    this.#rows.delete(uid)
    this.#byUid.delete(old)
    for (const index of this.#indexes) index.remove(old)
    this.views.changed(old, undefined)
    old.release()
    return old
  }
}
