import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { DomainError } from '../../base/errors.ts'
import { createUnreadableAnswer, type UnreadableAnswer, type UnreadableKind } from './unreadable-request.ts'
import { platformDomain } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import type { PortListener } from '../one-port.ts'

/** Limits of the HTTP/1.1 side. */
export interface HttpListenerOptions {
  /** Maximum time for the request line and headers, in milliseconds; 15,000 by default. */
  readonly headersTimeoutMs?: number
  /** Maximum time for a whole request to arrive, in milliseconds; 60,000 by default. */
  readonly requestTimeoutMs?: number
  /** Maximum time for which a client may send nothing, or read nothing of an answer, in milliseconds; 120,000 by default. */
  readonly idleTimeoutMs?: number
}

/** Maximum total size of a request's headers, in bytes. */
const maxHeaderBytes = 32 * 1024

/** Maximum number of headers of a request. */
export const maxHeaders = 100

/** Creates an HTTP/1.1 server with the limits of every port. It answers requests that it cannot read in the common error format. */
export function createLimitedServer(options: HttpListenerOptions = {}): Server {
  const server = createServer({
    maxHeaderSize: maxHeaderBytes,
    headersTimeout: options.headersTimeoutMs ?? 15_000,
    requestTimeout: options.requestTimeoutMs ?? 60_000,
    keepAliveTimeout: 75_000,
    connectionsCheckingInterval: 1000,
    // The API refuses such requests itself, with an answer that node would not give.
    requireHostHeader: false,
  })
  // One extra header is enough to detect too many.
  server.maxHeadersCount = maxHeaders + 1
  // Also ends clients that read nothing of an answer: the two timeouts above only concern the request.
  server.timeout = options.idleTimeoutMs ?? 120_000
  server.on('clientError', createUnreadableAnswer(describe))
  return server
}

/** Creates an HTTP/1.1 server without its own port: `listener` answers requests on the connections passed to it. */
export function createHttpListener(listener: RequestListener, options: HttpListenerOptions = {}): PortListener & { stop(): void } {
  const server = createLimitedServer(options)
  // Node starts to check its timeouts when a server listens; this one never does.
  server.emit('listening')
  // Kept per connection, not as one set of all responses. A set that changes with every request keeps requests in memory longer, which doubles their cost.
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
  // An unknown expectation may be ignored (RFC 9110, 10.1.1); node's own answer would have no body.
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
  tooLarge: DomainError.invalid('headers', `must not be larger than ${maxHeaderBytes} bytes, nor more than ${maxHeaders}`),
  late: new DomainError(4, 'the request did not arrive in time'),
} as const satisfies Record<UnreadableKind, DomainError>

/** Returns the answer in the common error format. */
function describe(kind: UnreadableKind): UnreadableAnswer {
  const requestId = randomUUID()
  return { requestId, body: JSON.stringify(httpError(unreadable[kind], { requestId, domain: platformDomain }).body) }
}

function stop(server: Server): void {
  server.closeAllConnections()
  // Only stops the timeout checks: the server never listened.
  server.close()
}
