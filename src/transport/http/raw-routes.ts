import { maxOpenRequestBytes } from '../../base/schema/method.ts'
import { readText } from './body.ts'
import { headerText, send } from './http-context.ts'
import type { HttpContext } from './http-context.ts'
import type { RawRequest, RawRoute } from './raw-route.ts'
import type { Route, RouteMatch } from './route-index.ts'
import { decodeSegment } from './template.ts'

/** Serves raw routes beside the methods. */
export function rawRoutes(routes: readonly RawRoute[]): Route<HttpContext>[] {
  return routes.map((route) => ({
    verb: route.method,
    template: route.path,
    handle: async (context, match) => {
      send(context, await context.state.call.bound(route.handler(createRawRequest(context, match))))
    },
  }))
}

function createRawRequest(context: HttpContext, match: RouteMatch): RawRequest {
  const { req, state } = context
  const params = match.template.variables.map(({ path }, index) => [path.join('.'), decodeSegment(match.captures[index] ?? '')] as const)
  return {
    method: context.method,
    path: context.path,
    query: new URLSearchParams(context.querystring),
    params: Object.fromEntries(params),
    requestId: state.headers.requestId,
    remoteAddress: state.remoteAddress,
    signal: state.call.signal,
    header: (name) => headerText(req.headers[name]),
    text: (maxBytes = maxOpenRequestBytes) => readText(context, maxBytes),
  }
}
