import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { expect, onTestFinished, test } from 'vitest'
import { transferOwnership, release } from '../../../src/registry/release.ts'
import { createWideConnector } from '../../../src/registry/upstream/http/wide-connector.ts'

const bytes = randomBytes(12_000_000)
const sha256 = (...pieces: readonly Uint8Array[]): string => pieces.reduce((hash, piece) => hash.update(piece), createHash('sha256')).digest('hex')
const expected = sha256(bytes)

/** A server, and a dispatcher with few connections to it. */
async function serve(listener: RequestListener): Promise<{ url: string; dispatcher: Agent }> {
  const server = createServer(listener)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const dispatcher = new Agent({ connections: 4, connect: createWideConnector({ timeout: 5_000 }) })
  onTestFinished(async () => {
    await dispatcher.destroy()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, dispatcher } // a cast: TCP
}

test.each([
  ['of a body of known length', { 'content-length': String(bytes.length) }, 2],
  ['of a chunked body', {}, 2],
  ['of a body that is read slowly', { 'content-length': String(bytes.length) }, 50],
])('every byte arrives %s while memory is released, on reused connections', async (_, headers, everyTurns) => {
  const { url, dispatcher } = await serve((_request, response) => {
    response.writeHead(200, headers)
    // Chunks of various sizes, several in one read.
    for (let at = 0, size = 1; at < bytes.length; at += size, size = (size * 7 + 13) % 400_000) response.write(bytes.subarray(at, at + size))
    response.end()
  })
  const read = async (): Promise<string> => {
    const { body } = await request(url, { dispatcher })
    const hash = createHash('sha256')
    let before: Uint8Array | undefined
    let count = 0
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      if (++count % everyTurns === 0) await turn()
      // Like a chunk that is written while the next one arrives.
      if (before !== undefined) {
        hash.update(before)
        release(before)
      }
      before = piece
    }
    return hash.update(before ?? '').digest('hex')
  }
  const found = await Promise.all(Array.from({ length: 12 }, read))
  expect(new Set(found)).toEqual(new Set([expected]))
})

test('released bytes are reused after they are written; others stay', async () => {
  const got: Buffer[] = []
  const { url, dispatcher } = await serve((incoming, response) => void incoming.on('data', (chunk: Buffer) => got.push(chunk)).on('end', () => response.end()))
  const own = [randomBytes(100_000), randomBytes(10), randomBytes(70_000)]
  const given = own.map((piece) => transferOwnership(Buffer.from(new Uint8Array(piece).buffer)))
  const pieces = [own[0], given[0], own[1], given[1], given[2], own[2]].filter((piece) => piece !== undefined)
  const whole = sha256(...pieces)
  async function* body(): AsyncGenerator<Uint8Array> {
    for (const piece of pieces) {
      await turn()
      yield piece
    }
  }
  // Cast: undici also accepts iterables, which its types lack.
  const answer = await request(url, { dispatcher, method: 'PUT', body: body() as unknown as Buffer })
  await answer.body.dump()
  expect(sha256(...got)).toBe(whole)
  expect(given.map(({ length }) => length)).toEqual([0, 0, 0])
  expect(own.map(({ length }) => length)).toEqual([100_000, 10, 70_000])
})
