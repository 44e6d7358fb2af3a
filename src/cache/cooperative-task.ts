import type { Compare } from './lists/order-tree.ts'

/** Maximum time for which work may block the event loop, in milliseconds. */
const timeSliceMs = 4

/** Gives concurrent long tasks one turn of the event loop each. Together they block it no longer than one task. */
export class CooperativeScheduler {
  readonly #waiting: (() => void)[] = []
  readonly #runNext = (): void => {
    this.#waiting.shift()?.()
    if (this.#waiting.length > 0) setImmediate(this.#runNext)
  }

  /** Resolves on the caller's turn; earlier callers come first. */
  next(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiting.push(resolve)
    if (this.#waiting.length === 1) setImmediate(this.#runNext)
    return promise
  }
}

/** Cuts long work into slices, between which other work runs. */
export class CooperativeTask {
  readonly #scheduler: CooperativeScheduler
  #started = performance.now()

  /** `scheduler` is shared with other work; a new object by default. */
  constructor(scheduler = new CooperativeScheduler()) {
    this.#scheduler = scheduler
  }

  /** True when other work should run: call `await task.pause()`. Cheap, but check it once for many small steps. */
  get shouldYield(): boolean {
    return performance.now() - this.#started > timeSliceMs
  }

  /** Resolves after other work ran. */
  async pause(): Promise<void> {
    await this.#scheduler.next()
    this.#started = performance.now()
  }
}

/** Number of items to sort at once, which takes a few milliseconds. */
const chunkItems = 4096
const itemsPerLook = 256

/** A run's next item, and the run's number, which orders equal items. */
interface RunHead<T> {
  item: T
  next: number
  readonly end: number
  readonly run: number
}

/**
 * Sorts the items in slices; the sort is stable. Sorts chunks and then merges all at once, so that each item is fetched from memory only twice. Chunks that are
 * already in order are joined without a merge.
 */
export async function sortCooperatively<T>(items: readonly T[], compare: Compare<T>, task: CooperativeTask): Promise<T[]> {
  const sorted: T[] = []
  const starts: number[] = []
  for (let start = 0; start < items.length; start += chunkItems) {
    const chunk = items.slice(start, start + chunkItems).sort(compare)
    const first = chunk[0]
    const last = sorted.at(-1)
    if (last === undefined || first === undefined || compare(last, first) > 0) starts.push(sorted.length)
    for (const item of chunk) sorted.push(item)
    if (task.shouldYield) await task.pause()
  }
  if (starts.length < 2) return sorted
  const heap = starts.map((start, run): RunHead<T> => ({ item: sorted[start] as T, next: start + 1, end: starts[run + 1] ?? sorted.length, run }))
  return mergeRuns(sorted, heap, { before: (a, b) => compare(a.item, b.item) || a.run - b.run, task })
}

async function mergeRuns<T>(items: readonly T[], heads: RunHead<T>[], by: { before: Compare<RunHead<T>>; task: CooperativeTask }): Promise<T[]> {
  const { before, task } = by
  const heap = heads.sort(before)
  const merged: T[] = []
  while (merged.length < items.length) {
    const top = heap[0] as RunHead<T>
    merged.push(top.item)
    if (top.next < top.end) {
      top.item = items[top.next++] as T
      sink(heap, top, before)
    } else {
      const last = heap.pop() as RunHead<T>
      if (heap.length > 0) sink(heap, last, before)
    }
    if (merged.length % itemsPerLook === 0 && task.shouldYield) await task.pause()
  }
  return merged
}

/** Puts an entry in its place in a heap whose top is free. */
export function sink<E>(heap: E[], entry: E, compare: Compare<E>): void {
  let place = 0
  for (;;) {
    const left = heap[2 * place + 1]
    if (left === undefined) break
    const right = heap[2 * place + 2]
    const rightFirst = right !== undefined && compare(right, left) < 0
    const least = rightFirst ? right : left
    if (compare(entry, least) <= 0) break
    heap[place] = least
    place = 2 * place + (rightFirst ? 2 : 1)
  }
  heap[place] = entry
}
