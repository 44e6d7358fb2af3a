/** A refusal of the API, or no answer at all. The message is for a person. */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  /** The gRPC code; undefined where there was no answer of the API. */
  readonly code: number | undefined
  constructor(message: string, code: number | undefined, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>

/** One REST call. */
export interface ClientCall {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Below the base URL, e.g. `/iam/v2/groups`. */
  readonly path: string
  readonly query?: Readonly<Record<string, string>>
  readonly body?: Json
}

/** Speaks REST with the platform API as one caller. Methods reject with ClientError. */
export interface PlatformClient {
  call(call: ClientCall): Promise<Json>
  /** All records of a list, page by page; `plural` is the member that holds them. */
  list(path: string, plural: string, query?: Readonly<Record<string, string>>): AsyncIterable<Json>
}

/** Which API, and as whom. */
export interface PlatformClientOptions {
  /** Without a slash at its end. */
  readonly baseUrl: string
  /** An access token. */
  readonly token: string
}

const timeoutMs = 30_000

/** See PlatformClient. */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const call = (one: ClientCall): Promise<Json> => send(options, one)
  return {
    call,
    async *list(path, plural, query = {}) {
      for (let pageToken = ''; ;) {
        const page = await call({ method: 'GET', path, query: { ...query, page_size: '200', ...(pageToken === '' ? {} : { page_token: pageToken }) } })
        const records = page[plural]
        if (Array.isArray(records)) yield* records as Json[] // a cast: the API's lists hold objects
        pageToken = textOf(page['nextPageToken'])
        if (pageToken === '') return
      }
    },
  }
}

/** A member that is text; empty where it is not. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

async function send({ baseUrl, token }: PlatformClientOptions, { method, path, query = {}, body }: ClientCall): Promise<Json> {
  const url = new URL(`${baseUrl}${path}`)
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
  const headers = { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
  const { status, answer } = await exchange(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
  const parsed = parseAnswer(answer)
  if (status >= 200 && status < 300 && parsed !== undefined) return parsed
  const code = parsed?.['code']
  const message = textOf(parsed?.['message'])
  if (typeof code !== 'number') throw new ClientError(`${url.origin} answered ${status}, but is no platform API`, undefined)
  throw new ClientError(message, code)
}

async function exchange(url: URL, request: RequestInit): Promise<{ status: number; answer: string }> {
  try {
    // A token goes to whom it was meant for, and nowhere else.
    const response = await fetch(url, { ...request, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) })
    return { status: response.status, answer: await response.text() }
  } catch (cause) {
    throw new ClientError(`${url.origin} can not be reached: ${reasonOf(cause)}`, undefined, cause)
  }
}

/** Undefined where the answer is no JSON object. Deletes answer with nothing. */
function parseAnswer(answer: string): Json | undefined {
  if (answer === '') return {}
  try {
    const parsed: unknown = JSON.parse(answer)
    return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed) ? (parsed as Json) : undefined // a cast: checked here
  } catch {
    // Told by the absence of a result.
    return undefined
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(reasonOf).join(', ')
  // What fetch itself says is the same whatever happened.
  if (cause instanceof TypeError && cause.cause !== undefined) return reasonOf(cause.cause)
  return cause instanceof Error ? cause.message : String(cause)
}
