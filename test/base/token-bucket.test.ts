import { expect, test } from 'vitest'
import { TokenBucket } from '../../src/base/token-bucket.ts'

test('a bucket starts full, may go below zero, and refills at its rate up to its size', () => {
  let nowMs = 0
  const bucket = new TokenBucket({ perSecond: 10, burst: 3 }, () => nowMs)
  expect(bucket.waitMs(3)).toBe(0)
  expect(bucket.waitMs(4)).toBe(100)
  bucket.spend(5)
  expect(bucket.waitMs(1)).toBe(300)
  nowMs = 299
  expect(bucket.waitMs(1)).toBe(1)
  nowMs = 300
  expect(bucket.waitMs(1)).toBe(0)
  nowMs = 1_000_000
  expect(bucket.waitMs(4)).toBe(100)
})

test('a clock that is set back removes no tokens', () => {
  let nowMs = 1_000
  const bucket = new TokenBucket({ perSecond: 1, burst: 1 }, () => nowMs)
  bucket.spend(1)
  nowMs = 0
  expect(bucket.waitMs(1)).toBe(1_000)
  nowMs = 1_000
  expect(bucket.waitMs(1)).toBe(0)
})
