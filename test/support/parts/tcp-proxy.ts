import { once } from 'node:events'
import { createServer, connect, type Socket } from 'node:net'
import { listenOnLoopback } from './loopback.ts'

/** A TCP proxy on 127.0.0.1 that simulates network failures. */
export interface TcpProxy {
  readonly port: number
  /** Breaks every connection and refuses new ones (they are closed at once). */
  cut(): void
  /** Stops forwarding in both directions without closing; new connections are accepted and hang too. */
  stall(): void
  /** Drops the data of all connections, including new ones, which are accepted and stay silent. */
  swallow(): void
  /** The number of open client connections. */
  readonly connections: number
  /** Ends `cut`, `stall` or `swallow`; data held back by `stall` is forwarded. */
  resume(): void
  close(): Promise<void>
}

/** Starts a proxy to a port of 127.0.0.1; a function is called for each new connection. */
export async function startTcpProxy(target: number | (() => number)): Promise<TcpProxy> {
  let state: 'forwarding' | 'cut' | 'stalled' | 'swallowing' = 'forwarding'
  const sockets = new Set<Socket>()
  const clients = new Set<Socket>()
  const lost = new WeakSet<Socket>()
  const track = (socket: Socket, other: () => Socket): void => {
    sockets.add(socket)
    // Resets of peers are expected; both ends close together.
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      sockets.delete(socket)
      if (state !== 'stalled') other().destroy()
    })
    socket.on('data', (chunk) => void (lost.has(socket) || other().write(chunk)))
    if (state === 'stalled') socket.pause()
  }
  const server = createServer((client) => {
    if (state === 'cut') return void client.destroy()
    clients.add(client)
    client.once('close', () => clients.delete(client))
    const upstream = connect(typeof target === 'number' ? target : target(), '127.0.0.1')
    if (state === 'swallowing') [client, upstream].forEach((socket) => lost.add(socket))
    track(client, () => upstream)
    track(upstream, () => client)
  })
  const port = await listenOnLoopback(server)
  const destroyAll = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: port,
    cut: () => {
      state = 'cut'
      destroyAll()
    },
    stall: () => {
      state = 'stalled'
      for (const socket of sockets) socket.pause()
    },
    swallow: () => {
      state = 'swallowing'
      for (const socket of sockets) lost.add(socket)
    },
    get connections() {
      return clients.size
    },
    resume: () => {
      state = 'forwarding'
      for (const socket of sockets) socket.resume()
    },
    close: async () => {
      const closed = once(server.close(), 'close')
      destroyAll()
      await closed
    },
  }
}
