import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { createServer as createTlsServer, Server as TlsServer } from 'node:tls'
import type { TlsOptions } from 'node:tls'

/** Serves connections that another object accepted. */
export interface PortListener {
  /** Takes over a connection. Bytes that were already read were put back into it. */
  accept(socket: Socket): void
  /**
   * Starts to drain: still accepts calls, but closes each connection after its next call. So clients reconnect, and may be routed to another instance. Returns
   * at once.
   */
  beginDrain(): void
  /** Refuses new calls. Closes idle connections at once, and busy ones after their current call. Returns at once. */
  drain(): void
}

/** The parts and options of a port. */
export interface OnePortOptions {
  /** Serves every connection that does not start with the HTTP/2 preface. */
  readonly http: PortListener
  /** Serves every connection that starts with the HTTP/2 preface. */
  readonly grpc: PortListener
  /** Certificate, key and other options of node:tls. Without them, the port does not use TLS. */
  readonly tls?: TlsOptions
  /** Maximum time in milliseconds until a client has sent enough to show its protocol; 10,000 by default. */
  readonly sniffTimeoutMs?: number
  /** Maximum number of open connections; 10,000 by default. Additional ones are closed immediately. */
  readonly maxConnections?: number
  /** Returns true if a new connection may stay. Otherwise it must close the connection and return false. By default all may stay. */
  readonly admit?: (socket: Socket) => boolean
}

/** A port that serves HTTP/1.1 and HTTP/2 (docs/spec/conventions.md#transports). */
export interface OnePort {
  /** Starts to listen. Rejects with the system's error (EADDRINUSE, EACCES). Port 0 selects a free port. */
  listen(host: string, port: number): Promise<AddressInfo>
  /** Sets the certificate for new connections. Throws if it cannot be used, or if the port does not use TLS. */
  setTls(tls: TlsOptions): void
  /** Starts to drain: still serves calls, but closes each connection after its next call. Returns at once. */
  beginDrain(): void
  /**
   * Stops to accept connections, waits for running calls, and destroys the remaining connections after `graceMs` milliseconds. Resolves at the latest then.
   * Never rejects.
   */
  close(graceMs: number): Promise<void>
}

/** TLS versions before 1.2 are refused. */
const protocols = { minVersion: 'TLSv1.2' } as const satisfies TlsOptions
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')

/** Creates the port. It does nothing until `listen` is called. */
export function createOnePort(options: OnePortOptions): OnePort {
  const sockets = new Set<Socket>()
  const track = (socket: Socket): void => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    // A connection that the client reset is no fault of the server. The event 'close' follows.
    socket.on('error', () => socket.destroy())
  }
  const server = createListener(options, track)
  server.maxConnections = options.maxConnections ?? 10_000
  let closing: Promise<void> | undefined
  return {
    listen: (host, port) => listen(server, host, port),
    setTls(tls) {
      if (!(server instanceof TlsServer)) throw new TypeError('the port does not use TLS')
      server.setSecureContext({ ...protocols, ...tls })
    },
    beginDrain() {
      for (const endpoint of [options.http, options.grpc]) endpoint.beginDrain()
    },
    close(graceMs) {
      closing ??= closeAll(server, sockets, { graceMs, endpoints: [options.http, options.grpc] })
      return closing
    },
  }
}

function createListener(options: OnePortOptions, track: (socket: Socket) => void): Server {
  const route = (socket: Socket): void => sniff(socket, options.sniffTimeoutMs ?? 10_000, (isHttp2) => (isHttp2 ? options.grpc : options.http).accept(socket))
  const admit = options.admit ?? (() => true)
  if (options.tls === undefined) {
    return createServer({ allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (socket) => {
      if (!admit(socket)) return
      track(socket)
      route(socket)
    })
  }
  const server = createTlsServer({
    allowHalfOpen: true,
    ...protocols,
    ...options.tls,
    ALPNCallback: chooseProtocol,
    handshakeTimeout: options.sniffTimeoutMs ?? 10_000,
  })
  server.on('connection', (socket) => {
    track(socket)
    admit(socket)
  })
  // A failed TLS handshake is the client's fault.
  server.on('tlsClientError', (_error, socket) => socket.destroy())
  server.on('secureConnection', (socket) => {
    track(socket)
    route(socket)
  })
  return server
}

/** Selects HTTP/2 only for clients that offer nothing else. HTTP/2 is for gRPC here, and browsers offer both. */
function chooseProtocol({ protocols }: { readonly protocols: readonly string[] }): string | undefined {
  return ['http/1.1', 'h2'].find((protocol) => protocols.includes(protocol))
}

/**
 * Reads until the bytes are the HTTP/2 preface or cannot become it. Then puts them back and calls `decide`. Disconnects a client that sends nothing within
 * `timeoutMs`.
 */
function sniff(socket: Socket, timeoutMs: number, decide: (isHttp2: boolean) => void): void {
  let seen: Buffer = Buffer.alloc(0)
  const stop = (): void => {
    clearTimeout(timer)
    socket.off('readable', read)
    socket.off('end', handOver)
    socket.off('close', stop)
  }
  const handOver = (): void => {
    stop()
    socket.destroy()
  }
  const read = (): void => {
    for (let chunk = nextChunk(socket); chunk !== null; chunk = nextChunk(socket)) seen = Buffer.concat([seen, chunk])
    const length = Math.min(seen.length, preface.length)
    if (length === 0) return
    const isPrefix = seen.subarray(0, length).equals(preface.subarray(0, length))
    if (isPrefix && length < preface.length) return
    stop()
    socket.unshift(seen)
    decide(isPrefix)
  }
  const timer = setTimeout(handOver, timeoutMs)
  socket.on('readable', read)
  socket.once('end', handOver)
  socket.once('close', stop)
}

function nextChunk(socket: Socket): Buffer | null {
  // A socket without a text encoding returns buffers.
  return socket.read() as Buffer | null
}

function listen(server: Server, host: string, port: number): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      // The address of a TCP server is an AddressInfo.
      resolve(server.address() as AddressInfo)
    })
  })
}

async function closeAll(
  server: Server,
  sockets: ReadonlySet<Socket>,
  options: { readonly graceMs: number; readonly endpoints: readonly PortListener[] },
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  for (const endpoint of options.endpoints) endpoint.drain()
  let timer: NodeJS.Timeout | undefined
  const graceOver = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, options.graceMs)
  })
  await Promise.race([closed, graceOver])
  clearTimeout(timer)
  for (const socket of sockets) socket.destroy()
}
