import type { IncomingMessage, RequestListener } from 'node:http'
import cors from '@koa/cors'
import Koa from 'koa'
import type { Middleware } from 'koa'
import type { ClientAddress } from '../../base/client-address.ts'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { Span, Tracing } from '../../base/tracing.ts'
import { jsonPath, type FieldNaming } from '../../base/schema/field-names.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { httpBindings } from '../aliases.ts'
import { parseCallHeaders } from '../calls/call-headers.ts'
import { platformDomain, toDomainError } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import { isForm } from './body.ts'
import { CallSignal } from './call-signal.ts'
import { headerText, jsonType, send, type HttpAnswer, type HttpContext, type HttpState } from './http-context.ts'
import { maxHeaders } from './http-listener.ts'
import { methodRoutes, type MethodRouteOptions } from './method-routes.ts'
import { createRouteIndex, type HttpRoute, type RouteIndex } from './route-index.ts'
import { lacksOneHost } from './unreadable-request.ts'

/** Routes that are not API methods: pages, forms, documents and other protocols. A request is matched against them after the methods. */
export interface OtherRoutes {
  /** Answers the request and returns true. Returns false if no route has its verb and path. */
  serve(context: HttpContext): Promise<boolean>
  /** Returns the HTTP verbs that are served on a path, with HEAD if there is GET. Empty for an unknown path. */
  verbsOf(path: string): string[]
  /** Returns an error in the format of the route with the path of this request; undefined for an unknown path. */
  errorAnswer(context: HttpContext, error: DomainError): HttpAnswer | undefined
}

/** The dependencies and options of an HTTP application. */
export interface HttpAppOptions {
  readonly log: Log
  /** Returns a new request id, for calls without one. */
  readonly newRequestId: () => string
  readonly routes?: OtherRoutes
  /** Returns the client's address. By default, it is the peer address of the connection. */
  readonly clientAddress?: ClientAddress
  /** Origins whose scripts may read answers; `*` for all. None by default. */
  readonly origins?: readonly string[]
  readonly tracing?: Tracing | undefined
}

/** The route of a method that public clients know, and that is not served. */
export interface UnservedRoute {
  /** The domain, service and method: `iam.v1.Groups/List`. */
  readonly name: string
  readonly verb: string
  readonly template: string
}

/** The dependencies and options of the REST side. */
export interface HttpApiOptions extends MethodRouteOptions, HttpAppOptions {
  readonly methods: readonly MethodRow[]
  /** True if the routes are also served under the earlier paths `/<domain>/v2beta1/`. */
  readonly preview?: boolean
  /** Routes that answer code 12. */
  readonly unserved?: readonly UnservedRoute[]
}

/** Builds the REST side of a port as a node:http request listener. It serves every route of the method table, and the other routes. */
export function createHttpApi(options: HttpApiOptions): RequestListener {
  const bindings = options.methods.flatMap((row) => httpBindings(row, options.preview ?? false).map((binding) => ({ row, binding })))
  return createHttpApp(options, createRouteIndex<HttpContext>([...methodRoutes(bindings, options), ...(options.unserved ?? []).map(unservedRoute)]))
}

/** Returns a route whose answer is code 12 with HTTP 501. */
function unservedRoute({ name, verb, template }: UnservedRoute): HttpRoute<HttpContext> {
  const [domain = ''] = name.split('.')
  return {
    verb,
    template,
    handle({ state }) {
      state.domain = domain
      return Promise.reject(new DomainError(12, `${name} is not served`))
    },
  }
}

/**
 * Builds an application as a node:http request listener, which never throws. Every answer has the header `X-Request-Id`. Every error is `{code, message,
 * details}` (docs/spec/errors.md#error-shape), except on paths with their own error format. The request header `Request-Timeout: <seconds>` sets a deadline.
 */
export function createHttpApp(options: HttpAppOptions, index: RouteIndex<HttpContext> = createRouteIndex<HttpContext>([])): RequestListener {
  const app = new Koa<HttpState>()
  app.silent = true
  app.use(frame(options, index))
  const answer = app.callback()
  // Koa's promise never rejects, because `frame` answers every error.
  return (request, response) => void answer(request, response)
}

/** The request headers that scripts of other origins may set, and the answer headers that they may read. */
const corsHeaders = {
  allowHeaders: [
    'Authorization',
    'Content-Type',
    'Idempotency-Key',
    'If-Match',
    'If-None-Match',
    'Last-Event-ID',
    'Prefer',
    'Request-Timeout',
    'X-Request-Id',
    'traceparent',
  ],
  exposeHeaders: ['ETag', 'Link', 'Page-Token-Restarted', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'X-Request-Id'],
}
/** The time for which a browser remembers what it may send, in seconds. */
const corsMaxAge = 600

/** Returns the middleware that lets scripts of other origins read answers. They never send cookies. Undefined if there are no origins. */
function crossOrigin(origins: readonly string[]): Middleware<HttpState> | undefined {
  if (origins.length === 0) return undefined
  const origin = (context: Koa.Context): string => (origins.includes('*') ? '*' : origins.includes(context.get('Origin')) ? context.get('Origin') : '')
  return cors({ origin, allowMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'], ...corsHeaders, maxAge: corsMaxAge }) as Middleware<HttpState>
}

/**
 * The only middleware. It sets the request id and the signal, finds the route, and converts errors to answers. Its cost does not grow with the number of
 * routes.
 */
function frame(options: HttpAppOptions, index: RouteIndex<HttpContext>): Middleware<HttpState> {
  const shared = crossOrigin(options.origins ?? [])
  const route = async (context: HttpContext): Promise<void> => {
    const { req, path } = context
    const found = index.find(req.method ?? '', path)
    if (found !== undefined) await found.route.handle(context, found.match)
    else if ((await options.routes?.serve(context)) !== true) await unrouted(context, index, options.routes)
  }
  const answer = async (context: HttpContext): Promise<void> => {
    const { req, res } = context
    const { headers } = req
    const state: HttpState = {
      headers: parseCallHeaders((name) => headerText(headers[name]), options.newRequestId),
      call: new CallSignal(req, res),
      remoteAddress: addressOf(req, options.clientAddress),
      domain: platformDomain,
      method: 'unknown',
      route: undefined,
      limits: undefined,
      done: undefined,
    }
    context.state = state
    try {
      assertFewHeaders(req)
      if (lacksOneHost(req)) throw DomainError.invalid('headers', 'send exactly one Host header')
      if (!isPath(req.url)) throw DomainError.invalid('path', 'must start with /')
      if (shared === undefined) await route(context)
      else await shared(context, () => route(context))
      // The question of a browser before a request of another origin.
      if (context.respond !== false) send(context, { status: 204, headers: {}, body: '' })
      state.done?.(0)
    } catch (thrown) {
      const { requestId } = state.headers
      const error = toDomainError(thrown, { requestId, method: state.method, signal: state.call.signal, log: options.log })
      state.done?.(error.code, error.reason)
      send(context, errorAnswer(context, error, options))
    }
  }
  const { tracing } = options
  return tracing === undefined ? answer : traced(tracing, answer)
}

/** Returns the middleware with a span for each request. */
function traced(tracing: Tracing, answer: (context: HttpContext) => Promise<void>): Middleware<HttpState> {
  return (context) => {
    const { method, headers } = context.req
    const start = { kind: 'request', name: knownVerb(method), traceparent: headerText(headers['traceparent']) } as const
    return tracing.span(start, async (span) => {
      await answer(context)
      describeRequest(span, context)
    })
  }
}

/** The verb of a request; `HTTP` for one that clients made up. */
function knownVerb(method = ''): string {
  return ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].includes(method) ? method : 'HTTP'
}

/** Names the span of a request that was answered. The path and the query are no attributes, because those of sign-in contain secrets. */
function describeRequest(span: Span, { req, res, state }: HttpContext): void {
  const verb = knownVerb(req.method)
  const { statusCode } = res
  if (state.route !== undefined) span.rename(`${verb} ${state.route}`)
  span.set({
    'http.request.method': verb === 'HTTP' ? '_OTHER' : verb,
    'http.route': state.route,
    'http.response.status_code': statusCode,
    'client.address': state.remoteAddress,
    'user_agent.original': state.headers.userAgent,
    'taproot.method': state.method,
    'taproot.request_id': state.headers.requestId,
  })
  if (statusCode >= 500) span.fail(String(statusCode))
}

/** Returns the answer for an error in the format of the request's path. */
function errorAnswer(context: HttpContext, error: DomainError, { routes }: HttpAppOptions): HttpAnswer {
  const { req, state } = context
  const { requestId } = state.headers
  // All methods have the same error format, so their paths need no search. Only requests for methods have a domain.
  const other = state.domain === platformDomain && isPath(req.url) ? routes?.errorAnswer(context, error) : undefined
  if (other !== undefined) return other
  const { status, headers, body } = httpError(error, { requestId, domain: state.domain }, fieldNaming(context))
  return { status, headers: { ...headers, ...jsonType }, body: JSON.stringify(body) }
}

/**
 * Returns how a method's caller writes field names: as JSON names, and query parameters in the spelling of the request. Undefined for other routes, whose
 * errors use their own names.
 */
function fieldNaming(context: HttpContext): FieldNaming | undefined {
  if (context.state.domain === platformDomain) return undefined
  const query = new URLSearchParams(context.querystring)
  return (path) => (query.has(path) ? path : jsonPath(path))
}

function addressOf({ socket, headers }: IncomingMessage, clientAddress: ClientAddress | undefined): string {
  return clientAddress?.(socket.remoteAddress, headerText(headers['x-forwarded-for'])) ?? socket.remoteAddress ?? ''
}

/** Throws if there are too many headers, because the server would silently drop those above its limit. */
function assertFewHeaders({ rawHeaders }: IncomingMessage): void {
  if (rawHeaders.length > 2 * maxHeaders) throw DomainError.invalid('headers', `must not be more than ${maxHeaders}`, { httpStatus: 431 })
}

/**
 * True if Koa can parse the request target. Koa's parser throws on some targets that node:http accepts. A target in absolute form, as proxies send it, must be
 * a valid URL.
 */
function isPath(target: string | undefined): boolean {
  return target !== undefined && (target.startsWith('/') || URL.canParse(target))
}

/** Answers a request without a matching route. It is a form on a path that has only GET, an unknown verb of a known path (405), or an unknown path (404). */
async function unrouted(context: HttpContext, index: RouteIndex<HttpContext>, others?: OtherRoutes): Promise<void> {
  const { path } = context
  const verbs = [...new Set([...index.verbsOf(path), ...(others?.verbsOf(path) ?? [])])]
  if (context.method === 'POST' && verbs.includes('GET') && isForm(context)) {
    // A form that is posted to a path with only GET counts as a GET with the form as its query (docs/spec/conventions.md#request-bodies).
    context.method = 'GET'
    const get = index.find('GET', path)
    return get === undefined ? void (await others?.serve(context)) : get.route.handle(context, get.match)
  }
  if (verbs.length === 0) {
    throw new DomainError(5, 'no such path', {
      details: { resource: { resourceType: 'route', resourceName: path.slice(0, 300), owner: '', description: 'no method is served at this path' } },
    })
  }
  context.set('Allow', [...verbs, 'OPTIONS'].join(', '))
  if (context.method !== 'OPTIONS') throw new DomainError(12, `${context.method} is not served at this path`, { httpStatus: 405 })
  send(context, { status: 204, headers: {}, body: '' })
}
