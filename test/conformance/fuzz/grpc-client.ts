import { connect, constants, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2'
import { frame, type GrpcDraft } from './requests/grpc-draft.ts'

/** The outcome of a call. */
export interface GrpcOutcome {
  readonly httpStatus: number | undefined
  /** From the trailers, or from the headers of a trailers-only answer; undefined if missing. */
  readonly code: number | undefined
  readonly message: string
  /** `grpc-status-details-bin` */
  readonly details: Buffer | undefined
  readonly requestId: string | undefined
  /** `refused`: the client library refused to send it. `gone`: the connection broke. */
  readonly ended: 'closed' | 'late' | 'refused' | 'gone'
  /** Code of the reset that ended the stream; 0 if there was no reset. */
  readonly reset: number
  readonly milliseconds: number
}

/** Port and time limit of a call. */
export interface GrpcSending {
  readonly port: number
  readonly boundMs: number
}

/** Makes one call on its own connection, so that a broken connection affects no other call. Every header and byte can be chosen. Never rejects. */
export function sendGrpc(draft: GrpcDraft, { port, boundMs }: GrpcSending): Promise<GrpcOutcome> {
  const startedAt = performance.now()
  const { promise, resolve } = Promise.withResolvers<GrpcOutcome>()
  let head: IncomingHttpHeaders = {}
  let trailers: IncomingHttpHeaders = {}
  let ended: GrpcOutcome['ended'] = 'closed'
  const finish = (reset: number): void => {
    clearTimeout(late)
    session.destroy()
    const last = trailers['grpc-status'] === undefined ? head : trailers
    const said = (name: string): string | undefined => [last[name]].flat()[0]
    const code = said('grpc-status')
    const details = said('grpc-status-details-bin')
    resolve({
      httpStatus: head[':status'] as number | undefined, // a number, as node:http2 documents
      code: code === undefined ? undefined : Number(code),
      message: said('grpc-message') ?? '',
      details: details === undefined ? undefined : Buffer.from(details, 'base64'),
      requestId: said('x-request-id') ?? [head['x-request-id']].flat()[0],
      ended,
      reset,
      milliseconds: performance.now() - startedAt,
    })
  }
  const session = connect(`http://127.0.0.1:${port}`, { maxSendHeaderBlockLength: 1024 * 1024 })
  // The stream reports the error too.
  session.on('error', () => undefined)
  const late = setTimeout(() => {
    ended = 'late'
    session.destroy()
  }, boundMs)
  try {
    const stream = session.request({ ':method': 'POST', ':path': draft.path, ...draft.headers }, { endStream: false })
    stream.on('response', (headers) => (head = headers))
    stream.on('trailers', (headers) => (trailers = headers))
    // The client's side stays open until the server has answered.
    stream.on('end', () => void stream.end())
    stream.on('data', () => undefined)
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (ended === 'closed' && head[':status'] === undefined) ended = error.code === 'ERR_HTTP2_STREAM_ERROR' ? 'closed' : 'gone'
    })
    stream.once('close', () => finish(stream.rstCode ?? 0))
    write(stream, draft)
  } catch {
    // node:http2 refuses such headers.
    ended = 'refused'
    finish(0)
  }
  return promise
}

function write(stream: ClientHttp2Stream, { body, message, ending }: GrpcDraft): void {
  for (const part of body ?? [frame(message)]) stream.write(part)
  if (ending === 'end') stream.end()
  if (ending === 'cancel') stream.close(constants.NGHTTP2_CANCEL)
}
