import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

/** What may happen to the bytes from one node to another. `stalled` keeps them back; `cut` breaks the connections and refuses new ones. */
export type LinkState = 'open' | 'stalled' | 'cut'

/** The way from one node to another. The way back is a link of its own. */
export interface Link {
  readonly state: LinkState
  /** How much later bytes arrive, in milliseconds. */
  readonly delayMs: number
  /** How many bytes come through per second. */
  readonly bytesPerSecond: number
}

const openLink: Link = { state: 'open', delayMs: 0, bytesPerSecond: Infinity }

/** How much a connection keeps for a slow or stalled reader before its writer has to wait. */
const keptBytes = 1 << 20

/** One way of a connection. */
class Way {
  readonly #source: Socket
  readonly #sink: Socket
  readonly #link: () => Link
  readonly #queue: { readonly chunk: Buffer; readonly dueMs: number }[] = []
  #queuedBytes = 0
  #lastDueMs = 0
  #ended = false
  #timer: NodeJS.Timeout | undefined

  constructor(source: Socket, sink: Socket, link: () => Link) {
    this.#source = source
    this.#sink = sink
    this.#link = link
    source.on('data', (chunk: Buffer) => this.#take(chunk))
    source.on('end', () => {
      this.#ended = true
      this.flush()
    })
    sink.on('drain', () => this.flush())
    sink.on('close', () => clearTimeout(this.#timer))
  }

  #take(chunk: Buffer): void {
    const { delayMs, bytesPerSecond } = this.#link()
    const now = performance.now()
    this.#lastDueMs = Math.max(this.#lastDueMs, now + delayMs) + (chunk.length / bytesPerSecond) * 1000
    this.#queue.push({ chunk, dueMs: this.#lastDueMs })
    this.#queuedBytes += chunk.length
    if (this.#queuedBytes > keptBytes) this.#source.pause()
    this.flush()
  }

  /** Passes on what is due; called again when the link changes. */
  flush(): void {
    clearTimeout(this.#timer)
    const { state, delayMs } = this.#link()
    if (state !== 'open' || this.#sink.destroyed) return
    // A link that is slow no more brings at once what it kept back.
    if (delayMs === 0) this.#lastDueMs = 0
    for (let head = this.#queue[0]; head !== undefined && !this.#sink.writableNeedDrain; head = this.#queue[0]) {
      const waitMs = delayMs === 0 ? 0 : head.dueMs - performance.now()
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.flush(), waitMs)
        return
      }
      this.#queue.shift()
      this.#queuedBytes -= head.chunk.length
      this.#sink.write(head.chunk)
    }
    if (this.#queuedBytes <= keptBytes) this.#source.resume()
    if (this.#ended && this.#queue.length === 0) this.#sink.end()
  }
}

/** A connection through a proxy, from whoever opened it to the node behind the proxy. */
class Connection {
  readonly #client: Socket
  readonly #upstream: Socket
  readonly #ways: readonly Way[]

  constructor(client: Socket, upstream: Socket, links: { forth: () => Link; back: () => Link }) {
    this.#client = client
    this.#upstream = upstream
    this.#ways = [new Way(client, upstream, links.forth), new Way(upstream, client, links.back)]
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      socket.setNoDelay(true)
      // A reset is what the network is for.
      socket.on('error', () => socket.destroy())
      // An orderly end comes through its way, after what was sent before it.
      socket.on('close', (hadError) => {
        if (hadError || !socket.readableEnded) other.destroy()
      })
    }
  }

  /** Applies the present state of its links. */
  refresh(isCut: boolean): void {
    if (isCut) this.destroy()
    else for (const way of this.#ways) way.flush()
  }

  destroy(): void {
    this.#client.destroy()
    this.#upstream.destroy()
  }
}

/** A proxy's way in. */
export interface ProxyOptions {
  /** The node behind it. */
  readonly to: string
  readonly targetPort: number
  /** Who connects: a node's name, or how to tell it from the first bytes; undefined while they do not tell. */
  readonly from: string | ((bytes: Buffer) => string | undefined)
}

/** Nodes that talk through proxies, each of whose links can be slow, stalled or cut. */
export class Network {
  readonly #links = new Map<string, Link>()
  readonly #connections = new Map<Connection, { readonly from: () => string | undefined; readonly to: string }>()
  readonly #closers: (() => Promise<unknown>)[] = []

  /** The link from one node to another. */
  link(from: string, to: string): Link {
    return this.#links.get(`${from}>${to}`) ?? openLink
  }

  /** Changes the link from one node to another; connections feel it at once. */
  set(from: string, to: string, change: Partial<Link>): void {
    this.#links.set(`${from}>${to}`, { ...this.link(from, to), ...change })
    this.#refresh()
  }

  /** Changes the links between two nodes, both ways. */
  setBoth(one: string, other: string, change: Partial<Link>): void {
    this.set(one, other, change)
    this.set(other, one, change)
  }

  /** Opens every link. */
  heal(): void {
    this.#links.clear()
    this.#refresh()
  }

  /** Starts a proxy on 127.0.0.1 and returns its port. */
  async proxy({ to, targetPort, from }: ProxyOptions): Promise<number> {
    const server = createServer({ allowHalfOpen: true }, (client) => {
      let name = typeof from === 'string' ? from : undefined
      const who = (): string | undefined => name
      if (this.#isCut(name, to)) return void client.destroy()
      const upstream = connect({ port: targetPort, host: '127.0.0.1', allowHalfOpen: true })
      if (typeof from === 'function') {
        client.on('data', (chunk: Buffer) => {
          if (name !== undefined) return
          name = from(chunk)
          if (this.#isCut(name, to)) connection.destroy()
        })
      }
      const connection = new Connection(client, upstream, { forth: () => this.#linkOf(name, to), back: () => this.#linkOf(to, name) })
      this.#connections.set(connection, { from: who, to })
      client.on('close', () => this.#connections.delete(connection))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    this.#closers.push(() => once(server.close(), 'close'))
    // A listening TCP server has an AddressInfo.
    return (server.address() as AddressInfo).port
  }

  /** Breaks every connection and stops listening. */
  async close(): Promise<void> {
    const closed = this.#closers.splice(0).map((closer) => closer())
    for (const connection of this.#connections.keys()) connection.destroy()
    await Promise.all(closed)
  }

  #linkOf(from: string | undefined, to: string | undefined): Link {
    return from === undefined || to === undefined ? openLink : this.link(from, to)
  }

  #isCut(from: string | undefined, to: string): boolean {
    return this.#linkOf(from, to).state === 'cut' || this.#linkOf(to, from).state === 'cut'
  }

  #refresh(): void {
    for (const [connection, { from, to }] of this.#connections) connection.refresh(this.#isCut(from(), to))
  }
}
