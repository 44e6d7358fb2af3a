import type { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { CachedRecord } from '../records/cached-record.ts'

/** Which records of a kind a view holds: those in one place, further cut by exact filters. */
export interface ViewScope {
  /** `all`; `self` = the uid itself; `within` = that and below; `below` = strictly below; `child` = directly below (`/` for roots). */
  readonly place: 'all' | 'self' | 'within' | 'below' | 'child'
  /** Empty for `all`. */
  readonly uid: string
  /** Where `self`, `within` or `below` is about several uids: all of them, in order, none inside another; `uid` is the first. */
  readonly uids?: readonly string[]
  /** Exact filters, all of which must hold, sorted by name. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
}

/** A change of the table: what was there before, and what is there now. */
export interface RowChange {
  readonly old: CachedRecord | undefined
  readonly row: CachedRecord | undefined
}

/** Some of the rows that were hidden together, which come in uid order. */
export interface Hidden {
  readonly rows: readonly CachedRecord[]
  readonly from: number
  readonly to: number
}

/**
 * A view being filled or in use.
 * States: `waiting` for its first turn -> `filling` (its tree is not to be read; changes are put by) -> `ready` -> `filling` again while many rows that were hidden
 * together leave it; and at last `dropped` (evicted: no change reaches it any more).
 */
export interface View {
  readonly scope: ViewScope
  readonly order: Order
  /** Resolves when it is no longer filling. */
  ready: Promise<void>
  /** What changed since the filling began. */
  readonly missed: (RowChange | Hidden)[]
  tree: OrderTree<CachedRecord>
  state: 'waiting' | 'filling' | 'ready' | 'dropped'
}

/** True while a list that wants the view has to wait. */
export function isUnderWay({ state }: View): boolean {
  return state === 'waiting' || state === 'filling'
}

/** What a list reads. */
export type ReadyView = Readonly<Pick<View, 'tree' | 'state'>>

/** The organisation whose list a view serves; empty where it serves several. */
function tenantOf({ scope: { uid } }: View): string {
  const slash = uid.indexOf('/')
  return slash < 0 ? uid : uid.slice(0, slash)
}

/** Of the organisation whose views weigh most, the one that was unused for longest. Those that are being filled stay: a list waits for them. */
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
