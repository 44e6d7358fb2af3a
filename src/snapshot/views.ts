import { isBelow, isWithin } from '../core/uid.ts'
import { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { Row } from './row.ts'

/** Which records of a kind a view holds: those in one place, further cut by exact filters. */
export interface ViewScope {
  /** `all`; `within` = the uid itself and below; `below` = strictly below; `child` = directly below (`/` for roots). */
  readonly place: 'all' | 'within' | 'below' | 'child'
  /** Empty for `all`. */
  readonly uid: string
  /** Exact filters, all of which must hold, sorted by name. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
}

/** What views are filled from: the table that they belong to. */
export interface ViewSource {
  readonly byUid: OrderTree<Row>
  get(uid: string): Row | undefined
  rows(): Iterable<Row>
  matching(filter: string, value: string): ReadonlySet<Row>
  valueOf(row: Row, filter: string): string | undefined
  rangeWithin(uid: Row['uid'], inclusive: boolean): { readonly from: number; readonly to: number }
}

/** How many entries the views of one kind may hold together, beyond which those longest unused are dropped. */
const maxEntries = 6_000_000
/** How many views one kind may have: each costs every write a test. */
const maxViews = 512
/** A source of up to this many rows is sorted at once; a larger one in slices between which other work runs. */
const sliceRows = 2_000

/**
 * A view being filled or in use.
 * States: `filling` (its tree holds part; changes already reach it) -> `ready`; either -> `dropped` (evicted: no change reaches it any more).
 */
interface View {
  readonly scope: ViewScope
  readonly tree: OrderTree<Row>
  readonly ready: Promise<void>
  state: 'filling' | 'ready' | 'dropped'
}

/** What a list reads. */
export type ReadyView = Pick<View, 'tree' | 'state'>

/** True where `row` lies in `scope`. */
export function inScope(table: ViewSource, scope: ViewScope, row: Row): boolean {
  switch (scope.place) {
    case 'within':
      if (!isWithin(row.uid, scope.uid)) return false
      break
    case 'below':
      if (!isBelow(row.uid, scope.uid)) return false
      break
    case 'child':
      if (row.parent !== scope.uid) return false
      break
    case 'all':
  }
  return scope.filters.every(([filter, value]) => table.valueOf(row, filter) === value)
}

/** The ordered views of one kind, made on first use and kept current. */
export class Views {
  readonly #table: ViewSource
  readonly #views = new Map<string, View>()

  constructor(table: ViewSource) {
    this.#table = table
  }

  /** Applies one change of the table to every view. */
  changed(old: Row | undefined, row: Row | undefined): void {
    for (const view of this.#views.values()) {
      if (old !== undefined && inScope(this.#table, view.scope, old)) view.tree.delete(old)
      if (row !== undefined && inScope(this.#table, view.scope, row)) view.tree.insert(row)
    }
  }

  /**
   * The records of `scope` in `order`. Resolves when the view is complete. Its tree is exact while `state` is `ready`; a caller that waited for
   * something else meanwhile looks again.
   */
  async view(scope: ViewScope, order: Order): Promise<ReadyView> {
    const id = JSON.stringify([scope.place, scope.uid, scope.filters, order.id])
    let view = this.#views.get(id)
    if (view === undefined) {
      view = this.#fill(scope, order)
      this.#views.set(id, view)
      this.#evict(id)
    } else {
      // Last used comes last: the map's order is the order of eviction.
      this.#views.delete(id)
      this.#views.set(id, view)
    }
    if (view.state !== 'ready') await view.ready
    return view
  }

  #fill(scope: ViewScope, order: Order): View {
    const source = this.#source(scope)
    if (source.length <= sliceRows) {
      const rows = source.filter((row) => inScope(this.#table, scope, row)).sort(order.compare)
      return { scope, tree: OrderTree.fromSorted(rows, order.compare), ready: Promise.resolve(), state: 'ready' }
    }
    const tree = new OrderTree<Row>(order.compare)
    const filled = Promise.withResolvers<void>()
    const view: View = { scope, tree, ready: filled.promise, state: 'filling' }
    let next = 0
    const slice = (): void => {
      const end = Math.min(next + sliceRows, source.length)
      for (; next < end; next++) {
        const row = source[next]
        // A row that was replaced or removed meanwhile reached the view as a change.
        if (row !== undefined && this.#table.get(row.uid) === row && inScope(this.#table, scope, row)) tree.insert(row)
      }
      if (next < source.length) {
        setImmediate(slice)
        return
      }
      if (view.state === 'filling') view.state = 'ready'
      filled.resolve()
    }
    setImmediate(slice)
    return view
  }

  /** The smallest set at hand that holds all of `scope`. */
  #source(scope: ViewScope): Row[] {
    const table = this.#table
    const filters = scope.place === 'child' ? [['parent', scope.uid] as const, ...scope.filters] : scope.filters
    let best: Iterable<Row> | undefined
    let bestSize = Infinity
    for (const [filter, value] of filters) {
      const set = table.matching(filter, value)
      if (set.size < bestSize) [best, bestSize] = [set, set.size]
    }
    if (scope.place === 'within' || scope.place === 'below') {
      // A view's uid is one that the schema's shape was checked for.
      const range = table.rangeWithin(scope.uid as Row['uid'], scope.place === 'within')
      if (range.to - range.from < bestSize) best = table.byUid.items(range.from, range.to)
    }
    return Array.from(best ?? table.rows())
  }

  /** Drops what was not used for longest, but never `kept`. */
  #evict(kept: string): void {
    let entries = 0
    for (const view of this.#views.values()) entries += view.tree.size
    for (const [id, view] of this.#views) {
      if (this.#views.size <= maxViews && entries <= maxEntries) return
      if (view.state === 'filling' || id === kept) continue
      entries -= view.tree.size
      view.state = 'dropped'
      this.#views.delete(id)
    }
  }
}
