import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'

/** The reason why a request cannot be read: its bytes are not HTTP/1.1, its headers are too large, or it did not arrive in time. */
export type UnreadableKind = 'malformed' | 'tooLarge' | 'late'

/** The answer to an unreadable request, in the error format of this port. */
export interface UnreadableAnswer {
  readonly requestId: string
  /** JSON. */
  readonly body: string
}

const statusLines = {
  malformed: '400 Bad Request',
  tooLarge: '431 Request Header Fields Too Large',
  late: '408 Request Timeout',
} as const satisfies Record<UnreadableKind, string>

/** Kinds by node's error codes; all other errors are malformed requests. */
const kinds: Readonly<Record<string, UnreadableKind>> = { HPE_HEADER_OVERFLOW: 'tooLarge', ERR_HTTP_REQUEST_TIMEOUT: 'late' }

/** A connection, with node's current answer on it. */
type RequestConnection = Duplex & { readonly _httpMessage?: (ServerResponse & { readonly req: IncomingMessage }) | null }

/**
 * Creates a listener for `clientError` of node:http. It answers under a new request id and closes the connection. An earlier request that has arrived in full
 * is answered first. If an answer to the unreadable request is already being sent, the client gets no second one.
 */
export function createUnreadableAnswer(
  describe: (kind: UnreadableKind) => UnreadableAnswer,
): (error: Error & { readonly code?: string }, socket: Duplex) => void {
  const waiting = new WeakSet<Duplex>()
  const answer = (kind: UnreadableKind, socket: RequestConnection): void => {
    const earlier = socket._httpMessage
    if (socket.destroyed || !socket.writable) return void socket.destroy()
    if (earlier?.req.complete === true) return void earlier.once('finish', () => answer(kind, socket))
    if (earlier?.headersSent === true) return void socket.destroy()
    const { requestId, body } = describe(kind)
    const head = [
      `HTTP/1.1 ${statusLines[kind]}`,
      'Connection: close',
      'Cache-Control: no-store',
      'Content-Type: application/json; charset=utf-8',
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Request-Id: ${requestId}`,
    ]
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => leave(socket))
  }
  return (error, socket) => {
    if (error.code === 'ECONNRESET') return void socket.destroy()
    // Node reports the error again for all data that follows.
    if (waiting.has(socket)) return
    waiting.add(socket)
    answer(kinds[error.code ?? ''] ?? 'malformed', socket)
  }
}

/** Time for which a client may go on sending after an unreadable request, in milliseconds. If cut off at once, it might not read its answer. */
const drainMs = 2_000

/** Ends an answered connection once the client has ended it too. Node's parser, which has failed, drops all data until then. */
function leave(socket: Duplex): void {
  if (socket.readableEnded || socket.destroyed) return void socket.destroy()
  const timer = setTimeout(() => socket.destroy(), drainMs)
  socket.once('end', () => socket.destroy())
  socket.once('close', () => clearTimeout(timer))
}

/** True for a request that names two hosts, or none in HTTP/1.1: it must be refused (RFC 9112, 3.2). */
export function lacksOneHost({ httpVersion, rawHeaders }: IncomingMessage): boolean {
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.length === 4 && rawHeaders[at]?.toLowerCase() === 'host') hosts += 1
  return hosts > 1 || (hosts === 0 && httpVersion === '1.1')
}

/** True if a request declares a body. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || !['0', undefined].includes(headers['content-length'])
}

/**
 * Waits for the end of an unwanted body and drops it. Until then the request may turn out to be unreadable, and must have no effect. Returns `tooLarge` as soon
 * as there is more than `maxBytes`. Returns `cutOff` if the client disconnected, its bytes are not a body, or they did not arrive within `timeoutMs`.
 */
export async function dropBody(
  request: IncomingMessage,
  limits: { readonly maxBytes: number; readonly timeoutMs: number },
): Promise<'dropped' | 'tooLarge' | 'cutOff'> {
  if (!hasBody(request) || request.readableEnded) return 'dropped'
  const { promise, resolve } = Promise.withResolvers<'dropped' | 'tooLarge' | 'cutOff'>()
  let length = 0
  request.on('data', (chunk: Buffer) => {
    length += chunk.length
    if (length > limits.maxBytes) resolve('tooLarge')
  })
  request.once('end', () => resolve('dropped'))
  request.once('close', () => resolve('cutOff'))
  request.once('error', () => resolve('cutOff'))
  const timer = setTimeout(() => resolve('cutOff'), limits.timeoutMs)
  try {
    return await promise
  } finally {
    clearTimeout(timer)
  }
}
