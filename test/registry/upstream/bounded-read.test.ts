import { Readable } from 'node:stream'
import { expect, test } from 'vitest'
import { readBounded } from '../../../src/registry/upstream/chunk-body.ts'

async function* pieces(count: number, failure?: Error): AsyncGenerator<Buffer> {
  for (let at = 0; at < count; at++) yield Buffer.alloc(10, at)
  if (failure !== undefined) throw failure
}

test('a body within the limit is read whole', async () => {
  for (const count of [0, 1, 3]) {
    const body = Readable.from(pieces(count))
    expect(await readBounded(body, 30)).toEqual({ kind: 'whole', bytes: Buffer.concat(await Readable.from(pieces(count)).toArray()) })
  }
})

test('a body beyond the limit is read no further', async () => {
  const body = Readable.from(pieces(1_000_000), { highWaterMark: 1 })
  expect(await readBounded(body, 30)).toMatchObject({ kind: 'too_large', bytes: { length: 40 } })
  expect(body.destroyed).toBe(true)
})

test('an interrupted body returns the bytes so far, and the reason', async () => {
  const failure = new Error('the connection broke')
  expect(await readBounded(Readable.from(pieces(2, failure)), 30)).toMatchObject({ kind: 'broken', bytes: { length: 20 }, cause: failure })
})
