import { isBelow, isWithin, lineage, parentOf, rootParent, trustedUid, type Uid } from '../core/uid.ts'
import { uidOrder, type Order, type SortKey } from './order.ts'
import { OrderTree } from './order-tree.ts'
import type { Row } from './row.ts'
import { MergedSequence, type Sequence } from './sequence.ts'
import type { Snapshot } from './snapshot.ts'
import { parentFilter, type KindTable } from './table.ts'
import { inScope, type ReadyView, type ViewScope } from './views.ts'

/** Where a caller may see records: in these groups and below (none inside another), and root-level records where `roots`. */
export interface Visibility {
  readonly everywhere: boolean
  readonly groups: readonly Uid[]
  readonly roots: boolean
}

/** The `uidp` filter of a list; what is set is ANDed (rules 1.3). An empty text is not set. */
export interface UidFilter {
  readonly descendantsOf: string
  readonly childrenOf: string
  readonly ancestorsOf: string
  readonly inRoot: boolean
  readonly ids: readonly string[]
}

/** What a list asks for. */
export interface ListQuery {
  readonly kind: string
  readonly uidp: UidFilter
  /** Exact filters, ANDed. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
  readonly visibility: Visibility
  readonly order: Order
  /** Only records after this place. */
  readonly after?: SortKey
  readonly skip: number
  readonly limit: number
}

/** A page and the number of records on all pages together. */
export interface ListResult {
  readonly rows: readonly Row[]
  readonly total: number
}

type Place = Pick<ViewScope, 'place' | 'uid'>

/** Up to this many candidates are sorted on the spot; beyond, a view is made and kept. */
const adHocRows = 256
/** Groups are seen by those who reach the group itself; other records by those who reach the group they lie in. */
const groupKind = 'Group'

/** True where the visibility covers the record `uid` of `kind`. */
export function isVisible(visibility: Visibility, kind: string, uid: string): boolean {
  if (visibility.everywhere) return true
  if (visibility.roots && !uid.includes('/')) return true
  const covers = kind === groupKind ? isWithin : isBelow
  return visibility.groups.some((group) => covers(uid, group))
}

/** The place that the uidp filter alone names; undefined where nothing can match. */
function basePlace(uidp: UidFilter): Place | undefined {
  const { descendantsOf, inRoot } = uidp
  const child = inRoot ? rootParent : uidp.childrenOf
  if (inRoot && uidp.childrenOf !== '' && uidp.childrenOf !== rootParent) return undefined
  if (child === '') return descendantsOf === '' ? { place: 'all', uid: '' } : { place: 'below', uid: descendantsOf }
  if (descendantsOf !== '' && !isWithin(child, descendantsOf)) return undefined
  return { place: 'child', uid: child }
}

/** The part of `base` that lies in one visible group; undefined where none does. */
function placeInGroup(base: Place, kind: string, group: Uid): Place | undefined {
  const whole: Place = { place: kind === groupKind ? 'within' : 'below', uid: group }
  if (base.place === 'all') return whole
  if (isWithin(base.uid, group)) return base
  if (base.place === 'below') return isBelow(group, base.uid) ? whole : undefined
  // The children of a place above the group: only the group itself can be one.
  return kind === groupKind && parentOf(group) === base.uid ? { place: 'within', uid: `=${group}` } : undefined
}

/** Disjoint places that together hold what the filter and the visibility leave. */
function placesOf(query: ListQuery): Place[] {
  const base = basePlace(query.uidp)
  if (base === undefined) return []
  const { visibility, kind } = query
  if (visibility.everywhere) return [base]
  const places = visibility.groups.map((group) => placeInGroup(base, kind, group)).filter((place) => place !== undefined)
  if (visibility.roots && (base.place === 'all' || (base.place === 'child' && base.uid === rootParent))) {
    // A visible root group is reached as a group already.
    if (kind !== groupKind) places.push({ place: 'child', uid: rootParent })
  }
  return places
}

/** The uids that `ids` and `ancestors_of` name, where they are set. */
function namedRows(table: KindTable, uidp: UidFilter): Row[] | undefined {
  if (uidp.ids.length > 0) return [...new Set(uidp.ids)].map((uid) => table.get(uid)).filter((row) => row !== undefined)
  if (uidp.ancestorsOf === '') return undefined
  const above = [...lineage(trustedUid(uidp.ancestorsOf))].slice(1)
  if (table.index.kind === groupKind) return above.map((uid) => table.get(uid)).filter((row) => row !== undefined)
  return above.flatMap((uid) => [...table.matching(parentFilter, uid)])
}

function matchesAll(table: KindTable, query: ListQuery, row: Row): boolean {
  const { uidp } = query
  const base = basePlace(uidp)
  if (base === undefined || !inScope(table, { ...base, filters: query.filters }, row)) return false
  if (uidp.ids.length > 0 && !uidp.ids.includes(row.uid)) return false
  if (uidp.ancestorsOf !== '' && !isBelow(uidp.ancestorsOf, table.index.kind === groupKind ? row.uid : row.parent)) return false
  return isVisible(query.visibility, query.kind, row.uid)
}

function wholeOf(tree: OrderTree<Row>): Sequence<Row> {
  return { tree, from: 0, to: tree.size }
}

/** The rows of a scope, sorted on the spot, where few are left by its most selective filter. */
function fewRows(table: KindTable, scope: ViewScope, order: Order): OrderTree<Row> | undefined {
  const filters = scope.place === 'child' ? [[parentFilter, scope.uid] as const, ...scope.filters] : scope.filters
  const sets = filters.map(([filter, value]) => table.matching(filter, value)).sort((a, b) => a.size - b.size)
  const smallest = sets[0]
  if (smallest === undefined || smallest.size > adHocRows) return undefined
  const rows = [...smallest].filter((row) => inScope(table, scope, row)).sort(order.compare)
  return OrderTree.fromSorted(rows, order.compare)
}

/** One place's rows in order: a range of the uid order, a handful sorted here, or a view still to be waited for. */
function sequenceOf(table: KindTable, scope: ViewScope, order: Order): Sequence<Row> | Promise<ReadyView> {
  if (scope.uid.startsWith('=')) {
    const row = table.get(scope.uid.slice(1))
    const held = row !== undefined && inScope(table, { place: 'all', uid: '', filters: scope.filters }, row) ? [row] : []
    return wholeOf(OrderTree.fromSorted(held, order.compare))
  }
  if (order === uidOrder && scope.filters.length === 0 && scope.place !== 'child') {
    if (scope.place === 'all') return wholeOf(table.byUid)
    return { tree: table.byUid, ...table.rangeWithin(trustedUid(scope.uid), scope.place === 'within') }
  }
  const few = fewRows(table, scope, order)
  return few === undefined ? table.views.view(scope, order) : wholeOf(few)
}

function pageOf(sequences: readonly Sequence<Row>[], query: ListQuery): ListResult {
  const merged = new MergedSequence<Row>(sequences, query.order.compare)
  // The comparator looks only at what a SortKey has.
  const after = query.after as Row | undefined
  return { rows: merged.page({ skip: query.skip, limit: query.limit, ...(after === undefined ? {} : { after }) }), total: merged.count }
}

/**
 * One page of a list, all of it as of one commit that is not older than `current()` at the call. Cost: O(k log n + page) for k visible groups, once the
 * views it needs are there.
 */
export async function listRows(current: () => Snapshot, query: ListQuery): Promise<ListResult> {
  for (;;) {
    const snapshot = current()
    const table = snapshot.table(query.kind)
    const named = namedRows(table, query.uidp)
    if (named !== undefined) {
      const rows = named.filter((row) => matchesAll(table, query, row)).sort(query.order.compare)
      return pageOf([wholeOf(OrderTree.fromSorted(rows, query.order.compare))], query)
    }
    const filters = [...query.filters].sort(([a], [b]) => (a < b ? -1 : 1))
    const scopes = placesOf(query).map((place) => ({ ...place, filters }))
    const parts = scopes.map((scope) => sequenceOf(table, scope, query.order))
    if (!parts.some((part) => part instanceof Promise)) return pageOf(parts as Sequence<Row>[], query)
    const ready = await Promise.all(parts.map((part) => Promise.resolve(part)))
    // From here on nothing is awaited: the views are complete, and what is no view is read anew, so that all is of one commit.
    const sequences = scopes.map((scope, at) => {
      const view = ready[at]
      if (view !== undefined && 'state' in view) return view.state === 'ready' ? wholeOf(view.tree) : undefined
      const part = sequenceOf(table, scope, query.order)
      return part instanceof Promise ? undefined : part
    })
    if (current() === snapshot && !sequences.includes(undefined)) return pageOf(sequences as Sequence<Row>[], query)
  }
}
