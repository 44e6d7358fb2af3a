import type { HttpBinding, MethodRow } from '../../core/method.ts'
import type { Answer, Call, Decoded, Dispatch } from '../call.ts'
import { callName } from '../call-name.ts'
import type { JsonEncoder, JsonEncoders } from '../json-encode.ts'
import type { CallMetrics } from '../metrics.ts'
import { untilAborted } from '../../core/until-aborted.ts'
import { isForm, readForm, readJsonBody } from './body.ts'
import { decodeRequest, readValidateOnly } from './decode-request.ts'
import { sendJson } from './http-context.ts'
import type { HttpContext, HttpState } from './http-context.ts'
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
export function methodRoutes(bound: readonly BoundMethod[], options: MethodRouteOptions): Route<HttpState>[] {
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
        const answer = await untilAborted(options.dispatch(call), state.signal)
        sendAnswer(context, answer, encode)
      },
    }
  })
}

interface Matched {
  readonly context: HttpContext
  readonly match: RouteMatch
}

function createCall(method: BoundMethod, matched: Matched): Call {
  const { context } = matched
  const query = new URLSearchParams(context.querystring)
  return {
    ...context.state.headers,
    method: method.row,
    transport: 'http',
    validateOnly: readValidateOnly(query).value,
    remoteAddress: context.req.socket.remoteAddress ?? '',
    signal: context.state.signal,
    decode: () => decode(method, { ...matched, query }),
  }
}

async function decode({ row, binding }: BoundMethod, { context, match, query }: Matched & { readonly query: URLSearchParams }): Promise<Decoded> {
  const hasBody = binding.body !== ''
  if (!hasBody) await addForm(context, query)
  return decodeRequest({
    input: row.input,
    verb: binding.verb,
    bodyField: binding.body,
    query,
    body: hasBody ? await readJsonBody(context) : undefined,
    variables: match.template.variables.map((variable, index) => ({ ...variable, value: decodeSegment(match.captures[index] ?? '') })),
  })
}

/** A form on a binding without body is part of the query (rules 8, wire-v1 1.4). */
async function addForm(context: HttpContext, query: URLSearchParams): Promise<void> {
  if (!isForm(context)) return
  for (const [key, value] of await readForm(context)) query.append(key, value)
}

function sendAnswer(context: HttpContext, answer: Answer, encode: JsonEncoder | undefined): void {
  if (answer.etag !== undefined) context.set('ETag', `"${answer.etag}"`)
  if (answer.pageTokenRestarted === true) context.set('Page-Token-Restarted', 'true')
  context.status = 200
  if (encode !== undefined) {
    sendJson(context, encode(answer.message))
    return
  }
  context.body = ''
  context.remove('Content-Type')
}
