import { hash } from 'node:crypto'
import { isBelow, isWithin, rootParent } from '../../base/uid.ts'
import type { Ranked } from './difference.ts'
import { OrderTree } from './order-tree.ts'
import type { Order } from './order.ts'
import type { CachedRecord } from '../records/cached-record.ts'
import { CooperativeTask, sortCooperatively, type CooperativeScheduler } from '../cooperative-task.ts'
import type { Matches } from './value-index.ts'
import { isUnderWay, nextToGo, type Hidden, type ReadyView, type TableChange, type View, type ViewScope } from './view.ts'

/** The table to which the views belong. */
export interface ViewSource {
  readonly byUid: Ranked<CachedRecord>
  get(uid: string): CachedRecord | undefined
  matching(filter: string, value: string): Matches
  valueOf(record: CachedRecord, filter: string): string | undefined
  rangeWithin(uid: CachedRecord['uid'], inclusive: boolean): { readonly from: number; readonly to: number }
}

/** Maximum number of entries in all views of one kind. Above it, the organisation with the most entries loses its least recently used view. */
const maxEntries = 6_000_000
/** Maximum number of views of one kind. It is limited because every write checks each of them. */
const maxViews = 512
/** Maximum number of records that are sorted without a pause to build a view. */
const recordsPerSlice = 2_000
const missedPerLook = 32
const recordsPerCheck = 256
/** Maximum number of views of several places per kind. They are limited because each one only serves callers who see the same groups. */
const maxTogether = 64
/** Maximum number of remembered scopes that lists sorted themselves. A scope that occurs again gets a view. */
const maxOffered = 512
/** Above this number of places, the records of a scope are read place by place, with pauses. */
const manyPlaces = 512
const placesPerLook = 32

/** A set of records in which all records of a scope are, and possibly others. */
interface RecordSequenceSource {
  /** The number of records; Infinity if counting them takes long. */
  readonly size: number
  /** Yields the records in parts. Each part is as of the time at which it is read. */
  parts(): Iterable<Iterable<CachedRecord>>
}

/** Returns the last of the scope's uids that does not sort after `uid`. Only that one can be `uid` or an ancestor of it. */
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

/** True if `record` is in `scope`. */
export function inScope(table: ViewSource, scope: ViewScope, record: CachedRecord): boolean {
  switch (scope.place) {
    case 'self':
      if (record.uid !== nearestUid(scope, record.uid)) return false
      break
    case 'within':
      if (!isWithin(record.uid, nearestUid(scope, record.uid))) return false
      break
    case 'below':
      if (!isBelow(record.uid, nearestUid(scope, record.uid))) return false
      break
    case 'child':
      if (record.parent !== scope.uid) return false
      break
    case 'all':
  }
  return scope.filters.every(([filter, value]) => table.valueOf(record, filter) === value)
}

/** Returns the records that may be in the scope's place: from its first uid to the end of its last subtree. `records` is in uid order. */
function near(records: readonly CachedRecord[], { place, uid, uids = [uid] }: ViewScope): Hidden {
  if (place === 'all' || uid === rootParent) return { records, from: 0, to: records.length }
  return { records, from: firstFrom(records, uid), to: firstFrom(records, `${uids.at(-1) ?? uid}0`) }
}

/** Returns the index of the first record, in uid order, whose uid does not sort before `uid`. */
function firstFrom(records: readonly CachedRecord[], uid: string): number {
  let low = 0
  let high = records.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((records[middle]?.uid ?? '') < uid) low = middle + 1
    else high = middle
  }
  return low
}

const hashes = new WeakMap<readonly string[], string>()

/** Returns the hash of a list of uids. It is computed once per list, because a list never changes. */
function hashOf(uids: readonly string[]): string {
  let known = hashes.get(uids)
  if (known === undefined) {
    known = hash('sha256', uids.join(' '), 'base64')
    hashes.set(uids, known)
  }
  return known
}

function idOf({ place, uid, uids, filters }: ViewScope, order: Order): string {
  return JSON.stringify([place, uids === undefined ? uid : [hashOf(uids)], filters, order.id])
}

/** The sorted views of one kind's records. A view is built when it is first needed, and kept up to date. */
export class Views {
  readonly #table: ViewSource
  readonly #scheduler: CooperativeScheduler
  readonly #views = new Map<string, View>()
  /** Ids of scopes that were offered once and have no view yet. */
  readonly #offered = new Set<string>()

  /** Views of all tables with the same `scheduler` take turns while they are filled. */
  constructor(table: ViewSource, scheduler: CooperativeScheduler) {
    this.#table = table
    this.#scheduler = scheduler
  }

  /** Applies a change of the table to every view. */
  changed(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    for (const view of this.#views.values()) {
      if (view.state === 'filling') view.missed.push({ old, record })
      else if (view.state === 'ready') this.#apply(view, { old, record })
    }
  }

  /** Removes hidden records, given in uid order, from every view. Views that may contain some of them are not ready until then. */
  hidden(records: readonly CachedRecord[]): void {
    for (const view of this.#views.values()) {
      if (view.state !== 'filling' && view.state !== 'ready') continue
      const leaving = near(records, view.scope)
      if (leaving.from === leaving.to) continue
      view.missed.push(leaving)
      if (view.state === 'ready') view.ready = this.#letOut(view)
    }
  }

  async #letOut(view: View): Promise<void> {
    view.state = 'filling'
    const task = new CooperativeTask(this.#scheduler)
    await task.pause()
    await this.#catchUp(view, task)
  }

  #apply({ scope, order, tree }: View, { old, record }: TableChange): void {
    const was = old !== undefined && inScope(this.#table, scope, old)
    const is = record !== undefined && inScope(this.#table, scope, record)
    // If the place in the order stays the same, the insert replaces the old record.
    if (was && !(is && order.compare(old, record) === 0)) tree.delete(old)
    if (is) tree.insert(record)
  }

  /** Returns the view of `scope` in `order` once it is complete. Its tree is exact while `state` is `ready`; check the state again after every further await. */
  async view(scope: ViewScope, order: Order): Promise<ReadyView> {
    const id = idOf(scope, order)
    const view = this.#use(id) ?? this.#add(id, scope, order)
    if (view.state !== 'ready') await view.ready
    return view
  }

  /** Returns the view of `scope` if it exists and is complete; undefined otherwise. */
  kept(scope: ViewScope, order: Order): ReadyView | undefined {
    const view = this.#use(idOf(scope, order))
    return view?.state === 'ready' ? view : undefined
  }

  /** Reports that a list had to sort part of a scope with several places. When this happens a second time, a view of the scope is built. */
  offer(scope: ViewScope, order: Order): void {
    const id = idOf(scope, order)
    // The view is already being filled.
    if (this.#views.has(id)) return
    if (!this.#offered.delete(id)) {
      this.#offered.add(id)
      const [oldest = id] = this.#offered
      if (this.#offered.size > maxOffered) this.#offered.delete(oldest)
      return
    }
    if (this.takes(scope, order)) this.#add(id, scope, order)
  }

  /** Marks a view as used: moves it to the end of the map, whose order is the order of eviction. */
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

  #makeRoomForTogether(): void {
    for (;;) {
      const together = [...this.#views].filter(([, view]) => view.scope.uids !== undefined)
      const next = together.length < maxTogether ? undefined : nextToGo(together, () => 1)
      if (next === undefined) return
      this.#drop(...next)
    }
  }

  /** True if a view of several places exists or could be built now. False while the maximum number of such views is being filled. */
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
    if (source.size > recordsPerSlice) {
      const view: View = {
        scope,
        order,
        tree: new OrderTree<CachedRecord>(order.compare),
        state: 'waiting',
        missed: [],
        ready: this.#fillCooperatively(() => view),
      }
      return view
    }
    const records = [...source.parts()]
      .flatMap((part) => [...part])
      .filter((record) => inScope(this.#table, scope, record))
      .sort(order.compare)
    return { scope, order, tree: OrderTree.ofAscending(records, order.compare), state: 'ready', missed: [], ready: Promise.resolve() }
  }

  /** Fills the view from the table when its turn comes, then applies the changes that happened since. */
  async #fillCooperatively(viewOf: () => View): Promise<void> {
    const task = new CooperativeTask(this.#scheduler)
    await task.pause()
    const view = viewOf()
    view.state = 'filling'
    const { scope, order } = view
    const held: CachedRecord[] = []
    let [looked, places] = [0, 0]
    // The records are of different commits. Applying a queued change again to a newer record has no effect.
    for (const part of this.#source(scope).parts()) {
      for (const record of part) {
        if (inScope(this.#table, scope, record)) held.push(record)
        looked += 1
        if (looked % recordsPerCheck === 0 && task.shouldYield) await task.pause()
      }
      places += 1
      if (places % placesPerLook === 0 && task.shouldYield) await task.pause()
    }
    view.tree = OrderTree.ofAscending(await sortCooperatively(held, order.compare, task), order.compare)
    await this.#catchUp(view, task)
    this.#evict(view)
  }

  /** Applies the queued changes in slices, faster than new ones arrive. The last slice and the state `ready` follow without a pause. */
  async #catchUp(view: View, task: CooperativeTask): Promise<void> {
    let done = 0
    for (const missed of view.missed) {
      const { records, from, to } = 'records' in missed ? missed : { records: [missed.old], from: 0, to: 1 }
      const record = 'records' in missed ? undefined : missed.record
      for (let at = from; at < to; at++) {
        this.#apply(view, { old: records[at], record })
        done += 1
        if (done % missedPerLook === 0 && task.shouldYield) await task.pause()
      }
    }
    view.missed.length = 0
    view.state = 'ready'
  }

  /** Returns the smallest available set of records that includes all records of `scope`. */
  #source(scope: ViewScope): RecordSequenceSource {
    const table = this.#table
    const filters = scope.place === 'child' ? [['parent', scope.uid] as const, ...scope.filters] : scope.filters
    const [fewest] = filters.map(([filter, value]) => table.matching(filter, value)).sort((a, b) => a.size - b.size)
    const { uids = [scope.uid] } = scope
    const hasMany = uids.length > manyPlaces
    const ofPlaces: RecordSequenceSource = {
      size: hasMany ? Infinity : uids.reduce((sum, uid) => sum + this.#sizeOf(scope, uid), 0),
      parts: () => this.#placesOf(scope, uids),
    }
    const isFewest = fewest !== undefined && (hasMany ? fewest.size <= uids.length : fewest.size <= ofPlaces.size)
    // Copy the records, because the table may change before the iteration ends.
    return isFewest ? { size: fewest.size, parts: () => [[...fewest]] } : ofPlaces
  }

  *#placesOf(scope: ViewScope, uids: readonly string[]): Generator<CachedRecord[]> {
    const table = this.#table
    for (const uid of uids) {
      if (scope.place === 'self') yield [table.get(uid)].filter((record) => record !== undefined)
      else {
        const { from, to } = this.#rangeOf(scope, uid)
        yield table.byUid.items(from, to)
      }
    }
  }

  #sizeOf(scope: ViewScope, uid: string): number {
    if (scope.place === 'self') return 1
    const { from, to } = this.#rangeOf(scope, uid)
    return to - from
  }

  #rangeOf({ place }: ViewScope, uid: string): { from: number; to: number } {
    // The uids in a scope have passed the schema's format check.
    if (place === 'within' || place === 'below') return this.#table.rangeWithin(uid as CachedRecord['uid'], place === 'within')
    return { from: 0, to: this.#table.byUid.size }
  }

  /** Evicts views until the limits are met, but never `kept`. */
  #evict(kept: View): void {
    let entries = 0
    for (const view of this.#views.values()) entries += view.tree.size
    while (this.#views.size > maxViews || entries > maxEntries) {
      const weigh = this.#views.size > maxViews ? (): number => 1 : (view: View): number => view.tree.size
      const next = nextToGo([...this.#views], weigh, kept)
      if (next === undefined) return
      entries -= next[1].tree.size
      this.#drop(...next)
    }
  }
}
