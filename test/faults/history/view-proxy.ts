import { once } from 'node:events'
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

/** A REST request on its way to the server. */
export interface Request {
  readonly method: string
  /** The path with the query. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** A REST answer on its way to the client. */
export interface Answer {
  readonly status: number
  readonly body: string
}

/** Answers a request with the server's answer or another; undefined closes the connection without an answer. */
export type View = (request: Request, forward: () => Promise<Answer>) => Promise<Answer | undefined>

/** A proxy to a server of this machine. */
export interface ViewProxy {
  readonly url: string
  /** Breaks the open connections. */
  breakAll(): void
  close(): Promise<void>
}

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString()
}

function forwarded(target: string, request: Request): () => Promise<Answer> {
  return async () => {
    const { method, path, headers, body } = request
    const response = await fetch(`${target}${path}`, { method, headers, ...(body === '' ? {} : { body }) })
    return { status: response.status, body: await response.text() }
  }
}

/** Starts a proxy on 127.0.0.1 that answers REST requests with `view`. gRPC passes unchanged. */
export async function startViewProxy(target: string, view: View): Promise<ViewProxy> {
  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const kept = ['authorization', 'content-type', 'if-match', 'idempotency-key']
    const headers = Object.fromEntries(kept.flatMap((name) => (incoming.headers[name] === undefined ? [] : [[name, String(incoming.headers[name])]])))
    const request = { method: incoming.method ?? '', path: incoming.url ?? '', headers, body: await bodyOf(incoming) }
    const shown = await view(request, forwarded(target, request))
    if (shown === undefined) return void outgoing.destroy()
    outgoing.writeHead(shown.status, { 'content-type': 'application/json' }).end(shown.body)
  }
  const http = createHttpServer((incoming, outgoing) => {
    answer(incoming, outgoing).catch(() => outgoing.destroy())
  })
  const sockets = new Set<Socket>()
  const track = (socket: Socket): Socket => {
    sockets.add(socket)
    return socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket))
  }
  const server = createServer((client) => {
    track(client).once('data', (first: Buffer) => {
      client.pause()
      client.unshift(first)
      if (first.toString('latin1').startsWith('PRI')) {
        const upstream = track(connect(Number(new URL(target).port), '127.0.0.1'))
        client.pipe(upstream).pipe(client)
        upstream.on('close', () => client.destroy())
        client.on('close', () => upstream.destroy())
      } else {
        http.emit('connection', client)
      }
      client.resume()
    })
  })
  const port = await listenOnLoopback(server)
  const breakAll = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: `http://127.0.0.1:${port}`,
    breakAll,
    async close() {
      const closed = once(server.close(), 'close')
      breakAll()
      await closed
    },
  }
}
