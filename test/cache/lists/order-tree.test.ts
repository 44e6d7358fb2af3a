import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { OrderTree } from '../../../src/cache/lists/order-tree.ts'

/** `key` decides the order, `copy` distinguishes equal items. */
interface Item {
  readonly key: number
  readonly copy: number
}

const byKey = (a: Item, b: Item): number => a.key - b.key
const item = (key: number, copy = 0): Item => ({ key, copy })
const range = (count: number): number[] => Array.from({ length: count }, (_, index) => index)

/** A sorted array with the same changes as a tree: the simplest correct implementation. */
class Model {
  readonly tree: OrderTree<Item>
  readonly sorted: Item[]

  constructor(items: Item[] = []) {
    this.tree = OrderTree.fromSorted(items, byKey)
    this.sorted = [...items]
  }

  insert(added: Item): void {
    const index = this.before(added.key)
    const found = this.sorted[index]?.key === added.key
    this.sorted.splice(index, found ? 1 : 0, added)
    expect(this.tree.insert(added)).toBe(!found)
  }

  delete(key: number): void {
    const index = this.before(key)
    const found = this.sorted[index]?.key === key
    if (found) this.sorted.splice(index, 1)
    expect(this.tree.delete(item(key, -1))).toBe(found)
  }

  before(key: number): number {
    const index = this.sorted.findIndex((each) => each.key >= key)
    return index < 0 ? this.sorted.length : index
  }

  /** Compares all answers of the tree with the array: every item by iteration and by rank, every rank, and the gaps between. */
  check(): void {
    const { tree, sorted } = this
    expect(tree.size).toBe(sorted.length)
    expect(same([...tree.slice()], sorted)).toBe(true)
    expect(tree.at(-1)).toBeUndefined()
    expect(tree.at(sorted.length)).toBeUndefined()
    const wrong = sorted.findIndex((each, rank) => !this.#answersAt(each, rank))
    expect(wrong).toBe(-1)
  }

  #answersAt(each: Item, rank: number): boolean {
    const { tree } = this
    const gap = item(each.key - 0.125)
    const ranks = [tree.rank(gap, 'left'), tree.rank(gap, 'right'), tree.rank(each, 'left'), tree.rankBy((other) => other.key < each.key)]
    return tree.at(rank) === each && ranks.every((found) => found === rank) && tree.rank(each, 'right') === rank + 1
  }
}

function same(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((each, index) => each === b[index])
}

/** A repeatable shuffle. */
function shuffled(count: number, seed: number): number[] {
  const list = range(count)
  let state = seed
  for (let index = count - 1; index > 0; index--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    const other = state % (index + 1)
    ;[list[index], list[other]] = [list[other] ?? 0, list[index] ?? 0]
  }
  return list
}

const sizes = [0, 1, 2, 16, 17, 111, 112, 113, 127, 128, 129, 255, 1000, 6272, 7000]

describe('OrderTree', () => {
  test('equals a sorted array after any mix of inserts, replacements and deletes', () => {
    const key = fc.integer({ min: 0, max: 1500 })
    const operation = fc.oneof(
      { weight: 4, arbitrary: fc.record({ kind: fc.constant('insert' as const), key, run: fc.integer({ min: 1, max: 300 }) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant('delete' as const), key, run: fc.integer({ min: 1, max: 300 }) }) },
    )
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1500 }), fc.array(operation, { maxLength: 25 }), (start, operations) => {
        const model = new Model(range(start).map((each) => item(each)))
        operations.forEach(({ kind, key: first, run }, copy) => {
          // Runs of neighbours empty and fill whole leaves, which random keys rarely do.
          for (const offset of range(run)) {
            if (kind === 'insert') model.insert(item(first + offset * 0.25, copy))
            else model.delete(first + offset)
          }
        })
        model.check()
      }),
      { numRuns: 60 },
    )
  })

  test.each(sizes)('built from %i sorted items equals a sorted array, also after further inserts and deletes', (size) => {
    const model = new Model(range(size).map((each) => item(each)))
    model.check()
    for (const each of range(Math.min(size, 300))) model.insert(item(each * 7 + 0.5))
    for (const each of range(Math.min(size, 300))) model.delete(each * 5)
    model.check()
  })

  const orders: readonly (readonly [string, number[]])[] = [
    ['ascending', range(5000)],
    ['descending', range(5000).reverse()],
    ['random', shuffled(5000, 1)],
    ['from both ends to the middle', range(5000).map((each) => (each % 2 === 0 ? each : 10000 - each))],
    ['from the middle to both ends', range(5000).map((each) => (each % 2 === 0 ? each : -each))],
  ]
  test.each(orders.flatMap(([into, inserts]) => orders.map(([out, deletes]) => [into, out, inserts, deletes] as const)))(
    'inserts %s and deletes %s until it is empty',
    (_into, _out, inserts, deletes) => {
      const tree = new OrderTree(byKey)
      for (const key of inserts) tree.insert(item(key))
      const sorted = inserts.toSorted((a, b) => a - b)
      expect(
        same(
          [...tree.slice()].map((each) => each.key),
          sorted,
        ),
      ).toBe(true)
      const ranks = deletes.map((_, index) => index)
      // The order of deletes is applied to ranks, so that every pair of orders deletes all.
      const order = ranks.toSorted((a, b) => (deletes[a] ?? 0) - (deletes[b] ?? 0))
      const sequence = Array.from<number>({ length: order.length })
      order.forEach((position, rank) => (sequence[position] = sorted[rank] ?? NaN))
      const alive = new Set(sorted)
      sequence.forEach((key, step) => {
        if (!tree.delete(item(key)) || tree.delete(item(key))) expect.unreachable(`delete of ${key}`)
        alive.delete(key)
        if (step % 997 === 0 || alive.size < 3) {
          const expected = sorted.filter((each) => alive.has(each))
          expect(
            same(
              [...tree.slice()].map((each) => each.key),
              expected,
            ),
          ).toBe(true)
          expect(expected.every((each, rank) => tree.rank(item(each), 'left') === rank && tree.at(rank)?.key === each)).toBe(true)
        }
      })
      expect(tree.size).toBe(0)
      expect([...tree.slice()]).toEqual([])
      expect(tree.insert(item(1))).toBe(true)
      expect(tree.at(0)?.key).toBe(1)
    },
  )

  test('stays correct when the same positions are filled and emptied over and over', () => {
    const model = new Model(range(3000).map((each) => item(each)))
    for (const round of range(12)) {
      const from = (round * 331) % 2000
      for (const each of range(700)) model.delete(from + each)
      model.check()
      for (const each of range(700)) model.insert(item(from + (round % 2 === 0 ? each : 699 - each), round))
      model.check()
    }
  })

  test('slices like an array, for positions inside and outside its bounds', () => {
    const items = range(1000).map((each) => item(each))
    const tree = OrderTree.fromSorted(items, byKey)
    fc.assert(
      fc.property(fc.integer({ min: -50, max: 1100 }), fc.integer({ min: -50, max: 1100 }), (from, to) => {
        expect(same([...tree.slice(from, to)], items.slice(Math.max(from, 0), Math.max(to, 0)))).toBe(true)
      }),
    )
    expect(same([...tree.slice(990)], items.slice(990))).toBe(true)
  })

  test('keeps the new one of two equal items and removes the old one everywhere', () => {
    const tree = OrderTree.fromSorted(
      range(500).map((each) => item(each)),
      byKey,
    )
    const version = tree.version
    for (const key of range(500)) expect(tree.insert(item(key, 1))).toBe(false)
    expect(tree.version).toBe(version)
    expect([...tree.slice()].every((each) => each.copy === 1)).toBe(true)
    const seen: Item[] = []
    for (const key of range(500)) tree.rankBy((each) => seen.push(each) > 0 && each.key < key)
    expect(seen.every((each) => each.copy === 1)).toBe(true)
  })

  test('never compares an item after its removal', () => {
    const met: Item[] = []
    const tree = OrderTree.fromSorted(
      range(3000).map((each) => item(each)),
      (a, b) => {
        met.push(a, b)
        return a.key - b.key
      },
    )
    for (const key of shuffled(3000, 7)) if (key % 3 !== 0) tree.delete(item(key, 1))
    met.length = 0
    for (const key of range(3000)) tree.rank(item(key, 1), 'left')
    expect(met.every((each) => each.copy === 1 || each.key % 3 === 0)).toBe(true)
  })

  test('finds a range by its prefix, without a comparison item', () => {
    const names = ['a', 'b', 'b/1', 'b/2', 'b/2/x', 'b0', 'c']
    const tree = OrderTree.fromSorted(names, (a, b) => (a < b ? -1 : a > b ? 1 : 0))
    const from = tree.rankBy((name) => name < 'b/')
    const to = tree.rankBy((name) => name < 'b/' || name.startsWith('b/'))
    expect([...tree.slice(from, to)]).toEqual(['b/1', 'b/2', 'b/2/x'])
  })

  test('throws if it changes during an iteration', () => {
    const tree = OrderTree.fromSorted(
      range(300).map((each) => item(each)),
      byKey,
    )
    const started = tree.slice()
    const waiting = tree.slice(10, 20)
    started.next()
    tree.insert(item(5, 1))
    expect(started.next().value).toMatchObject({ key: 1 })
    tree.delete(item(200))
    expect(() => started.next()).toThrow('the tree changed')
    expect(() => waiting.next()).toThrow('the tree changed')
    const next = tree.slice(10, 20)
    expect(next.next().value).toMatchObject({ key: 10 })
    tree.insert(item(1000))
    expect(() => next.next()).toThrow('the tree changed')
    expect(tree.slice(10, 20).toArray()).toHaveLength(10)
  })

  test('refuses unsorted or equal items in fromSorted', () => {
    expect(() => OrderTree.fromSorted([item(1), item(3), item(2)], byKey)).toThrow(RangeError)
    expect(() => OrderTree.fromSorted([item(1), item(1)], byKey)).toThrow(RangeError)
  })

  test('is unchanged after a comparator throws', () => {
    let fuse = Infinity
    const tree = OrderTree.fromSorted(
      range(1000).map((each) => item(each)),
      (a, b) => {
        if (--fuse < 0) throw new Error('no order')
        return a.key - b.key
      },
    )
    for (const allowed of range(8)) {
      fuse = allowed
      expect(() => tree.insert(item(500.5))).toThrow('no order')
      fuse = allowed
      expect(() => tree.delete(item(500))).toThrow('no order')
    }
    fuse = Infinity
    expect(tree.size).toBe(1000)
    expect([...tree.slice()].map((each) => each.key)).toEqual(range(1000))
  })

  test.each(['fresh', 'thinned to a hundredth'])('needs a number of comparisons logarithmic in its size: %s', (state) => {
    let comparisons = 0
    const tree = new OrderTree<Item>((a, b) => {
      comparisons += 1
      return a.key - b.key
    })
    for (const key of shuffled(100_000, 3)) tree.insert(item(key))
    if (state !== 'fresh') for (const key of shuffled(100_000, 4)) if (key % 100 !== 0) tree.delete(item(key))
    // log2(100,000) is 17, plus one comparison per level.
    for (const key of shuffled(100_000, 5).slice(0, 1000)) {
      comparisons = 0
      tree.rank(item(key), 'left')
      expect(comparisons).toBeLessThan(26)
    }
  })
})
