import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ChildIndex } from '../../src/cache/lists/child-index.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { CooperativeTask } from '../../src/cache/cooperative-task.ts'
import { newUid, one, picker, recordOf } from './records.ts'

const recordWith = (uid: string, name: string): CachedRecord => recordOf({ kind: 'Group', uid, name, createMs: 1, updateMs: 1, filters: {} })

describe('ChildIndex', () => {
  test('finds the same as a Map by parent and name, after any changes and after a load', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), fc.constantFrom(4, 40, 400), async (seed, count) => {
        const pick = picker(seed)
        const parents = [newUid(pick), newUid(pick)]
        parents.push(newUid(pick, parents[0]))
        const uids = Array.from({ length: count }, () => (pick(5) === 0 ? newUid(pick) : newUid(pick, one(pick, parents))))
        const names = ['a', 'b', 'app', 'app-1', '', 'ü']
        const index = new ChildIndex()
        const records = new Map<string, CachedRecord>()
        const holds = (record: CachedRecord): boolean =>
          [...records.values()].some((other) => other.uid !== record.uid && other.parent === record.parent && other.name === record.name)
        for (let step = 0; step < 3 * count; step += 1) {
          const uid = one(pick, uids)
          const old = records.get(uid)
          if (old !== undefined && pick(3) === 0) {
            index.remove(old)
            records.delete(uid)
          } else {
            const record = recordWith(uid, one(pick, names))
            // Names are unique among siblings.
            if (holds(record)) continue
            index.put(old, record)
            records.set(uid, record)
          }
        }
        const loaded = new ChildIndex()
        const sorted = [...records.values()].toSorted((a, b) => (a.uid < b.uid ? -1 : 1))
        await loaded.load(sorted, new CooperativeTask())
        for (const parent of [...parents, '/', uids[0] ?? '']) {
          for (const name of names) {
            const expected = [...records.values()].find((record) => record.parent === parent && record.name === name)
            expect(index.find(parent, name)).toBe(expected)
            expect(loaded.find(parent, name)).toBe(expected)
          }
        }
      }),
      { numRuns: 40 },
    )
  })
})
