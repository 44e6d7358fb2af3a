import Koa from 'koa'
import type { Middleware } from 'koa'
import type { RequestListener } from 'node:http'
import { DomainError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { MethodRow } from '../../core/method.ts'
import { httpBindings } from '../aliases.ts'
import { parseCallHeaders } from '../call-headers.ts'
import { platformDomain, toDomainError } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import { isForm } from './body.ts'
import { createCallSignal } from './call-signal.ts'
import { headerText, sendJson } from './http-context.ts'
import type { HttpState } from './http-context.ts'
import { methodRoutes } from './method-routes.ts'
import type { MethodRouteOptions } from './method-routes.ts'
import type { RawRoute } from './raw-route.ts'
import { rawRoutes } from './raw-routes.ts'
import { createRouteIndex } from './route-index.ts'
import type { RouteIndex } from './route-index.ts'

/** What the REST side is made of. */
export interface HttpApiOptions extends MethodRouteOptions {
  readonly methods: readonly MethodRow[]
  readonly log: Log
  /** A fresh request id for calls that bring none. */
  readonly newRequestId: () => string
  /** Routes beside the methods. */
  readonly routes?: readonly RawRoute[]
  /** Serve the earlier `/<domain>/v2beta1/` paths too. */
  readonly preview?: boolean
}

/**
 * Builds the REST side as a node:http request listener: every binding of the method table, then the extra routes. Every answer carries
 * `X-Request-Id`; every error is `{code, message, details}` (spec 7.1). `Request-Timeout: <seconds>` sets a deadline.
 */
export function createHttpApi(options: HttpApiOptions): RequestListener {
  const bindings = options.methods.flatMap((row) => httpBindings(row, options.preview ?? false).map((binding) => ({ row, binding })))
  const index = createRouteIndex<HttpState>([...methodRoutes(bindings, options), ...rawRoutes(options.routes ?? [])])
  const app = new Koa<HttpState>()
  app.silent = true
  app.use(frame(options)).use(index.middleware).use(unrouted(index))
  const answer = app.callback()
  // Koa's promise never rejects: `frame` answers every error.
  return (request, response) => void answer(request, response)
}

/** The outermost step: request id, signal, common headers, and the one place where errors become answers. */
function frame(options: HttpApiOptions): Middleware<HttpState> {
  return async (context, next) => {
    const { req, res, state } = context
    state.headers = parseCallHeaders((name) => headerText(req.headers[name]), options.newRequestId)
    state.signal = createCallSignal(req, res)
    state.domain = platformDomain
    state.method = 'unknown'
    context.set({ 'X-Request-Id': state.headers.requestId, 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' })
    try {
      if (!isPath(req.url)) throw DomainError.invalid('path', 'must start with /')
      await next()
      state.done?.(0)
    } catch (thrown) {
      const { requestId } = state.headers
      const error = toDomainError(thrown, { requestId, method: state.method, signal: state.signal, log: options.log })
      state.done?.(error.code)
      const answer = httpError(error, { requestId, domain: state.domain })
      context.set(answer.headers)
      context.status = answer.status
      sendJson(context, JSON.stringify(answer.body))
    }
  }
}

/** Koa's address parser throws on some targets that node:http lets through; a proxy's absolute form must be a valid address. */
function isPath(target: string | undefined): boolean {
  return target !== undefined && (target.startsWith('/') || URL.canParse(target))
}

/** A path that no route took: a form on a GET path, another verb of a known path (405), or nothing at all (404). */
function unrouted(index: RouteIndex<HttpState>): Middleware<HttpState> {
  return async (context) => {
    const verbs = index.verbsOf(context.path)
    if (context.method === 'POST' && verbs.includes('GET') && isForm(context)) {
      // wire-v1 1.4: a form posted to a path that only has GET is that GET, the form being its query.
      context.method = 'GET'
      await index.middleware(context, async () => {})
      return
    }
    if (verbs.length === 0) {
      throw new DomainError(5, 'no such path', {
        details: { resource: { resourceType: 'route', resourceName: context.path.slice(0, 300), owner: '', description: 'no method is served at this path' } },
      })
    }
    context.set('Allow', [...verbs, 'OPTIONS'].join(', '))
    if (context.method !== 'OPTIONS') throw new DomainError(12, `${context.method} is not served at this path`, { httpStatus: 405 })
    context.status = 204
  }
}
