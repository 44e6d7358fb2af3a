import type { Compare } from './lists/order-tree.ts'

/** Maximum time in milliseconds for which a task may block the event loop before it pauses. */
const timeSliceMs = 4

/** Gives each of several concurrent long tasks one turn of the event loop at a time. Together they block the loop no longer than one task. */
export class CooperativeScheduler {
  readonly #waiting: (() => void)[] = []
  readonly #runNext = (): void => {
    this.#waiting.shift()?.()
    if (this.#waiting.length > 0) setImmediate(this.#runNext)
  }

  /** Resolves when it is the caller's turn, in the order of the calls. */
  next(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiting.push(resolve)
    if (this.#waiting.length === 1) setImmediate(this.#runNext)
    return promise
  }
}

/** A long computation that pauses regularly, so that other work of the process runs in between. */
export class CooperativeTask {
  readonly #scheduler: CooperativeScheduler
  #started = performance.now()

  /** Tasks that share `scheduler` take turns. By default the task has a scheduler of its own. */
  constructor(scheduler = new CooperativeScheduler()) {
    this.#scheduler = scheduler
  }

  /** True if the task should call `await task.pause()` now. The check is cheap, but do it once for many small steps. */
  get shouldYield(): boolean {
    return performance.now() - this.#started > timeSliceMs
  }

  /** Resolves after other work has run. */
  async pause(): Promise<void> {
    await this.#scheduler.next()
    this.#started = performance.now()
  }
}

/** Number of items to sort without a pause, which takes a few milliseconds. */
const chunkItems = 4096
const itemsPerLook = 256

/** The next item of a sorted chunk in a merge. The number of its chunk orders equal items. */
interface RunHead<T> {
  item: T
  next: number
  readonly end: number
  readonly run: number
}

/**
 * Sorts the items with pauses in between. The sort is stable. It sorts chunks and merges all of them in one pass, so each item is fetched from memory only
 * twice. Chunks that are already in order are joined without a merge.
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

/** Moves an entry down to its place in a heap whose top is unused. */
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
