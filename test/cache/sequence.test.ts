import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { OrderTree } from '../../src/cache/lists/order-tree.ts'
import { MergedSequence } from '../../src/cache/lists/sequence.ts'
import type { Sequence } from '../../src/cache/lists/sequence.ts'

const ascending = (a: number, b: number): number => a - b
const range = (count: number): number[] => Array.from({ length: count }, (_, index) => index)

const treeOf = (keys: readonly number[]): OrderTree<number> => OrderTree.fromSorted(keys.toSorted(ascending), ascending)
const whole = (tree: OrderTree<number>): Sequence<number> => ({ tree, from: 0, to: tree.size })

interface Case {
  readonly sequences: Sequence<number>[]
  readonly expected: number[]
}

/** Creates disjoint trees with some slices each. The functions decide which tree gets which of the keys 0..size-1. */
function deal(size: number, trees: number, treeFor: (key: number) => number, cutsFor: (tree: number) => readonly number[]): Case {
  const keys = range(trees).map((): number[] => [])
  for (const key of range(size)) keys[treeFor(key)]?.push(key)
  const sequences: Sequence<number>[] = []
  const expected: number[] = []
  keys.forEach((dealt, index) => {
    const tree = treeOf(dealt)
    const ranks = [...cutsFor(index)].map((share) => Math.floor(share * dealt.length)).sort(ascending)
    // Every second interval between two cuts is a sequence: from 0 to the first cut, from the second to the third, ...
    for (let cut = 0; cut <= ranks.length; cut += 2) {
      const from = cut === 0 ? 0 : (ranks[cut - 1] ?? 0)
      const to = ranks[cut] ?? dealt.length
      sequences.push({ tree, from, to })
      expected.push(...dealt.slice(from, to))
    }
  })
  return { sequences, expected: expected.sort(ascending) }
}

const share = fc.double({ min: 0, max: 1, noNaN: true })

const cases: fc.Arbitrary<Case> = fc
  .record({
    size: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 3000 })),
    trees: fc.integer({ min: 1, max: 12 }),
    shape: fc.constantFrom('interleaved', 'in blocks', 'one has most', 'scattered'),
    cuts: fc.array(fc.array(share, { maxLength: 5 }), { minLength: 12, maxLength: 12 }),
    turn: fc.integer({ min: 0, max: 100 }),
  })
  .map(({ size, trees, shape, cuts, turn }) => {
    const shapes = {
      interleaved: (key: number) => key % trees,
      'in blocks': (key: number) => Math.floor((key * trees) / size),
      'one has most': (key: number) => (key % 50 === 0 ? key % trees : 0),
      scattered: (key: number) => (Math.imul(key + turn, 2654435761) >>> 8) % trees,
    }
    const { sequences, expected } = deal(size, trees, shapes[shape], (tree) => cuts[tree] ?? [])
    // The order of the sequences must not matter.
    return { sequences: sequences.toSorted((a, b) => ((a.from * 31 + turn) % 17) - ((b.from * 31 + turn) % 17)), expected }
  })

const position = fc.oneof(fc.integer({ min: -5, max: 60 }), fc.integer({ min: -5, max: 3005 }))

describe('MergedSequence', () => {
  test('returns the same pages as the merged and sorted array', () => {
    const after = fc.option(
      position.chain((key) => fc.constantFrom(key, key + 0.5)),
      { nil: undefined },
    )
    const limit = fc.oneof(fc.integer({ min: 0, max: 60 }), fc.constant(Infinity))
    const request = fc.record({ after, skip: position.map((skip) => Math.max(skip, 0)), limit })
    fc.assert(
      fc.property(cases, fc.array(request, { minLength: 1, maxLength: 30 }), ({ sequences, expected }, requests) => {
        const merged = new MergedSequence(sequences, ascending)
        expect(merged.count).toBe(expected.length)
        for (const { after, skip, limit } of requests) {
          const rest = expected.filter((key) => after === undefined || key > after)
          expect(merged.page({ after, skip, limit })).toEqual(rest.slice(skip, skip + limit))
        }
      }),
      { numRuns: 500 },
    )
  })

  test('works for every after, skip and limit, even with runs of very different lengths', () => {
    const { sequences, expected } = deal(
      120,
      4,
      (key) => (key < 100 ? 0 : key % 4),
      (tree) => (tree === 0 ? [0.1, 0.2, 0.5, 0.51] : []),
    )
    const merged = new MergedSequence(sequences, ascending)
    for (const after of range(122).map((each) => each - 1)) {
      const rest = expected.filter((key) => key > after)
      for (const skip of range(rest.length + 2)) {
        for (const limit of [0, 1, 7, 200]) expect(merged.page({ after, skip, limit })).toEqual(rest.slice(skip, skip + limit))
      }
    }
  })

  test.each([2, 3, 5])('works for every skip over %i runs', (trees) => {
    const shapes = [(key: number) => key % trees, (key: number) => Math.floor((key * trees) / 800), (key: number) => (key % 9 === 0 ? key % trees : 0)]
    for (const treeFor of shapes) {
      const { sequences, expected } = deal(800, trees, treeFor, () => [])
      const merged = new MergedSequence(sequences, ascending)
      for (const skip of range(801)) expect(merged.page({ skip, limit: 3 })).toEqual(expected.slice(skip, skip + 3))
    }
  })

  test('returns everything exactly once in consecutive pages', () => {
    fc.assert(
      fc.property(cases, fc.integer({ min: 1, max: 500 }), ({ sequences, expected }, limit) => {
        const merged = new MergedSequence(sequences, ascending)
        const pages: number[] = []
        for (let page = merged.page({ skip: 0, limit }); page.length > 0; page = merged.page({ after: page.at(-1), skip: 0, limit })) pages.push(...page)
        expect(pages).toEqual(expected)
      }),
    )
  })

  test('returns an empty list for no sequences and for sequences without items', () => {
    const tree = treeOf(range(10))
    for (const sequences of [
      [],
      [whole(treeOf([]))],
      [{ tree, from: 4, to: 4 }],
      [
        { tree, from: 0, to: 0 },
        { tree, from: 10, to: 10 },
      ],
    ]) {
      const merged = new MergedSequence<number>(sequences, ascending)
      expect(merged.count).toBe(0)
      expect(merged.page({ skip: 0, limit: 10 })).toEqual([])
      expect(merged.page({ after: 3, skip: 1, limit: 10 })).toEqual([])
    }
  })

  test('refuses sequences that overlap or are out of the bounds of their tree', () => {
    const tree = treeOf(range(10))
    const refused = [
      [{ tree, from: 0, to: 11 }],
      [{ tree, from: -1, to: 3 }],
      [{ tree, from: 3, to: 2 }],
      [
        { tree, from: 0, to: 5 },
        { tree, from: 4, to: 6 },
      ],
    ]
    expect(new MergedSequence([3, 6, 3].map((to) => ({ tree, from: 3, to })).toReversed(), ascending).count).toBe(3)
    expect(
      new MergedSequence(
        [
          { tree, from: 0, to: 9 },
          { tree, from: 5, to: 5 },
        ],
        ascending,
      ).count,
    ).toBe(9)
    for (const sequences of refused) expect(() => new MergedSequence(sequences, ascending)).toThrow(RangeError)
  })

  test('throws after one of its trees has changed', () => {
    const trees = [treeOf([1, 3, 5]), treeOf([2, 4])]
    const merged = new MergedSequence(trees.map(whole), ascending)
    expect(merged.page({ skip: 1, limit: 3 })).toEqual([2, 3, 4])
    trees[1]?.delete(4)
    expect(() => merged.page({ skip: 1, limit: 3 })).toThrow('the tree changed')
  })

  describe('compares items', () => {
    let comparisons = 0
    const counted = (a: number, b: number): number => {
      comparisons += 1
      return a - b
    }
    const log = Math.log2

    /** Distributes the keys 0..size-1 over k trees. */
    const dealt = (size: number, k: number, treeFor: (key: number) => number): MergedSequence<number> => {
      const keys = range(k).map((): number[] => [])
      for (const key of range(size)) keys[treeFor(key)]?.push(key)
      return new MergedSequence(
        keys.map((each) => whole(OrderTree.fromSorted(each, counted))),
        counted,
      )
    }
    const size = 200_000
    const shapes: readonly (readonly [string, number, (key: number) => number])[] = [
      ['20 interleaved', 20, (key) => key % 20],
      ['20 blocks', 20, (key) => Math.floor(key / (size / 20))],
      ['one large and 19 small', 20, (key) => (key % 1000 === 0 ? (key / 1000) % 20 : 0)],
      ['each half as large as the one before', 16, (key) => Math.min(Math.clz32((Math.imul(key, 2654435761) >>> 0) | 1), 15)],
    ]
    test.each(shapes)('a merged sequence compares items rarely, wherever the page starts: %s', (_name, k, treeFor) => {
      const merged = dealt(size, k, treeFor)
      for (const skip of [0, 1, 100, 5000, size / 2, size - 200, size - 50]) {
        comparisons = 0
        expect(merged.page({ skip, limit: 50 })).toEqual(range(50).map((each) => skip + each))
        // Walking compares for all items up to the end of the page. Searching compares once for each run and round, with one round for each halving.
        const walked = 2 * log(k) * (16 * k + 50 + k)
        const searched = k * (log(size) + 8 + log(k)) * log(skip + 2)
        expect(comparisons).toBeLessThan(walked + searched)
        comparisons = 0
        expect(merged.page({ after: skip, skip: 0, limit: 50 })[0] ?? -1).toBe(skip + 1)
        expect(comparisons).toBeLessThan(k * (log(size) + 8) + 2 * log(k) * (50 + k))
      }
    })

    test('a merged sequence compares items in one round for any skip, if the runs are alike', () => {
      const merged = dealt(size, 20, (key) => key % 20)
      for (const skip of [5000, size / 2, size * 0.9]) {
        comparisons = 0
        merged.page({ skip, limit: 1 })
        expect(comparisons).toBeLessThan(20 * (log(size) + 8 + log(20)) + 2 * log(20) * (16 * 20 + 20))
      }
    })

    test('a merged sequence compares items in one search per page, for slices of one tree', () => {
      const tree = OrderTree.fromSorted(range(100_000), counted)
      const merged = new MergedSequence(
        range(1000).map((each) => ({ tree, from: each * 100, to: each * 100 + 60 })),
        counted,
      )
      comparisons = 0
      expect(merged.page({ skip: 30_030, limit: 50 })).toEqual([...range(30).map((each) => 50_030 + each), ...range(20).map((each) => 50_100 + each)])
      expect(comparisons).toBe(0)
      expect(merged.page({ after: 50_059, skip: 0, limit: 2 })).toEqual([50_100, 50_101])
      expect(merged.page({ after: 50_080, skip: 0, limit: 2 })).toEqual([50_100, 50_101])
      expect(comparisons).toBeLessThan(50)
    })
  })
})
