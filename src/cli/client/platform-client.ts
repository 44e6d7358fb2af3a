import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../base/error-text.ts'
import { ClientError, isJson, refusalOf, textOf, type Json } from './client-error.ts'
import { retryLimits, retryWaitMs } from './retry.ts'

/** A REST call. */
export interface ClientCall {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Path below the base URL, e.g. `/iam/v2/groups`. */
  readonly path: string
  readonly query?: ClientQuery
  readonly body?: Json
  /** The etag that the record must have, or the API refuses with code 10. Undefined or empty: any. */
  readonly ifMatch?: string
  /** Makes a create safe to repeat: after a broken connection the call is repeated. */
  readonly idempotencyKey?: string
  /** The fields of a form, instead of `body`. */
  readonly form?: Readonly<Record<string, string>>
}

/** Query parameters of a call. A list repeats the parameter. */
export type ClientQuery = Readonly<Record<string, string | readonly string[]>>

/** One page of a list. */
export interface Page {
  readonly records: readonly Json[]
  /** Number of results on all pages; undefined if the list does not count them. */
  readonly totalCount: number | undefined
  /** The whole response. */
  readonly answer: Json
}

/**
 * A REST client of the platform API for one caller. Methods reject with ClientError. After a 429 or 503 with `Retry-After`, reads and creates
 * with a key are retried a limited number of times. So are dry runs.
 */
export interface PlatformClient {
  call(call: ClientCall): Promise<Json>
  /** Starts a GET and returns its response, whose body the caller reads. It may last until `signal` aborts. Not retried. */
  open(path: string, options: { readonly query: ClientQuery; readonly accept: string; readonly signal: AbortSignal }): Promise<Response>
  /**
   * Reads a list page by page. `plural` is the response's field with the records. A page is requested only when the previous one is used
   * up. `page_size` is 200, unless the query sets it.
   */
  pages(path: string, plural: string, query?: ClientQuery): AsyncIterable<Page>
  /** Yields all records of a list. */
  list(path: string, plural: string, query?: ClientQuery): AsyncIterable<Json>
}

/** The API's URL and the caller's credential. */
export interface PlatformClientOptions {
  /** The base URL, without a final slash. */
  readonly baseUrl: string
  /** An access token, or with `identity` an OIDC token of another issuer. A function is called for each request. Undefined for anonymous calls. */
  readonly token: string | (() => Promise<string>) | undefined
  /** Uid of the identity to assume with a token of another issuer. The server then exchanges the token in each request. */
  readonly identity?: string | undefined
  /** Waits before a retry, in milliseconds. Default: a timer. */
  readonly wait?: (ms: number) => Promise<unknown>
}

/** An HTTP response. */
interface ClientAnswer {
  readonly status: number
  readonly text: string
  readonly retryAfter: string | undefined
}

const timeoutMs = 30_000
/** The maximum page size of the API. */
const pageSize = '200'

/** Creates a PlatformClient. */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const call = (one: ClientCall): Promise<Json> => send(options, one)
  async function* pages(path: string, plural: string, query: ClientQuery = {}): AsyncGenerator<Page> {
    for (let pageToken = ''; ;) {
      const page = await call({ method: 'GET', path, query: { page_size: pageSize, ...query, ...(pageToken === '' ? {} : { page_token: pageToken }) } })
      const records = page[plural]
      const totalCount = page['totalCount']
      yield {
        records: Array.isArray(records) ? records.filter(isJson) : [],
        totalCount: typeof totalCount === 'string' ? Number(totalCount) : undefined,
        answer: page,
      }
      pageToken = textOf(page['nextPageToken'])
      if (pageToken === '') return
    }
  }
  return {
    call,
    open: async (path, { query, accept, signal }) => {
      const { url, headers } = await addressed(options, { path, query })
      const response = await begin(url, { headers: { ...headers, accept }, signal })
      if (response.status === 200) return response
      const text = await response.text()
      throw refusalOf(parseAnswer(text)) ?? notPlatform(url, response.status)
    },
    pages,
    async *list(path, plural, query) {
      for await (const { records } of pages(path, plural, query)) yield* records
    },
  }
}

/** Returns the URL of a call, and the headers with the credential. */
async function addressed(
  { baseUrl, token, identity }: PlatformClientOptions,
  { path, query = {} }: Pick<ClientCall, 'path' | 'query'>,
): Promise<{ url: URL; headers: Record<string, string> }> {
  const url = new URL(`${baseUrl}${path}`)
  for (const [name, value] of Object.entries(query)) for (const one of [value].flat()) url.searchParams.append(name, one)
  const credential = typeof token === 'function' ? await token() : token
  return {
    url,
    headers: {
      ...(credential === undefined ? {} : { authorization: `Bearer ${credential}` }),
      ...(identity === undefined ? {} : { 'taproot-identity': identity }),
    },
  }
}

/** The error of an answer that is not from a platform API, such as the HTML of a proxy. As with no answer, the cause is an error of HTTP. */
function notPlatform({ origin }: URL, status: number): ClientError {
  return new ClientError(`${origin} answered ${status}, but is not a platform API: check the URL`, {}, new Error(`HTTP status ${status}`))
}

async function send(options: PlatformClientOptions, call: ClientCall): Promise<Json> {
  const { wait = delay } = options
  const { method, idempotencyKey = '' } = call
  const { url, headers } = await addressed(options, call)
  const request = requestOf(call, headers)
  // A dry run changes nothing.
  const mayRepeat = method === 'GET' || idempotencyKey !== '' || call.query?.['validateOnly'] === 'true'
  let answer = idempotencyKey === '' ? await exchange(url, request) : await exchangeTwice(url, request)
  for (let sent = 0; mayRepeat && sent < retryLimits.retries; sent += 1) {
    const waitMs = retryWaitMs(answer, Date.now())
    if (waitMs === undefined) break
    await wait(waitMs)
    answer = await exchange(url, request)
  }
  const parsed = parseAnswer(answer.text)
  if (answer.status >= 200 && answer.status < 300 && parsed !== undefined) return parsed
  throw refusalOf(parsed) ?? notPlatform(url, answer.status)
}

function requestOf({ method, body, form, ifMatch = '', idempotencyKey = '' }: ClientCall, headers: Readonly<Record<string, string>>): RequestInit {
  // fetch sets the content type of a form.
  const content = form !== undefined ? { body: new URLSearchParams(form) } : body === undefined ? {} : { body: JSON.stringify(body) }
  const own = {
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...(ifMatch === '' ? {} : { 'if-match': `"${ifMatch}"` }),
    ...(idempotencyKey === '' ? {} : { 'idempotency-key': idempotencyKey }),
  }
  return { method, headers: { ...headers, ...own }, ...content }
}

async function begin(url: URL, request: RequestInit): Promise<Response> {
  try {
    // Redirects are not followed, since the token may be sent only to its own server.
    return await fetch(url, { ...request, redirect: 'manual' })
  } catch (cause) {
    throw unanswered(url, request, cause)
  }
}

async function exchange(url: URL, request: RequestInit): Promise<ClientAnswer> {
  const response = await begin(url, { ...request, signal: AbortSignal.timeout(timeoutMs) })
  try {
    return { status: response.status, text: await response.text(), retryAfter: response.headers.get('retry-after') ?? undefined }
  } catch (cause) {
    throw unanswered(url, request, cause)
  }
}

/** Sends a request that is safe to repeat, and repeats it if the connection breaks before the answer. */
async function exchangeTwice(url: URL, request: RequestInit): Promise<ClientAnswer> {
  try {
    return await exchange(url, request)
  } catch (error) {
    if (!(error instanceof ClientError) || !mayHaveArrived(error.cause)) throw error
    return await exchange(url, request)
  }
}

/** The error of a request without an answer. It says so if a change may have happened nevertheless. */
function unanswered({ origin }: URL, { method }: RequestInit, cause: unknown): ClientError {
  if (method === undefined || method === 'GET' || !mayHaveArrived(cause)) return new ClientError(`${origin} cannot be reached: ${reasonOf(cause)}`, {}, cause)
  return new ClientError(`${origin} did not answer: ${reasonOf(cause)}. The change may have happened: look at the record before you repeat it`, {}, cause)
}

/** True if the connection broke, or the time passed, when the request may have been sent. */
function mayHaveArrived(cause: unknown): boolean {
  if (cause instanceof DOMException) return true
  const inner: unknown = cause instanceof TypeError ? cause.cause : undefined
  const code = inner instanceof Error && 'code' in inner ? inner.code : undefined
  return code === 'ECONNRESET' || code === 'EPIPE' || code === 'ETIMEDOUT' || (typeof code === 'string' && /^UND_ERR_(?!CONNECT_TIMEOUT)/.test(code))
}

/** Parses the body of a response; undefined if it is not a JSON object. Deletes have an empty body. */
function parseAnswer(answer: string): Json | undefined {
  if (answer === '') return {}
  try {
    const parsed: unknown = JSON.parse(answer)
    return isJson(parsed) ? parsed : undefined
  } catch {
    // The body is not JSON.
    return undefined
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(reasonOf).join(', ')
  // All network errors of fetch have the same message; the reason is in their cause.
  if (cause instanceof TypeError && cause.cause !== undefined) return reasonOf(cause.cause)
  return errorMessage(cause)
}
