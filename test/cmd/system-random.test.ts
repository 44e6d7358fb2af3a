import { expect, test } from 'vitest'
import { systemRandom } from '../../src/cmd/runtime.ts'

test('gives as many bytes as are asked for, each once, and leaves those that it gave alone', () => {
  const given = [16, 1, 255, 256, 257, 5000, 0, ...Array.from({ length: 1000 }, () => 16)].map((count) => {
    const bytes = systemRandom.bytes(count)
    expect(bytes).toHaveLength(count)
    return { bytes, hex: Buffer.from(bytes).toString('hex') }
  })
  for (const { bytes, hex } of given) expect(Buffer.from(bytes).toString('hex')).toBe(hex)
  const ids = given.filter(({ bytes }) => bytes.length === 16).map(({ hex }) => hex)
  expect(new Set(ids).size).toBe(ids.length)
})
