import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { createServer as createTlsServer, Server as TlsServer } from 'node:tls'
import type { TlsOptions } from 'node:tls'

/** Serves connections that other code accepted. */
export interface PortListener {
  /** Takes over a connection; bytes already read were put back. */
  accept(socket: Socket): void
  /**
   * Starts to drain: still accepts calls, but closes each connection after a call. So clients reconnect, to another instance if they are routed there. Returns
   * at once.
   */
  beginDrain(): void
  /** Refuses new calls: closes idle connections at once, busy ones after their call. Returns at once. */
  drain(): void
}

/** The parts and options of one port. */
export interface OnePortOptions {
  /** Receives every connection that does not open with the HTTP/2 preface. */
  readonly http: PortListener
  /** Receives every connection that opens with the HTTP/2 preface. */
  readonly grpc: PortListener
  /** Certificate, key and other options of node:tls; cleartext if absent. */
  readonly tls?: TlsOptions
  /** Maximum time until a client shows its protocol, in milliseconds; 10,000 by default. */
  readonly sniffTimeoutMs?: number
  /** Maximum number of open connections; further ones are closed at once. 10,000 by default. */
  readonly maxConnections?: number
  /** Returns whether a connection may stay; must close it if not. By default all may stay. */
  readonly admit?: (socket: Socket) => boolean
}

/** A listening port that serves HTTP/1.1 and HTTP/2 (docs/spec/conventions.md#transports). */
export interface OnePort {
  /** Resolves once listening; rejects with the system's error (EADDRINUSE, EACCES). Port 0 selects a free port. */
  listen(host: string, port: number): Promise<AddressInfo>
  /** Sets the certificate of new connections. Throws if it is unusable, or if the port has no TLS. */
  setTls(tls: TlsOptions): void
  /** Continues to serve, but closes each connection after a call. Returns at once. */
  beginDrain(): void
  /** Stops accepting, lets running calls end, and destroys remaining connections after `graceMs`. Resolves by then at the latest. Never rejects. */
  close(graceMs: number): Promise<void>
}

/** TLS before 1.2 is refused. */
const protocols = { minVersion: 'TLSv1.2' } as const satisfies TlsOptions
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')

/** Builds the port; opens nothing before `listen`. */
export function createOnePort(options: OnePortOptions): OnePort {
  const sockets = new Set<Socket>()
  const track = (socket: Socket): void => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    // A reset by the peer is not a server fault; 'close' follows.
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
  // A failed handshake is the client's fault; its socket is closed by node:tls.
  server.on('tlsClientError', (_error, socket) => socket.destroy())
  server.on('secureConnection', (socket) => {
    track(socket)
    route(socket)
  })
  return server
}

/** Chooses HTTP/2 only for clients that offer nothing else: HTTP/2 here is gRPC, and browsers offer both. */
function chooseProtocol({ protocols }: { readonly protocols: readonly string[] }): string | undefined {
  return ['http/1.1', 'h2'].find((protocol) => protocols.includes(protocol))
}

/** Reads until the bytes are the HTTP/2 preface or cannot become it, puts them back and decides. Silent clients are disconnected. */
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
  // A socket without an encoding set reads buffers.
  return socket.read() as Buffer | null
}

function listen(server: Server, host: string, port: number): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      // A TCP server's address is an AddressInfo.
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
