import fc from 'fast-check'
import { expect, test } from 'vitest'
import { RecentMap } from '../../src/base/recent-map.ts'

test('it holds what was used last up to its limit, and never more than twice that', () => {
  fc.assert(
    fc.property(fc.array(fc.record({ key: fc.nat(30), weight: fc.integer({ min: 1, max: 5 }), read: fc.boolean() }), { maxLength: 300 }), (steps) => {
      const limit = 20
      const map = new RecentMap<number, { weight: number }>(limit, ({ weight }) => weight)
      const lately: { key: number; weight: number }[] = []
      for (const { key, weight, read } of steps) {
        const held = map.get(key)
        const value = read && held !== undefined ? held : { weight }
        if (value !== held) map.set(key, value)
        lately.unshift({ key, weight: value.weight })
        let total = 0
        const recent = new Set<number>()
        for (const use of lately) {
          if (!recent.has(use.key)) total += use.weight
          if (total > limit - 5) break
          recent.add(use.key)
        }
        for (const one of recent) expect(map.get(one)).toBeDefined()
      }
      expect(map.size).toBeLessThanOrEqual(2 * (limit + 5))
    }),
  )
})

test('what is deleted or cleared is gone', () => {
  const map = new RecentMap<string, number>(2)
  for (const key of ['a', 'b', 'c', 'd']) map.set(key, 1)
  map.delete('a')
  map.delete('d')
  expect([map.get('a'), map.get('d'), map.get('c')]).toEqual([undefined, undefined, 1])
  map.clear()
  expect([map.size, map.get('c')]).toEqual([0, undefined])
})

test('what was used within the idle time is held, what was not for twice that is gone', () => {
  const ms = 1_000
  fc.assert(
    fc.property(fc.array(fc.record({ key: fc.nat(10), passed: fc.integer({ min: 0, max: 2_500 }) }), { maxLength: 200 }), (steps) => {
      let nowMs = 0
      const map = new RecentMap<number, number>(100, undefined, { clock: { now: () => nowMs }, ms })
      const usedAt = new Map<number, number>()
      for (const { key, passed } of steps) {
        nowMs += passed
        const idleMs = nowMs - (usedAt.get(key) ?? -Infinity)
        const held = map.get(key)
        if (idleMs < ms) expect(held).toBe(key)
        if (idleMs >= 2 * ms) expect(held).toBeUndefined()
        map.set(key, key)
        usedAt.set(key, nowMs)
        expect(map.size).toBeLessThanOrEqual([...usedAt.values()].filter((at) => nowMs - at < 2 * ms).length)
      }
    }),
  )
})

test('a clock that was set back takes nothing away that was just used', () => {
  let nowMs = 1_000_000
  const map = new RecentMap<string, number>(100, undefined, { clock: { now: () => nowMs }, ms: 1_000 })
  map.set('a', 1)
  nowMs = 0
  expect(map.get('a')).toBe(1)
  nowMs = 999
  expect(map.get('a')).toBe(1)
  nowMs = 3_000
  expect(map.get('b')).toBeUndefined()
  expect(map.size).toBe(0)
})
