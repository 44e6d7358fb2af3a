import { rootCertificates } from 'node:tls'
import type { Readable } from 'node:stream'
import { Agent, errors, request, type Dispatcher } from 'undici'
import type { Clock } from '../../../base/runtime.ts'
import type { Tracing } from '../../../base/tracing.ts'
import { untilAborted } from '../../../base/timing.ts'
import { BodyError } from '../chunk-body.ts'
import { PassedBody } from '../passed-body.ts'
import { UpstreamError } from '../upstream.ts'
import { type UpstreamTimeouts, failureOf, upstreamError } from './registry-answers.ts'
import { RegistryCredentials, type RegistryAccount } from './registry-credentials.ts'
import { createWideConnector } from './wide-connector.ts'

const connectTimeoutMs = 10_000
const maxRedirects = 3
/** Codes of redirects that keep the method. */
const redirects = new Set([301, 302, 303, 307, 308])

/** Options of the client. */
export interface RegistryClientOptions {
  /** `https://host[:port]` */
  readonly origin: string
  readonly account: (() => RegistryAccount) | undefined
  /** Returns the CA certificates (PEM) to trust in place of the system's. Called for each connection. */
  readonly ca: (() => string) | undefined
  readonly clock: Clock
  readonly tracing?: Tracing | undefined
  readonly timeouts: UpstreamTimeouts
}

/** One request to the upstream. */
export interface UpstreamRequest {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Path and query. */
  readonly path: string
  /** Scopes that a token must allow, as in `repository:a/b:pull`. */
  readonly scopes: readonly string[]
  readonly headers?: Readonly<Record<string, string>>
  /** A body in memory. It is sent again on a retry if that is safe. */
  readonly bytes?: Uint8Array
  /** A body as a stream. It is sent only once. */
  readonly stream?: { readonly body: Readable; readonly length: number | undefined }
  readonly headersMs?: number
}

/** A response. The receiver must read its body to the end, dump it or destroy it. `sent` is the number of bytes of `stream` that were sent. */
export type UpstreamAnswer = Dispatcher.ResponseData & { readonly sent: number }

/** HTTP client for one registry: handles credentials, timeouts, retries and errors. */
export class RegistryClient {
  readonly #options: RegistryClientOptions
  readonly #credentials: RegistryCredentials
  readonly #agent: Agent
  /** For storage that the registry redirects to, whose certificate may come from another authority. */
  readonly #storageAgent: Agent
  readonly #closing = new AbortController()

  constructor(options: RegistryClientOptions) {
    this.#options = options
    const { ca, account, clock } = options
    const connecting = (authorities: (pem: string) => string[]): Agent =>
      new Agent({ connect: createWideConnector({ timeout: connectTimeoutMs }, ca && (() => authorities(ca()))) })
    this.#agent = connecting((pem) => [pem])
    this.#storageAgent = connecting((pem) => [...rootCertificates, pem])
    this.#credentials = new RegistryCredentials(account, { clock, fetchToken: (url, authorization) => this.#fetchToken(url, authorization) })
  }

  /**
   * Sends a request and resolves with the response, whatever its status. After a 401, sends the request again with credentials. If the
   * connection breaks before a response, retries once, except for streams. Rejects with UpstreamError, the error of the stream, or the
   * signal's reason.
   */
  async send(asked: UpstreamRequest, signal: AbortSignal): Promise<UpstreamAnswer> {
    signal.throwIfAborted()
    // A stream cannot be sent again after a 401. So another request first finds out which credentials the registry requires.
    if (asked.stream !== undefined && !this.#credentials.known) await dump(await this.send({ method: 'GET', path: '/v2/', scopes: [] }, signal))
    const first = await this.#authorized(asked, signal)
    this.#credentials.learn(first.answer.statusCode, headerOf(first.answer, 'www-authenticate'))
    if (first.answer.statusCode !== 401) return first.answer
    await this.#rejected(asked, first)
    if (asked.stream !== undefined) throw new UpstreamError('unavailable', 'the upstream requires an unsupported authentication scheme')
    const second = await this.#authorized(asked, signal)
    if (second.answer.statusCode !== 401) return second.answer
    await this.#rejected(asked, second)
    throw new UpstreamError('refused', 'the upstream refuses the configured credentials')
  }

  /** Like `send`, for GET and HEAD. Follows redirects to a storage, without the registry's credentials. */
  async read(asked: UpstreamRequest & { readonly method: 'GET' | 'HEAD' }, signal: AbortSignal): Promise<UpstreamAnswer> {
    let answer = await this.send(asked, signal)
    let from = this.#options.origin
    for (let hop = 0; redirects.has(answer.statusCode); hop++) {
      const url = await targetOf(answer, { from, hop })
      from = url.href
      answer = await this.#exchange({ ...asked, url, dispatcher: this.#storageAgent }, signal)
    }
    return answer
  }

  /**
   * Returns the URL to which the registry redirects a GET of this path; undefined if it does not redirect to another host. Rejects like
   * `send`.
   */
  async locate({ path, scopes }: Pick<UpstreamRequest, 'path' | 'scopes'>, signal: AbortSignal): Promise<URL | undefined> {
    // The URL of a storage works for every range. A registry that does not redirect sends only one byte.
    const answer = await this.send({ method: 'GET', path, scopes, headers: { range: 'bytes=0-0' } }, signal)
    if (redirects.has(answer.statusCode)) {
      const target = await targetOf(answer, { from: this.#options.origin, hop: 0 })
      return target.origin === this.#options.origin || target.pathname.startsWith('/v2/') ? undefined : target
    }
    await dump(answer)
    return undefined
  }

  async close(): Promise<void> {
    const closed = new UpstreamError('unavailable', 'the connection to the upstream is closed')
    this.#closing.abort(closed)
    await Promise.all([this.#agent.destroy(), this.#storageAgent.destroy()])
  }

  async #authorized(asked: UpstreamRequest, signal: AbortSignal): Promise<Tried> {
    const authorization = await untilAborted(this.#credentials.authorization(asked.scopes), signal)
    const headers = { ...asked.headers, ...(authorization !== undefined && { authorization }) }
    const answer = await this.#exchange({ ...asked, headers, url: new URL(asked.path, this.#options.origin), dispatcher: this.#agent }, signal)
    return { authorization, answer }
  }

  async #rejected({ scopes }: UpstreamRequest, { authorization, answer }: Tried): Promise<void> {
    await dump(answer)
    await this.#credentials.forget(scopes, authorization)
  }

  /** Sends a request. If the connection breaks before a response and the request can be repeated, tries a second time. */
  async #exchange(asked: UpstreamExchange, signal: AbortSignal): Promise<UpstreamAnswer> {
    try {
      return await this.#traced(asked, signal)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof BodyError) throw error.reason
      if (asked.stream !== undefined || !isBroken(error)) throw connectionError(error)
    }
    try {
      return await this.#traced(asked, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw connectionError(error)
    }
  }

  /**
   * Sends a request once, in a span that ends when the response begins. The registry gets `traceparent` if the span is recorded. Storage that it redirects to
   * gets none, because it may belong to others.
   */
  #traced(asked: UpstreamExchange, signal: AbortSignal): Promise<UpstreamAnswer> {
    const { tracing, origin } = this.#options
    if (tracing === undefined) return this.#once(asked, signal)
    const { method, url } = asked
    const attributes = { 'http.request.method': method, 'server.address': url.hostname, 'server.port': portOf(url) }
    return tracing.span({ kind: 'client', name: method, attributes }, async (span) => {
      const traceparent = url.origin === origin ? tracing.traceparent() : undefined
      const answer = await this.#once(traceparent === undefined ? asked : { ...asked, headers: { ...asked.headers, traceparent } }, signal)
      const { statusCode } = answer
      span.set({ 'http.response.status_code': statusCode })
      // A 404 answers the question whether the registry has content, and a 401 asks for credentials.
      if (statusCode >= 400 && statusCode !== 404 && statusCode !== 401) span.fail(String(statusCode))
      return answer
    })
  }

  async #once({ url, method, headers, bytes, stream, dispatcher, headersMs }: UpstreamExchange, signal: AbortSignal): Promise<UpstreamAnswer> {
    let broken: BodyError | undefined
    const translate = (error: unknown): BodyError => (broken = new BodyError(error))
    const body = stream && new PassedBody(stream.body, { translate, signal })
    const length = stream?.length === undefined ? {} : { 'content-length': String(stream.length) }
    const { timeouts } = this.#options
    try {
      const answer = await request(url, {
        method,
        dispatcher,
        signal,
        headers: { 'accept-encoding': 'identity', ...headers, ...length },
        body: body ?? bytes ?? null,
        headersTimeout: headersMs ?? timeouts.headersMs,
        bodyTimeout: timeouts.stallMs,
      })
      return { ...answer, sent: body?.passed ?? 0 }
    } catch (error) {
      throw broken ?? error
    }
  }

  async #fetchToken(url: string, authorization: string | undefined): Promise<unknown> {
    if (!isAsSafe(new URL(url), this.#options.origin)) throw new UpstreamError('refused', 'the token endpoint of the upstream is not https')
    // Not the request's signal: other requests may wait for the same token.
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(this.#options.timeouts.headersMs)])
    const headers = authorization === undefined ? {} : { authorization }
    const asked = { method: 'GET', path: '', scopes: [], headers, url: new URL(url), dispatcher: this.#agent } as const
    try {
      const answer = await this.#exchange(asked, signal)
      if (answer.statusCode === 200) return await answer.body.json()
      const failure = await failureOf(answer, signal)
      throw failure.status === 401
        ? new UpstreamError('refused', 'the token endpoint of the upstream refuses the configured credentials')
        : upstreamError(failure, 'the request for a token')
    } catch (error) {
      throw error instanceof UpstreamError ? error : new UpstreamError('unavailable', 'the token endpoint of the upstream does not answer', error)
    }
  }
}

/** A response and its request. */
interface Tried {
  readonly authorization: string | undefined
  readonly answer: UpstreamAnswer
}

type UpstreamExchange = UpstreamRequest & { readonly url: URL; readonly dispatcher: Dispatcher }

function portOf({ port, protocol }: URL): number {
  return port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port)
}

/** Returns the target URL of a redirect. */
async function targetOf(answer: UpstreamAnswer, { from, hop }: { from: string; hop: number }): Promise<URL> {
  await dump(answer)
  const location = headerOf(answer, 'location') ?? ''
  if (hop === maxRedirects || !URL.canParse(location, from)) throw new UpstreamError('refused', 'the upstream redirects too often')
  const target = new URL(location, from)
  if (!isAsSafe(target, from)) throw new UpstreamError('refused', 'the upstream redirects to a URL that is not https')
  return target
}

/** Returns a header of a response; the first value if there are several. */
export function headerOf({ headers }: { readonly headers: Readonly<Record<string, string | string[] | undefined>> }, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}

/** Reads a response to its end, so that its connection can be reused. */
export async function dump({ body }: Dispatcher.ResponseData): Promise<void> {
  try {
    await body.dump()
  } catch (error) {
    throw connectionError(error)
  }
}

/** Converts an error of a connection into an UpstreamError. */
export function connectionError(error: unknown): UpstreamError {
  if (error instanceof UpstreamError) return error
  if (error instanceof errors.RequestContentLengthMismatchError) return new UpstreamError('refused', 'the chunk does not have the announced length', error)
  return new UpstreamError('unavailable', 'the upstream does not answer', error)
}

/** Returns true if the connection closed before a response, as idle connections may. */
function isBroken(error: unknown): boolean {
  if (error instanceof errors.SocketError) return true
  return error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE')
}

/** Returns true unless a redirect leads from an encrypted URL to an unencrypted one. */
function isAsSafe(target: URL, from: string): boolean {
  return target.protocol === 'https:' || (target.protocol === 'http:' && !from.startsWith('https:'))
}
