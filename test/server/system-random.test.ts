import { expect, test } from 'vitest'
import { systemRandom } from '../../src/server/runtime.ts'

test('random bytes have the requested number, are used once, and returned arrays never change', () => {
  const given = [16, 1, 255, 256, 257, 5000, 0, ...Array.from({ length: 1000 }, () => 16)].map((count) => {
    const bytes = systemRandom.bytes(count)
    expect(bytes).toHaveLength(count)
    return { bytes, hex: Buffer.from(bytes).toString('hex') }
  })
  const places = new Map<ArrayBufferLike, Set<number>>()
  for (const { bytes, hex } of given) {
    expect(Buffer.from(bytes).toString('hex')).toBe(hex)
    const taken = places.get(bytes.buffer) ?? new Set()
    places.set(bytes.buffer, taken)
    const before = taken.size
    for (let at = 0; at < bytes.length; at++) taken.add(bytes.byteOffset + at)
    expect(taken.size - before, 'none was given before').toBe(bytes.length)
  }
  const ids = given.filter(({ bytes }) => bytes.length === 16).map(({ hex }) => hex)
  expect(new Set(ids).size).toBe(ids.length)
})
