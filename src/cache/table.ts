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

/** The parent filter, which every kind has: the uid one level up, `/` for roots. */
export const parentFilter = 'parent'
/** The name filter, which every kind has: the record's name. */
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

/** Inserting a record among the hidden ones costs about as much as iterating over this many of them. */
const recordsPerInsert = 16

function isHidden(record: CachedRecord): boolean {
  return record.isHidden
}

/** All records of one kind: by uid, in uid order with counts, by each exact filter, and in the views that lists need. */
export class KindTable {
  readonly index: KindIndex
  readonly views: Views
  readonly #records = new UidMap()
  readonly #valueOf: ReadonlyMap<string, FilterReader>
  readonly #byValue: ReadonlyMap<string, ValueIndex>
  /** The indexes of #byValue, each once, and #children. */
  readonly #indexes: readonly (ValueIndex | ChildIndex)[]
  readonly #children: ChildIndex | undefined
  /** Staged records by the first digit of the uid: records that arrive in the order of one digit's uids need no sorting. */
  #staged = emptyStages()
  #byUid = new OrderTree<CachedRecord>(uidOrder.compare)
  /** The hidden records of #byUid, and the records that remain visible. */
  #hidden = noRecords
  #visible = new Difference(this.#byUid, noRecords, isHidden)

  /** `scheduler` is for filling views; a new object by default. */
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
    this.views = new Views(this, scheduler)
  }

  /** All records in uid order. */
  get byUid(): Ranked<CachedRecord> {
    return this.#hidden.size === 0 ? this.#byUid : this.#visible
  }

  get size(): number {
    return this.#records.size - this.#hidden.size
  }

  /** The record under `uid`, if there is one. */
  get(uid: string): CachedRecord | undefined {
    const record = this.#records.get(uid)
    return record?.isHidden === true ? undefined : record
  }

  /** All records, in no order. */
  *records(): Generator<CachedRecord> {
    for (const record of this.#records.values()) if (!record.isHidden) yield record
  }

  /** Returns the records whose `filter` has exactly this value; if `below` is given, only those strictly below it. */
  matching(filter: string, value: string, below?: Uid): Matches {
    return this.#byValue.get(filter)?.matching(value, { hidden: this.#hidden, below }) ?? new Matches(noRecords, { from: 0, to: 0 })
  }

  /** Returns the records that have a value for `filter`, ordered by value and uid. */
  having(filter: string): Matches {
    return this.#byValue.get(filter)?.all(this.#hidden) ?? new Matches(noRecords, { from: 0, to: 0 })
  }

  /** Returns the record of this name directly below `parent` (`/` for roots). Throws TypeError for a kind without `foundByPath`. */
  child(parent: string, name: string): CachedRecord | undefined {
    if (this.#children === undefined) throw new TypeError(`records of kind ${this.index.kind} are not indexed by parent and name`)
    return this.#children.find(parent, name)
  }

  /** The value that `record` has for `filter`. */
  valueOf(record: CachedRecord, filter: string): string | undefined {
    return this.#valueOf.get(filter)?.(record)
  }

  /** Returns the ranks in uid order of `uid` (if `inclusive`) and everything below it. */
  rangeWithin(uid: Uid, inclusive: boolean): { from: number; to: number } {
    const from = this.byUid.rankBy(inclusive ? (record) => record.uid < uid : (record) => record.uid <= uid)
    // '0' follows '/' in ASCII, so `uid0` is the first text after everything that starts with `uid/`.
    const end = `${uid}0`
    const to = this.byUid.rankBy((record) => record.uid < end)
    // Nothing sorts between `uid` and `uid/...`: segments are hex digits, all greater than '/'.
    return { from, to }
  }

  /** Adds a record while the table loads: until `settle` it is found by uid only. Its uid must be new. */
  stage(record: CachedRecord): void {
    this.#records.set(record)
    this.#staged[digitOf(record.uid.charCodeAt(0)) & 15]?.push(record)
  }

  /** Ends the loading: sorts the existing and the staged records, in slices. */
  async settle(task: CooperativeTask): Promise<void> {
    const records = [...this.#byUid.items(0, this.#byUid.size)].concat(...this.#staged)
    this.#staged = emptyStages()
    const sorted = await sortCooperatively(records, uidOrder.compare, task)
    this.#byUid = OrderTree.ofAscending(sorted, uidOrder.compare)
    this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    for (const index of this.#indexes) await index.load(sorted, task)
  }

  /**
   * Hides visible records of the table, given in uid order. From now on readers do not find them; each must be removed later. Costs far less than removing them.
   */
  hide(records: readonly CachedRecord[]): void {
    for (const record of records) record.isHidden = true
    if (records.length * recordsPerInsert < this.#hidden.size) {
      for (const record of records) this.#hidden.insert(record)
    } else {
      const all = this.#hidden.size === 0 ? records : [...this.#hidden.items(0, this.#hidden.size), ...records].sort(uidOrder.compare)
      this.#hidden = OrderTree.ofAscending(all, uidOrder.compare)
      this.#visible = new Difference(this.#byUid, this.#hidden, isHidden)
    }
    this.views.hidden(records)
  }

  /** Adds a record, or replaces the record with its uid, even a hidden one. */
  put(record: CachedRecord): CachedRecord | undefined {
    const old = this.#records.get(record.uid)
    // The map's key is the uid string of the record that added it, and keeps that record's string alive.
    if (old !== undefined) this.#records.delete(record.uid)
    this.#records.set(record)
    this.#byUid.insert(record)
    for (const index of this.#indexes) index.put(old, record)
    this.#changed(old, record)
    if (old !== record) old?.release()
    return old
  }

  /** Removes the record under `uid`, even a hidden one. If `only` is given, removes only that very record. */
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

  /** Reports a change to the views. They removed a hidden record earlier. */
  #changed(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    if (old?.isHidden !== true) this.views.changed(old, record)
    else {
      this.#hidden.delete(old)
      if (record !== undefined) this.views.changed(undefined, record)
    }
  }
}
