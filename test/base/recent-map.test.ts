import fc from 'fast-check'
import { expect, test } from 'vitest'
import { RecentMap } from '../../src/base/recent-map.ts'

test('the map holds the most recently used entries up to its limit', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(30), { maxLength: 300 }), (keys) => {
      const limit = 20
      const weightOf = (key: number): number => 1 + (key % 5)
      const map = new RecentMap<number, number>(limit, weightOf)
      const lately: number[] = []
      for (const key of keys) {
        if (map.get(key) === undefined) map.set(key, key)
        lately.unshift(key)
        let total = 0
        const recent = new Set<number>()
        for (const use of lately) {
          if (!recent.has(use)) total += weightOf(use)
          if (total > limit) break
          recent.add(use)
        }
        expect(new Set(map.keys())).toEqual(recent)
        expect(map.calculatedSize).toBeLessThanOrEqual(limit)
      }
    }),
  )
})

test('deleted and cleared entries are no longer found', () => {
  const map = new RecentMap<string, number>(2)
  for (const key of ['a', 'b', 'c', 'd']) map.set(key, 1)
  map.delete('a')
  map.delete('d')
  expect([map.get('a'), map.get('d'), map.get('c')]).toEqual([undefined, undefined, 1])
  map.clear()
  expect([map.size, map.get('c')]).toEqual([0, undefined])
})

test('entries used within the idle time stay, others are removed, and writes release their memory', () => {
  const ms = 1_000
  fc.assert(
    fc.property(fc.array(fc.record({ key: fc.nat(10), passed: fc.integer({ min: 0, max: 2_500 }) }), { maxLength: 200 }), (steps) => {
      let nowMs = 1_000_000
      const map = new RecentMap<number, number>(100, undefined, { clock: { now: () => nowMs }, ms })
      const usedAt = new Map<number, number>()
      for (const { key, passed } of steps) {
        nowMs += passed
        const idleMs = nowMs - (usedAt.get(key) ?? -Infinity)
        const held = map.get(key)
        expect(held).toBe(idleMs <= ms ? key : undefined)
        map.set(key, key)
        usedAt.set(key, nowMs)
        expect(map.size).toBeLessThanOrEqual([...usedAt.values()].filter((at) => nowMs - at <= 2 * ms).length)
      }
    }),
  )
})

test('after the clock is set back, recently used entries stay', () => {
  let nowMs = 1_000_000
  const map = new RecentMap<string, number>(100, undefined, { clock: { now: () => nowMs }, ms: 1_000 })
  map.set('a', 1)
  nowMs = 1
  expect(map.get('a')).toBe(1)
  nowMs = 999
  expect(map.get('a')).toBe(1)
  nowMs = 3_000
  map.set('b', 2)
  expect([...map.keys()]).toEqual(['b'])
})
