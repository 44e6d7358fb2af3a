import type { HttpBinding, MethodRow } from '../../core/method.ts'
import type { Answer, Call, Decoded, Dispatch } from '../call.ts'
import { callName } from '../call-name.ts'
import type { JsonEncoder, JsonEncoders } from '../json-encode.ts'
import type { CallMetrics } from '../metrics.ts'
import { isForm, readForm, readJsonBody } from './body.ts'
import { decodeRequest, readValidateOnly } from './decode-request.ts'
import { jsonType, send } from './http-context.ts'
import type { HttpAnswer, HttpContext } from './http-context.ts'
import type { Route, RouteMatch } from './route-index.ts'
import { decodeSegment } from './template.ts'

/** What method routes need. */
export interface MethodRouteOptions {
  readonly dispatch: Dispatch
  readonly encoders: JsonEncoders
  readonly metrics?: CallMetrics
}

/** A method with one of its bindings. */
export interface BoundMethod {
  readonly row: MethodRow
  readonly binding: HttpBinding
}

/** The routes of API methods: a request becomes a `Call`, what the dispatch answers becomes the response. */
export function methodRoutes(bound: readonly BoundMethod[], options: MethodRouteOptions): Route<HttpContext>[] {
  return bound.map((method) => {
    const name = callName(method.row)
    const encode = method.row.output.typeName === 'google.protobuf.Empty' ? undefined : options.encoders(method.row.output)
    return {
      verb: method.binding.verb,
      template: method.binding.template,
      handle: async (context, match) => {
        const { state } = context
        state.domain = method.row.domain
        state.method = name
        state.done = options.metrics?.start(name, 'http')
        const call = createCall(method, { context, match })
        const answer = await state.call.bound(options.dispatch(call))
        send(context, { status: 200, ...contentOf(answer, encode) })
      },
    }
  })
}

interface Matched {
  readonly context: HttpContext
  readonly match: RouteMatch
}

const noQuery = new URLSearchParams()

function createCall(method: BoundMethod, matched: Matched): Call {
  const { req, state, querystring } = matched.context
  const query = querystring === '' ? noQuery : new URLSearchParams(querystring)
  return {
    ...state.headers,
    method: method.row,
    transport: 'http',
    validateOnly: querystring !== '' && readValidateOnly(query).value,
    remoteAddress: req.socket.remoteAddress ?? '',
    get signal() {
      return state.call.signal
    },
    decode: () => decode(method, { ...matched, query }),
  }
}

async function decode({ row, binding }: BoundMethod, { context, match, query }: Matched & { readonly query: URLSearchParams }): Promise<Decoded> {
  const hasBody = binding.body !== ''
  const form = hasBody ? undefined : await readQueryForm(context)
  return decodeRequest({
    input: row.input,
    verb: binding.verb,
    bodyField: binding.body,
    query: form === undefined ? query : new URLSearchParams([...query, ...form]),
    body: hasBody ? await readJsonBody(context) : undefined,
    variables: match.template.variables.map((variable, index) => ({ ...variable, value: decodeSegment(match.captures[index] ?? '') })),
  })
}

/** A form on a binding without body is part of the query (rules 8, wire-v1 1.4). */
async function readQueryForm(context: HttpContext): Promise<URLSearchParams | undefined> {
  // Without a body there is nothing to look at; most calls have none.
  const { headers } = context.req
  if (headers['content-type'] === undefined) return undefined
  return isForm(context) ? readForm(context) : undefined
}

function contentOf(answer: Answer, encode: JsonEncoder | undefined): Pick<HttpAnswer, 'headers' | 'body'> {
  const headers = {
    ...(answer.etag === undefined ? {} : { ETag: `"${answer.etag}"` }),
    ...(answer.pageTokenRestarted === true ? { 'Page-Token-Restarted': 'true' } : {}),
  }
  return encode === undefined ? { headers, body: '' } : { headers: { ...headers, ...jsonType }, body: encode(answer.message) }
}
