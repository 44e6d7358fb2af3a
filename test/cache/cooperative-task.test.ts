import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CooperativeTask, sortCooperatively, CooperativeScheduler } from '../../src/cache/cooperative-task.ts'
import { picker } from './records.ts'

interface Item {
  readonly key: number
  readonly at: number
}

const byKey = (a: Item, b: Item): number => a.key - b.key

describe('sortInSlices', () => {
  test.each([
    ['at random', (pick: (n: number) => number) => pick(1_000_000)],
    ['with many equal ones', (pick: (n: number) => number) => pick(5)],
    ['in order', (_pick: (n: number) => number, at: number) => at],
    ['in reverse', (_pick: (n: number) => number, at: number) => -at],
    ['nearly in order', (pick: (n: number) => number, at: number) => at + pick(3)],
    ['in ordered runs', (_pick: (n: number) => number, at: number) => at % 5_000],
  ])('sortInSlices sorts items %s like a stable sort', async (_what, keyOf) => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), fc.constantFrom(0, 1, 100, 4_096, 4_097, 30_000), async (seed, count) => {
        const pick = picker(seed)
        const items = Array.from({ length: count }, (_, at): Item => ({ key: keyOf(pick, at), at }))
        const given = items.slice()
        expect(await sortCooperatively(items, byKey, new CooperativeTask())).toEqual(given.toSorted(byKey))
        expect(items).toEqual(given)
      }),
      { numRuns: 12 },
    )
  })

  test('sortInSlices lets other work run in between', async () => {
    const pick = picker(1)
    const items = Array.from({ length: 300_000 }, (_, at): Item => ({ key: pick(1_000_000), at }))
    let turns = 0
    let sorting = true
    const sorted = sortCooperatively(items, byKey, new CooperativeTask()).finally(() => (sorting = false))
    while (sorting) {
      turns += 1
      await new Promise(setImmediate)
    }
    expect((await sorted).length).toBe(items.length)
    expect(turns).toBeGreaterThan(5)
  })
})

describe('Turns', () => {
  test('run one of the sharing tasks in each turn of the event loop, each equally often', async () => {
    const scheduler = new CooperativeScheduler()
    const done: number[] = []
    const works = Array.from({ length: 20 }, async (_, work) => {
      const task = new CooperativeTask(scheduler)
      for (let piece = 0; piece < 5; piece++) {
        await task.pause()
        done.push(work)
      }
    })
    for (let turn = 1; turn <= 100; turn++) {
      await new Promise(setImmediate)
      expect(done).toHaveLength(turn)
    }
    await Promise.all(works)
    for (let round = 0; round < 5; round++) expect(done.slice(round * 20, round * 20 + 20)).toEqual(Array.from({ length: 20 }, (_, work) => work))
  })
})
