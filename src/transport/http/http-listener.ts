import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { DomainError } from '../../base/errors.ts'
import { createUnreadableAnswer, type UnreadableAnswer, type UnreadableKind } from './unreadable-request.ts'
import { platformDomain } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import type { PortListener } from '../one-port.ts'

/** Limits of the HTTP/1.1 side of a port. */
export interface HttpListenerOptions {
  /** Maximum time in milliseconds for the request line and headers to arrive; 15,000 by default. */
  readonly headersTimeoutMs?: number
  /** Maximum time in milliseconds for a whole request to arrive; 60,000 by default. */
  readonly requestTimeoutMs?: number
  /** Maximum time in milliseconds for which a client may neither send nor read; 120,000 by default. */
  readonly idleTimeoutMs?: number
}

/** Maximum size of all headers of a request together, in bytes. */
const maxHeaderBytes = 32 * 1024

/** Maximum number of headers of a request. */
export const maxHeaders = 100

/** Creates an HTTP/1.1 server with the limits that all ports have. A request that it cannot read is answered in the common error format. */
export function createLimitedServer(options: HttpListenerOptions = {}): Server {
  const server = createServer({
    maxHeaderSize: maxHeaderBytes,
    headersTimeout: options.headersTimeoutMs ?? 15_000,
    requestTimeout: options.requestTimeoutMs ?? 60_000,
    keepAliveTimeout: 75_000,
    connectionsCheckingInterval: 1000,
    // The API itself refuses requests without a Host header, because node's answer would not have the common error format.
    requireHostHeader: false,
  })
  // Accept one more header than allowed, so that the API can detect that there are too many.
  server.maxHeadersCount = maxHeaders + 1
  // Also disconnects clients that do not read their answer. The two timeouts above only limit the arrival of a request.
  server.timeout = options.idleTimeoutMs ?? 120_000
  server.on('clientError', createUnreadableAnswer(describe))
  return server
}

/** Creates an HTTP/1.1 server without a port of its own. `listener` answers the requests on connections passed to `accept`. */
export function createHttpListener(listener: RequestListener, options: HttpListenerOptions = {}): PortListener & { stop(): void } {
  const server = createLimitedServer(options)
  // Node checks the timeouts of a server only after it starts to listen, which this one never does.
  server.emit('listening')
  // The latest response of each connection. One set of all responses would change with every request and keep requests in memory longer, which doubles their
  // cost.
  const latest = new Map<Socket, ServerResponse | undefined>()
  let draining = false
  const beginDrain = (): void => {
    draining = true
    for (const response of latest.values()) if (response?.headersSent === false) response.shouldKeepAlive = false
  }
  server.on('request', (request, response) => {
    latest.set(request.socket, response)
    if (draining) response.shouldKeepAlive = false
    listener(request, response)
  })
  // Answer requests with an unknown `Expect` header, which a server may ignore (RFC 9110, 10.1.1). Node's own answer would have no body.
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
  return {
    accept(socket) {
      latest.set(socket, undefined)
      socket.once('close', () => latest.delete(socket))
      server.emit('connection', socket)
    },
    beginDrain,
    drain() {
      beginDrain()
      server.closeIdleConnections()
    },
    stop: () => stop(server),
  }
}

const unreadable = {
  malformed: DomainError.invalid('request', 'is not readable HTTP/1.1'),
  tooLarge: DomainError.invalid('headers', `must not be larger than ${maxHeaderBytes} bytes together, and not more than ${maxHeaders}`),
  late: new DomainError(4, 'the request did not arrive in time'),
} as const satisfies Record<UnreadableKind, DomainError>

/** Returns the answer to an unreadable request in the common error format. */
function describe(kind: UnreadableKind): UnreadableAnswer {
  const requestId = randomUUID()
  return { requestId, body: JSON.stringify(httpError(unreadable[kind], { requestId, domain: platformDomain }).body) }
}

function stop(server: Server): void {
  server.closeAllConnections()
  // The server never listened; this only stops the timeout checks.
  server.close()
}
