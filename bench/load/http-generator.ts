import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { randomBytes } from 'node:crypto'
import type { Generator, HttpLoad, HttpRequest, Tally } from './load.ts'

const lastChunk = Buffer.from('\r\n0\r\n\r\n')
const marker = '$N'

/** Creates the bytes of requests. Requests without a `$N` are encoded only once. */
class RequestSource {
  readonly #load: HttpLoad
  readonly #ready: readonly (Buffer | undefined)[]
  readonly #cumulated: readonly number[]
  readonly #prefix = randomBytes(3).toString('hex')
  #sent = 0

  constructor(load: HttpLoad) {
    this.#load = load
    this.#ready = load.requests.map((request) => (isPattern(request) ? undefined : this.#bytes(request)))
    let sum = 0
    this.#cumulated = load.requests.map(({ weight = 1 }) => (sum += weight))
  }

  next(): { bytes: Buffer; requestClass: string } {
    const { requests } = this.#load
    const at = requests.some(({ weight }) => weight !== undefined) ? this.#weighted() : this.#sent % requests.length
    this.#sent++
    const request = requests[at]
    if (request === undefined) throw new RangeError('a load needs requests')
    return { bytes: this.#ready[at] ?? this.#bytes(request), requestClass: request.class ?? '' }
  }

  #weighted(): number {
    const point = Math.random() * (this.#cumulated.at(-1) ?? 0)
    return this.#cumulated.findIndex((end) => point < end)
  }

  #bytes({ method, path, body }: HttpRequest): Buffer {
    const unique = this.#prefix + this.#sent.toString(16).padStart(6, '0')
    const filled = body?.replaceAll(marker, unique)
    const headers = { host: `127.0.0.1:${this.#load.port}`, ...this.#load.headers }
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    const length = filled === undefined ? '' : `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(filled)}\r\n`
    return Buffer.from(`${method} ${path.replaceAll(marker, unique)} HTTP/1.1\r\n${lines.join('')}${length}\r\n${filled ?? ''}`)
  }
}

function isPattern({ path, body }: HttpRequest): boolean {
  return path.includes(marker) || (body?.includes(marker) ?? false)
}

/** Parses the responses of one connection, one at a time. */
class AnswerReader {
  #head = ''
  #status = 0
  /** Number of remaining body bytes; -1 until the header is complete, Infinity for a chunked body. */
  #left = -1
  #tail: Buffer = Buffer.alloc(0)
  #body = 0
  #text = ''

  /** Reads bytes. Returns the response once it is complete. */
  read(chunk: Buffer): { status: number; bodyBytes: number; text: string } | undefined {
    let body = chunk
    if (this.#left === -1) {
      const start = this.#readHead(chunk)
      if (start < 0) return undefined
      body = chunk.subarray(start)
    }
    this.#body += body.length
    if (this.#status >= 400) this.#text += body.toString('utf8')
    if (!this.#isComplete(body)) return undefined
    const answer = { status: this.#status, bodyBytes: this.#body, text: this.#text }
    this.#left = -1
    this.#body = 0
    this.#text = ''
    return answer
  }

  /** Parses the header. Returns the position in `chunk` where the body starts, or -1. */
  #readHead(chunk: Buffer): number {
    const text = chunk.toString('latin1')
    const before = this.#head.length
    const all = this.#head + text
    const end = all.indexOf('\r\n\r\n')
    if (end < 0) {
      this.#head = all
      return -1
    }
    this.#head = ''
    const head = all.slice(0, end)
    this.#status = Number(head.slice(9, 12))
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    const chunked = length === undefined && /\r\ntransfer-encoding: *chunked/i.test(head)
    this.#left = chunked ? Infinity : Number(length ?? 0)
    this.#tail = Buffer.alloc(0)
    return end + 4 - before
  }

  #isComplete(body: Buffer): boolean {
    if (this.#left !== Infinity) {
      this.#left -= body.length
      return this.#left <= 0
    }
    // Since only one request is outstanding, nothing follows the last chunk. An empty body has no line end before it.
    const end = body.length >= lastChunk.length ? body : Buffer.concat([this.#tail, body])
    // A copy, because the next read overwrites these bytes.
    this.#tail = Buffer.from(end.subarray(-lastChunk.length))
    return this.#tail.equals(lastChunk) || (this.#body === 5 && this.#tail.equals(lastChunk.subarray(2)))
  }
}

/** Maximum size of one read, in bytes. It is large, so that clients need little processor time for blobs. */
const readBytes = 512 * 1024

class Connection {
  readonly #socket: Socket
  readonly #source: RequestSource
  readonly #reader = new AnswerReader()
  #tally: Tally | undefined
  #deadline = 0
  #sentAt = 0
  #requestClass = ''
  #done: PromiseWithResolvers<void> = Promise.withResolvers()
  #closed = false

  constructor(socket: Socket, source: RequestSource) {
    this.#socket = socket
    this.#source = source
    socket.on('error', (error) => this.#broken(error.message))
    socket.on('close', () => this.#broken('the connection was closed'))
  }

  /** True once the server has closed the connection, as servers do with idle connections. */
  get closed(): boolean {
    return this.#closed
  }

  /** Processes received bytes. They are overwritten afterwards. */
  received(chunk: Buffer): void {
    const answer = this.#reader.read(chunk)
    if (answer === undefined) return
    const now = performance.now()
    if (answer.status >= 400) this.#tally?.failed(`${answer.status} ${answer.text}`)
    else this.#tally?.answered(this.#requestClass, now - this.#sentAt, answer.bodyBytes)
    if (now < this.#deadline) this.#send()
    else this.#end()
  }

  run(deadline: number, tally: Tally): Promise<void> {
    this.#deadline = deadline
    this.#tally = tally
    this.#done = Promise.withResolvers()
    this.#send()
    return this.#done.promise
  }

  close(): void {
    this.#socket.destroy()
  }

  #send(): void {
    const { bytes, requestClass } = this.#source.next()
    this.#requestClass = requestClass
    this.#sentAt = performance.now()
    this.#socket.write(bytes)
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

/** Opens connection number `at`. */
async function connect(load: HttpLoad, at: number, { source, memory }: { source: RequestSource; memory: Buffer }): Promise<Connection> {
  const ports = [load.port, ...(load.otherPorts ?? [])]
  const target = { host: '127.0.0.1', port: ports[at % ports.length] ?? load.port, noDelay: true }
  const callback = (length: number): boolean => {
    connection.received(memory.subarray(0, length))
    return true
  }
  // The certificates of servers on loopback are created for one run, so they are not verified.
  const socket = load.tls
    ? connectTls({ ...target, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] })
    : connectTcp({ ...target, onread: { buffer: memory, callback } })
  const connection = new Connection(socket, source)
  if (load.tls) socket.on('data', (chunk: Buffer) => connection.received(chunk))
  // If the socket is not read, the end of the connection is not noticed.
  else socket.resume()
  await once(socket, load.tls ? 'secureConnect' : 'connect')
  return connection
}

/** Connects, and resolves when all connections are open. */
export async function createHttpGenerator(load: HttpLoad): Promise<Generator> {
  const source = new RequestSource(load)
  const connections: Connection[] = []
  // Responses are not kept, so all connections share one buffer.
  const memory = Buffer.allocUnsafeSlow(readBytes)
  for (let count = 0; count < load.connections; count++) connections.push(await connect(load, count, { source, memory }))
  return {
    async prepare() {
      for (const [at, connection] of connections.entries()) if (connection.closed) connections[at] = await connect(load, at, { source, memory })
    },
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      await Promise.all(connections.map((connection) => connection.run(deadline, tally)))
    },
    close: () => connections.forEach((connection) => connection.close()),
  }
}
