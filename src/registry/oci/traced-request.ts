import type { Tracing } from '../../base/tracing.ts'
import type { RegistryExchange } from './exchange.ts'

/** The methods of requests that may name a span. */
const tracedMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'PUT', 'POST', 'PATCH', 'DELETE'])

/**
 * Answers a request in a span. `work` resolves with the kind of its path. The path itself is no attribute: that of an upload has its state. Ends before the
 * content of a blob is sent.
 */
export function tracedRequest<Route extends string>(tracing: Tracing, exchange: RegistryExchange, work: () => Promise<Route>): Promise<Route> {
  const { request, response, requestId } = exchange
  const method = tracedMethods.has(request.method ?? '') ? (request.method ?? '') : '_OTHER'
  const attributes = {
    'http.request.method': method,
    'client.address': exchange.remoteAddress,
    'user_agent.original': exchange.userAgent,
    'taproot.request_id': requestId,
  }
  const start = { kind: 'request', name: method, traceparent: exchange.header('traceparent'), attributes } as const
  return tracing.span(start, async (span) => {
    const route = await work()
    const { statusCode } = response
    span.rename(`${method} ${route}`)
    span.set({ 'taproot.route': route, 'taproot.repository': exchange.admitted?.repository, 'http.response.status_code': statusCode })
    if (statusCode >= 500) span.fail(String(statusCode))
    return route
  })
}
