import type { Order, OrderTerm, SortKey } from '../../cache/lists/order.ts'
import type { AdvisoryLists } from './advisory-index.ts'
import { firstAtLeast, type NumberSet } from './number-set.ts'

/** Up to this number of advisories, a list sorts them. Above it, it walks all advisories in the order. */
const defaultFew = 5_000

/** The place after which a page begins, which need not be that of an advisory. */
export interface AfterPlace {
  readonly key: SortKey
  /** The smallest ordinal whose uid is not before that of the place. */
  readonly ordinal: number
  /** True if an advisory has the uid of the place. */
  readonly isAdvisory: boolean
}

/** What to list. */
export interface Listing {
  readonly lists: AdvisoryLists
  readonly order: Order
  readonly after: AfterPlace | undefined
  /** For tests with few advisories. */
  readonly few?: number
}

/** Advisories that share a time: a part of a list in the order of this time. */
interface Tie {
  readonly list: Uint32Array
  readonly start: number
  readonly end: number
}

function compareBy({ createMs, updateMs }: AdvisoryLists, { field, descending }: OrderTerm): (one: number, other: number) => number {
  const sign = descending ? -1 : 1
  const values = field === 'createMs' ? createMs : field === 'updateMs' ? updateMs : undefined
  if (values !== undefined) return (one, other) => ((values[one] ?? 0) - (values[other] ?? 0)) * sign
  if (field === 'uid') return (one, other) => (one - other) * sign
  throw new TypeError(`advisories have no ${field}`)
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

/** Returns whether an advisory comes after a place. */
function isAfter({ createMs, updateMs }: AdvisoryLists, terms: readonly OrderTerm[], { key, ordinal, isAdvisory }: AfterPlace): (one: number) => boolean {
  const uidOrder = (one: number): number => (one === ordinal && isAdvisory ? 0 : one < ordinal ? -1 : 1)
  return (one) => {
    for (const { field, descending } of terms) {
      const result = field === 'createMs' ? (createMs[one] ?? 0) - key.createMs : field === 'updateMs' ? (updateMs[one] ?? 0) - key.updateMs : uidOrder(one)
      if (result !== 0) return result > 0 !== descending
    }
    return false
  }
}

function byUid(set: NumberSet, descending: boolean, after: AfterPlace | undefined): Generator<number, void, undefined> {
  if (!descending) return set.ascending(after === undefined ? 0 : after.ordinal + (after.isAdvisory ? 1 : 0))
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

/** All advisories in the order of a time. */
class TimeLine {
  readonly #list: Uint32Array
  readonly #times: Float64Array
  readonly #field: 'createMs' | 'updateMs'
  readonly #descending: boolean

  constructor({ byCreate, byUpdate, createMs, updateMs }: AdvisoryLists, { field, descending }: OrderTerm) {
    this.#field = field === 'createMs' ? 'createMs' : 'updateMs'
    this.#list = field === 'createMs' ? byCreate : byUpdate
    this.#times = field === 'createMs' ? createMs : updateMs
    this.#descending = descending
  }

  /** Yields the advisories of one time after the other, from the time of `after`. The tie of a single advisory is its ordinal. */
  *ties(after: AfterPlace | undefined): Generator<number | Tie, void, undefined> {
    const [list, times] = [this.#list, this.#times]
    const step = this.#descending ? -1 : 1
    for (let at = this.#first(after); at >= 0 && at < list.length;) {
      const [ordinal = 0, next] = [list[at], list[at + step]]
      const time = times[ordinal] ?? 0
      if (next === undefined || times[next] !== time) {
        yield ordinal
        at += step
      } else {
        const [start, end] = [this.#firstAt(time), this.#firstBeyond(time)]
        yield { list, start, end }
        at = this.#descending ? start - 1 : end
      }
    }
  }

  #first(after: AfterPlace | undefined): number {
    if (this.#descending) return (after === undefined ? this.#list.length : this.#firstBeyond(after.key[this.#field])) - 1
    return after === undefined ? 0 : this.#firstAt(after.key[this.#field])
  }

  #firstAt(time: number): number {
    return firstAtLeast(this.#list.length, (at) => this.#timeAt(at) >= time)
  }

  #firstBeyond(time: number): number {
    return firstAtLeast(this.#list.length, (at) => this.#timeAt(at) > time)
  }

  #timeAt(at: number): number {
    return this.#times[this.#list[at] ?? 0] ?? 0
  }
}

/** Yields members by walking all advisories in the order of a time. */
function* walked(set: NumberSet, listing: Listing, first: OrderTerm): Generator<number, void, undefined> {
  const { lists, order, after } = listing
  const members = set.withBits()
  // Only the first time of the walk can be that of the place.
  let isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  for (const tie of new TimeLine(lists, first).ties(after)) {
    if (typeof tie !== 'number') {
      for (const ordinal of membersOf(members, tie, listing)) if (isBeyond === undefined || isBeyond(ordinal)) yield ordinal
    } else if (members.has(tie) && (isBeyond === undefined || isBeyond(tie))) yield tie
    isBeyond = undefined
  }
}

/** Yields the advisories of a set after a place, in the order. */
export function orderedOrdinals(set: NumberSet, listing: Listing): Iterator<number> & Iterable<number> {
  const { lists, order, after, few = defaultFew } = listing
  const [first] = order.terms
  if (first === undefined || first.field === 'uid') return byUid(set, first?.descending === true, after)
  if (set.size > few) return walked(set, listing, first)
  const isBeyond = after === undefined ? undefined : isAfter(lists, order.terms, after)
  const all = Uint32Array.from(set.ascending(0)).sort(comparing(listing))
  return isBeyond === undefined ? all.values() : all.filter(isBeyond).values()
}
