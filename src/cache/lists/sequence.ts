import type { Ranked } from './difference.ts'
import type { Compare, Side } from './order-tree.ts'
import { sink } from '../cooperative-task.ts'

/** A range of a tree's items: those with ranks `from` (included) to `to` (excluded). Invalid once the tree's version changes. */
export interface Sequence<T> {
  readonly tree: Ranked<T>
  readonly from: number
  readonly to: number
}

/** The wanted part of a sorted list. `skip` and `limit` are whole numbers of at least 0. */
export interface PageRequest<T> {
  /** Only items after this one in the order are wanted. It need not be in the list. */
  readonly after?: T | undefined
  readonly skip: number
  readonly limit: number
}

/** Maximum number of items per tree to skip one by one, which is cheaper than searching for so few. */
const walkableSkip = 16

/**
 * Merges disjoint ranges of sorted trees into one sorted list. It is valid within one turn of the event loop: `page` throws if a tree has changed since.
 * Ranges of the same tree count as one run. With k runs of up to n items, a page costs O(k log n + limit log k). A skip costs O(k (log n + log k)) for each of
 * O(log (k n)) rounds, however many items are skipped.
 */
export class MergedSequence<T> {
  /** The number of items of all ranges together. */
  readonly count: number
  readonly #compare: Compare<T>
  readonly #runs: readonly Run<T>[]

  /** Every tree must be sorted by `compare`. Throws RangeError if a range exceeds its tree, or two ranges of one tree overlap. */
  constructor(sequences: readonly Sequence<T>[], compare: Compare<T>) {
    this.#compare = compare
    this.#runs = [...Map.groupBy(sequences, (sequence) => sequence.tree)].map(([tree, slices]) => new Run(tree, slices))
    this.count = this.#runs.reduce((sum, run) => sum + run.count, 0)
  }

  /** Returns at most `limit` items after `after` in order, without the first `skip` of these. */
  page({ after, skip, limit }: PageRequest<T>): T[] {
    for (const run of this.#runs) run.assertCurrent()
    const windows = this.#runs
      .map((run) => ({ run, low: after === undefined ? 0 : run.position(after, 'right'), high: run.count }))
      .filter((window) => window.low < window.high)
    const left = sizeOf(windows)
    if (skip >= left || limit <= 0) return []
    const [only, ...others] = windows
    if (only !== undefined && others.length === 0) return only.run.items(only.low + skip, limit)
    const rest = leap(windows, skip, this.#compare)
    return merge(windows, this.#compare, { skip: rest, limit: Math.min(limit, left - skip) })
  }
}

/** All ranges of one tree as one sorted list. Converts positions in the list to ranks in the tree. */
class Run<T> {
  readonly count: number
  readonly #tree: Ranked<T>
  readonly #version: number
  /** The first rank of each range, ascending; and the number of items in the ranges before it. The second list ends with the total count. */
  readonly #starts: number[] = []
  readonly #offsets: number[] = [0]

  constructor(tree: Ranked<T>, slices: readonly Sequence<T>[]) {
    for (const { from, to } of slices) {
      if (!(from >= 0 && from <= to && to <= tree.size)) throw new RangeError(`no sequence from ${from} to ${to} in a tree of ${tree.size}`)
    }
    let end = 0
    let count = 0
    for (const { from, to } of slices.filter((slice) => slice.from < slice.to).sort((a, b) => a.from - b.from)) {
      if (from < end) throw new RangeError(`the sequence from ${from} overlaps the one to ${end}`)
      end = to
      count += to - from
      this.#starts.push(from)
      this.#offsets.push(count)
    }
    this.count = count
    this.#tree = tree
    this.#version = tree.version
  }

  /** Throws if the tree has changed since this run was made, so that its ranks may differ. */
  assertCurrent(): void {
    if (this.#tree.version !== this.#version) throw new Error('the tree changed since the sequence was made')
  }

  /** Returns the item at a position, which must be less than `count`. */
  at(position: number): T {
    const slice = lastAtMost(this.#offsets, position)
    // The rank exists: the constructor checked the ranges, and assertCurrent() that the tree is unchanged.
    return this.#tree.at(entry(this.#starts, slice) + position - entry(this.#offsets, slice)) as T
  }

  /** Returns the number of items of the run before the probe (`left`), or before or equal to it (`right`). */
  position(probe: T, side: Side): number {
    const rank = this.#tree.rank(probe, side)
    const slice = lastAtMost(this.#starts, rank)
    if (slice < 0) return 0
    return Math.min(entry(this.#offsets, slice) + rank - entry(this.#starts, slice), entry(this.#offsets, slice + 1))
  }

  /** Returns up to `limit` items from `position` on, in order. */
  items(position: number, limit: number): T[] {
    const found: T[] = []
    const to = Math.min(position + limit, this.count)
    let slice = lastAtMost(this.#offsets, position)
    for (let at = position; at < to; slice++) {
      const end = Math.min(entry(this.#offsets, slice + 1), to)
      const shift = entry(this.#starts, slice) - entry(this.#offsets, slice)
      const part = this.#tree.items(at + shift, end + shift)
      if (part.length === to - position) return part
      for (const item of part) found.push(item)
      at = end
    }
    return found
  }
}

/** The part of a run in which a search continues: `low` is the position of its next item, `high` the end. */
interface SequenceWindow<T> {
  readonly run: Run<T>
  low: number
  high: number
}

/**
 * Skips most of the first `skip` items of all runs: moves the windows' `low` past them, and returns how many it passed. There must be more than `skip` items.
 * Each round narrows all windows around one item. Every second round aims slightly before the target, which is enough if the runs are similar. The other
 * rounds use the middle, so at least nearly a quarter of the items is excluded.
 */
function leap<T>(windows: readonly SequenceWindow<T>[], skip: number, compare: Compare<T>): number {
  const walkable = walkableSkip * windows.length
  let rest = skip
  for (let round = 0; rest > walkable; round++) {
    const open = windows.filter((window) => window.low < window.high)
    const share = round % 2 === 0 ? (rest - walkable / 2) / sizeOf(open) : 0.5
    const pivot = medianAt(open, share, compare)
    const cuts = open.map((window) => clamp(window.run.position(pivot, 'left'), window.low, window.high))
    const before = open.reduce((sum, window, index) => sum + entry(cuts, index) - window.low, 0)
    if (rest < before) {
      open.forEach((window, index) => (window.high = entry(cuts, index)))
    } else {
      open.forEach((window, index) => (window.low = entry(cuts, index)))
      rest -= before
    }
  }
  return rest
}

/** Returns the weighted median of one item per window: the item at `share` (0 to 1, excluded) of the window, weighted with the window's size. */
function medianAt<T>(windows: readonly SequenceWindow<T>[], share: number, compare: Compare<T>): T {
  const probes = windows.map(({ run, low, high }) => ({ item: run.at(low + Math.floor((high - low) * share)), weight: high - low }))
  probes.sort((a, b) => compare(a.item, b.item))
  const half = sizeOf(windows) / 2
  let weight = 0
  const median = probes.find((probe) => (weight += probe.weight) >= half)
  if (median === undefined) throw new RangeError('no items to search')
  return median.item
}

function sizeOf<T>(windows: readonly SequenceWindow<T>[]): number {
  return windows.reduce((sum, window) => sum + window.high - window.low, 0)
}

/** The next item of a run in a merge, and the items read ahead, from `index` on. */
interface SequenceHead<T> {
  item: T
  batch: T[]
  index: number
  readonly window: SequenceWindow<T>
}

/** Merges the runs from the `low` of their windows on. Returns `limit` items after the first `skip`; they must exist. */
function merge<T>(windows: readonly SequenceWindow<T>[], compare: Compare<T>, { skip, limit }: { skip: number; limit: number }): T[] {
  // Twice the average number of items per run limits further reads to half the number of runs. It also limits the items read to twice those needed.
  const batchSize = Math.ceil((2 * (skip + limit)) / windows.length)
  const byItem = (a: SequenceHead<T>, b: SequenceHead<T>): number => compare(a.item, b.item)
  const heap: SequenceHead<T>[] = []
  for (const window of windows) {
    const batch = window.run.items(window.low, batchSize)
    window.low += batch.length
    const item = batch[0]
    if (item !== undefined) heap.push({ item, batch, index: 1, window })
  }
  // A sorted list is a heap.
  heap.sort(byItem)
  const found: T[] = []
  for (let step = 0; step < skip + limit; step++) {
    const top = entry(heap, 0)
    if (step >= skip) found.push(top.item)
    const head = advance(top, batchSize) ? top : heap.pop()
    if (head !== undefined && heap.length > 0) sink(heap, head, byItem)
  }
  return found
}

/** Moves to the next item of the run. Returns false at its end. */
function advance<T>(head: SequenceHead<T>, batchSize: number): boolean {
  if (head.index === head.batch.length) {
    head.batch = head.window.run.items(head.window.low, batchSize)
    head.window.low += head.batch.length
    head.index = 0
    if (head.batch.length === 0) return false
  }
  head.item = entry(head.batch, head.index++)
  return true
}

/** Returns the index of the last number of an ascending list that is not greater than `limit`; -1 if all are greater. */
function lastAtMost(list: readonly number[], limit: number): number {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (entry(list, middle) <= limit) low = middle + 1
    else high = middle
  }
  return low - 1
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(Math.max(value, least), most)
}

/** Returns the element at an index that is known to be in bounds. */
function entry<E>(list: readonly E[], index: number): E {
  return list[index] as E
}
