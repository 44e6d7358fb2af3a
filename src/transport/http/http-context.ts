import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { pipeline, Readable } from 'node:stream'
import type { ParameterizedContext } from 'koa'
import type { CallOutcome } from '../metrics.ts'
import { sendStream } from '../answer-stream.ts'
import type { CallHeaders } from '../calls/call-headers.ts'
import type { CallSignal } from './call-signal.ts'
import { codingFor, compressed, compressedPieces, hasRoomForStream } from './compression.ts'

/** The state of a request that all middleware shares. */
export interface HttpState {
  headers: CallHeaders
  call: CallSignal
  /** The address of the client, see ClientAddress. */
  remoteAddress: string
  /** The domain in ErrorInfo: that of the method, or `platform` for all other requests. */
  domain: string
  /** The name in the log: `GroupsService.GetGroup`, `GET /oauth`, or `unknown` until a route is found. */
  method: string
  /** The route's path with variables; undefined until a route is found. */
  route: string | undefined
  /** Headers with the rate limit of the caller, once the request counted against it. */
  limits: Readonly<Record<string, string>> | undefined
  /** Reports the outcome of the call to the metrics. */
  done: CallOutcome | undefined
}

/** Koa's context with the state of this API. */
export type HttpContext = ParameterizedContext<HttpState>

/** The status, headers and body of an answer. */
export interface HttpAnswer {
  readonly status: number
  /** Headers to send in addition to the common ones. They override common headers with the same name. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Uint8Array | readonly Uint8Array[]
}

/** An answer with status 200 whose body is made while it is sent. */
export interface StreamedAnswer {
  readonly headers: Readonly<Record<string, string>>
  /** Each piece is made once the client has room for it. Closed with `return` if they are not all made. */
  readonly pieces: AsyncIterableIterator<Uint8Array>
}

/** The content type of a JSON body. */
export const jsonType = { 'Content-Type': 'application/json; charset=utf-8' }

/** Headers that every answer has, unless it sets them itself. */
const commonHeaders: Readonly<Record<string, string>> = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' }

/** A parameter of a media type in `Accept`, such as `;charset=utf-8`. The weight `q` is not one of them. */
const mediaTypeParameter = /;(?!\s*q\s*=)[^=;,"]*(?:=(?:\s*"(?:[^"\\]|\\.)*"|[^;,"]*))?/gi

/**
 * Returns the media type that the client prefers of these, which have no parameters: the first one if it has no preference. Undefined if it accepts none of them.
 * Parameters in `Accept` are ignored: Koa would accept none of the types because of a charset.
 */
export function preferredType(context: HttpContext, types: readonly string[]): string | undefined {
  const { headers } = context.req
  const { accept } = headers
  if (accept !== undefined) headers.accept = accept.replace(mediaTypeParameter, '')
  return context.accepts([...types]) || undefined
}

/** Adds what others said that the answer depends on to its header `Vary`. Without this header, they stay as they are. */
function withVary(res: ServerResponse, headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const others = headers['Vary'] === undefined ? undefined : res.getHeader('vary')
  return others === undefined ? headers : { ...headers, Vary: `${headers['Vary'] ?? ''}, ${String(others)}` }
}

/** Starts an answer with status 200 whose length is unknown. */
export function beginAnswer(context: HttpContext, headers: Readonly<Record<string, string>>): void {
  const { res, state } = context
  context.respond = false
  res.writeHead(200, { 'X-Request-Id': state.headers.requestId, ...state.limits, ...commonHeaders, ...withVary(res, headers) })
}

/** Resolves once the client has received what was written. Rejects with the signal's reason. */
export async function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  await once(response, 'drain', { signal })
}

/**
 * Sends an answer piece by piece, compressed if the client accepts that. A client that reads nothing for a minute is cut off. Rejects with the stream's error, after cutting the connection: the
 * client sees that the answer is not whole.
 */
export async function sendPieces(context: HttpContext, { headers, pieces }: StreamedAnswer): Promise<void> {
  const { res, state, method } = context
  const { signal } = state.call
  const accepted = codingFor(context, { type: headers['Content-Type'], bytes: Infinity })
  const coding = hasRoomForStream() ? accepted : undefined
  beginAnswer(context, { ...headers, ...codedHeaders(headers, coding) })
  try {
    if (method === 'HEAD') await pieces.return?.()
    else
      await sendStream(coding === undefined ? pieces : compressedPieces(pieces, coding), {
        signal,
        send: (piece) => (res.write(piece) ? undefined : drained(res, signal)),
      })
    res.end()
  } catch (error) {
    res.destroy()
    throw error
  }
}

/** Returns the headers of a compressed body. Its etag is a weak one, because its bytes differ (RFC 9110, 8.8.1). */
function codedHeaders({ ETag: etag }: Readonly<Record<string, string>>, coding: string | undefined): Record<string, string> {
  if (coding === undefined) return {}
  return { 'Content-Encoding': coding, ...(etag === undefined || etag.startsWith('W/') ? {} : { ETag: `W/${etag}` }) }
}

/** Sends a complete answer with the request's id. A large one is compressed if the client accepts that. */
export function send(context: HttpContext, answer: HttpAnswer): void {
  const { status, headers, body } = answer
  context.respond = false
  context.res.statusCode = status
  const coding = codingFor(context, { type: headers['Content-Type'], bytes: lengthOf(body) })
  if (coding === undefined) return sendAsIs(context, answer)
  const coded = { status, headers: { ...headers, ...codedHeaders(headers, coding) } }
  void compressed(body, coding).then(
    (bytes) => sendAsIs(context, bytes === undefined ? answer : { ...coded, body: bytes }),
    () => sendAsIs(context, answer),
  )
}

/** Sends a complete answer without compressing it. It does not use Koa's body, which sets each header separately. */
function sendAsIs({ res, state }: HttpContext, { status, headers: own, body }: HttpAnswer): void {
  if (res.headersSent) return
  const headers = withVary(res, own)
  const all: (string | number)[] = ['X-Request-Id', state.headers.requestId]
  for (const name in state.limits) all.push(name, state.limits[name] ?? '')
  for (const name in commonHeaders) if (headers[name] === undefined) all.push(name, commonHeaders[name] ?? '')
  for (const name in headers) all.push(name, headers[name] ?? '')
  const length = lengthOf(body)
  if (status !== 204) all.push('Content-Length', length)
  res.writeHead(status, all)
  // If there are as many bytes as characters, the text is ASCII. latin1 copies it instead of encoding it.
  if (typeof body === 'string') res.end(body, length === body.length ? 'latin1' : 'utf8')
  else if (body instanceof Uint8Array) res.end(body)
  // The pieces may be large together, so each is written once the one before is sent. If the connection fails, so does the response.
  else pipeline(Readable.from(body), res, ignore)
}

function ignore(): void {}

function lengthOf(body: HttpAnswer['body']): number {
  if (typeof body === 'string') return Buffer.byteLength(body)
  return body instanceof Uint8Array ? body.byteLength : body.reduce((sum, piece) => sum + piece.byteLength, 0)
}

/** Returns the text of a header, or the first text if the header occurs several times. */
export function headerText(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value
}
