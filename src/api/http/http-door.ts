import { createServer } from 'node:http'
import type { RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Door } from '../one-port.ts'

/** Limits of the HTTP/1.1 side. */
export interface HttpDoorOptions {
  /** How long the request line and headers may take, milliseconds; 15,000 where absent. */
  readonly headersTimeoutMs?: number
  /** How long a whole request may take to arrive, milliseconds; 60,000 where absent. */
  readonly requestTimeoutMs?: number
}

/** An HTTP/1.1 server without a port of its own: `listener` answers what arrives on the connections it is given. */
export function createHttpDoor(listener: RequestListener, options: HttpDoorOptions = {}): Door & { stop(): void } {
  const server = createServer({
    maxHeaderSize: 32 * 1024,
    headersTimeout: options.headersTimeoutMs ?? 15_000,
    requestTimeout: options.requestTimeoutMs ?? 60_000,
    keepAliveTimeout: 75_000,
    connectionsCheckingInterval: 1000,
  })
  // Node starts to watch its timeouts when a server listens; this one never does.
  server.emit('listening')
  // By connection and not one set of all responses: a set that changes with every request keeps requests from dying young, which doubles what one costs.
  const latest = new Map<Socket, ServerResponse | undefined>()
  let lingering = false
  const linger = (): void => {
    lingering = true
    for (const response of latest.values()) if (response?.headersSent === false) response.shouldKeepAlive = false
  }
  server.on('request', (request, response) => {
    latest.set(request.socket, response)
    if (lingering) response.shouldKeepAlive = false
    listener(request, response)
  })
  return {
    accept(socket) {
      latest.set(socket, undefined)
      socket.once('close', () => latest.delete(socket))
      server.emit('connection', socket)
    },
    linger,
    drain() {
      linger()
      server.closeIdleConnections()
    },
    stop: () => stop(server),
  }
}

function stop(server: Server): void {
  server.closeAllConnections()
  // Only ends the timeout watch: the server never listened.
  server.close()
}
