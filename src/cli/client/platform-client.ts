import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../base/error-text.ts'
import { ClientError, isJson, refusalOf, textOf, type Json } from './client-error.ts'
import { retryLimits, retryWaitMs } from './retry.ts'

/** One REST call. */
export interface ClientCall {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Path below the base URL, e.g. `/iam/v2/groups`. */
  readonly path: string
  readonly query?: ClientQuery
  readonly body?: Json
}

/** Query parameters of a call. A list repeats the parameter. */
export type ClientQuery = Readonly<Record<string, string | readonly string[]>>

/** One page of a list. */
export interface Page {
  readonly records: readonly Json[]
  /** The number of results on all pages; undefined if the list does not count them. */
  readonly totalCount: number | undefined
}

/**
 * A REST client of the platform API for one caller. Methods reject with ClientError. Reads answered with 429 or 503 and `Retry-After` are retried a limited
 * number of times.
 */
export interface PlatformClient {
  call(call: ClientCall): Promise<Json>
  /**
   * Reads a list page by page. `plural` is the member with the records. Each page is requested after the previous one was consumed. `page_size` is 200 unless
   * the query has it.
   */
  pages(path: string, plural: string, query?: ClientQuery): AsyncIterable<Page>
  /** Yields all records of a list. */
  list(path: string, plural: string, query?: ClientQuery): AsyncIterable<Json>
}

/** The API and the caller. */
export interface PlatformClientOptions {
  /** Without a trailing slash. */
  readonly baseUrl: string
  /** An access token; with `identity`, an OIDC token of any issuer. */
  readonly token: string
  /** The identity for a token of another issuer. The server exchanges the token within each request. */
  readonly identity?: string | undefined
  /** Waits before a retry; uses the machine's time by default. */
  readonly wait?: (ms: number) => Promise<unknown>
}

/** An HTTP answer. */
interface ClientAnswer {
  readonly status: number
  readonly text: string
  readonly retryAfter: string | undefined
}

const timeoutMs = 30_000
/** The largest page size (api.md, limits). */
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
  throw refusalOf(parsed) ?? new ClientError(`${url.origin} answered ${answer.status}, but is not a platform API: check the URL`)
}

async function exchange(url: URL, request: RequestInit): Promise<ClientAnswer> {
  try {
    // Redirects are not followed, because the token must reach only its own server.
    const response = await fetch(url, { ...request, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) })
    return { status: response.status, text: await response.text(), retryAfter: response.headers.get('retry-after') ?? undefined }
  } catch (cause) {
    throw new ClientError(`${url.origin} cannot be reached: ${reasonOf(cause)}`, {}, cause)
  }
}

/** Returns undefined if the answer is not a JSON object. Deletes have an empty answer. */
function parseAnswer(answer: string): Json | undefined {
  if (answer === '') return {}
  try {
    const parsed: unknown = JSON.parse(answer)
    return isJson(parsed) ? parsed : undefined
  } catch {
    // Not JSON: the result is undefined.
    return undefined
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(reasonOf).join(', ')
  // The message of fetch is always the same. Its cause has the reason.
  if (cause instanceof TypeError && cause.cause !== undefined) return reasonOf(cause.cause)
  return errorMessage(cause)
}
