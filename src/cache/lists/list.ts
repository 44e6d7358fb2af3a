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
  /** Exact filters, all of which must match. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
  /** A filter that must have one of these values. */
  readonly anyOf?: { readonly filter: string; readonly values: readonly string[] }
  /** Only records that changed after this time, in milliseconds since 1970. */
  readonly changedAfterMs?: number
  readonly visibility: Visibility
  readonly order: Order
  /** Only records after this position in the order. */
  readonly after?: SortKey
  readonly skip: number
  readonly limit: number
}

/** One page of a list, and the number of records on all its pages. */
export interface ListResult {
  readonly records: readonly CachedRecord[]
  readonly total: number
}

const changeOrder = orderOf([{ field: 'updateMs', descending: false }])

/** Maximum number of candidates that a list sorts itself. For more, a view (a sorted index that is kept up to date) is built and kept. */
const adHocRecords = 64
/**
 * Maximum number of views that one list may wait for, one per group. Above it, the list waits for one view of all its groups, or sorts the records itself. So
 * many separate views would evict all others, and then each other.
 */
const maxViewsPerList = 128
/** Maximum number of records that may be both in one view of all groups of a caller and in views of single groups. Views of single groups serve all callers. */
const maxRepeatedRecords = 10_000
/**
 * Maximum number of attempts to answer a list from views before it sorts the records itself. More than one is needed for another order, after an eviction, and
 * after a reload of the snapshot.
 */
const maxAttempts = 4
/** Number of extra records to collect in no order before sorting them and keeping only those that the page needs. */
const sortedAtOnce = 500

/** Returns the records that the filters `ids` and `ancestors_of` name; undefined if neither is set. */
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

/** Returns the smallest available set of records that contains all of `scope`; undefined if that set is large. */
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

/** Returns the range of the scope's records in the table if the order is by uid. It then needs no sorting and no view. */
function rangeOf(table: KindTable, scope: ViewScope, order: Order): Sequence<CachedRecord> | undefined {
  if (order !== uidOrder || scope.filters.length > 0 || scope.uids !== undefined || scope.place === 'child' || scope.place === 'self') return undefined
  if (scope.place === 'all') return wholeOf(table.byUid)
  return { tree: table.byUid, ...table.rangeWithin(trustedUid(scope.uid), scope.place === 'within') }
}

/** Returns the scope's records sorted, if there are only a few; undefined otherwise. */
function sortedIfFew(table: KindTable, scope: ViewScope, order: Order): Sequence<CachedRecord> | undefined {
  const few = fewCandidates(table, scope)
  return few === undefined ? undefined : sortedSequence(table, few, { scope, order })
}

/** Sorts the scope's records, however many there are. */
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

/** Returns the lists of exact filters that a list must match: one list for each value that `anyOf` allows. */
function alternatives({ filters, anyOf }: ListQuery): ViewScope['filters'][] {
  const all = anyOf === undefined ? [filters] : anyOf.values.map((value) => [...filters, [anyOf.filter, value] as const])
  return all.map((one) => [...one].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Returns one scope for all parts of a list, if they are several subtrees with the same filters. */
function togetherOf(parts: readonly ListPart[], query: ListQuery): ViewScope | undefined {
  const [filters, ...others] = alternatives(query)
  const [first] = parts
  if (filters === undefined || others.length > 0 || first === undefined || parts.length === 1) return undefined
  if (!isSubtree(first) || parts.some(({ place, uids }) => place !== first.place || uids !== undefined)) return undefined
  const uids = parts.map(({ uid }) => uid).sort()
  return { place: first.place, uid: uids[0] ?? first.uid, uids, filters }
}

/** The sorted records of one part of a list. They come from the table's own order, from a view that all callers share, or from a sort for this list. */
interface FoundPart {
  readonly from: 'table' | 'view' | 'sorting'
  readonly sequence: Sequence<CachedRecord>
}

/** Returns the sorted records of a part if they exist or are quick to sort; undefined if a view must be built first. */
function partAtHand(table: KindTable, scope: ViewScope, order: Order): FoundPart | undefined {
  const range = rangeOf(table, scope, order)
  if (range !== undefined) return { from: 'table', sequence: range }
  const view = scope.place === 'self' && scope.uids === undefined ? undefined : table.views.kept(scope, order)
  if (view !== undefined) return { from: 'view', sequence: wholeOf(view.tree) }
  const few = sortedIfFew(table, scope, order)
  return few === undefined ? undefined : { from: 'sorting', sequence: few }
}

/** The sorted records of all parts of a list, or the views that must be built first. */
type FoundSequences = { readonly sequences: readonly Sequence<CachedRecord>[] } | { readonly missing: readonly ViewScope[] }

/**
 * Finds the sorted records of a list in the current snapshot. Without `mayWait`, sorts records that have no view, so no view is missing. If it has to sort a
 * group's records, it offers all groups as one view. It does not if that view would repeat too many records of shared views.
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

/** Returns the part of each sequence that changed after `changedAfterMs`: its end, because the sequences are in the order of changes. */
function changedOf(sequences: readonly Sequence<CachedRecord>[], changedAfterMs: number): Sequence<CachedRecord>[] {
  return sequences.map(({ tree, from, to }) => {
    const first = tree.rankBy((record) => record.updateMs <= changedAfterMs)
    return { tree, to, from: Math.min(to, Math.max(from, first)) }
  })
}

/** Returns a page of records that are not sorted. At any time it keeps only about the first `skip + limit` records after `after`. */
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
  // The order's comparator only reads the fields of a SortKey.
  const after = query.after as CachedRecord | undefined
  return { records: merged.page({ skip: query.skip, limit: query.limit, after }), total: merged.count }
}

/** A page of a list, or the views that must be built first. */
type Looked = ListResult | { readonly missing: readonly ViewScope[]; readonly order: Order }

/** Returns the page of a list without the filter `changedAfterMs`, or the views that must be built first. */
function lookInOrder(table: KindTable, query: ListQuery, mayWait: boolean): Looked {
  const { order } = query
  const found = find(table, query, { order, mayWait })
  return 'missing' in found ? { ...found, order } : pageOf(found.sequences, query)
}

/** Returns the page of a list from the current snapshot, or the views that must be built first. */
function look(table: KindTable, query: ListQuery, mayWait: boolean): Looked {
  const { order, changedAfterMs } = query
  const named = namedRecords(table, query.uidp)
  if (named !== undefined) {
    const records = named.filter((record) => matchesAll(table, query, record)).sort(order.compare)
    return pageOf([wholeOf(OrderTree.fromSorted(records, order.compare))], query)
  }
  if (changedAfterMs === undefined) return lookInOrder(table, query, mayWait)
  // The records that changed last are at the end of the order of changes.
  const found = find(table, query, { order: changeOrder, mayWait })
  if ('missing' in found) return { ...found, order: changeOrder }
  const changed = changedOf(found.sequences, changedAfterMs)
  if (order === changeOrder) return pageOf(changed, query)
  const total = countOf(changed)
  if (total === countOf(found.sequences)) return lookInOrder(table, query, mayWait)
  const records = changed.flatMap(({ tree, from, to }) => tree.items(from, to))
  return { records: pageOfMany(records, query), total }
}

/** The current snapshot, and the query of a list in it. */
export interface ListSource {
  readonly tables: RecordTables
  readonly query: ListQuery
}

/**
 * Returns one page of a list. Its records, count and permissions are those of one commit that is not older than the call. `read` builds the answer in the
 * state of that commit, so joined data is of the same commit. Once the views exist, it costs O(k log n + page) for k visible groups. Sorts the visible records
 * if they are too many for one view, or if views are evicted as fast as they are built.
 */
export async function listRecords<T>(current: () => ListSource, read: (result: ListResult) => T): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    // Each attempt runs without a wait, so it reads the state of one commit.
    const { tables, query } = current()
    const table = tables.table(query.kind)
    const result = look(table, query, attempt <= maxAttempts)
    if ('records' in result) return read(result)
    await Promise.all(result.missing.map((scope) => table.views.view(scope, result.order)))
  }
}
