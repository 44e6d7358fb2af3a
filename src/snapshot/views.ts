import { hash } from 'node:crypto'
import { isBelow, isWithin } from '../core/uid.ts'
import { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { Row } from './row.ts'
import { Slices, sortInSlices, type Turns } from './slices.ts'
import type { Matches } from './value-index.ts'

/** Which records of a kind a view holds: those in one place, further cut by exact filters. */
export interface ViewScope {
  /** `all`; `within` = the uid itself and below; `below` = strictly below; `child` = directly below (`/` for roots). */
  readonly place: 'all' | 'within' | 'below' | 'child'
  /** Empty for `all`. */
  readonly uid: string
  /** Where `within` or `below` is about several uids: all of them, in order, none inside another; `uid` is the first. */
  readonly uids?: readonly string[]
  /** Exact filters, all of which must hold, sorted by name. */
  readonly filters: readonly (readonly [filter: string, value: string])[]
}

/** What views are filled from: the table that they belong to. */
export interface ViewSource {
  readonly byUid: OrderTree<Row>
  matching(filter: string, value: string): Matches
  valueOf(row: Row, filter: string): string | undefined
  rangeWithin(uid: Row['uid'], inclusive: boolean): { readonly from: number; readonly to: number }
}

/** How many entries the views of one kind may hold together, beyond which those longest unused are dropped. */
const maxEntries = 6_000_000
/** How many views one kind may have: each costs every write a test. */
const maxViews = 512
/** A source of up to this many rows is sorted at once; a larger one in slices between which other work runs. */
const sliceRows = 2_000
const missedPerLook = 64
/** How many views of several places one kind may have: they are of use to callers of the same reach only. */
const maxTogether = 64
/** So many scopes that lists sorted by themselves are remembered, to see which come again. */
const maxOffered = 512
/** Ids of more characters than this are hashed: they name each place of their scope. */
const maxIdLength = 256

/** A change of the table: what was there before, and what is there now. */
interface RowChange {
  readonly old: Row | undefined
  readonly row: Row | undefined
}

/**
 * A view being filled or in use.
 * States: `waiting` for its first turn -> `filling` (its tree is empty; changes are put by) -> `ready` -> `dropped` (evicted: no change reaches it any more).
 */
interface View {
  readonly scope: ViewScope
  readonly order: Order
  /** Resolves when it is no longer filling. */
  readonly ready: Promise<void>
  /** What changed since the filling began. */
  readonly missed: RowChange[]
  tree: OrderTree<Row>
  state: 'waiting' | 'filling' | 'ready' | 'dropped'
}

/** Rows among which all of a scope are. */
interface Source {
  readonly size: number
  /** As of now, for as long as the table does not change. */
  rows(): Row[]
}

function isUnderWay({ state }: View): boolean {
  return state === 'waiting' || state === 'filling'
}

/** What a list reads. */
export type ReadyView = Readonly<Pick<View, 'tree' | 'state'>>

/** The last of the scope's uids that is not after `uid`: the only one that it can be within. */
function nearestUid({ uid: first, uids = [first] }: ViewScope, uid: string): string {
  let low = 0
  let high = uids.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((uids[middle] ?? '') <= uid) low = middle + 1
    else high = middle
  }
  return uids[low - 1] ?? first
}

/** True where `row` lies in `scope`. */
export function inScope(table: ViewSource, scope: ViewScope, row: Row): boolean {
  switch (scope.place) {
    case 'within':
      if (!isWithin(row.uid, nearestUid(scope, row.uid))) return false
      break
    case 'below':
      if (!isBelow(row.uid, nearestUid(scope, row.uid))) return false
      break
    case 'child':
      if (row.parent !== scope.uid) return false
      break
    case 'all':
  }
  return scope.filters.every(([filter, value]) => table.valueOf(row, filter) === value)
}

function idOf({ place, uid, uids = [uid], filters }: ViewScope, order: Order): string {
  const id = JSON.stringify([place, uids, filters, order.id])
  return id.length > maxIdLength ? hash('sha256', id, 'base64') : id
}

/** The ordered views of one kind, made on first use and kept current. */
export class Views {
  readonly #table: ViewSource
  readonly #turns: Turns
  readonly #views = new Map<string, View>()
  /** Ids of scopes that were offered once. */
  readonly #offered = new Set<string>()

  /** Views that are filled at the same time, those of other tables too, share `turns`. */
  constructor(table: ViewSource, turns: Turns) {
    this.#table = table
    this.#turns = turns
  }

  /** Applies one change of the table to every view. */
  changed(old: Row | undefined, row: Row | undefined): void {
    for (const view of this.#views.values()) {
      if (view.state === 'filling') view.missed.push({ old, row })
      else if (view.state === 'ready') this.#apply(view, { old, row })
    }
  }

  #apply({ scope, order, tree }: View, { old, row }: RowChange): void {
    const was = old !== undefined && inScope(this.#table, scope, old)
    const is = row !== undefined && inScope(this.#table, scope, row)
    // In the same place the new row takes the old one's.
    if (was && !(is && order.compare(old, row) === 0)) tree.delete(old)
    if (is) tree.insert(row)
  }

  /**
   * The records of `scope` in `order`. Resolves when the view is complete. Its tree is exact while `state` is `ready`; a caller that waited for
   * something else meanwhile looks again.
   */
  async view(scope: ViewScope, order: Order): Promise<ReadyView> {
    const id = idOf(scope, order)
    const view = this.#use(id) ?? this.#add(id, scope, order)
    if (view.state !== 'ready') await view.ready
    return view
  }

  /** The view of `scope` where there is one that is complete. */
  kept(scope: ViewScope, order: Order): ReadyView | undefined {
    const view = this.#use(idOf(scope, order))
    return view?.state === 'ready' ? view : undefined
  }

  /** Takes a scope of several places of which a list has sorted some by itself: where it comes again, a view is made. */
  offer(scope: ViewScope, order: Order): void {
    const id = idOf(scope, order)
    // It is being filled.
    if (this.#views.has(id)) return
    if (!this.#offered.delete(id)) {
      this.#offered.add(id)
      const [oldest = id] = this.#offered
      if (this.#offered.size > maxOffered) this.#offered.delete(oldest)
      return
    }
    if (this.takes(scope, order)) this.#add(id, scope, order)
  }

  /** Last used comes last: the map's order is the order of eviction. */
  #use(id: string): View | undefined {
    const view = this.#views.get(id)
    if (view === undefined) return undefined
    this.#views.delete(id)
    this.#views.set(id, view)
    return view
  }

  #add(id: string, scope: ViewScope, order: Order): View {
    if (scope.uids !== undefined) this.#makeRoomForTogether()
    const view = this.#fill(scope, order)
    this.#views.set(id, view)
    this.#evict(view)
    return view
  }

  /** Those that are being filled stay: somebody waits for them. */
  #makeRoomForTogether(): void {
    const together = [...this.#views].filter(([, view]) => view.scope.uids !== undefined)
    const excess = Math.max(0, together.length + 1 - maxTogether)
    for (const [oldest, view] of together.filter(([, view]) => !isUnderWay(view)).slice(0, excess)) this.#drop(oldest, view)
  }

  /** Whether a view of several places is there, or would be made: not while as many as there may be are being filled. */
  takes(scope: ViewScope, order: Order): boolean {
    if (this.#views.has(idOf(scope, order))) return true
    let underWay = 0
    for (const view of this.#views.values()) if (view.scope.uids !== undefined && isUnderWay(view)) underWay += 1
    return underWay < maxTogether
  }

  #drop(id: string, view: View): void {
    view.state = 'dropped'
    this.#views.delete(id)
  }

  #fill(scope: ViewScope, order: Order): View {
    const source = this.#source(scope)
    if (source.size > sliceRows) {
      const view: View = { scope, order, tree: new OrderTree<Row>(order.compare), state: 'waiting', missed: [], ready: this.#fillInSlices(() => view) }
      return view
    }
    const rows = source
      .rows()
      .filter((row) => inScope(this.#table, scope, row))
      .sort(order.compare)
    return { scope, order, tree: OrderTree.ofAscending(rows, order.compare), state: 'ready', missed: [], ready: Promise.resolve() }
  }

  /** What is in the table when its turn comes first, and then what changed since. */
  async #fillInSlices(viewOf: () => View): Promise<void> {
    const slices = new Slices(this.#turns)
    await slices.pause()
    const view = viewOf()
    view.state = 'filling'
    const { scope, order } = view
    const source = this.#source(scope).rows()
    const held: Row[] = []
    for (let next = 0; next < source.length; next += sliceRows) {
      for (const row of source.slice(next, next + sliceRows)) if (inScope(this.#table, scope, row)) held.push(row)
      if (slices.isOver) await slices.pause()
    }
    view.tree = OrderTree.ofAscending(await sortInSlices(held, order.compare, slices), order.compare)
    // Faster than the table changes; the last of it and the new state are of one turn.
    let done = 0
    for (const change of view.missed) {
      this.#apply(view, change)
      done += 1
      if (done % missedPerLook === 0 && slices.isOver) await slices.pause()
    }
    view.missed.length = 0
    view.state = 'ready'
    this.#evict(view)
  }

  /** The smallest range at hand that holds all of `scope`. */
  #source(scope: ViewScope): Source {
    const table = this.#table
    const filters = scope.place === 'child' ? [['parent', scope.uid] as const, ...scope.filters] : scope.filters
    const sets = filters.map(([filter, value]) => table.matching(filter, value)).sort((a, b) => a.size - b.size)
    const isSubtree = scope.place === 'within' || scope.place === 'below'
    // A view's uids are some that the schema's shape was checked for.
    const rangeOf = (uid: string): { from: number; to: number } => table.rangeWithin(uid as Row['uid'], scope.place === 'within')
    const ranges = isSubtree ? (scope.uids ?? [scope.uid]).map(rangeOf) : [{ from: 0, to: table.byUid.size }]
    const [fewest] = sets
    const size = ranges.reduce((sum, { from, to }) => sum + to - from, 0)
    if (fewest !== undefined && fewest.size <= size) return { size: fewest.size, rows: () => [...fewest] }
    return { size, rows: () => ranges.flatMap(({ from, to }) => table.byUid.items(from, to)) }
  }

  /** Drops what was not used for longest, but never `kept`. */
  #evict(kept: View): void {
    let entries = 0
    for (const view of this.#views.values()) entries += view.tree.size
    for (const [id, view] of this.#views) {
      if (this.#views.size <= maxViews && entries <= maxEntries) return
      if (isUnderWay(view) || view === kept) continue
      entries -= view.tree.size
      this.#drop(id, view)
    }
  }
}
