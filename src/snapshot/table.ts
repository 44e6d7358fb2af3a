import type { Uid } from '../core/uid.ts'
import { OrderTree } from './order-tree.ts'
import { uidOrder } from './order.ts'
import type { KindIndex, Row } from './row.ts'
import { Views } from './views.ts'

/** The filter that every kind has: the uid one level up, `/` for roots. */
export const parentFilter = 'parent'
/** The filter that every kind has: the record's name. */
export const nameFilter = 'name'

const noRows: ReadonlySet<Row> = new Set()

/** All records of one kind: by uid, in uid order with counts, by each exact filter, and in the views that lists asked for. */
export class KindTable {
  readonly index: KindIndex
  readonly byUid = new OrderTree<Row>(uidOrder.compare)
  readonly views: Views
  readonly #rows = new Map<string, Row>()
  readonly #filterNames: readonly string[]
  readonly #postings = new Map<string, Map<string, Set<Row>>>()

  constructor(index: KindIndex) {
    this.index = index
    this.#filterNames = Object.keys(index.filters)
    for (const name of [parentFilter, nameFilter, ...this.#filterNames]) this.#postings.set(name, new Map())
    this.views = new Views(this)
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
  matching(filter: string, value: string): ReadonlySet<Row> {
    return this.#postings.get(filter)?.get(value) ?? noRows
  }

  /** The value that `row` has for `filter`. */
  valueOf(row: Row, filter: string): string | undefined {
    if (filter === parentFilter) return row.parent
    if (filter === nameFilter) return row.name
    return row.filterValues[this.#filterNames.indexOf(filter)]
  }

  /** The ranks in uid order of `uid` (where `inclusive`) and everything below it. */
  rangeWithin(uid: Uid, inclusive: boolean): { from: number; to: number } {
    const below = this.byUid.rankBy((row) => row.uid < uid || row.uid === uid)
    const from = inclusive ? this.byUid.rankBy((row) => row.uid < uid) : below
    // '0' follows '/' in ASCII, so `uid0` is the first text after everything that starts with `uid/`.
    const end = `${uid}0`
    const to = this.byUid.rankBy((row) => row.uid < end)
    // Nothing sorts between `uid` and `uid/...`: segments are hex digits, all greater than '/'.
    return { from, to }
  }

  /** Puts a row in place of the one with its uid. */
  put(row: Row): Row | undefined {
    const old = this.#rows.get(row.uid)
    if (old !== undefined) this.#unindex(old)
    this.#rows.set(row.uid, row)
    this.byUid.insert(row)
    for (const [filter, byValue] of this.#postings) {
      const value = this.valueOf(row, filter)
      if (value === undefined) continue
      const held = byValue.get(value)
      if (held === undefined) byValue.set(value, new Set([row]))
      else held.add(row)
    }
    this.views.changed(old, row)
    return old
  }

  /** Removes the row under `uid`. */
  remove(uid: string): Row | undefined {
    const old = this.#rows.get(uid)
    if (old === undefined) return undefined
    this.#unindex(old)
    this.#rows.delete(uid)
    this.views.changed(old, undefined)
    return old
  }

  #unindex(row: Row): void {
    this.byUid.delete(row)
    for (const [filter, byValue] of this.#postings) {
      const value = this.valueOf(row, filter)
      if (value === undefined) continue
      const held = byValue.get(value)
      held?.delete(row)
      if (held?.size === 0) byValue.delete(value)
    }
  }
}
