import { isBelow } from '../../base/uid.ts'
import { OrderTree } from './order-tree.ts'
import type { FilterReader, CachedRecord } from '../records/cached-record.ts'
import { sortInSlices, type Slices } from '../slices.ts'
import { hashOf } from '../uid-map.ts'

/** The rows that an exact filter matched at the time of the query, in uid order. Valid until the table changes. */
export class Matches implements Iterable<CachedRecord> {
  readonly #tree: OrderTree<CachedRecord>
  readonly #from: number
  readonly #to: number
  readonly #version: number
  readonly size: number

  /** `hidden` is the number of hidden rows among ranks `from` to `to`. */
  constructor(tree: OrderTree<CachedRecord>, { from, to, hidden = 0 }: { from: number; to: number; hidden?: number }) {
    this.#tree = tree
    this.#from = from
    this.#to = to
    this.#version = tree.version
    this.size = to - from - hidden
  }

  /** Walks the rows as of now: changes during the walk do not show. */
  [Symbol.iterator](): Iterator<CachedRecord> {
    if (this.#tree.version !== this.#version) throw new Error('the table changed since it was asked')
    const rows = this.#tree.items(this.#from, this.#to)
    return (rows.length === this.size ? rows : rows.filter((row) => !row.isHidden))[Symbol.iterator]()
  }
}

/** Number of rows to step over to find the end of a value's rows before searching for it. */
const stepRows = 8
const rowsPerLook = 256
/** A power of two. */
const shardCount = 64

/**
 * The rows of a table by one exact filter: one tree ordered by value and uid. It takes a few bytes per row, even if each value has only one row. Finding a
 * value's rows and their number costs O(log n).
 */
export class ValueIndex {
  readonly #valueOf: FilterReader
  #tree: OrderTree<CachedRecord>

  constructor(valueOf: FilterReader) {
    this.#valueOf = valueOf
    this.#tree = new OrderTree<CachedRecord>((a, b) => this.#compare(a, b))
  }

  /** Loads the rows of a whole table, which are in uid order. */
  async load(rows: readonly CachedRecord[], slices: Slices): Promise<void> {
    const byValue = await groupInSlices(rows, this.#valueOf, slices)
    const values: string[] = []
    for (const shard of byValue) {
      for (const value of shard.keys()) values.push(value)
      if (slices.isOver) await slices.pause()
    }
    const sorted: CachedRecord[] = []
    for (const value of await sortInSlices(values, compareTexts, slices)) {
      const held = byValue[hashOf(value) & (shardCount - 1)]?.get(value)
      if (Array.isArray(held)) for (const row of held) sorted.push(row)
      else if (held !== undefined) sorted.push(held)
      if (sorted.length % rowsPerLook === 0 && slices.isOver) await slices.pause()
    }
    this.#tree = OrderTree.ofAscending(sorted, (a, b) => this.#compare(a, b))
  }

  /** Adds `row`, in place of `old` if given. */
  put(old: CachedRecord | undefined, row: CachedRecord): void {
    const value = this.#valueOf(row)
    if (old !== undefined && this.#valueOf(old) !== value) this.remove(old)
    if (value !== undefined) this.#tree.insert(row)
  }

  remove(row: CachedRecord): void {
    if (this.#valueOf(row) !== undefined) this.#tree.delete(row)
  }

  /**
   * Returns the rows with exactly this value (and strictly below a uid), without those of `hidden`, which must hold all hidden rows. Cost: O(log n) plus the
   * smaller of the hidden rows and the value's rows.
   */
  matching(value: string, { hidden, below }: { hidden: OrderTree<CachedRecord>; below?: string | undefined }): Matches {
    const tree = this.#tree
    const { from, to } = below === undefined ? this.#rangeOf(value) : this.#rangeBelow(value, below)
    if (hidden.size === 0 || from === to) return new Matches(tree, { from, to })
    const isMatch = (row: CachedRecord): boolean => this.#valueOf(row) === value && (below === undefined || isBelow(row.uid, below))
    const isFewer = to - from < hidden.size
    const count = isFewer ? countWhere(tree.items(from, to), (row) => row.isHidden) : countWhere(hidden.items(0, hidden.size), isMatch)
    return new Matches(tree, { from, to, hidden: count })
  }

  /** Returns the rows that have a value, without those of `hidden`. */
  all(hidden: OrderTree<CachedRecord>): Matches {
    const count = countWhere(hidden.items(0, hidden.size), (row) => this.#valueOf(row) !== undefined)
    return new Matches(this.#tree, { from: 0, to: this.#tree.size, hidden: count })
  }

  #rangeBelow(value: string, below: string): { from: number; to: number } {
    const before = (end: string) => (row: CachedRecord) => {
      const own = this.#valueOf(row) ?? ''
      return own < value || (own === value && row.uid < end)
    }
    // '0' follows '/' in ASCII.
    return { from: this.#tree.rankBy(before(`${below}/`)), to: this.#tree.rankBy(before(`${below}0`)) }
  }

  #rangeOf(value: string): { from: number; to: number } {
    const tree = this.#tree
    const valueOf = this.#valueOf
    const from = tree.rankBy((row) => (valueOf(row) ?? '') < value)
    let to = from
    for (const row of tree.items(from, from + stepRows)) {
      if (valueOf(row) !== value) return { from, to }
      to += 1
    }
    return { from, to: to - from === stepRows ? tree.rankBy((row) => (valueOf(row) ?? '') <= value) : to }
  }

  #compare(a: CachedRecord, b: CachedRecord): number {
    return compareTexts(this.#valueOf(a) ?? '', this.#valueOf(b) ?? '') || compareTexts(a.uid, b.uid)
  }
}

function countWhere(rows: Iterable<CachedRecord>, holds: (row: CachedRecord) => boolean): number {
  let count = 0
  for (const row of rows) if (holds(row)) count += 1
  return count
}

/** Groups rows by value in their original order; the value of a single row has no list. Uses many small maps: none takes long to grow. */
async function groupInSlices(rows: readonly CachedRecord[], valueOf: FilterReader, slices: Slices): Promise<Map<string, CachedRecord | CachedRecord[]>[]> {
  const shards = Array.from({ length: shardCount }, () => new Map<string, CachedRecord | CachedRecord[]>())
  for (const [at, row] of rows.entries()) {
    const value = valueOf(row)
    const shard = value === undefined ? undefined : shards[hashOf(value) & (shardCount - 1)]
    if (value === undefined || shard === undefined) continue
    const held = shard.get(value)
    if (held === undefined) shard.set(value, row)
    else if (Array.isArray(held)) held.push(row)
    else shard.set(value, [held, row])
    if (at % rowsPerLook === 0 && slices.isOver) await slices.pause()
  }
  return shards
}

function compareTexts(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1
}
