import type { Uid } from '../base/uid.ts'
import { ChildIndex } from './lists/child-index.ts'
import { Difference, type Ranked } from './lists/difference.ts'
import { OrderTree } from './lists/order-tree.ts'
import { uidOrder } from './lists/order.ts'
import { filterReaders, type FilterReader, type KindIndex, type CachedRecord } from './records/cached-record.ts'
import { sortCooperatively, CooperativeScheduler, type CooperativeTask } from './cooperative-task.ts'
import { UidMap } from './uid-map.ts'
import { Matches, ValueIndex } from './lists/value-index.ts'
import { Views } from './lists/views.ts'

/** Name of the filter by parent, which every kind has. Its value is the uid of the parent, `/` for roots. */
export const parentFilter = 'parent'
/** Name of the filter by name, which every kind has. */
export const nameFilter = 'name'

const parentOf: FilterReader = (record) => record.parent
const nameOf: FilterReader = (record) => record.name

/** Returns the value of a hex digit. */
function digitOf(code: number): number {
  return code > 57 ? code - 87 : code - 48
}

function emptyStages(): CachedRecord[][] {
  return Array.from({ length: 16 }, () => [])
}

const noRecords = new OrderTree<CachedRecord>(uidOrder.compare)

/** Inserting one record into the tree of hidden records costs about as much as iterating over this many of them. */
const recordsPerInsert = 16

function isHidden(record: CachedRecord): boolean {
  return record.isHidden
}

/** The number of the last change of any table in this process. */
let lastChange = 0

/** All records of one kind in memory: by uid, in uid order with ranks, by each exact filter, and in the views that lists need. */
export class KindTable {
  readonly index: KindIndex
  readonly views: Views
  readonly #records = new UidMap()
  readonly #valueOf: ReadonlyMap<string, FilterReader>
  readonly #byValue: ReadonlyMap<string, ValueIndex>
  /** All indexes, each once: those of #byValue, and #children. */
  readonly #indexes: readonly (ValueIndex | ChildIndex)[]
  readonly #children: ChildIndex | undefined
  /** Records added while loading, by the first digit of their uid. Records that arrive in uid order within one digit need no sorting. */
  #staged = emptyStages()
  #byUid = new OrderTree<CachedRecord>(uidOrder.compare)
  /** Those records in #byUid that are hidden, because a record on which they depend was removed. */
  #hidden = noRecords
  #visible = new Difference(this.#byUid, noRecords, isHidden)
  /** Since the table was made, the last change below each parent. Undefined for kinds that do not count changes. */
  readonly #changes: Map<string, number> | undefined
  /** The number of all parents without a change. No other table has it. */
  readonly #made = ++lastChange

  /** Tables with the same `scheduler` take turns when they fill views. By default the table has its own. */
  constructor(index: KindIndex, scheduler = new CooperativeScheduler()) {
    this.index = index
    const readers = filterReaders(index)
    const filters = Object.entries(index.filters).map(([name, source], at) => ({ name, isParent: 'parent' in source, read: readers[at] ?? parentOf }))
    this.#valueOf = new Map([[parentFilter, parentOf], [nameFilter, nameOf], ...filters.map(({ name, read }) => [name, read] as const)])
    const byParent = new ValueIndex(parentOf)
    this.#byValue = new Map([
      [parentFilter, byParent],
      ...(index.name === undefined ? [] : [[nameFilter, new ValueIndex(nameOf)] as const]),
      ...filters.map(({ name, isParent, read }) => [name, isParent ? byParent : new ValueIndex(read)] as const),
    ])
    this.#children = index.foundByPath === true ? new ChildIndex() : undefined
    this.#indexes = [...new Set(this.#byValue.values()), ...(this.#children === undefined ? [] : [this.#children])]
    this.#changes = index.countsChanges === true ? new Map() : undefined
    this.views = new Views(this, scheduler)
  }

  /** All visible records in uid order. */
  get byUid(): Ranked<CachedRecord> {
    return this.#hidden.size === 0 ? this.#byUid : this.#visible
  }

  get size(): number {
    return this.#records.size - this.#hidden.size
  }

  /** Returns the visible record under `uid`; undefined if there is none. */
  get(uid: string): CachedRecord | undefined {
    const record = this.#records.get(uid)
    return record?.isHidden === true ? undefined : record
  }

  /** Yields all visible records in no particular order. */
  *records(): Generator<CachedRecord> {
    for (const record of this.#records.values()) if (!record.isHidden) yield record
  }

  /** Returns the records whose `filter` has exactly this value. With `below`, returns only those strictly below that uid. */
  matching(filter: string, value: string, below?: Uid): Matches {
    return this.#byValue.get(filter)?.matching(value, { hidden: this.#hidden, below }) ?? new Matches(noRecords, { from: 0, to: 0 })
  }

  /** Returns the records that have any value for `filter`, ordered by value and uid. */
  having(filter: string): Matches {
    return this.#byValue.get(filter)?.all(this.#hidden) ?? new Matches(noRecords, { from: 0, to: 0 })
  }

  /** Returns the record of this name directly below `parent` (`/` for roots). Throws TypeError for a kind without `foundByPath`. */
  child(parent: string, name: string): CachedRecord | undefined {
    if (this.#children === undefined) throw new TypeError(`records of kind ${this.index.kind} are not indexed by parent and name`)
    return this.#children.find(parent, name)
  }

  /**
   * Returns a number that changes with each change of a record directly below `parent`. Two tables of a process never have the same number. Throws TypeError
   * for a kind without `countsChanges`.
   */
  changeOf(parent: string): number {
    if (this.#changes === undefined) throw new TypeError(`changes of kind ${this.index.kind} are not counted`)
    return this.#changes.get(parent) ?? this.#made
  }

  /** Forgets the number of a parent that was deleted. */
  forgetChanges(parent: string): void {
    this.#changes?.delete(parent)
  }

  /** Returns the value that `record` has for `filter`. */
  valueOf(record: CachedRecord, filter: string): string | undefined {
    return this.#valueOf.get(filter)?.(record)
  }

  /** Returns the range of ranks, in uid order, of everything below `uid`, including `uid` itself if `inclusive`. */
  rangeWithin(uid: Uid, inclusive: boolean): { from: number; to: number } {
    const from = this.byUid.rankBy(inclusive ? (record) => record.uid < uid : (record) => record.uid <= uid)
    // '0' follows '/' in ASCII, so `uid0` is the first text after everything that starts with `uid/`.
    const end = `${uid}0`
    const to = this.byUid.rankBy((record) => record.uid < end)
    // Nothing sorts between `uid` and `uid/...`: segments are hex digits, all greater than '/'.
    return { from, to }
  }

  /** Adds a record while the table is loaded. Until `settle` it is found by uid only. Its uid must be new. */
  stage(record: CachedRecord): void {
    this.#records.set(record)
    this.#staged[digitOf(record.uid.charCodeAt(0)) & 15]?.push(record)
  }

  /** Ends the loading: sorts the records added with `stage` into the table, with pauses in between. */
  async settle(task: CooperativeTask): Promise<void> {
    const records = [...this.#byUid.items(0, this.#byUid.size)].concat(...this.#staged)
    this.#staged = emptyStages()
    const sorted = await sortCooperatively(records, uidOrder.compare, task)
    this.#byUid = OrderTree.ofAscending(sorted, uidOrder.compare)
    this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    for (const index of this.#indexes) await index.load(sorted, task)
  }

  /** Hides visible records, given in uid order, so that readers no longer find them. Each one must be removed later. Hiding costs far less than removing. */
  hide(records: readonly CachedRecord[]): void {
    for (const record of records) {
      record.isHidden = true
      this.#changes?.set(record.parent, ++lastChange)
    }
    if (records.length * recordsPerInsert < this.#hidden.size) {
      for (const record of records) this.#hidden.insert(record)
    } else {
      const all = this.#hidden.size === 0 ? records : [...this.#hidden.items(0, this.#hidden.size), ...records].sort(uidOrder.compare)
      this.#hidden = OrderTree.ofAscending(all, uidOrder.compare)
      this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    }
    this.views.hidden(records)
  }

  /** Adds a record. Replaces the record with the same uid, even a hidden one. */
  put(record: CachedRecord): CachedRecord | undefined {
    const old = this.#records.get(record.uid)
    // The map keeps the uid string of the record that first added the key. Delete that entry, so that the old string can be freed.
    if (old !== undefined) this.#records.delete(record.uid)
    this.#records.set(record)
    this.#byUid.insert(record)
    for (const index of this.#indexes) index.put(old, record)
    this.#changed(old, record)
    if (old !== record) old?.release()
    return old
  }

  /** Removes the record under `uid`, even a hidden one. With `only`, removes it only if it is that very object. */
  remove(uid: string, only?: CachedRecord): CachedRecord | undefined {
    const old = this.#records.get(uid)
    if (old === undefined || (only !== undefined && old !== only)) return undefined
    this.#records.delete(uid)
    this.#byUid.delete(old)
    for (const index of this.#indexes) index.remove(old)
    this.#changed(old, undefined)
    old.release()
    return old
  }

  /** Reports a change to the views, unless the record was hidden: they removed it then. */
  #changed(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    const { parent } = record ?? old ?? {}
    // The parent of a hidden record was deleted, and its number may be forgotten already.
    const isOfDeleted = record === undefined && old?.isHidden === true
    if (parent !== undefined && !isOfDeleted) this.#changes?.set(parent, ++lastChange)
    if (old?.isHidden !== true) this.views.changed(old, record)
    else {
      this.#hidden.delete(old)
      if (record !== undefined) this.views.changed(undefined, record)
    }
  }
}
