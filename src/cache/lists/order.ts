import type { CursorKey } from '../../base/page-token.ts'
import { DomainError } from '../../base/errors.ts'
import type { CachedRecord } from '../records/cached-record.ts'

/** The record fields that a list can be ordered by. */
export type SortField = 'uid' | 'name' | 'createMs' | 'updateMs'

/** One field of an order, and its direction. */
export interface OrderTerm {
  readonly field: SortField
  readonly descending: boolean
}

/** A total order of records: its terms, then `uid asc` (docs/spec/conventions.md#ordering). */
export interface Order {
  readonly terms: readonly OrderTerm[]
  /** A text that identifies the order. Two equal orders have the same text. */
  readonly id: string
  compare(a: SortKey, b: SortKey): number
}

/** The record fields that an order can compare. Records have them, and so do the positions in page tokens. */
export type SortKey = Pick<CachedRecord, SortField>

/** The record field for each sort field of the schema. The id of a catalogue's resource takes the place of a uid. */
export const recordFields: Readonly<Record<string, SortField>> = { uid: 'uid', id: 'uid', name: 'name', create_time: 'createMs', update_time: 'updateMs' }

/** The fields of a kind by which its lists can be sorted, from the schema. */
export interface Sortable {
  /** The sort keys in their canonical spelling, e.g. `created_at`. */
  readonly sortable: readonly string[]
  /** Maps every accepted spelling, in any case, to the proto name of the field. */
  readonly sortFields: ReadonlyMap<string, string>
}

/** Returns the proto name of the field with this spelling, in any case. */
function protoField(spelling: string, { sortFields }: Sortable): string | undefined {
  const lower = spelling.toLowerCase()
  for (const [accepted, field] of sortFields) if (accepted.toLowerCase() === lower) return field
  return undefined
}

function compareBy(term: OrderTerm): (a: SortKey, b: SortKey) => number {
  const { field, descending } = term
  const sign = descending ? -1 : 1
  return (a, b) => (a[field] < b[field] ? -sign : a[field] > b[field] ? sign : 0)
}

function chain(comparators: readonly ((a: SortKey, b: SortKey) => number)[]): (a: SortKey, b: SortKey) => number {
  const [first, second] = comparators
  if (first === undefined) return () => 0
  if (second === undefined) return first
  const rest = chain(comparators.slice(1))
  return (a, b) => first(a, b) || rest(a, b)
}

const orders = new Map<string, Order>()

/** Returns the order with these terms. Equal terms yield the same object. */
export function orderOf(terms: readonly OrderTerm[]): Order {
  const end = terms.findIndex((term) => term.field === 'uid')
  const kept = end < 0 ? [...terms, { field: 'uid', descending: false } as const] : terms.slice(0, end + 1)
  const id = kept.map((term) => `${term.field}${term.descending ? '-' : '+'}`).join('')
  let order = orders.get(id)
  if (order === undefined) {
    order = { terms: kept, id, compare: chain(kept.map(compareBy)) }
    orders.set(id, order)
  }
  return order
}

/** Ascending by uid: the order that every table keeps. */
export const uidOrder = orderOf([{ field: 'uid', descending: false }])

/**
 * Parses `order_by`: terms `field [asc|desc]`, separated by commas. `fields` names the fields by their proto names. Each field comes once. Throws code 3 on
 * `order_by` for fields that are not sortable.
 */
export function parseOrderTerms<Field extends string>(
  text: string,
  sortable: Sortable,
  fields: Readonly<Record<string, Field>>,
): { readonly field: Field; readonly descending: boolean }[] {
  const terms: { readonly field: Field; readonly descending: boolean }[] = []
  for (const part of text.split(',')) {
    const [name = '', direction = 'asc', ...more] = part.trim().split(/ +/)
    const field = fields[protoField(name, sortable) ?? '']
    if (field === undefined) {
      throw DomainError.invalid('order_by', `"${name.slice(0, 60)}" is not sortable; sortable are ${sortable.sortable.join(', ')}`)
    }
    if (more.length > 0 || !/^(?:asc|desc)$/i.test(direction))
      throw DomainError.invalid('order_by', 'each term must be a field, optionally followed by asc or desc')
    if (!terms.some((term) => term.field === field)) terms.push({ field, descending: direction.toLowerCase() === 'desc' })
  }
  return terms
}

/** Parses the `order_by` of records. Throws code 3 on `order_by` for fields that are not sortable. */
export function parseOrder(text: string, sortable: Sortable): Order {
  return orderOf(parseOrderTerms(text, sortable, recordFields))
}

/** Returns the values of a record that a page token stores as its position. */
export function cursorKeyOf(order: Order, row: SortKey): CursorKey {
  return order.terms.map((term) => row[term.field])
}

/** Returns the position that a page token stores; undefined if it does not fit the order. */
export function sortKeyOf(order: Order, key: CursorKey): SortKey | undefined {
  if (key.length !== order.terms.length) return undefined
  const found: Record<SortField, string | number> = { uid: '', name: '', createMs: 0, updateMs: 0 }
  order.terms.forEach((term, at) => {
    found[term.field] = key[at] ?? ''
  })
  // The values are those that cursorKeyOf stored in the token for the same order.
  return found as unknown as SortKey
}
