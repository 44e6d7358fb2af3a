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
  /** How long the request line and headers may take, milliseconds; 15,000 where absent. */
  readonly headersTimeoutMs?: number
  /** How long a whole request may take to arrive, milliseconds; 60,000 where absent. */
  readonly requestTimeoutMs?: number
  /** How long a client may send nothing, or take nothing of an answer, milliseconds; 120,000 where absent. */
  readonly idleTimeoutMs?: number
}

/** The most that a request's headers take together, in bytes. */
const maxHeaderBytes = 32 * 1024

/** The most headers of a request. */
export const maxHeaders = 100

/** An HTTP/1.1 server without a port of its own: `listener` answers what arrives on the connections it is given. */
export function createHttpListener(listener: RequestListener, options: HttpListenerOptions = {}): PortListener & { stop(): void } {
  const server = createServer({
    maxHeaderSize: maxHeaderBytes,
    headersTimeout: options.headersTimeoutMs ?? 15_000,
    requestTimeout: options.requestTimeoutMs ?? 60_000,
    keepAliveTimeout: 75_000,
    connectionsCheckingInterval: 1000,
    // Refused with an answer that node's own would not have.
    requireHostHeader: false,
  })
  // One more is enough to know that there are too many.
  server.maxHeadersCount = maxHeaders + 1
  // Also ends who takes nothing of an answer: the two timeouts above are about the request.
  server.timeout = options.idleTimeoutMs ?? 120_000
  server.on('clientError', createUnreadableAnswer(describe))
  // Node starts to watch its timeouts when a server listens; this one never does.
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

/** The form of every error. */
function describe(kind: UnreadableKind): UnreadableAnswer {
  const requestId = randomUUID()
  return { requestId, body: JSON.stringify(httpError(unreadable[kind], { requestId, domain: platformDomain }).body) }
}

function stop(server: Server): void {
  server.closeAllConnections()
  // Only ends the timeout watch: the server never listened.
  server.close()
}
