/**
 * Measures the cost per operation of the cache's ordered structures by size: `node bench/order-tree.ts`. The last column is the cost at
 * the largest size divided by the cost at the smallest. It is small for O(log n), including cache misses, and about a thousand for O(n).
 */
import { OrderTree } from '../src/cache/lists/order-tree.ts'
import { MergedSequence } from '../src/cache/lists/sequence.ts'

interface Item {
  readonly name: string
  readonly uid: string
}

const sizes = [1_000, 10_000, 100_000, 1_000_000]
const pageSize = 50
const secondsPerFigure = 0.06

function byName(a: Item, b: Item): number {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1
  return a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : 0
}

/** Returns a function for pseudorandom numbers below `bound`, the same in every run. */
function createNumbers(seed: number): (bound: number) => number {
  let state = seed
  return (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * bound)
  }
}

const numbers = createNumbers(1)

function createItem(): Item {
  const hex = (): string =>
    numbers(2 ** 32)
      .toString(16)
      .padStart(8, '0')
  // Creates the string from a buffer, as for records from the store. A concatenated string would be slower to compare.
  const flat = (text: string): string => Buffer.from(text).toString('latin1')
  return { name: flat(`repo-${hex()}`), uid: flat(`${hex()}${hex()}`) }
}

function pick<E>(list: readonly E[]): E {
  const found = list[numbers(list.length)]
  if (found === undefined) throw new RangeError('the list to pick from is empty')
  return found
}

/** Returns the nanoseconds per call, from as many calls as fit into the time, after a warm-up. */
function nanoseconds(call: () => unknown): number {
  let calls = 0
  let start = process.hrtime.bigint()
  for (let passed = 0, warm = false; ; calls += 16) {
    for (let step = 0; step < 16; step++) call()
    passed = Number(process.hrtime.bigint() - start)
    if (!warm && passed > secondsPerFigure * 2.5e8) {
      warm = true
      calls = -16
      start = process.hrtime.bigint()
    } else if (warm && passed > secondsPerFigure * 1e9) return passed / (calls + 16)
  }
}

/** Returns the nanoseconds per call of an operation that may take long, from at least one call. */
function nanosecondsPerBuild(build: () => unknown): number {
  const start = process.hrtime.bigint()
  for (let builds = 1; ; builds++) {
    build()
    const passed = Number(process.hrtime.bigint() - start)
    if (passed > secondsPerFigure * 1e9) return passed / builds
  }
}

function inserted(items: readonly Item[]): OrderTree<Item> {
  const tree = new OrderTree(byName)
  for (const item of items) tree.insert(item)
  return tree
}

function mergedOver(items: readonly Item[], runs: number): MergedSequence<Item> {
  const parts = Array.from({ length: runs }, (): Item[] => [])
  items.forEach((item, index) => parts[index % runs]?.push(item))
  const trees = parts.map((part) => OrderTree.fromSorted(part, byName))
  return new MergedSequence(
    trees.map((tree) => ({ tree, from: 0, to: tree.size })),
    byName,
  )
}

function measure(size: number): Record<string, number> {
  const items = Array.from({ length: size }, createItem)
  const sorted = items.toSorted(byName)
  const insert = nanosecondsPerBuild(() => inserted(items)) / size
  const fromSorted = nanosecondsPerBuild(() => OrderTree.fromSorted(sorted, byName)) / size
  const tree = inserted(items)
  const one = new MergedSequence([{ tree, from: 0, to: tree.size }], byName)
  const merged = new Map([10, 100].map((runs) => [runs, mergedOver(sorted, runs)]))
  const figures: Record<string, number> = {
    'insert, all at random': insert,
    'fromSorted, per item': fromSorted,
    rank: nanoseconds(() => tree.rank(pick(items), 'left')),
    at: nanoseconds(() => tree.at(numbers(size))),
    'page of 50 after an item': nanoseconds(() => one.page({ after: pick(items), skip: 0, limit: pageSize })),
    'page of 50, any skip': nanoseconds(() => one.page({ skip: numbers(size), limit: pageSize })),
  }
  for (const [runs, list] of merged) {
    figures[`page of 50 of ${runs} runs after an item`] = nanoseconds(() => list.page({ after: pick(items), skip: 0, limit: pageSize }))
    figures[`page of 50 of ${runs} runs, skip 90 %`] = nanoseconds(() => list.page({ skip: size * 0.9, limit: pageSize }))
  }
  figures['delete + insert'] = nanoseconds(() => {
    const item = pick(items)
    tree.delete(item)
    tree.insert(item)
  })
  return figures
}

function print(label: string, cells: readonly string[]): void {
  process.stdout.write(`${label.padEnd(36)}${cells.map((cell) => cell.padStart(11)).join('')}\n`)
}

measure(2_000)
const results = sizes.map(measure)
print('ns per call', [...sizes.map((size) => size.toExponential(0)), 'growth'])
for (const name of Object.keys(results[0] ?? {})) {
  const row = results.map((result) => result[name] ?? NaN)
  print(name, [...row.map((figure) => figure.toFixed(0)), `${((row.at(-1) ?? NaN) / (row[0] ?? NaN)).toFixed(1)}x`])
}
