import { once } from 'node:events'
import { createServer, connect, type Socket } from 'node:net'
import { listenOnLoopback } from './loopback.ts'

/** A TCP proxy on 127.0.0.1 whose network can fail. */
export interface TcpProxy {
  readonly port: number
  /** Breaks every connection and refuses new ones (they are closed at once). */
  cut(): void
  /** Forwards nothing any more in either direction, without closing; new connections are accepted and hang too. */
  stall(): void
  /** Loses what is sent on each connection that there is, and on new ones, which are accepted. They stay silent for ever. */
  swallow(): void
  /** How many connections of clients are open. */
  readonly connections: number
  /** Ends `cut`, `stall` or `swallow`; what was held back by `stall` is forwarded. */
  resume(): void
  close(): Promise<void>
}

/** Starts a proxy to a port of 127.0.0.1; a function is asked at each new connection. */
export async function startTcpProxy(target: number | (() => number)): Promise<TcpProxy> {
  let state: 'forwarding' | 'cut' | 'stalled' | 'swallowing' = 'forwarding'
  const sockets = new Set<Socket>()
  const clients = new Set<Socket>()
  const lost = new WeakSet<Socket>()
  const track = (socket: Socket, other: () => Socket): void => {
    sockets.add(socket)
    // The peer's reset is what this proxy is for; both ends close together.
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
