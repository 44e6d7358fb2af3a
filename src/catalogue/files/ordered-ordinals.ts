import type { Order, OrderTerm, SortField } from '../../cache/lists/order.ts'
import { firstAtLeast, type NumberSet } from './number-set.ts'
import type { RowLists } from './row-lists.ts'

/** Returns up to which number of rows a list sorts them. Above it, the list walks all rows in the order until a page is full, which is faster then. */
function fewOf(count: number): number {
  return 2 * Math.sqrt(count)
}

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
  /** The number of rows after the place to leave out. */
  readonly skip: number
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

function byUid(set: NumberSet, descending: boolean, { after, skip }: Listing): Generator<number, void, undefined> {
  if (!descending) return set.ascending(after === undefined ? 0 : after.ordinal + (after.isRow ? 1 : 0), skip)
  return set.descending(after?.ordinal ?? Infinity, skip)
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
  #at: number

  /** Starts with the rows of the value `from`; undefined to start with the first rows. */
  constructor(
    { list, values }: { readonly list: Uint32Array; readonly values: Values },
    { descending, from }: { descending: boolean; from: number | undefined },
  ) {
    this.#list = list
    this.#values = values
    this.#descending = descending
    this.#at = this.#first(from)
  }

  /** Returns the rows of the next value, in turn; undefined after the last one. The tie of a single row is its ordinal. */
  next(): number | Tie | undefined {
    const [list, values, at] = [this.#list, this.#values, this.#at]
    if (at < 0 || at >= list.length) return undefined
    const step = this.#descending ? -1 : 1
    const [ordinal = 0, next] = [list[at], list[at + step]]
    const value = values[ordinal] ?? 0
    if (next === undefined || values[next] !== value) {
      this.#at = at + step
      return ordinal
    }
    const [start, end] = [this.#firstAt(value), this.#firstBeyond(value)]
    this.#at = this.#descending ? start - 1 : end
    return { list, start, end }
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
function* walked(set: NumberSet, listing: Listing, column: FieldOrder): Generator<number, void, undefined> {
  const { lists, order, after } = listing
  const members = set.withBits()
  let left = listing.skip
  // Only the first value of the walk can be that of the place.
  let isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  for (let tie = column.next(); tie !== undefined; tie = column.next()) {
    if (typeof tie !== 'number') {
      for (const ordinal of membersOf(members, tie, listing)) {
        if (isBeyond?.(ordinal) === false) continue
        if (left > 0) left -= 1
        else yield ordinal
      }
    } else if (members.has(tie) && isBeyond?.(tie) !== false) {
      if (left > 0) left -= 1
      else yield tie
    }
    isBeyond = undefined
  }
}

/** Yields the rows of a set after a place, in the order. */
export function orderedOrdinals(set: NumberSet, listing: Listing): Iterator<number> & Iterable<number> {
  const { lists, order, after, few = fewOf(listing.lists.ids.length) } = listing
  const [first] = order.terms
  const column = first === undefined ? undefined : columnOf(lists, first.field)
  if (first === undefined || first.field === 'uid' || column === undefined) return byUid(set, first?.descending === true, listing)
  if (set.size > few) return walked(set, listing, new FieldOrder(column, { descending: first.descending, from: after?.[first.field] }))
  const isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  const all = Uint32Array.from(set.ascending(0)).sort(comparing(listing))
  return (isBeyond === undefined ? all : all.filter(isBeyond)).subarray(listing.skip).values()
}
