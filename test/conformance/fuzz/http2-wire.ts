import { connect } from 'node:net'
import type { Random } from './random.ts'

/** An HTTP/2 frame whose header may be false. */
interface Frame {
  readonly type: number
  readonly flags?: number
  readonly stream?: number
  readonly payload?: Buffer
  /** The announced length, if it differs from the real one. */
  readonly length?: number
}

/** The types of frames. */
export const types = { data: 0, headers: 1, priority: 2, reset: 3, settings: 4, push: 5, ping: 6, goaway: 7, window: 8, continuation: 9 } as const
const endStream = 1
const endHeaders = 4

function frameBytes({ type, flags = 0, stream = 0, payload = Buffer.alloc(0), length = payload.length }: Frame): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** Returns an uncompressed header: literal, without indexing, with lengths below 127. */
function literal(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name, 'latin1'), Buffer.from([value.length]), Buffer.from(value, 'latin1')])
}

function headerBlock(path: string, more: readonly (readonly [string, string])[] = []): Buffer {
  const usual = [
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', path.slice(0, 120)],
    [':authority', 'x'],
    ['content-type', 'application/grpc'],
    ['te', 'trailers'],
  ] as const
  return Buffer.concat([...usual, ...more].map(([name, value]) => literal(name, value)))
}

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const settings = frameBytes({ type: types.settings })
/** Returns the HEADERS frame that starts a call. */
export const open = (path: string, stream = 1): Frame => ({ type: types.headers, flags: endHeaders, stream, payload: headerBlock(path) })
const empty = Buffer.alloc(5)
const fill = (count: number, make: (index: number) => Frame): Frame[] => Array.from({ length: count }, (_, index) => make(index))

/** A connection's frames. */
interface Http2Mutation {
  readonly name: string
  readonly frames: (path: string, random: Random) => readonly Frame[]
  /** True if it stops in the middle, so that the server waits until a limit: following bytes would be read as its continuation. */
  readonly isOpen?: true
}

/** Frames on a connection other than normal calls, one row each. The server may close the connection or continue. */
export const http2Mutations: readonly Http2Mutation[] = [
  { name: 'call', frames: (path) => [open(path), { type: types.data, flags: endStream, stream: 1, payload: empty }] },
  { name: 'call cut off', isOpen: true, frames: (path) => [open(path), { type: types.data, stream: 1, payload: empty.subarray(0, 3), length: 100 }] },
  { name: 'headers without an end', frames: (path) => [{ ...open(path), flags: 0 }] },
  { name: 'headers cut off', isOpen: true, frames: (path) => [{ ...open(path), length: 5000 }] },
  { name: 'headers that are none', frames: (_path, random) => [{ type: types.headers, flags: endHeaders, stream: 1, payload: random.bytes(60) }] },
  {
    name: 'endless continuation',
    frames: (path) => [{ ...open(path), flags: 0 }, ...fill(3000, () => ({ type: types.continuation, stream: 1, payload: literal('x', 'y'.repeat(100)) }))],
  },
  { name: 'continuation of nothing', frames: () => [{ type: types.continuation, stream: 1, payload: literal('x', 'y') }] },
  {
    name: 'large header list',
    frames: (path) => [
      {
        ...open(path),
        payload: headerBlock(
          path,
          Array.from({ length: 120 }, (_, at) => [`x${at}`, 'y'.repeat(120)] as const),
        ),
      },
    ],
  },
  {
    name: 'header twice',
    frames: (path) => [
      {
        ...open(path),
        payload: headerBlock(path, [
          [':path', '/x'],
          [':method', 'GET'],
        ]),
      },
    ],
  },
  { name: 'header in capitals', frames: (path) => [{ ...open(path), payload: headerBlock(path, [['X-Y', 'z']]) }] },
  {
    name: 'header of a connection',
    frames: (path) => [
      {
        ...open(path),
        payload: headerBlock(path, [
          ['connection', 'close'],
          ['transfer-encoding', 'chunked'],
        ]),
      },
    ],
  },
  { name: 'header with a line end', frames: (path) => [{ ...open(path), payload: headerBlock(path, [['x', 'a\r\nb: c\0']]) }] },
  { name: 'stream of an even number', frames: (path) => [open(path, 2)] },
  { name: 'stream zero', frames: (path) => [open(path, 0), { type: types.data, payload: empty }] },
  { name: 'stream that is closed', frames: (path) => [open(path, 5), open(path, 3), { type: types.data, stream: 1, payload: empty }] },
  { name: 'many streams', frames: (path) => fill(400, (at) => open(path, 2 * at + 1)) },
  {
    name: 'rapid reset',
    frames: (path) => fill(400, (at) => (at % 2 === 0 ? open(path, at + 1) : { type: types.reset, stream: at, payload: Buffer.from([0, 0, 0, 8]) })),
  },
  { name: 'many settings', frames: () => fill(2000, () => ({ type: types.settings, payload: Buffer.from([0, 3, 0, 0, 0, 1]) })) },
  { name: 'settings that are none', frames: (_path, random) => [{ type: types.settings, payload: random.bytes(7) }] },
  { name: 'settings with odd values', frames: () => [{ type: types.settings, payload: Buffer.from('000500000001000400ffffffff', 'hex').subarray(0, 12) }] },
  { name: 'many pings', frames: () => fill(2000, () => ({ type: types.ping, payload: Buffer.alloc(8) })) },
  { name: 'ping that is none', frames: () => [{ type: types.ping, payload: Buffer.alloc(3) }] },
  { name: 'window of zero', frames: (path) => [{ type: types.window, payload: Buffer.alloc(4) }, open(path)] },
  { name: 'window too large', frames: () => fill(3, () => ({ type: types.window, payload: Buffer.from('7fffffff', 'hex') })) },
  { name: 'push', frames: () => [{ type: types.push, flags: endHeaders, stream: 1, payload: Buffer.alloc(8) }] },
  { name: 'priority of itself', frames: () => [{ type: types.priority, stream: 1, payload: Buffer.from('0000000110', 'hex') }] },
  { name: 'frame of no type', frames: (_path, random) => [{ type: 200, stream: random.below(9), payload: random.bytes(50) }] },
  { name: 'frame too large', frames: () => [{ type: types.data, stream: 1, payload: Buffer.alloc(100_000) }] },
  { name: 'padding beyond the end', frames: (path) => [open(path), { type: types.data, flags: 8 + endStream, stream: 1, payload: Buffer.from([255, 0]) }] },
  { name: 'goodbye first', frames: (path) => [{ type: types.goaway, payload: Buffer.alloc(8) }, open(path)] },
  {
    name: 'random',
    isOpen: true,
    frames: (_path, random) =>
      fill(10, () => ({ type: random.below(12), flags: random.below(256), stream: random.below(4), payload: random.bytes(random.below(40)) })),
  },
  { name: 'nothing', frames: () => [] },
]

const pingPayload = Buffer.from('fuzzping')
/** The server's answer to the ping after the frames. */
const pong = frameBytes({ type: types.ping, flags: 1, payload: pingPayload })

/** Returns the bytes of a connection with these frames and a ping. */
export function http2Bytes(frames: readonly Frame[]): Buffer {
  return Buffer.concat([preface, settings, ...frames.map(frameBytes), frameBytes({ type: types.ping, payload: pingPayload })])
}

/** The end of a connection: the ping was answered, the server closed it, or neither in time. */
export type Http2Ending = 'goes on' | 'closed' | 'late'

/** Sends the bytes and waits until the server answers the ping or closes the connection. With `isOpen` it resets the connection at once. Never rejects. */
export function sendHttp2Bytes(
  bytes: Buffer,
  { port, boundMs, isOpen }: { readonly port: number; readonly boundMs: number; readonly isOpen: boolean },
): Promise<Http2Ending> {
  const { promise, resolve } = Promise.withResolvers<Http2Ending>()
  const socket = connect({ port, host: '127.0.0.1' })
  let received = Buffer.alloc(0)
  const finish = (ending: Http2Ending): void => {
    clearTimeout(late)
    resolve(ending)
    socket.destroy()
  }
  const late = setTimeout(() => finish('late'), boundMs)
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, Buffer.from(chunk)])
    if (received.includes(pong)) finish('goes on')
  })
  // A reset by the server is an end too.
  socket.on('error', () => undefined)
  socket.once('close', () => finish('closed'))
  socket.once('connect', () => socket.write(bytes, () => void (isOpen && socket.resetAndDestroy())))
  return promise
}
