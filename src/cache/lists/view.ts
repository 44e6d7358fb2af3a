import type { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { CachedRecord } from '../records/cached-record.ts'

/** The records of a kind that a view contains: those in one place of the tree that match all exact filters. */
export interface ViewScope {
  /**
   * The records that the place contains:
   * - `all`: all records of the kind
   * - `self`: the record `uid`
   * - `within`: the record `uid` and all below it
   * - `below`: all records strictly below `uid`
   * - `child`: the children of `uid`, or the roots for `/`
   */
  readonly place: 'all' | 'self' | 'within' | 'below' | 'child'
  /** The uid that `place` refers to; empty for `all`. */
  readonly uid: string
  /** All uids if the place `self`, `within` or `below` has several. They are in order, and none is inside another. `uid` is the first. */
  readonly uids?: readonly string[]
  /** Exact filters, all of which must match, sorted by name. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
}

/** A change of a table: the record before and after it. */
export interface TableChange {
  readonly old: CachedRecord | undefined
  readonly record: CachedRecord | undefined
}

/** Some of the records that were hidden at once, in uid order. */
export interface Hidden {
  readonly records: readonly CachedRecord[]
  readonly from: number
  readonly to: number
}

/**
 * A sorted index of the records in a scope, kept up to date. States:
 * - `waiting`: for its first turn to be filled
 * - `filling`: its tree must not be read, and changes are queued. A ready view returns to this state while it removes many records that were hidden at once
 * - `ready`: its tree is complete
 * - `dropped`: evicted; it receives no more changes
 */
export interface View {
  readonly scope: ViewScope
  readonly order: Order
  /** Resolves when the view is no longer being filled. */
  ready: Promise<void>
  /** Changes of the table since the filling began. */
  readonly missed: (TableChange | Hidden)[]
  tree: OrderTree<CachedRecord>
  state: 'waiting' | 'filling' | 'ready' | 'dropped'
}

/** True while lists that need the view must wait for it. */
export function isUnderWay({ state }: View): boolean {
  return state === 'waiting' || state === 'filling'
}

/** The part of a view that lists read. */
export type ReadyView = Readonly<Pick<View, 'tree' | 'state'>>

/** Returns the uid of the organisation whose lists use a view; empty if several organisations do. */
function tenantOf({ scope: { uid } }: View): string {
  const slash = uid.indexOf('/')
  return slash < 0 ? uid : uid.slice(0, slash)
}

/**
 * Returns the view to evict: the least recently used one of the organisation whose views have the greatest weight in total. Never returns a view that is being
 * filled, because a list waits for it.
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
