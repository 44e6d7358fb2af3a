import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'

/** Why a request cannot be read: it is not valid HTTP/1.1, its headers are too large, or it did not arrive in time. */
export type UnreadableKind = 'malformed' | 'tooLarge' | 'late'

/** The answer to a request that cannot be read, in the error format of the port. */
export interface UnreadableAnswer {
  readonly requestId: string
  /** The body as a JSON text. */
  readonly body: string
}

const statusLines = {
  malformed: '400 Bad Request',
  tooLarge: '431 Request Header Fields Too Large',
  late: '408 Request Timeout',
} as const satisfies Record<UnreadableKind, string>

/** The kind for each of node's error codes. All other codes mean a malformed request. */
const kinds: Readonly<Record<string, UnreadableKind>> = { HPE_HEADER_OVERFLOW: 'tooLarge', ERR_HTTP_REQUEST_TIMEOUT: 'late' }

/** A connection with node's private reference to its current response. */
type RequestConnection = Duplex & { readonly _httpMessage?: (ServerResponse & { readonly req: IncomingMessage }) | null }

/**
 * Creates a listener for the event `clientError` of node:http. It answers with a new request id and closes the connection. An earlier request that has arrived
 * completely is answered first. If an answer to the unreadable request is already being sent, the client gets no second one.
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
    // Node emits the event again for all data that follows.
    if (waiting.has(socket)) return
    waiting.add(socket)
    answer(kinds[error.code ?? ''] ?? 'malformed', socket)
  }
}

/**
 * Time in milliseconds for which a client may continue to send after an unreadable request. If its connection were closed at once, it might not read the
 * answer.
 */
const drainMs = 2_000

/** Closes a connection after its answer, once the client has closed its side. Until then, node's parser, which has failed, drops all data. */
function leave(socket: Duplex): void {
  if (socket.readableEnded || socket.destroyed) return void socket.destroy()
  const timer = setTimeout(() => socket.destroy(), drainMs)
  socket.once('end', () => socket.destroy())
  socket.once('close', () => clearTimeout(timer))
}

/** True for a request with several Host headers, or with none in HTTP/1.1. It must be refused (RFC 9112, 3.2). */
export function lacksOneHost({ httpVersion, rawHeaders }: IncomingMessage): boolean {
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.length === 4 && rawHeaders[at]?.toLowerCase() === 'host') hosts += 1
  return hosts > 1 || (hosts === 0 && httpVersion === '1.1')
}

/** True if the headers of a request announce a body. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || !['0', undefined].includes(headers['content-length'])
}

/**
 * Reads and drops a body that is not needed. The request must have no effect before the end of its body, because it may turn out to be unreadable. Returns
 * `tooLarge` as soon as there is more than `maxBytes`. Returns `cutOff` if the client disconnected, the bytes are not a valid body, or they did not arrive
 * within `timeoutMs` milliseconds.
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
