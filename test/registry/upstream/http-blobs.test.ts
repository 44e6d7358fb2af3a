import { createServer, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { createHttpUpstream, type HttpUpstreamOptions } from '../../../src/registry/upstream/http/http-upstream.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { drain, failureOf, freshBytes, freshRepo, never } from './content.ts'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

const repo = freshRepo()
const bytes = freshBytes(3_000_000)
const digest = digestOf(bytes)
const plain = (body: Uint8Array, ...lines: readonly string[]): Buffer =>
  Buffer.concat([Buffer.from(['HTTP/1.1 200 OK', `Content-Length: ${body.length}`, ...lines, '', ''].join('\r\n')), body])

interface Scripted {
  readonly upstream: Upstream
  /** Requests for blobs, by connection. */
  readonly asked: readonly string[][]
  readonly sockets: readonly Socket[]
}

/** A registry that writes scripted bytes to the `index`th request for a blob. */
async function scripted(answer: (socket: Socket, index: number) => unknown, options: Partial<HttpUpstreamOptions> = {}): Promise<Scripted> {
  const asked: string[][] = []
  const sockets: Socket[] = []
  let blobs = 0
  const server = createServer((socket) => {
    const requests: string[] = []
    let text = ''
    socket.on('error', () => undefined)
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      if (!text.endsWith('\r\n\r\n')) return
      const request = text
      text = ''
      if (!request.includes('/blobs/')) return void socket.write(plain(Buffer.alloc(0)))
      if (requests.push(request) === 1) {
        asked.push(requests)
        sockets.push(socket)
      }
      answer(socket, blobs++)
    })
  })
  const port = await listenOnLoopback(server)
  onTestFinished(() => void server.close())
  const upstream = createHttpUpstream({ url: `http://127.0.0.1:${port}`, clock: Date, ...options })
  onTestFinished(() => upstream.close())
  await upstream.ready(never)
  return { upstream, asked, sockets }
}

async function read(upstream: Upstream): Promise<Buffer | undefined> {
  const found = await upstream.readBlob(repo, { digest }, never)
  return found && drain(found.body)
}

describe('blobs of an upstream without TLS', () => {
  test('consecutive reads share a connection, and concurrent reads have one each', async () => {
    const { upstream, asked } = await scripted((socket) => socket.write(plain(bytes)))
    for (let count = 0; count < 10; count++) expect((await read(upstream))?.equals(bytes)).toBe(true)
    expect(asked.length).toBeLessThanOrEqual(2)
    for (const found of await Promise.all(Array.from({ length: 4 }, () => read(upstream)))) expect(found?.equals(bytes)).toBe(true)
    expect(asked.length).toBeGreaterThanOrEqual(4)
  })

  test('bytes after the body close the connection, and the blob stays complete', async () => {
    const { upstream, asked } = await scripted((socket) => socket.write(Buffer.concat([plain(bytes), Buffer.from('x')])))
    for (let count = 0; count < 2; count++) expect((await read(upstream))?.equals(bytes)).toBe(true)
    expect(asked.length).toBe(2)
  })

  test.for([0, 1, 70_000])('a blob of %i bytes arrives completely, also if the headers arrive in pieces', async (size) => {
    const body = bytes.subarray(0, size)
    const { upstream } = await scripted(async (socket) => {
      const answer = plain(body, 'X-Odd: \xe9')
      for (const at of answer.subarray(0, 60).keys()) {
        socket.write(answer.subarray(at, at + 1))
        await turn()
      }
      socket.write(answer.subarray(60))
    })
    expect((await read(upstream))?.equals(body)).toBe(true)
    expect((await read(upstream))?.equals(body)).toBe(true)
  })

  test('a connection that either side closed is not used again', async () => {
    const { upstream, asked, sockets } = await scripted((socket, index) =>
      index === 0 ? socket.write(plain(bytes)) : socket.end(plain(bytes, 'Connection: close')),
    )
    expect((await read(upstream))?.equals(bytes)).toBe(true)
    sockets[0]?.destroy()
    for (let count = 0; count < 2; count++) expect((await read(upstream))?.equals(bytes)).toBe(true)
    expect(asked.length).toBe(3)
  })

  test.for<[string, (socket: Socket) => unknown]>([
    ['ends too early', (socket) => socket.end(plain(bytes).subarray(0, -1))],
    ['is interrupted', (socket) => socket.write(plain(bytes).subarray(0, -1), () => socket.resetAndDestroy())],
    ['stalls', (socket) => socket.write(plain(bytes).subarray(0, -1))],
  ])('a read fails if the body %s, and the next read succeeds', async ([, answer]) => {
    const timeouts = { headersMs: 500, finishMs: 500, stallMs: 500 }
    const { upstream } = await scripted((socket, index) => (index === 0 ? answer(socket) : socket.write(plain(bytes))), { timeouts })
    expect(await failureOf(read(upstream))).toBe('unavailable')
    expect((await read(upstream))?.equals(bytes)).toBe(true)
  })

  test('a read from a registry that does not answer fails within the time limit', async () => {
    const { upstream } = await scripted(() => undefined, { timeouts: { headersMs: 200, finishMs: 200, stallMs: 200 } })
    expect(await failureOf(read(upstream))).toBe('unavailable')
  })

  test.for<[string, string, string]>([
    ['empty', 'unavailable', ''],
    ['not HTTP', 'unavailable', 'SSH-2.0-x\r\n\r\n'],
    ['an answer with two lengths', 'unavailable', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde'],
    ['an answer with chunks and a length', 'unavailable', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nabcde'],
    ['an answer with an encoding', 'refused', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nabcde'],
    ['an answer with an invalid length', 'unavailable', 'HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nabcde'],
    ['a header section without end', 'unavailable', `HTTP/1.1 200 OK\r\n${'X: y\r\n'.repeat(20_000)}`],
  ])('a read fails if the answer is %s, and the next read succeeds', async ([, kind, text]) => {
    let isOdd = true
    const { upstream } = await scripted((socket) => (isOdd ? socket.end(text) : socket.write(plain(bytes))))
    expect(await failureOf(read(upstream))).toBe(kind)
    isOdd = false
    expect((await read(upstream))?.equals(bytes)).toBe(true)
  })

  test('a missing blob is undefined, and a redirect to an invalid address is refused', async () => {
    let answer = 'HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n'
    const { upstream } = await scripted((socket) => socket.write(answer))
    expect(await read(upstream)).toBeUndefined()
    answer = 'HTTP/1.1 307 Temporary Redirect\r\nLocation: http://\r\nContent-Length: 0\r\n\r\n'
    expect(await failureOf(read(upstream))).toBe('refused')
  })

  test('an abort before or during the answer rejects with its reason and closes the connection', async () => {
    const { upstream, sockets } = await scripted((socket, index) => index === 1 && socket.write(plain(bytes).subarray(0, 100_000)))
    const [early, late] = [new AbortController(), new AbortController()]
    const waiting = upstream.readBlob(repo, { digest }, early.signal)
    await expect.poll(() => sockets.length).toBe(1)
    early.abort(new Error('early'))
    await expect(waiting).rejects.toThrow('early')
    await expect(upstream.readBlob(repo, { digest }, early.signal)).rejects.toThrow('early')
    const found = await upstream.readBlob(repo, { digest }, late.signal)
    const drained = drain(found!.body)
    late.abort(new Error('late'))
    await expect(drained).rejects.toThrow('late')
    await expect.poll(() => sockets.map(({ closed }) => closed)).toEqual([true, true])
  })

  test('a reader that stops closes its connection, and closing the upstream does too', async () => {
    const { upstream, sockets } = await scripted((socket) => socket.write(plain(bytes).subarray(0, -1)))
    const [first, second] = [await upstream.readBlob(repo, { digest }, never), await upstream.readBlob(repo, { digest }, never)]
    first!.body.destroy()
    const drained = failureOf(drain(second!.body))
    await expect.poll(() => sockets[0]?.closed).toBe(true)
    await upstream.close()
    expect(await drained).toBe('unavailable')
    await expect.poll(() => sockets[1]?.closed).toBe(true)
  })

  test('a blob without a reader is not read in advance', async () => {
    const large = freshBytes(40_000_000)
    const { upstream, sockets } = await scripted((socket) => socket.write(plain(large)))
    const found = await upstream.readBlob(repo, { digest }, never)
    // The data beyond the socket buffers of both sides stays with the sender.
    expect(sockets[0]?.writableLength).toBeGreaterThan(0)
    found!.body.once('readable', () => undefined)
    await expect.poll(() => found!.body.readableLength).toBeGreaterThan(0)
    expect(found!.body.readableLength).toBeLessThan(2_000_000)
    expect((await drain(found!.body)).equals(large)).toBe(true)
  })
})
