import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { expect, test } from 'vitest'
import { release } from '../../../../src/registry/release.ts'
import { sendBody } from '../../../../src/registry/oci/blobs/blob-routes.ts'

test('memory of a single body is released once; shared memory stays', () => {
  const own = Buffer.allocUnsafeSlow(100)
  release(own)
  release(own)
  expect(own.length).toBe(0)
  const shared = Buffer.alloc(100, 1)
  release(shared.subarray(0, 50))
  release(shared.subarray(50))
  expect([...shared]).toEqual(Array.from({ length: 100 }, () => 1))
})

test('every byte arrives, from pieces with their own memory and from pieces of shared memory', async () => {
  const shared = randomBytes(300_000)
  const own = Array.from({ length: 40 }, () => {
    const piece = Buffer.allocUnsafeSlow(65_536)
    randomBytes(65_536).copy(piece)
    return piece
  })
  const pieces = [shared.subarray(0, 7), ...own.slice(0, 20), shared.subarray(7, 200_000), ...own.slice(20), shared.subarray(200_000)]
  const expected = Buffer.concat(pieces)
  const server = createServer((_, response) => void sendBody(response, Readable.from(pieces, { objectMode: false })))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  try {
    const [response] = (await once(get({ port: (server.address() as AddressInfo).port, agent: false }), 'response')) as [IncomingMessage] // casts: TCP, the event's arguments
    const got: Buffer[] = []
    for await (const chunk of response) got.push(chunk as Buffer) // a cast: no encoding is set
    expect(Buffer.concat(got).equals(expected)).toBe(true)
    expect(own.every((piece) => piece.length === 0)).toBe(true)
    expect(shared.length).toBe(300_000)
  } finally {
    server.close()
  }
})
