import { expect, test } from 'vitest'
import { growthOf, slopePerHour, type Point } from './growth.ts'

const minuteMs = 60_000
const points = (valueAt: (minute: number) => number): Point[] =>
  Array.from({ length: 61 }, (_, minute) => ({ atMs: 5_000_000 + minute * minuteMs, value: valueAt(minute) }))

test('a slope is given per hour, for any unit of time', () => {
  expect(slopePerHour(points((minute) => 7 + 2 * minute))).toBeCloseTo(120)
  expect(slopePerHour(points(() => 7))).toBe(0)
  expect(slopePerHour(points(() => 7).slice(0, 1))).toBe(0)
})

test('growth in the first quarter is ignored, lasting growth is reported', () => {
  const bound = { perHour: 10, noise: 1 }
  expect(
    growthOf(
      points((minute) => Math.min(minute, 15) * 100),
      bound,
    ),
  ).toMatchObject({ slopePerHour: 0, within: true })
  expect(
    growthOf(
      points((minute) => minute),
      bound,
    ),
  ).toMatchObject({ within: false, allowed: 7.5 })
  expect(
    growthOf(
      points((minute) => minute / 10),
      bound,
    ).within,
  ).toBe(true)
  expect(
    growthOf(
      points((minute) => 100 - minute),
      bound,
    ).within,
  ).toBe(true)
})

test('noise is tolerated, however short the measurement', () => {
  expect(growthOf(points((minute) => minute).slice(0, 5), { perHour: 1, noise: 3 }).within).toBe(true)
})
