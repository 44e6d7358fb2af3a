import type { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { CachedRecord } from '../records/cached-record.ts'

/** The records of a kind that a view holds: those in one place that pass exact filters. */
export interface ViewScope {
  /** `all`; `self` = the uid itself; `within` = that and below; `below` = strictly below; `child` = directly below (`/` for roots). */
  readonly place: 'all' | 'self' | 'within' | 'below' | 'child'
  /** Empty for `all`. */
  readonly uid: string
  /** All uids if `self`, `within` or `below` has several: in order, none inside another; `uid` is the first. */
  readonly uids?: readonly string[]
  /** Exact filters, all of which must hold, sorted by name. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
}

/** A change of the table: the record before and the record after. */
export interface TableChange {
  readonly old: CachedRecord | undefined
  readonly record: CachedRecord | undefined
}

/** Some of the records that were hidden together, in uid order. */
export interface Hidden {
  readonly records: readonly CachedRecord[]
  readonly from: number
  readonly to: number
}

/**
 * A view that is being filled or in use. States: `waiting` for its first turn -> `filling` (readers must not use its tree; changes are queued) -> `ready`. A
 * ready view is `filling` again while it removes many records that were hidden together. Finally `dropped` (evicted: no change reaches it).
 */
export interface View {
  readonly scope: ViewScope
  readonly order: Order
  /** Resolves when the view is no longer filling. */
  ready: Promise<void>
  /** Changes since the filling began. */
  readonly missed: (TableChange | Hidden)[]
  tree: OrderTree<CachedRecord>
  state: 'waiting' | 'filling' | 'ready' | 'dropped'
}

/** True while a list that needs the view has to wait. */
export function isUnderWay({ state }: View): boolean {
  return state === 'waiting' || state === 'filling'
}

/** The part of a view that lists read. */
export type ReadyView = Readonly<Pick<View, 'tree' | 'state'>>

/** Returns the organisation whose lists a view serves; empty if it serves several. */
function tenantOf({ scope: { uid } }: View): string {
  const slash = uid.indexOf('/')
  return slash < 0 ? uid : uid.slice(0, slash)
}

/**
 * Returns the view to evict: the least recently used one of the organisation whose views weigh most. Never a view that is being filled: a list waits for it.
 */
export function nextToGo(views: readonly (readonly [string, View])[], weigh: (view: View) => number, kept?: View): readonly [string, View] | undefined {
  const weights = new Map<string, number>()
  for (const [, view] of views) weights.set(tenantOf(view), (weights.get(tenantOf(view)) ?? 0) + weigh(view))
  let next: readonly [string, View] | undefined
  for (const candidate of views) {
    const [, view] = candidate
    if (isUnderWay(view) || view === kept) continue
    if (next === undefined || (weights.get(tenantOf(view)) ?? 0) > (weights.get(tenantOf(next[1])) ?? 0)) next = candidate
  }
  return next
}
