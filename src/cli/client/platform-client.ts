import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../base/error-text.ts'
import { ClientError, isJson, refusalOf, textOf, type Json } from './client-error.ts'
import { retryLimits, retryWaitMs } from './retry.ts'

/** One REST call. */
export interface ClientCall {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Below the base URL, e.g. `/iam/v2/groups`. */
  readonly path: string
  readonly query?: ClientQuery
  readonly body?: Json
}

/** Parameters of a call; a list is repeated. */
export type ClientQuery = Readonly<Record<string, string | readonly string[]>>

/** One page of a list. */
export interface Page {
  readonly records: readonly Json[]
  /** Results on all pages; undefined where the list does not count them. */
  readonly totalCount: number | undefined
}

/** Speaks REST with the platform API as one caller. Methods reject with ClientError. Reads that are answered 429 or 503 with `Retry-After` are sent again, a bounded number of times. */
export interface PlatformClient {
  call(call: ClientCall): Promise<Json>
  /** A list, page by page; `plural` is the member that holds the records. A page is asked for when the one before has been consumed; `page_size` is 200 unless the query has it. */
  pages(path: string, plural: string, query?: ClientQuery): AsyncIterable<Page>
  /** All records of a list. */
  list(path: string, plural: string, query?: ClientQuery): AsyncIterable<Json>
}

/** Which API, and as whom. */
export interface PlatformClientOptions {
  /** Without a slash at its end. */
  readonly baseUrl: string
  /** An access token; with `identity`, an OIDC token of any issuer. */
  readonly token: string
  /** The identity that a token of another issuer is for: it is exchanged within each request. */
  readonly identity?: string | undefined
  /** Waits before a request is sent again; the machine's time if absent. */
  readonly wait?: (ms: number) => Promise<unknown>
}

/** What came back. */
interface ClientAnswer {
  readonly status: number
  readonly text: string
  readonly retryAfter: string | undefined
}

const timeoutMs = 30_000
/** The most that a page holds (api.md, limits). */
const pageSize = '200'

/** See PlatformClient. */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const call = (one: ClientCall): Promise<Json> => send(options, one)
  async function* pages(path: string, plural: string, query: ClientQuery = {}): AsyncGenerator<Page> {
    for (let pageToken = ''; ;) {
      const page = await call({ method: 'GET', path, query: { page_size: pageSize, ...query, ...(pageToken === '' ? {} : { page_token: pageToken }) } })
      const records = page[plural]
      const totalCount = page['totalCount']
      yield { records: Array.isArray(records) ? records.filter(isJson) : [], totalCount: typeof totalCount === 'string' ? Number(totalCount) : undefined }
      pageToken = textOf(page['nextPageToken'])
      if (pageToken === '') return
    }
  }
  return {
    call,
    pages,
    async *list(path, plural, query) {
      for await (const { records } of pages(path, plural, query)) yield* records
    },
  }
}

async function send({ baseUrl, token, identity, wait = delay }: PlatformClientOptions, { method, path, query = {}, body }: ClientCall): Promise<Json> {
  const url = new URL(`${baseUrl}${path}`)
  for (const [name, value] of Object.entries(query)) for (const one of [value].flat()) url.searchParams.append(name, one)
  const headers = {
    authorization: `Bearer ${token}`,
    ...(identity === undefined ? {} : { 'taproot-identity': identity }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
  const request = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) }
  let answer = await exchange(url, request)
  for (let sent = 0; method === 'GET' && sent < retryLimits.retries; sent += 1) {
    const waitMs = retryWaitMs(answer, Date.now())
    if (waitMs === undefined) break
    await wait(waitMs)
    answer = await exchange(url, request)
  }
  const parsed = parseAnswer(answer.text)
  if (answer.status >= 200 && answer.status < 300 && parsed !== undefined) return parsed
  throw refusalOf(parsed) ?? new ClientError(`${url.origin} answered ${answer.status}, but is no platform API`)
}

async function exchange(url: URL, request: RequestInit): Promise<ClientAnswer> {
  try {
    // A token goes to whom it was meant for, and nowhere else.
    const response = await fetch(url, { ...request, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) })
    return { status: response.status, text: await response.text(), retryAfter: response.headers.get('retry-after') ?? undefined }
  } catch (cause) {
    throw new ClientError(`${url.origin} can not be reached: ${reasonOf(cause)}`, {}, cause)
  }
}

/** Undefined where the answer is no JSON object. Deletes answer with nothing. */
function parseAnswer(answer: string): Json | undefined {
  if (answer === '') return {}
  try {
    const parsed: unknown = JSON.parse(answer)
    return isJson(parsed) ? parsed : undefined
  } catch {
    // Told by the absence of a result.
    return undefined
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(reasonOf).join(', ')
  // What fetch itself says is the same whatever happened.
  if (cause instanceof TypeError && cause.cause !== undefined) return reasonOf(cause.cause)
  return errorMessage(cause)
}
