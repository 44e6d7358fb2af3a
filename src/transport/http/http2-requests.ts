import { Http2ServerRequest, Http2ServerResponse, constants } from 'node:http2'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

/** Serves one request that came on a stream of an HTTP/2 connection. `rawHeaders` are names and values in turn. */
export type Http2Requests = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: string[]) => void

/** Limits of such requests, those of HTTP/1.1. */
export interface Http2RequestLimits {
  /** How long a whole request may take to arrive, milliseconds; 60,000 where absent. */
  readonly requestTimeoutMs?: number
  /** How long a client may send nothing, or take nothing of an answer, milliseconds; 120,000 where absent. */
  readonly idleTimeoutMs?: number
}

/** Hands requests over HTTP/2 to the listener for HTTP/1.1. A stream that breaks a limit is reset. */
export function createHttp2Requests(listener: RequestListener, { requestTimeoutMs = 60_000, idleTimeoutMs = 120_000 }: Http2RequestLimits = {}): Http2Requests {
  return (stream, headers, rawHeaders) => {
    const cut = (): void => stream.close(constants.NGHTTP2_CANCEL)
    stream.setTimeout(idleTimeoutMs, cut)
    // In HTTP/2 the frames say whether there is a body; the listener looks at the headers.
    if (!stream.endAfterHeaders && headers['content-length'] === undefined) headers['transfer-encoding'] = 'chunked'
    const request = new Http2ServerRequest(stream, headers, {}, rawHeaders)
    const late = setTimeout(cut, requestTimeoutMs)
    for (const event of ['end', 'close']) request.once(event, () => clearTimeout(late))
    const response = new Http2ServerResponse(stream)
    // Node's class lacks these two.
    Object.defineProperties(response, { closed: { get: () => stream.closed }, writableFinished: { get: () => stream.writableFinished } })
    if (headers.expect === '100-continue') response.writeContinue()
    // Node made its two classes to stand for those of HTTP/1.1.
    listener(request as unknown as IncomingMessage, response as unknown as ServerResponse<IncomingMessage> & { req: IncomingMessage })
  }
}
