import { createServer } from 'node:http'
import type { RequestListener, Server, ServerResponse } from 'node:http'
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
  const active = new Set<ServerResponse>()
  let draining = false
  server.on('request', (request, response) => {
    active.add(response)
    response.once('close', () => active.delete(response))
    if (draining) response.shouldKeepAlive = false
    listener(request, response)
  })
  return {
    accept(socket) {
      server.emit('connection', socket)
    },
    drain() {
      draining = true
      for (const response of active) response.shouldKeepAlive = false
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
