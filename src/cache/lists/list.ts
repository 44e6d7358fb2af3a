import { isBelow, lineage, trustedUid } from '../../base/uid.ts'
import { orderOf, uidOrder, type Order, type SortKey } from './order.ts'
import type { Ranked } from './difference.ts'
import { OrderTree } from './order-tree.ts'
import type { CachedRecord } from '../records/cached-record.ts'
import { MergedSequence, type Sequence } from './sequence.ts'
import type { RecordTables } from '../record-tables.ts'
import { parentFilter, type KindTable } from '../table.ts'
import type { ViewScope } from './view.ts'
import { basePlace, isVisible, partsOf, type ListPart, type UidFilter, type Visibility } from './places.ts'
import { inScope } from './views.ts'

/** The query of a list. */
export interface ListQuery {
  readonly kind: string
  readonly uidp: UidFilter
  /** Exact filters, ANDed. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
  /** A filter that may have any of these values. */
  readonly anyOf?: { readonly filter: string; readonly values: readonly string[] }
  /** Only records that changed later than this, in milliseconds since 1970. */
  readonly changedAfterMs?: number
  readonly visibility: Visibility
  readonly order: Order
  /** Only records after this place. */
  readonly after?: SortKey
  readonly skip: number
  readonly limit: number
}

/** A page, and the number of records on all pages. */
export interface ListResult {
  readonly records: readonly CachedRecord[]
  readonly total: number
}

const changeOrder = orderOf([{ field: 'updateMs', descending: false }])

/** Up to this number of candidates, a list sorts them itself. Above it, a view is made and kept. */
const adHocRecords = 64
/**
 * Above this number of missing views, a list waits for one view of all its groups, or sorts if there can be none. Separate views would evict all others, then
 * their own.
 */
const maxViewsPerList = 128
/** Maximum number of records that a view of all groups of a caller repeats from groups with views of their own. Callers of any reach share the latter. */
const maxRepeatedRecords = 10_000
/** Maximum attempts to answer from views before sorting. More than one is needed for another order, and after an eviction or a replaced snapshot. */
const maxAttempts = 4
/** Number of extra unordered records to collect before sorting and keeping only the wanted ones. */
const sortedAtOnce = 500

/** Returns the records that `ids` and `ancestors_of` name, if these are set. */
function namedRecords(table: KindTable, uidp: UidFilter): CachedRecord[] | undefined {
  if (uidp.ids.length > 0) return [...new Set(uidp.ids)].map((uid) => table.get(uid)).filter((record) => record !== undefined)
  if (uidp.ancestorsOf === '') return undefined
  const above = [...lineage(trustedUid(uidp.ancestorsOf))].slice(1)
  if (table.index.seenAtUid === true) return above.map((uid) => table.get(uid)).filter((record) => record !== undefined)
  return above.flatMap((uid) => [...table.matching(parentFilter, uid)])
}

function matchesAll(table: KindTable, query: ListQuery, record: CachedRecord): boolean {
  const { uidp } = query
  const base = basePlace(uidp)
  if (base === undefined || !inScope(table, { ...base, filters: query.filters }, record)) return false
  const { anyOf, changedAfterMs } = query
  if (anyOf !== undefined && !anyOf.values.includes(table.valueOf(record, anyOf.filter) ?? '')) return false
  if (changedAfterMs !== undefined && record.updateMs <= changedAfterMs) return false
  if (uidp.ids.length > 0 && !uidp.ids.includes(record.uid)) return false
  if (uidp.ancestorsOf !== '' && !isBelow(uidp.ancestorsOf, table.index.seenAtUid === true ? record.uid : record.parent)) return false
  return isVisible(query.visibility, table.index, record.uid)
}

function wholeOf(tree: Ranked<CachedRecord>): Sequence<CachedRecord> {
  return { tree, from: 0, to: tree.size }
}

function countOf(sequences: readonly Sequence<CachedRecord>[]): number {
  return sequences.reduce((sum, { from, to }) => sum + to - from, 0)
}

function isSubtree(scope: ListPart): boolean {
  return scope.place === 'within' || scope.place === 'below'
}

/** Returns the smallest available set that holds all of `scope`, if it is small. */
function fewCandidates(table: KindTable, scope: ViewScope): Iterable<CachedRecord> | undefined {
  if (scope.uids !== undefined) return undefined
  if (scope.place === 'self') return [table.get(scope.uid)].filter((record) => record !== undefined)
  if (isSubtree(scope)) {
    const { from, to } = table.rangeWithin(trustedUid(scope.uid), true)
    if (to - from <= adHocRecords) return table.byUid.items(from, to)
  }
  const filters = scope.place === 'child' ? [[parentFilter, scope.uid] as const, ...scope.filters] : scope.filters
  const [fewest] = filters.map(([filter, value]) => table.matching(filter, value)).sort((a, b) => a.size - b.size)
  return fewest !== undefined && fewest.size <= adHocRecords ? fewest : undefined
}

function sortedSequence(table: KindTable, records: Iterable<CachedRecord>, by: { scope: ViewScope; order: Order }): Sequence<CachedRecord> {
  const held = [...records].filter((record) => inScope(table, by.scope, record)).sort(by.order.compare)
  return wholeOf(OrderTree.fromSorted(held, by.order.compare))
}

/** Returns the part's range if the order is by uid: it needs no sorting and no view. */
function rangeOf(table: KindTable, scope: ViewScope, order: Order): Sequence<CachedRecord> | undefined {
  if (order !== uidOrder || scope.filters.length > 0 || scope.uids !== undefined || scope.place === 'child' || scope.place === 'self') return undefined
  if (scope.place === 'all') return wholeOf(table.byUid)
  return { tree: table.byUid, ...table.rangeWithin(trustedUid(scope.uid), scope.place === 'within') }
}

/** Sorts the part's records if there are only a few. */
function sortedIfFew(table: KindTable, scope: ViewScope, order: Order): Sequence<CachedRecord> | undefined {
  const few = fewCandidates(table, scope)
  return few === undefined ? undefined : sortedSequence(table, few, { scope, order })
}

/** Sorts the place's records, whatever their number. */
function sortedNow(table: KindTable, scope: ViewScope, order: Order): Sequence<CachedRecord> {
  if (scope.place === 'child') return sortedSequence(table, table.matching(parentFilter, scope.uid), { scope, order })
  if (scope.uids !== undefined) {
    const records = scope.uids.flatMap((uid) => {
      if (scope.place === 'self') return table.get(uid) ?? []
      const { from, to } = table.rangeWithin(trustedUid(uid), true)
      return table.byUid.items(from, to)
    })
    return sortedSequence(table, records, { scope, order })
  }
  const { from, to } = isSubtree(scope) ? table.rangeWithin(trustedUid(scope.uid), true) : { from: 0, to: table.byUid.size }
  return sortedSequence(table, table.byUid.items(from, to), { scope, order })
}

/** Returns the exact filters of a list, once for each value that `anyOf` allows. */
function alternatives({ filters, anyOf }: ListQuery): ViewScope['filters'][] {
  const all = anyOf === undefined ? [filters] : anyOf.values.map((value) => [...filters, [anyOf.filter, value] as const])
  return all.map((one) => [...one].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Returns all parts of a list as one scope, if they are several subtrees with the same filters. */
function togetherOf(parts: readonly ListPart[], query: ListQuery): ViewScope | undefined {
  const [filters, ...others] = alternatives(query)
  const [first] = parts
  if (filters === undefined || others.length > 0 || first === undefined || parts.length === 1) return undefined
  if (!isSubtree(first) || parts.some(({ place, uids }) => place !== first.place || uids !== undefined)) return undefined
  const uids = parts.map(({ uid }) => uid).sort()
  return { place: first.place, uid: uids[0] ?? first.uid, uids, filters }
}

/** A part's records in order. They come from the table's own order, a view that callers of any reach share, or a sort for this list. */
interface FoundPart {
  readonly from: 'table' | 'view' | 'sorting'
  readonly sequence: Sequence<CachedRecord>
}

/** Returns a part that exists or is quick to make; undefined if a view is needed first. */
function partAtHand(table: KindTable, scope: ViewScope, order: Order): FoundPart | undefined {
  const range = rangeOf(table, scope, order)
  if (range !== undefined) return { from: 'table', sequence: range }
  const view = scope.place === 'self' && scope.uids === undefined ? undefined : table.views.kept(scope, order)
  if (view !== undefined) return { from: 'view', sequence: wholeOf(view.tree) }
  const few = sortedIfFew(table, scope, order)
  return few === undefined ? undefined : { from: 'sorting', sequence: few }
}

/** The records of a list in one order, or the views that it needs first. */
type FoundSequences = { readonly sequences: readonly Sequence<CachedRecord>[] } | { readonly missing: readonly ViewScope[] }

/**
 * Finds a list's records in an order from current data. Without `mayWait`, records without a view are sorted, so nothing is missing. If it sorts a group's records, it
 * offers all groups as one view, unless that view repeats too much of what other callers share.
 */
function find(table: KindTable, query: ListQuery, { order, mayWait }: { order: Order; mayWait: boolean }): FoundSequences {
  const parts = partsOf(table.index, query)
  const together = togetherOf(parts, query)
  const kept = together === undefined ? undefined : table.views.kept(together, order)
  if (kept !== undefined) return { sequences: [wholeOf(kept.tree)] }
  const scopes = parts.flatMap((part) => alternatives(query).map((filters): ViewScope => ({ ...part, filters })))
  const found = scopes.map((scope) => partAtHand(table, scope, order))
  const missing = scopes.filter((_, at) => found[at] === undefined)
  const atHand = found.filter((part) => part !== undefined)
  const sequencesFrom = (from: FoundPart['from']): Sequence<CachedRecord>[] => atHand.filter((part) => part.from === from).map(({ sequence }) => sequence)
  const shared = sequencesFrom('view')
  if (mayWait && missing.length > 0) {
    const isTaken = missing.every((scope) => scope.uids === undefined || table.views.takes(scope, order))
    if (isTaken && shared.length + missing.length <= maxViewsPerList) return { missing }
    if (together !== undefined && table.views.takes(together, order)) return { missing: [together] }
  }
  const many = missing.map((scope) => sortedNow(table, scope, order))
  const sorted = sequencesFrom('sorting')
  const repeatedRecords = countOf([...shared, ...many])
  if (together !== undefined && sorted.length + many.length > 0 && repeatedRecords <= maxRepeatedRecords) table.views.offer(together, order)
  return { sequences: [...sequencesFrom('table'), ...shared, ...sorted, ...many] }
}

/** Returns the end of the records in the order of changes: those that changed later than `changedAfterMs`. */
function changedOf(sequences: readonly Sequence<CachedRecord>[], changedAfterMs: number): Sequence<CachedRecord>[] {
  return sequences.map(({ tree, from, to }) => {
    const first = tree.rankBy((record) => record.updateMs <= changedAfterMs)
    return { tree, to, from: Math.min(to, Math.max(from, first)) }
  })
}

/** Returns the page of unordered records. Keeps only the first `skip + limit` records after `after`, whatever the number of records. */
function pageOfMany(records: Iterable<CachedRecord>, { order, skip, limit, after }: ListQuery): CachedRecord[] {
  const wanted = skip + limit
  let kept: CachedRecord[] = []
  let last: CachedRecord | undefined
  const keepFirst = (): void => {
    kept = kept.sort(order.compare).slice(0, wanted)
    if (kept.length === wanted) last = kept.at(-1)
  }
  for (const record of records) {
    if (after !== undefined && order.compare(record, after) <= 0) continue
    if (last !== undefined && order.compare(record, last) > 0) continue
    kept.push(record)
    if (kept.length >= 2 * wanted + sortedAtOnce) keepFirst()
  }
  keepFirst()
  return kept.slice(skip)
}

function pageOf(sequences: readonly Sequence<CachedRecord>[], query: ListQuery): ListResult {
  const merged = new MergedSequence<CachedRecord>(sequences, query.order.compare)
  // The comparator looks only at what a SortKey has.
  const after = query.after as CachedRecord | undefined
  return { records: merged.page({ skip: query.skip, limit: query.limit, after }), total: merged.count }
}

/** A page, or the views that it needs first. */
type Looked = ListResult | { readonly missing: readonly ViewScope[]; readonly order: Order }

/** Returns the page of a list without a `changedAfterMs` limit. */
function lookInOrder(table: KindTable, query: ListQuery, mayWait: boolean): Looked {
  const { order } = query
  const found = find(table, query, { order, mayWait })
  return 'missing' in found ? { ...found, order } : pageOf(found.sequences, query)
}

/** Returns the page from current data, or the views that it needs first. */
function look(table: KindTable, query: ListQuery, mayWait: boolean): Looked {
  const { order, changedAfterMs } = query
  const named = namedRecords(table, query.uidp)
  if (named !== undefined) {
    const records = named.filter((record) => matchesAll(table, query, record)).sort(order.compare)
    return pageOf([wholeOf(OrderTree.fromSorted(records, order.compare))], query)
  }
  if (changedAfterMs === undefined) return lookInOrder(table, query, mayWait)
  // The latest changes are the end of the order of changes.
  const found = find(table, query, { order: changeOrder, mayWait })
  if ('missing' in found) return { ...found, order: changeOrder }
  const changed = changedOf(found.sequences, changedAfterMs)
  if (order === changeOrder) return pageOf(changed, query)
  const total = countOf(changed)
  if (total === countOf(found.sequences)) return lookInOrder(table, query, mayWait)
  const records = changed.flatMap(({ tree, from, to }) => tree.items(from, to))
  return { records: pageOfMany(records, query), total }
}

/** A list's snapshot and query, both as of now. */
export interface ListSource {
  readonly tables: RecordTables
  readonly query: ListQuery
}

/**
 * Returns one page of a list: records, count and rights of one commit that is not older than the call. `read` builds the answer in that commit's state, so
 * joined data is of the same commit. Cost: O(k log n + page) for k visible groups once the views exist. Sorts the visible records if they are too many for one
 * view, or if views are evicted as fast as they are made.
 */
export async function listRecords<T>(current: () => ListSource, read: (result: ListResult) => T): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    // Each attempt takes one turn, so it reads one commit.
    const { tables, query } = current()
    const table = tables.table(query.kind)
    const result = look(table, query, attempt <= maxAttempts)
    if ('records' in result) return read(result)
    await Promise.all(result.missing.map((scope) => table.views.view(scope, result.order)))
  }
}
