import Router from '@koa/router'
import { maxOpenRequestBytes } from '../../base/schema/method.ts'
import { fromStore } from '../../engine/errors.ts'
import { readText } from '../http/body.ts'
import type { OtherRoutes } from '../http/http-api.ts'
import { headerText, preferredType, send, sendPieces, type HttpAnswer, type HttpContext, type HttpState, type StreamedAnswer } from '../http/http-context.ts'
import { errorAnswer, type ErrorForm } from './web-answers.ts'
import type { WebRequest } from './web-request.ts'

/** A web route: a page, a form, a document, or part of another protocol. */
export interface WebRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Path in the syntax of `@koa/router`, e.g. `/oauth/callback/*provider`. A GET route also serves HEAD. A slash at the end of the path is ignored. */
  readonly path: string
  /** Counts the request against a rate limit before anything else happens. Throws code 8. */
  readonly limit?: ((request: WebRequest) => void) | undefined
  /**
   * The format of errors. All routes of a path must have the same. It also applies to errors before a route is found, such as too many headers. By default, it
   * is the format of the API.
   */
  readonly errors?: ErrorForm
  /**
   * Answers the request. The headers `Cache-Control: no-store` and `X-Content-Type-Options: nosniff` are sent unless the answer sets them. May throw
   * DomainError and StoreError.
   */
  handle(request: WebRequest): Promise<HttpAnswer | StreamedAnswer> | HttpAnswer | StreamedAnswer
}

const jsonErrors: ErrorForm = (error, requestId) => errorAnswer(error, requestId)

/** Serves web routes with `@koa/router`. */
export function createWebRoutes(routes: readonly WebRoute[]): OtherRoutes {
  const router = new Router<HttpState>({ sensitive: true })
  for (const route of routes) router.register(route.path, [route.method], (context) => answer(route, context, context.params))
  const dispatch = router.routes()
  const layersOf = (path: string): typeof router.stack => router.match(path, '').path
  return {
    async serve(context) {
      let isServed = true
      // The router's context is the same object with additional members.
      await dispatch(context as Parameters<typeof dispatch>[0], () => {
        isServed = false
        return Promise.resolve()
      })
      return isServed
    },
    verbsOf: (path) => layersOf(path).flatMap(({ methods }) => methods),
    errorAnswer({ path, req, state }, error) {
      const { requestId } = state.headers
      const [layer] = layersOf(path)
      const { errors = jsonErrors } = routes.find((route) => route.path === layer?.path) ?? {}
      return layer === undefined ? undefined : errors(error, requestId, headerText(req.headers.accept))
    },
  }
}

async function answer(route: WebRoute, context: HttpContext, params: WebRequest['params']): Promise<void> {
  const { state } = context
  state.method = `${route.method} ${route.path}`
  state.route = route.path
  try {
    const request = webRequest(context, params)
    route.limit?.(request)
    const made = await state.call.bound(Promise.resolve(route.handle(request)))
    if ('pieces' in made) await sendPieces(context, made)
    else send(context, made)
  } catch (thrown) {
    throw fromStore(thrown)
  }
}

function webRequest(context: HttpContext, params: WebRequest['params']): WebRequest {
  const { req, state } = context
  return {
    path: context.path,
    query: new URLSearchParams(context.querystring),
    params,
    requestId: state.headers.requestId,
    remoteAddress: state.remoteAddress,
    signal: state.call.signal,
    header: (name) => headerText(req.headers[name]),
    accepts: (types) => preferredType(context, types),
    text: (maxBytes = maxOpenRequestBytes) => readText(context, maxBytes),
  }
}
