import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ChildIndex } from '../../src/cache/lists/child-index.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { Slices } from '../../src/cache/slices.ts'
import { newUid, one, picker, rowOf } from './rows.ts'

const rowWith = (uid: string, name: string): CachedRecord => rowOf({ kind: 'Group', uid, name, createMs: 1, updateMs: 1, filters: {} })

describe('ChildIndex', () => {
  test('finds what a Map by parent and name would, through any changes and after a load', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), fc.constantFrom(4, 40, 400), async (seed, count) => {
        const pick = picker(seed)
        const parents = [newUid(pick), newUid(pick)]
        parents.push(newUid(pick, parents[0]))
        const uids = Array.from({ length: count }, () => (pick(5) === 0 ? newUid(pick) : newUid(pick, one(pick, parents))))
        const names = ['a', 'b', 'app', 'app-1', '', 'ü']
        const index = new ChildIndex()
        const rows = new Map<string, CachedRecord>()
        const holds = (row: CachedRecord): boolean =>
          [...rows.values()].some((other) => other.uid !== row.uid && other.parent === row.parent && other.name === row.name)
        for (let step = 0; step < 3 * count; step += 1) {
          const uid = one(pick, uids)
          const old = rows.get(uid)
          if (old !== undefined && pick(3) === 0) {
            index.remove(old)
            rows.delete(uid)
          } else {
            const row = rowWith(uid, one(pick, names))
            // Names are unique among siblings.
            if (holds(row)) continue
            index.put(old, row)
            rows.set(uid, row)
          }
        }
        const loaded = new ChildIndex()
        const sorted = [...rows.values()].toSorted((a, b) => (a.uid < b.uid ? -1 : 1))
        await loaded.load(sorted, new Slices())
        for (const parent of [...parents, '/', uids[0] ?? '']) {
          for (const name of names) {
            const expected = [...rows.values()].find((row) => row.parent === parent && row.name === name)
            expect(index.find(parent, name)).toBe(expected)
            expect(loaded.find(parent, name)).toBe(expected)
          }
        }
      }),
      { numRuns: 40 },
    )
  })
})
