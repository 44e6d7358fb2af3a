import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { asksForMessages, MessageSplitter } from './raft-messages.ts'

/**
 * The state of a link from one node to another. `stalled` delays all bytes and ends of connections until the link is open, in order. `dropping` loses packets
 * where possible, including those that start a connection, and is `stalled` otherwise. `cut` breaks the connections and refuses new ones.
 */
export type LinkState = 'open' | 'stalled' | 'dropping' | 'cut'

/** The link from one node to another. The opposite direction is another link. */
export interface Link {
  readonly state: LinkState
  /** Delay of bytes in milliseconds. */
  readonly delayMs: number
  /** Bandwidth in bytes per second. */
  readonly bytesPerSecond: number
  /** Holds the messages between etcd peers for which it returns true. All others pass them. */
  readonly holds?: ((message: Buffer) => boolean) | undefined
}

const openLink: Link = { state: 'open', delayMs: 0, bytesPerSecond: Infinity }

/** Bytes that a connection buffers for a slow or stalled reader before its writer has to wait. */
const keptBytes = 1 << 20

/** One direction of a connection. */
class Way {
  readonly #source: Socket
  readonly #sink: Socket
  readonly #link: () => Link
  readonly #queue: { readonly chunk: Buffer; readonly dueMs: number }[] = []
  #queuedBytes = 0
  #lastDueMs = 0
  #ended = false
  #broken = false
  #timer: NodeJS.Timeout | undefined
  #messages: MessageSplitter | undefined
  #held: Buffer[] = []

  constructor(source: Socket, sink: Socket, link: () => Link) {
    this.#source = source
    this.#sink = sink
    this.#link = link
    source.on('data', (chunk: Buffer) => {
      for (const unit of this.#messages?.split(chunk) ?? [chunk]) this.#take(unit)
    })
    source.on('end', () => {
      this.#ended = true
      this.flush()
    })
    // The end of a connection arrives after its earlier bytes.
    source.on('close', (hadError) => {
      this.#broken = hadError || !source.readableEnded
      this.flush()
    })
    sink.on('drain', () => this.flush())
    sink.on('close', () => clearTimeout(this.#timer))
  }

  /** Splits later bytes into messages between etcd peers. */
  splitMessages(): void {
    this.#messages = new MessageSplitter()
  }

  /** True while a message is held. */
  get isHolding(): boolean {
    return this.#held.length > 0
  }

  #take(chunk: Buffer): void {
    const { delayMs, bytesPerSecond, holds } = this.#link()
    if (this.#messages !== undefined && holds?.(chunk) === true) {
      this.#held.push(chunk)
      return
    }
    const now = performance.now()
    this.#lastDueMs = Math.max(this.#lastDueMs, now + delayMs) + (chunk.length / bytesPerSecond) * 1000
    this.#queue.push({ chunk, dueMs: this.#lastDueMs })
    this.#queuedBytes += chunk.length
    if (this.#queuedBytes > keptBytes) this.#source.pause()
    this.flush()
  }

  /** Forwards the bytes that are due. Called again when the link changes. */
  flush(): void {
    clearTimeout(this.#timer)
    const { state, delayMs, holds } = this.#link()
    if (holds === undefined) for (const message of this.#held.splice(0)) this.#take(message)
    if (state !== 'open' || this.#sink.destroyed) return
    // A link without delay delivers its delayed bytes at once.
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
    if (this.#queue.length > 0) return
    if (this.#broken) this.#sink.destroy()
    else if (this.#ended) this.#sink.end()
  }
}

/** A connection through a proxy, from the process that opened it to the node behind the proxy. */
class Connection {
  readonly #client: Socket
  readonly #upstream: Socket
  readonly #ways: readonly Way[]

  constructor(client: Socket, upstream: Socket, links: { forth: () => Link; back: () => Link }) {
    this.#client = client
    this.#upstream = upstream
    const back = new Way(upstream, client, links.back)
    this.#ways = [new Way(client, upstream, links.forth), back]
    client.once('data', (request: Buffer) => {
      if (asksForMessages(request)) back.splitMessages()
    })
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true)
      // Resets are expected in this network.
      socket.on('error', () => socket.destroy())
    }
  }

  get isGone(): boolean {
    return this.#client.destroyed && this.#upstream.destroyed
  }

  /** Applies the current state of its links. */
  refresh(isCut: boolean): void {
    if (isCut) this.destroy()
    else for (const way of this.#ways) way.flush()
  }

  /** True while it holds a message. */
  get isHolding(): boolean {
    return this.#ways.some((way) => way.isHolding)
  }

  destroy(): void {
    this.#client.destroy()
    this.#upstream.destroy()
  }
}

/** Drops the packets to or from these ports of 127.0.0.1, and no others any longer. */
export type DropPackets = (packets: readonly ({ readonly to: number } | { readonly from: number })[]) => void

/** The sender and receiver of a proxy. */
export interface ProxyOptions {
  /** The node behind it. */
  readonly to: string
  readonly targetPort: number
  /** The sender: a node's name, or a function that finds it from the first bytes. Both may be undefined for a while. */
  readonly from: string | ((bytes: Buffer) => (() => string | undefined) | undefined)
}

/** Nodes that communicate through proxies. Each link can be slow, stalled or cut, or lose packets. */
export class Network {
  readonly #links = new Map<string, Link>()
  readonly #connections = new Map<Connection, { readonly from: () => string | undefined; readonly to: string }>()
  readonly #closers: (() => Promise<unknown>)[] = []
  readonly #dropPackets: DropPackets | undefined
  /** The proxies with one sender each: their packets are identified by the port. */
  readonly #lossy: { readonly from: string; readonly to: string; readonly port: number }[] = []

  /** Without `dropPackets` no link loses packets. */
  constructor(dropPackets?: DropPackets) {
    this.#dropPackets = dropPackets
  }

  /** The link from one node to another. */
  link(from: string, to: string): Link {
    return this.#links.get(`${from}>${to}`) ?? openLink
  }

  /** Changes the link from one node to another. Open connections change at once. */
  set(from: string, to: string, change: Partial<Link>): void {
    this.#links.set(`${from}>${to}`, { ...this.link(from, to), ...change })
    this.#refresh()
  }

  /** Changes the links between two nodes, both ways. */
  setBoth(one: string, other: string, change: Partial<Link>): void {
    this.set(one, other, change)
    this.set(other, one, change)
  }

  /** True while `holds` delays a message from one node to another. The receiver opened the connection of the message. */
  isHolding(from: string, to: string): boolean {
    return [...this.#connections].some(([connection, ends]) => ends.to === from && ends.from() === to && connection.isHolding)
  }

  /** Opens every link. */
  heal(): void {
    this.#links.clear()
    this.#refresh()
  }

  /** Starts a proxy on 127.0.0.1 and returns its port. */
  async proxy({ to, targetPort, from }: ProxyOptions): Promise<number> {
    const isLossy = typeof from === 'string' && this.#dropPackets !== undefined
    const server = createServer({ allowHalfOpen: true }, (client) => {
      let who: (() => string | undefined) | undefined = typeof from === 'string' ? () => from : undefined
      const name = (): string | undefined => who?.()
      if (this.#isCut(name(), to)) return void client.destroy()
      const upstream = connect({ port: targetPort, host: '127.0.0.1', allowHalfOpen: true })
      if (typeof from === 'function') {
        client.on('data', (chunk: Buffer) => {
          if (who !== undefined) return
          who = from(chunk)
          if (this.#isCut(name(), to)) connection.destroy()
        })
      }
      const seen = (link: Link): Link => (isLossy && link.state === 'dropping' ? { ...link, state: 'open' } : link)
      const connection = new Connection(client, upstream, { forth: () => seen(this.#linkOf(name(), to)), back: () => seen(this.#linkOf(to, name())) })
      this.#connections.set(connection, { from: name, to })
      for (const socket of [client, upstream]) socket.on('close', () => connection.isGone && this.#connections.delete(connection))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    this.#closers.push(() => once(server.close(), 'close'))
    // A listening TCP server has an AddressInfo.
    const { port } = server.address() as AddressInfo
    if (isLossy) this.#lossy.push({ from, to, port })
    return port
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
    this.#dropPackets?.(
      this.#lossy.flatMap(({ from, to, port }) => [
        ...(this.link(from, to).state === 'dropping' ? [{ to: port }] : []),
        ...(this.link(to, from).state === 'dropping' ? [{ from: port }] : []),
      ]),
    )
    for (const [connection, { from, to }] of this.#connections) connection.refresh(this.#isCut(from(), to))
  }
}
