import { Http2ServerRequest, Http2ServerResponse, constants } from 'node:http2'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

/** Serves one request on a stream of an HTTP/2 connection. `rawHeaders` contains names and values alternately. */
export type Http2Requests = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: string[]) => void

/** Limits of HTTP requests over HTTP/2, as for HTTP/1.1. */
export interface Http2RequestLimits {
  /** Maximum time in milliseconds for a whole request to arrive; 60,000 by default. */
  readonly requestTimeoutMs?: number
  /** Maximum time in milliseconds for which a client may neither send nor read; 120,000 by default. */
  readonly idleTimeoutMs?: number
}

/** Passes HTTP/2 requests to the HTTP/1.1 listener. Resets a stream that exceeds a limit. */
export function createHttp2Requests(listener: RequestListener, { requestTimeoutMs = 60_000, idleTimeoutMs = 120_000 }: Http2RequestLimits = {}): Http2Requests {
  return (stream, headers, rawHeaders) => {
    const cut = (): void => stream.close(constants.NGHTTP2_CANCEL)
    stream.setTimeout(idleTimeoutMs, cut)
    // In HTTP/2, frames show whether there is a body. The listener looks for a header, so set one.
    if (!stream.endAfterHeaders && headers['content-length'] === undefined) headers['transfer-encoding'] = 'chunked'
    const request = new Http2ServerRequest(stream, headers, {}, rawHeaders)
    const late = setTimeout(cut, requestTimeoutMs)
    for (const event of ['end', 'close']) request.once(event, () => clearTimeout(late))
    const response = new Http2ServerResponse(stream)
    // Node's HTTP/2 response class lacks these two properties.
    Object.defineProperties(response, { closed: { get: () => stream.closed }, writableFinished: { get: () => stream.writableFinished } })
    if (headers.expect === '100-continue') response.writeContinue()
    // Node's HTTP/2 request and response classes are compatible with those of HTTP/1.1.
    listener(request as unknown as IncomingMessage, response as unknown as ServerResponse<IncomingMessage> & { req: IncomingMessage })
  }
}
