import { isBelow } from '../../base/uid.ts'
import { OrderTree } from './order-tree.ts'
import type { FilterReader, CachedRecord } from '../records/cached-record.ts'
import { sortCooperatively, type CooperativeTask } from '../cooperative-task.ts'
import { hashOf } from '../uid-map.ts'

/** The records that match an exact filter, in uid order. Valid until the table changes. */
export class Matches implements Iterable<CachedRecord> {
  readonly #tree: OrderTree<CachedRecord>
  readonly #from: number
  readonly #to: number
  readonly #version: number
  readonly size: number

  /** `hidden` is the number of hidden records between the ranks `from` and `to`. */
  constructor(tree: OrderTree<CachedRecord>, { from, to, hidden = 0 }: { from: number; to: number; hidden?: number }) {
    this.#tree = tree
    this.#from = from
    this.#to = to
    this.#version = tree.version
    this.size = to - from - hidden
  }

  /** Iterates over the records as of now; changes during the iteration have no effect on it. */
  [Symbol.iterator](): Iterator<CachedRecord> {
    if (this.#tree.version !== this.#version) throw new Error('the records of the table changed while a result was read')
    const records = this.#tree.items(this.#from, this.#to)
    return (records.length === this.size ? records : records.filter((record) => !record.isHidden))[Symbol.iterator]()
  }
}

/** Number of records to step over one by one before searching for the end of a value's records. */
const recordsPerStep = 8
const recordsPerCheck = 256
/** Number of maps that share the values. It must be a power of two. */
const shardCount = 64

/**
 * The records of a table that have a value for one exact filter, in one tree ordered by value and uid. It takes a few bytes per record. Finding and counting
 * the records of a value costs O(log n).
 */
export class ValueIndex {
  readonly #valueOf: FilterReader
  #tree: OrderTree<CachedRecord>

  constructor(valueOf: FilterReader) {
    this.#valueOf = valueOf
    this.#tree = new OrderTree<CachedRecord>((a, b) => this.#compare(a, b))
  }

  /** Adds all records of a table, which are in uid order, to the empty index. */
  async load(records: readonly CachedRecord[], task: CooperativeTask): Promise<void> {
    const byValue = await groupCooperatively(records, this.#valueOf, task)
    const values: string[] = []
    for (const shard of byValue) {
      for (const value of shard.keys()) values.push(value)
      if (task.shouldYield) await task.pause()
    }
    const sorted: CachedRecord[] = []
    for (const value of await sortCooperatively(values, compareTexts, task)) {
      const held = byValue[hashOf(value) & (shardCount - 1)]?.get(value)
      if (Array.isArray(held)) for (const record of held) sorted.push(record)
      else if (held !== undefined) sorted.push(held)
      if (sorted.length % recordsPerCheck === 0 && task.shouldYield) await task.pause()
    }
    this.#tree = OrderTree.ofAscending(sorted, (a, b) => this.#compare(a, b))
  }

  /** Adds `record` and removes `old`, if given. */
  put(old: CachedRecord | undefined, record: CachedRecord): void {
    const value = this.#valueOf(record)
    if (old !== undefined && this.#valueOf(old) !== value) this.remove(old)
    if (value !== undefined) this.#tree.insert(record)
  }

  remove(record: CachedRecord): void {
    if (this.#valueOf(record) !== undefined) this.#tree.delete(record)
  }

  /**
   * Returns the records with exactly this value, without hidden ones; with `below`, only those strictly below that uid. `hidden` must contain all hidden
   * records of the table. It costs O(log n) plus the smaller number of hidden records and of the value's records.
   */
  matching(value: string, { hidden, below }: { hidden: OrderTree<CachedRecord>; below?: string | undefined }): Matches {
    const tree = this.#tree
    const { from, to } = below === undefined ? this.#rangeOf(value) : this.#rangeBelow(value, below)
    if (hidden.size === 0 || from === to) return new Matches(tree, { from, to })
    const isMatch = (record: CachedRecord): boolean => this.#valueOf(record) === value && (below === undefined || isBelow(record.uid, below))
    const isFewer = to - from < hidden.size
    const count = isFewer ? countWhere(tree.items(from, to), (record) => record.isHidden) : countWhere(hidden.items(0, hidden.size), isMatch)
    return new Matches(tree, { from, to, hidden: count })
  }

  /** Returns the records that have any value, without those in `hidden`. */
  all(hidden: OrderTree<CachedRecord>): Matches {
    const count = countWhere(hidden.items(0, hidden.size), (record) => this.#valueOf(record) !== undefined)
    return new Matches(this.#tree, { from: 0, to: this.#tree.size, hidden: count })
  }

  #rangeBelow(value: string, below: string): { from: number; to: number } {
    const before = (end: string) => (record: CachedRecord) => {
      const own = this.#valueOf(record) ?? ''
      return own < value || (own === value && record.uid < end)
    }
    // '0' follows '/' in ASCII.
    return { from: this.#tree.rankBy(before(`${below}/`)), to: this.#tree.rankBy(before(`${below}0`)) }
  }

  #rangeOf(value: string): { from: number; to: number } {
    const tree = this.#tree
    const valueOf = this.#valueOf
    const from = tree.rankBy((record) => (valueOf(record) ?? '') < value)
    let to = from
    for (const record of tree.items(from, from + recordsPerStep)) {
      if (valueOf(record) !== value) return { from, to }
      to += 1
    }
    return { from, to: to - from === recordsPerStep ? tree.rankBy((record) => (valueOf(record) ?? '') <= value) : to }
  }

  #compare(a: CachedRecord, b: CachedRecord): number {
    return compareTexts(this.#valueOf(a) ?? '', this.#valueOf(b) ?? '') || compareTexts(a.uid, b.uid)
  }
}

function countWhere(records: Iterable<CachedRecord>, holds: (record: CachedRecord) => boolean): number {
  let count = 0
  for (const record of records) if (holds(record)) count += 1
  return count
}

/**
 * Groups records by value, in their original order, with pauses. A value with a single record maps to that record instead of a list. Uses many small maps,
 * none of which takes long to grow.
 */
async function groupCooperatively(
  records: readonly CachedRecord[],
  valueOf: FilterReader,
  task: CooperativeTask,
): Promise<Map<string, CachedRecord | CachedRecord[]>[]> {
  const shards = Array.from({ length: shardCount }, () => new Map<string, CachedRecord | CachedRecord[]>())
  for (const [at, record] of records.entries()) {
    const value = valueOf(record)
    const shard = value === undefined ? undefined : shards[hashOf(value) & (shardCount - 1)]
    if (value === undefined || shard === undefined) continue
    const held = shard.get(value)
    if (held === undefined) shard.set(value, record)
    else if (Array.isArray(held)) held.push(record)
    else shard.set(value, [held, record])
    if (at % recordsPerCheck === 0 && task.shouldYield) await task.pause()
  }
  return shards
}

function compareTexts(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1
}
