import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { UidMap } from '../../src/cache/uid-map.ts'
import { newUid, one, picker, recordOf } from './records.ts'

const recordWith = (uid: string, name = ''): CachedRecord => recordOf({ kind: 'Group', uid, name, createMs: 1, updateMs: 1, filters: {} })

describe('UidMap', () => {
  test('equals a Map after any changes', () => {
    fc.assert(
      fc.property(fc.integer(), fc.constantFrom(5, 300, 3_000), (seed, count) => {
        const pick = picker(seed)
        const above = newUid(pick)
        const uids = Array.from({ length: count }, () => newUid(pick, above))
        const map = new UidMap()
        const expected = new Map<string, CachedRecord>()
        for (let step = 0; step < 4 * count; step++) {
          const uid = one(pick, uids)
          // At first more keys are added than removed, later the reverse.
          if (pick(4) < (step < 2 * count ? 3 : 1)) {
            const record = recordWith(uid, String(step))
            map.set(record)
            expected.set(uid, record)
          } else {
            map.delete(uid)
            expected.delete(uid)
          }
          if (step % 50 === 0) for (const each of uids.slice(0, 40)) expect(map.get(each)).toBe(expected.get(each))
        }
        expect(map.size).toBe(expected.size)
        expect(new Set(map.values())).toEqual(new Set(expected.values()))
        for (const uid of uids) expect(map.get(uid)).toBe(expected.get(uid))
      }),
      { numRuns: 30 },
    )
  })

  test.each(['', '/', 'a', 'no uid at all', 'é'.repeat(50)])('never contains "%s"', (text) => {
    const map = new UidMap()
    expect(map.get(text)).toBeUndefined()
    map.delete(text)
    map.set(recordWith('a'.repeat(40)))
    expect(map.get(text)).toBeUndefined()
    expect(map.size).toBe(1)
  })
})
