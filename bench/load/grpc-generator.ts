import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Generator, GrpcLoad, Tally } from './load.ts'

const frame = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, goAway: 7, windowUpdate: 8 } as const
const endStream = 1
const endHeaders = 4
const acknowledgement = 1
const preface = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const largestWindow = 2 ** 31 - 1
const defaultWindow = 65_535
/** Number of received bytes after which the flow control window of the connection is enlarged again. */
const refillBytes = 2 ** 29

function frameOf(type: number, flags: number, stream: { id: number; payload: Buffer }): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(stream.payload.length, 0, 3)
  head[3] = type
  head[4] = flags
  head.writeUInt32BE(stream.id, 5)
  return Buffer.concat([head, stream.payload])
}

/** Encodes an HPACK string without Huffman code. */
function hpackText(text: string): Buffer {
  const bytes = Buffer.from(text)
  const prefix: number[] = []
  let left = bytes.length
  if (left < 127) prefix.push(left)
  else {
    prefix.push(127)
    for (left -= 127; left >= 128; left = Math.floor(left / 128)) prefix.push((left % 128) | 128)
    prefix.push(left)
  }
  return Buffer.concat([Buffer.from(prefix), bytes])
}

/**
 * Returns the header blocks of one connection. The first call adds the fields to the dynamic table of both sides; later calls refer to
 * their indexes (RFC 7541).
 */
function headerBlocks(fields: readonly (readonly [string, string])[]): { first: Buffer; next: Buffer } {
  const postOverHttp = Buffer.from([0x83, 0x86])
  const literal = fields.map(([name, value]) => Buffer.concat([Buffer.from([0x40]), hpackText(name), hpackText(value)]))
  // The newest entry of the dynamic table has index 62.
  const indexed = fields.map((_, at) => 0x80 | (62 + fields.length - 1 - at))
  return { first: Buffer.concat([postOverHttp, ...literal]), next: Buffer.concat([postOverHttp, Buffer.from(indexed)]) }
}

interface OpenCall {
  readonly sentAt: number
  bytes: number
}

/**
 * An HTTP/2 connection with just the features that unary calls need, for a server that follows the protocol. A call without a response
 * message counts as failed.
 */
class Connection {
  readonly #socket: Socket
  readonly #load: GrpcLoad
  readonly #blocks: { first: Buffer; next: Buffer }
  readonly #messages: readonly Buffer[]
  readonly #calls = new Map<number, OpenCall>()
  #pending: Buffer = Buffer.alloc(0)
  #nextId = 1
  #received = 0
  #tally: Tally | undefined
  #deadline = 0
  #done: PromiseWithResolvers<void> = Promise.withResolvers()
  #closed = false

  constructor(socket: Socket, load: GrpcLoad) {
    this.#socket = socket
    this.#load = load
    const own: [string, string][] = [
      [':path', load.path],
      [':authority', `127.0.0.1:${load.port}`],
      ['te', 'trailers'],
      ['content-type', 'application/grpc'],
    ]
    this.#blocks = headerBlocks([...own, ...Object.entries(load.headers)])
    this.#messages = load.messages.map((message) => {
      const bytes = Buffer.from(message, 'base64')
      const head = Buffer.alloc(5)
      head.writeUInt32BE(bytes.length, 1)
      return Buffer.concat([head, bytes])
    })
    const settings = Buffer.alloc(6)
    settings.writeUInt16BE(4, 0)
    settings.writeUInt32BE(largestWindow, 2)
    socket.write(Buffer.concat([Buffer.from(preface), frameOf(frame.settings, 0, { id: 0, payload: settings }), windowUpdate(largestWindow - defaultWindow)]))
    socket.on('data', (chunk: Buffer) => this.#receive(chunk))
    socket.on('error', (error) => this.#broken(error.message))
    socket.on('close', () => this.#broken('the connection was closed'))
  }

  /** True once the server has closed the connection, or has announced it. */
  get closed(): boolean {
    return this.#closed
  }

  run(deadline: number, tally: Tally): Promise<void> {
    this.#deadline = deadline
    this.#tally = tally
    this.#done = Promise.withResolvers()
    for (let stream = 0; stream < this.#load.streams; stream++) this.#call()
    return this.#done.promise
  }

  close(): void {
    this.#socket.destroy()
  }

  #call(): void {
    const id = this.#nextId
    this.#nextId += 2
    const payload = this.#messages[(id >> 1) % this.#messages.length] ?? Buffer.alloc(5)
    const block = id === 1 ? this.#blocks.first : this.#blocks.next
    this.#calls.set(id, { sentAt: performance.now(), bytes: 0 })
    this.#socket.write(Buffer.concat([frameOf(frame.headers, endHeaders, { id, payload: block }), frameOf(frame.data, endStream, { id, payload })]))
  }

  #receive(chunk: Buffer): void {
    const data = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    let at = 0
    while (data.length - at >= 9) {
      const length = data.readUIntBE(at, 3)
      if (data.length - at - 9 < length) break
      this.#frame({ type: data[at + 3] ?? 0, flags: data[at + 4] ?? 0, id: data.readUInt32BE(at + 5) & largestWindow }, data.subarray(at + 9, at + 9 + length))
      at += 9 + length
    }
    this.#pending = data.subarray(at)
  }

  #frame({ type, flags, id }: { type: number; flags: number; id: number }, payload: Buffer): void {
    if (type === frame.settings && (flags & acknowledgement) === 0) {
      this.#socket.write(frameOf(frame.settings, acknowledgement, { id: 0, payload: Buffer.alloc(0) }))
    } else if (type === frame.ping && (flags & acknowledgement) === 0) {
      this.#socket.write(frameOf(frame.ping, acknowledgement, { id: 0, payload }))
    } else if (type === frame.data) {
      const call = this.#calls.get(id)
      if (call !== undefined) call.bytes += payload.length
      this.#consumed(payload.length)
      if ((flags & endStream) !== 0) this.#answered(id)
    } else if (type === frame.headers && (flags & endStream) !== 0) this.#answered(id)
    else if (type === frame.reset) this.#answered(id)
    else if (type === frame.goAway) this.#broken('the server sent GOAWAY')
  }

  #consumed(bytes: number): void {
    this.#received += bytes
    if (this.#received < refillBytes) return
    this.#socket.write(windowUpdate(this.#received))
    this.#received = 0
  }

  #answered(id: number): void {
    const call = this.#calls.get(id)
    if (call === undefined) return
    this.#calls.delete(id)
    const now = performance.now()
    if (call.bytes === 0) this.#tally?.failed('a call was answered without a message')
    else this.#tally?.answered('', now - call.sentAt, call.bytes)
    if (now < this.#deadline) this.#call()
    else if (this.#calls.size === 0) this.#end()
  }

  #broken(why: string): void {
    this.#closed = true
    this.#tally?.failed(why)
    this.#end()
  }

  #end(): void {
    this.#tally = undefined
    this.#done.resolve()
  }
}

function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4)
  payload.writeUInt32BE(bytes)
  return frameOf(frame.windowUpdate, 0, { id: 0, payload })
}

async function open(load: GrpcLoad): Promise<Connection> {
  const socket = connect({ host: '127.0.0.1', port: load.port, noDelay: true })
  await once(socket, 'connect')
  return new Connection(socket, load)
}

/**
 * Connects, and resolves when all connections are open. Writes HTTP/2 frames itself, since a full client takes more processor time than
 * the measured server.
 */
export async function createGrpcGenerator(load: GrpcLoad): Promise<Generator> {
  const connections: Connection[] = []
  for (let count = 0; count < load.connections; count++) connections.push(await open(load))
  return {
    async prepare() {
      for (const [at, connection] of connections.entries()) if (connection.closed) connections[at] = await open(load)
    },
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      await Promise.all(connections.map((connection) => connection.run(deadline, tally)))
    },
    close: () => connections.forEach((connection) => connection.close()),
  }
}
