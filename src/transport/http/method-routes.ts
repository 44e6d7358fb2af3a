import type { DescMessage, Message } from '@bufbuild/protobuf'
import type { Log } from '../../base/log.ts'
import type { ShownPage } from '../../engine/services.ts'
import type { HttpBinding, MethodRow } from '../../base/schema/method.ts'
import type { CallHeaders } from '../calls/call-headers.ts'
import { callName, type Answer, type Call, type DecodedCall, type Dispatch } from '../calls/call.ts'
import { isForm, parseJsonBody, readForm, readJsonText, skipBody } from './body.ts'
import { decodeRequest, readValidateOnly } from './decode-request.ts'
import { acceptsEventStream, sendEventStream } from './event-stream.ts'
import { headerText, jsonType, send, sendPieces, type HttpAnswer, type HttpContext } from './http-context.ts'
import type { HttpRoute, RouteMatch } from './route-index.ts'
import { decodeSegment } from './template.ts'
import type { JsonEncoders, JsonEncoder } from '../json-encode.ts'
import type { CallMetrics } from '../metrics.ts'
import type { LimitState } from '../rate-limit.ts'

/** Encodes an answer as a JSON text, or as the bytes of that text in pieces. */
type AnswerJson = (answer: Answer) => string | readonly Uint8Array[]

/** Returns the JSON encoder for answers of one message type. It reuses the text of records that were encoded before, and joins such texts for a list. */
function createAnswerJson(desc: DescMessage, encoders: JsonEncoders): AnswerJson {
  const encode = encoders(desc)
  return (answer) => {
    const { message, shown, page } = answer
    if (shown !== undefined) return (shown.json ??= encode(shown.message))
    if (page?.field.message === undefined) return encode(message)
    return pageText(page, encode({ ...message, [page.field.localName]: [] }), encoders(page.field.message))
  }
}

/** Returns where the items of an empty list begin in the text of a message. */
function startOf({ field }: Pick<ShownPage, 'field'>, frame: string): number {
  const opening = `${JSON.stringify(field.jsonName)}:[`
  // The text of the list's key occurs nowhere else, because quotes in values are escaped.
  return frame.indexOf(`${opening}]`) + opening.length
}

function itemsText({ items }: ShownPage, encodeItem: JsonEncoder): string {
  let text = ''
  let separator = ''
  for (const item of items) {
    text += separator + (item.json ??= encodeItem(item.message))
    separator = ','
  }
  return text
}

function pageText(page: ShownPage, frame: string, encodeItem: JsonEncoder): string | readonly Uint8Array[] {
  const start = startOf(page, frame)
  if (page.joined !== undefined) return [Buffer.from(frame.slice(0, start)), ...page.joined, Buffer.from(frame.slice(start))]
  return frame.slice(0, start) + itemsText(page, encodeItem) + frame.slice(start)
}

/** Yields the JSON text of a list page by page. No page is empty. */
async function* listPieces({ message, page, more }: Answer, desc: DescMessage, encoders: JsonEncoders): AsyncGenerator<Uint8Array, undefined> {
  if (page?.field.message === undefined || more === undefined) throw new TypeError(`${desc.typeName} has no pages`)
  const frame = encoders(desc)({ ...message, [page.field.localName]: [] })
  const [start, encodeItem] = [startOf(page, frame), encoders(page.field.message)]
  yield Buffer.from(frame.slice(0, start) + itemsText(page, encodeItem))
  for await (const next of more) if (next.items.length > 0) yield Buffer.from(`,${itemsText(next, encodeItem)}`)
  yield Buffer.from(frame.slice(start))
}

/** The dependencies and options of method routes. */
export interface MethodRouteOptions {
  readonly dispatch: Dispatch
  readonly encoders: JsonEncoders
  readonly metrics?: CallMetrics
  readonly log: Log
}

/** A method of the API with one of its REST routes. */
export interface BoundMethod {
  readonly row: MethodRow
  readonly binding: HttpBinding
}

/** Answers the requests of one method and route. */
type Serve = HttpRoute<HttpContext>['handle']

/**
 * Returns the routes of API methods. Each converts a request to a `Call`, passes it to the pipeline, and sends the pipeline's answer. A streaming method has
 * the same route as its unary form.
 */
export function methodRoutes(bound: readonly BoundMethod[], options: MethodRouteOptions): HttpRoute<HttpContext>[] {
  const routeName = ({ binding }: BoundMethod): string => `${binding.verb} ${binding.template}`
  const streams = new Map(bound.filter(({ row }) => row.streaming).map((method) => [routeName(method), serve(method, options)]))
  return bound
    .filter(({ row }) => !row.streaming)
    .map((method) => {
      const { verb, template } = method.binding
      const [whole, streamed] = [serve(method, options), streams.get(routeName(method))]
      if (streamed === undefined) return { verb, template, handle: whole }
      return { verb, template, handle: (context, match) => (acceptsEventStream(context) ? streamed : whole)(context, match) }
    })
}

/** True for a method whose answers have an empty body. In version 1 such an answer is an empty object (docs/spec/version-1.md#deletes). */
function hasNoContent({ output, service }: MethodRow): boolean {
  return output.typeName === 'google.protobuf.Empty' && !service.includes('.v1.')
}

function serve(method: BoundMethod, options: MethodRouteOptions): Serve {
  const name = callName(method.row)
  const encode = hasNoContent(method.row) ? undefined : createAnswerJson(method.row.output, options.encoders)
  return async (context, match) => {
    const { state } = context
    state.domain = method.row.domain
    state.method = name
    state.route = method.binding.template
    state.done = options.metrics?.start(name, 'http')
    const answer = await state.call.bound(options.dispatch(new HttpCall(method, { context, match })))
    if (answer.more !== undefined) {
      await sendPieces(context, { headers: jsonType, pieces: listPieces(answer, method.row.output, options.encoders) })
      return
    }
    if (answer.stream === undefined) {
      send(context, { status: 200, ...contentOf(context, answer, { encode, encoders: options.encoders }) })
      return
    }
    // Stop measuring the call when its answer begins, because the length of a stream says nothing about the server.
    state.done?.(0)
    state.done = undefined
    await sendEventStream(context, answer.stream, options)
  }
}

interface Matched {
  readonly context: HttpContext
  readonly match: RouteMatch
}

const noQuery = new URLSearchParams()

/**
 * A class instead of an object literal. With a getter, each literal would get a hidden class of its own, which stays in memory until the next full garbage
 * collection.
 */
class HttpCall implements Call {
  readonly method: MethodRow
  readonly headers: CallHeaders
  readonly transport = 'http'
  readonly validateOnly: boolean
  readonly remoteAddress: string
  readonly #bound: BoundMethod
  readonly #matched: Matched
  readonly #query: URLSearchParams

  constructor(bound: BoundMethod, matched: Matched) {
    const { state, querystring } = matched.context
    this.#bound = bound
    this.#matched = matched
    this.#query = bound.row.streaming ? resumingQuery(matched.context) : querystring === '' ? noQuery : new URLSearchParams(querystring)
    this.method = bound.row
    this.headers = state.headers
    this.validateOnly = querystring !== '' && readValidateOnly(this.#query).value
    this.remoteAddress = state.remoteAddress
  }

  get signal(): AbortSignal {
    return this.#matched.context.state.call.signal
  }

  limited({ burst, windowSeconds, remaining, resetSeconds }: LimitState): void {
    // The names and forms of draft-ietf-httpapi-ratelimit-headers-10.
    this.#matched.context.state.limits = {
      'RateLimit-Policy': `"requests";q=${burst};w=${windowSeconds}`,
      RateLimit: `"requests";r=${remaining};t=${resetSeconds}`,
    }
  }

  throwIfEnded(): void {
    this.#matched.context.state.call.throwIfEnded()
  }

  decode(arrived?: () => void): Promise<DecodedCall> {
    return decode(this.#bound, { ...this.#matched, query: this.#query }, arrived)
  }
}

async function decode(
  { row, binding }: BoundMethod,
  { context, match, query }: Matched & { readonly query: URLSearchParams },
  arrived?: () => void,
): Promise<DecodedCall> {
  const hasBody = binding.body !== ''
  const { maxRequestBytes } = row
  const form = hasBody ? undefined : await readQueryForm(context, maxRequestBytes)
  if (row.mutation && !hasBody && form === undefined) await skipBody(context, maxRequestBytes)
  const text = hasBody ? await readJsonText(context, maxRequestBytes) : undefined
  arrived?.()
  const listKey = row.input.fields.find((field) => field.name === binding.body && field.fieldKind === 'list')?.jsonName
  return decodeRequest({
    input: row.input,
    verb: binding.verb,
    bodyField: listKey === undefined ? binding.body : '*',
    query: form === undefined ? query : new URLSearchParams([...query, ...form]),
    body: text === undefined ? undefined : parseJsonBody(text, listKey),
    variables: match.template.variables.map((variable, index) => ({ ...variable, value: decodeSegment(match.captures[index] ?? '') })),
    lenient: !row.service.includes('.v2.') || prefersLenient(headerText(context.req.headers['prefer'])),
  })
}

/** Returns the query of a request for an event stream. If the request has `Last-Event-ID`, the query gets it as the cursor after which to continue. */
function resumingQuery({ req, querystring }: HttpContext): URLSearchParams {
  const query = new URLSearchParams(querystring)
  const cursor = headerText(req.headers['last-event-id']) ?? ''
  if (cursor !== '') query.set('cursor', cursor)
  return query
}

/** True if the header `Prefer` contains `handling=lenient` (RFC 7240). */
function prefersLenient(header: string | undefined): boolean {
  return header !== undefined && /(?:^|,)\s*handling\s*=\s*"?lenient"?\s*(?:[,;]|$)/i.test(header)
}

/** Reads a form as part of the query, for a route without a body (docs/spec/conventions.md#request-bodies). */
async function readQueryForm(context: HttpContext, maxBytes: number): Promise<URLSearchParams | undefined> {
  // Most requests have no body, and therefore no form.
  const { headers } = context.req
  if (headers['content-type'] === undefined) return undefined
  return isForm(context) ? readForm(context, maxBytes) : undefined
}

/** Returns the link to the next page of a list: the same request with its page token. Undefined on the last page, and for a request whose query is in a form. */
function nextLink(context: HttpContext, { message }: Answer): string | undefined {
  const { nextPageToken } = message as Message & { readonly nextPageToken?: string } // lists have the field
  if (nextPageToken === undefined || nextPageToken === '' || isForm(context)) return undefined
  const { path, querystring } = context
  const query = new URLSearchParams(querystring)
  // The token says where the list continues.
  for (const name of ['skip', 'pageToken', 'page_token']) query.delete(name)
  query.set('pageToken', nextPageToken)
  return `<${path}?${String(query)}>; rel="next"`
}

function contentOf(
  context: HttpContext,
  answer: Answer,
  { encode, encoders }: { readonly encode: AnswerJson | undefined; readonly encoders: JsonEncoders },
): Pick<HttpAnswer, 'headers' | 'body'> {
  const { document } = answer
  if (document !== undefined) {
    const body = `[${document.items.map(encoders(document.itemDesc)).join(',')}]`
    return { headers: { ...document.headers, 'Content-Type': document.contentType }, body }
  }
  const headers: Record<string, string> = encode === undefined ? {} : { ...jsonType }
  if (answer.etag !== undefined) headers['ETag'] = `"${answer.etag}"`
  if (answer.pageTokenRestarted === true) headers['Page-Token-Restarted'] = 'true'
  const next = nextLink(context, answer)
  if (next !== undefined) headers['Link'] = next
  return { headers, body: encode === undefined ? '' : encode(answer) }
}
