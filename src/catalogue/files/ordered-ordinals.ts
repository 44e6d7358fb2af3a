import type { Order, OrderTerm, SortField } from '../../cache/lists/order.ts'
import { firstAtLeast, type NumberSet } from './number-set.ts'
import type { RowLists } from './row-lists.ts'

/** Up to this number of rows, a list sorts them. Above it, it walks all rows in the order. */
const defaultFew = 5_000

/** The place after which a page begins, which need not be that of a row. */
export interface AfterPlace {
  readonly createMs: number
  readonly updateMs: number
  /** The place of the name among all names. */
  readonly name: number
  /** The smallest ordinal whose uid is not before that of the place. */
  readonly ordinal: number
  /** True if a row has the uid of the place. */
  readonly isRow: boolean
}

/** What to list. */
export interface Listing {
  readonly lists: RowLists
  readonly order: Order
  readonly after: AfterPlace | undefined
  /** For tests with few rows. */
  readonly few?: number
}

/** Rows that share the value of a field: a part of the list in the order of this field. */
interface Tie {
  readonly list: Uint32Array
  readonly start: number
  readonly end: number
}

type Values = Float64Array | Uint32Array

/** Returns the values of a field by ordinal, and the ordinals in the order of the field; undefined for uids, which ordinals follow. */
function columnOf(lists: RowLists, field: SortField): { readonly values: Values; readonly list: Uint32Array } | undefined {
  if (field === 'createMs') return { values: lists.createMs, list: lists.byCreate }
  if (field === 'updateMs') return { values: lists.updateMs, list: lists.byUpdate }
  return field === 'name' ? { values: lists.names, list: lists.byName } : undefined
}

function compareBy(lists: RowLists, { field, descending }: OrderTerm): (one: number, other: number) => number {
  const sign = descending ? -1 : 1
  const values = columnOf(lists, field)?.values
  if (values === undefined) return (one, other) => (one - other) * sign
  return (one, other) => ((values[one] ?? 0) - (values[other] ?? 0)) * sign
}

function comparing({ lists, order }: Listing): (one: number, other: number) => number {
  const compares = order.terms.map((term) => compareBy(lists, term))
  return (one, other) => {
    for (const compare of compares) {
      const result = compare(one, other)
      if (result !== 0) return result
    }
    return 0
  }
}

/** Returns whether a row comes after a place. */
function isAfter(lists: RowLists, terms: readonly OrderTerm[], place: AfterPlace): (one: number) => boolean {
  const uidOrder = (one: number): number => (one === place.ordinal && place.isRow ? 0 : one < place.ordinal ? -1 : 1)
  const compares = terms.map(({ field, descending }) => {
    const values = columnOf(lists, field)?.values
    const compare = values === undefined || field === 'uid' ? uidOrder : (one: number): number => (values[one] ?? 0) - place[field]
    return { compare, descending }
  })
  return (one) => {
    for (const { compare, descending } of compares) {
      const result = compare(one)
      if (result !== 0) return result > 0 !== descending
    }
    return false
  }
}

function byUid(set: NumberSet, descending: boolean, after: AfterPlace | undefined): Generator<number, void, undefined> {
  if (!descending) return set.ascending(after === undefined ? 0 : after.ordinal + (after.isRow ? 1 : 0))
  return set.descending(after?.ordinal ?? Infinity)
}

/** Yields the members of a tie. Within it, the list is in the order of uids. */
function* membersOf(set: NumberSet, { list, start, end }: Tie, listing: Listing): Generator<number, void, undefined> {
  const [, second] = listing.order.terms
  if (second === undefined || second.field === 'uid') {
    const descending = second?.descending === true
    for (let at = 0; at < end - start; at += 1) {
      const ordinal = list[descending ? end - 1 - at : start + at] ?? 0
      if (set.has(ordinal)) yield ordinal
    }
  } else
    yield* list
      .subarray(start, end)
      .filter((ordinal) => set.has(ordinal))
      .sort(comparing(listing))
}

/** All rows in the order of a field other than the uid. */
class FieldOrder {
  readonly #list: Uint32Array
  readonly #values: Values
  readonly #descending: boolean

  constructor({ list, values }: { readonly list: Uint32Array; readonly values: Values }, descending: boolean) {
    this.#list = list
    this.#values = values
    this.#descending = descending
  }

  /** Yields the rows of one value after the other, from the value `from`. The tie of a single row is its ordinal. */
  *ties(from: number | undefined): Generator<number | Tie, void, undefined> {
    const [list, values] = [this.#list, this.#values]
    const step = this.#descending ? -1 : 1
    for (let at = this.#first(from); at >= 0 && at < list.length;) {
      const [ordinal = 0, next] = [list[at], list[at + step]]
      const value = values[ordinal] ?? 0
      if (next === undefined || values[next] !== value) {
        yield ordinal
        at += step
      } else {
        const [start, end] = [this.#firstAt(value), this.#firstBeyond(value)]
        yield { list, start, end }
        at = this.#descending ? start - 1 : end
      }
    }
  }

  #first(from: number | undefined): number {
    if (this.#descending) return (from === undefined ? this.#list.length : this.#firstBeyond(from)) - 1
    return from === undefined ? 0 : this.#firstAt(from)
  }

  #firstAt(value: number): number {
    return firstAtLeast(this.#list.length, (at) => this.#valueAt(at) >= value)
  }

  #firstBeyond(value: number): number {
    return firstAtLeast(this.#list.length, (at) => this.#valueAt(at) > value)
  }

  #valueAt(at: number): number {
    return this.#values[this.#list[at] ?? 0] ?? 0
  }
}

/** Yields members by walking all rows in the order of a field. */
function* walked(
  set: NumberSet,
  listing: Listing,
  { column, from }: { readonly column: FieldOrder; readonly from: number | undefined },
): Generator<number, void, undefined> {
  const { lists, order, after } = listing
  const members = set.withBits()
  // Only the first value of the walk can be that of the place.
  let isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  for (const tie of column.ties(from)) {
    if (typeof tie !== 'number') {
      for (const ordinal of membersOf(members, tie, listing)) if (isBeyond === undefined || isBeyond(ordinal)) yield ordinal
    } else if (members.has(tie) && (isBeyond === undefined || isBeyond(tie))) yield tie
    isBeyond = undefined
  }
}

/** Yields the rows of a set after a place, in the order. */
export function orderedOrdinals(set: NumberSet, listing: Listing): Iterator<number> & Iterable<number> {
  const { lists, order, after, few = defaultFew } = listing
  const [first] = order.terms
  const column = first === undefined ? undefined : columnOf(lists, first.field)
  if (first === undefined || first.field === 'uid' || column === undefined) return byUid(set, first?.descending === true, after)
  if (set.size > few) return walked(set, listing, { column: new FieldOrder(column, first.descending), from: after?.[first.field] })
  const isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  const all = Uint32Array.from(set.ascending(0)).sort(comparing(listing))
  return isBeyond === undefined ? all.values() : all.filter(isBeyond).values()
}
