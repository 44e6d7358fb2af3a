import { lookup as systemLookup } from 'node:dns'
import { isIP } from 'node:net'
import type { LookupFunction } from 'node:net'
import { rootCertificates } from 'node:tls'
import { Agent, buildConnector, errors, request } from 'undici'
import type { Dispatcher } from 'undici'
import type { Networks } from '../base/client-address.ts'
import { isMetadataHost, isPublicAddress } from './safe-address.ts'

/**
 * Why a fetch failed:
 * - `refused_url`: the URL is invalid, contains a user name, or is not https (or http, if allowed).
 * - `refused_address`: the name has an address that is not public.
 * - `unresolved`: the name does not exist.
 * - `unreachable`: no connection could be made, or it broke.
 * - `untrusted`: the server's certificate is not valid for its name, or its TLS settings are not acceptable.
 * - `timeout`: the whole answer did not arrive in time.
 * - `redirect`: the server answered with a redirect.
 * - `status`: the server answered with another status than 2xx; see `status`.
 * - `too_large`: the body exceeds the limit.
 * - `unreadable`: the body is not JSON.
 */
export type FetchErrorReason =
  'refused_url' | 'refused_address' | 'unresolved' | 'unreachable' | 'untrusted' | 'timeout' | 'redirect' | 'status' | 'too_large' | 'unreadable'

/** The error of a failed fetch. Of the server's answer, it contains only the status. */
export class FetchError extends Error {
  override readonly name = 'FetchError'
  readonly reason: FetchErrorReason
  readonly status: number | undefined
  /** The wait that the server asked for with `Retry-After`, in milliseconds. */
  readonly retryAfterMs: number | undefined
  constructor(errorReason: FetchErrorReason, options: { readonly status?: number; readonly retryAfterMs?: number | undefined; readonly cause?: unknown } = {}) {
    super(`fetch: ${errorReason}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.reason = errorReason
    this.status = options.status
    this.retryAfterMs = options.retryAfterMs
  }

  /** True if the same fetch may succeed later without any change. */
  get transient(): boolean {
    if (this.reason === 'status') return this.status === 429 || (this.status ?? 0) >= 500
    return this.reason === 'timeout' || this.reason === 'unreachable'
  }
}

/** Exceptions that the configuration allows for one destination. */
export interface FetchPolicy {
  /** True if addresses that are not public, and http, are allowed. */
  readonly allowPrivate?: boolean
  /** PEM certificates to trust instead of the system's. */
  readonly ca?: string
}

/** The URL, method, headers and body of an HTTP request. */
export interface FetchRequest extends FetchPolicy {
  readonly url: string
  /** The HTTP method; GET by default. */
  readonly method?: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** True if the body of the answer is not needed. The call then resolves with the status and an empty body. */
  readonly discardBody?: boolean
}

/** A complete answer with a 2xx status. */
export interface FetchResponse {
  readonly status: number
  readonly body: Uint8Array
}

/**
 * The HTTP client for URLs that tenants name (docs/spec/tokens.md#tenant-urls). It allows https only, follows no redirects, and limits size and time. It
 * allows public addresses only, and checks them when connecting, so that a name cannot change in between.
 */
export interface SafeFetch {
  /** Sends a request. Throws FetchError, or the signal's reason. */
  send(request: FetchRequest, signal: AbortSignal): Promise<FetchResponse>
  /** Sends a request and returns its body parsed as JSON. Throws like `send`. */
  json(request: FetchRequest, signal: AbortSignal): Promise<unknown>
  /** Closes all connections. Running requests fail. */
  close(): Promise<void>
}

/** The limits and dependencies of a SafeFetch. */
export interface SafeFetchOptions {
  /** Maximum time for a whole request in milliseconds, including the name look-up; 5000 by default. */
  readonly timeoutMs?: number
  /** Maximum size of a body in bytes; 65,536 by default. */
  readonly maxBytes?: number
  /** Resolves host names; the system's resolver by default. */
  readonly lookup?: LookupFunction
  /** Private networks that may be reached. */
  readonly networks?: Networks
  /** Returns PEM certificates to trust in addition to the system's. The value may change. */
  readonly extraCa?: () => string
}

class RefusedAddress extends Error {}

/** Aborts a request after a time, or when its caller aborts. AbortSignal.any() would take a tenth of the time of a request. */
class Deadline {
  readonly #caller: AbortSignal
  readonly #controller = new AbortController()
  readonly #timer: NodeJS.Timeout
  /** True once the time limit has passed. */
  isOver = false

  constructor(ms: number, caller: AbortSignal) {
    this.#caller = caller
    this.#timer = setTimeout(() => {
      this.isOver = true
      this.#controller.abort()
    }, ms)
    caller.addEventListener('abort', this.#abort, { once: true })
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  readonly #abort = (): void => this.#controller.abort(this.#caller.reason)

  end(): void {
    clearTimeout(this.#timer)
    this.#caller.removeEventListener('abort', this.#abort)
  }
}

/** Creates a SafeFetch. */
export function createSafeFetch(options: SafeFetchOptions = {}): SafeFetch {
  const timeoutMs = options.timeoutMs ?? 5000
  const maxBytes = options.maxBytes ?? 64 * 1024
  const lookup = options.lookup ?? systemLookup
  const limits: AgentLimits = { lookup, timeoutMs, isAllowed: (address) => isPublicAddress(address) || options.networks?.has(address) === true }
  const privateAgent = createAgent(limits, { allowPrivate: true })
  let extraCa = options.extraCa?.()
  let publicAgent = createAgent(limits, trusting(extraCa))

  /** Returns the HTTP agent. Replaces it if the certificates have changed; running requests continue. */
  function currentAgent(): Agent {
    const ca = options.extraCa?.()
    if (ca !== extraCa) {
      publicAgent.close().catch(() => undefined)
      extraCa = ca
      publicAgent = createAgent(limits, trusting(ca))
    }
    return publicAgent
  }

  async function send(input: FetchRequest, signal: AbortSignal): Promise<FetchResponse> {
    const url = parseUrl(input)
    signal.throwIfAborted()
    const own = input.ca === undefined ? undefined : createAgent(limits, input)
    const deadline = new Deadline(timeoutMs, signal)
    try {
      const dispatcher = own ?? (input.allowPrivate === true ? privateAgent : currentAgent())
      return await exchange(url, input, { dispatcher, signal: deadline.signal, maxBytes })
    } catch (error) {
      signal.throwIfAborted()
      throw translate(error, deadline.isOver)
    } finally {
      deadline.end()
      await own?.destroy()
    }
  }

  return {
    send,
    async json(input, signal) {
      const { body } = await send(input, signal)
      try {
        // Do not keep the syntax error as a cause: its text contains the body.
        return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as unknown
      } catch {
        throw new FetchError('unreadable')
      }
    },
    async close() {
      await Promise.all([publicAgent.destroy(), privateAgent.destroy()])
    },
  }
}

function trusting(extraCa: string | undefined): FetchPolicy {
  return extraCa === undefined ? {} : { ca: [...rootCertificates, extraCa].join('\n') }
}

function parseUrl(input: FetchRequest): URL {
  const url = URL.parse(input.url)
  const schemes = input.allowPrivate === true ? ['https:', 'http:'] : ['https:']
  if (url === null || !schemes.includes(url.protocol) || url.username !== '' || url.password !== '') throw new FetchError('refused_url')
  return url
}

/** Maximum time in milliseconds for reading the rest of an answer whose body is not needed. */
const discardMs = 1_000

interface FetchOptions {
  readonly dispatcher: Dispatcher
  readonly signal: AbortSignal
  readonly maxBytes: number
}

/** A Kubernetes API server offers its keys only under the second type (RFC 7517 8.5.1). */
const accept = 'application/json, application/jwk-set+json'

async function exchange(url: URL, input: FetchRequest, options: FetchOptions): Promise<FetchResponse> {
  const { dispatcher, signal, maxBytes } = options
  const response = await request(url, {
    dispatcher,
    signal,
    method: input.method ?? 'GET',
    headers: { ...(input.method === 'POST' ? {} : { accept }), ...input.headers },
    ...(input.body === undefined ? {} : { body: input.body }),
  })
  const status = response.statusCode
  if (status < 200 || status > 299) {
    // Discard the unread rest of the body. An error in it does not matter.
    response.body.on('error', () => undefined).destroy()
    throw new FetchError(status >= 300 && status < 400 ? 'redirect' : 'status', { status, retryAfterMs: retryAfterOf(response.headers['retry-after']) })
  }
  if (input.discardBody === true) {
    // Read a short rest, so that the connection can be used again. Close the connection if the rest is long or slow.
    const timer = setTimeout(() => response.body.destroy(), discardMs)
    await response.body.dump({ limit: maxBytes }).catch(() => response.body.destroy())
    clearTimeout(timer)
    return { status, body: new Uint8Array() }
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
    size += chunk.length
    if (size > maxBytes) throw new FetchError('too_large', { status })
    chunks.push(chunk)
  }
  return { status, body: Buffer.concat(chunks) }
}

/** Returns the delay of a `Retry-After` header, in milliseconds: seconds or an HTTP date. Undefined for other values. */
function retryAfterOf(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string') return undefined
  if (/^\d{1,9}$/.test(header)) return Number(header) * 1000
  const atMs = Date.parse(header)
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now())
}

/** Translates an error of the HTTP client into a FetchError, by its class and code. */
function translate(error: unknown, timedOut: boolean): FetchError {
  if (error instanceof FetchError) return error
  if (timedOut || error instanceof errors.ConnectTimeoutError || error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError) {
    return new FetchError('timeout', { cause: error })
  }
  if (error instanceof RefusedAddress) return new FetchError('refused_address', { cause: error })
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return new FetchError(reasonOf(code), { cause: error })
}

/**
 * Node's error codes for failed certificate checks (X509_V_ERR_* without the prefix) and for failed handshakes. A handshake fails if the TLS settings of both
 * sides do not match.
 */
const untrustedCodes =
  /^(?:.*CERT(?:_|$)|UNABLE_TO_|HOSTNAME_MISMATCH$|INVALID_(?:CA|PURPOSE)$|PATH_LENGTH_EXCEEDED$|ERR_TLS_(?!HANDSHAKE_TIMEOUT)|ERR_OSSL_|ERR_SSL_(?:WRONG_VERSION_NUMBER|UNSUPPORTED_PROTOCOL|TLSV1_ALERT_PROTOCOL_VERSION|SSL\/TLS_ALERT_HANDSHAKE_FAILURE))/

function reasonOf(code: unknown): FetchErrorReason {
  if (code === 'ENOTFOUND') return 'unresolved'
  return typeof code === 'string' && untrustedCodes.test(code) ? 'untrusted' : 'unreachable'
}

interface AgentLimits {
  readonly lookup: LookupFunction
  readonly timeoutMs: number
  readonly isAllowed: (address: string) => boolean
}

function createAgent(limits: AgentLimits, policy: FetchPolicy): Agent {
  const connect = buildConnector({
    timeout: limits.timeoutMs,
    allowH2: false,
    lookup: policy.allowPrivate === true ? limits.lookup : allowedOnly(limits),
    ...(policy.ca === undefined ? {} : { ca: policy.ca }),
  })
  return new Agent({
    headersTimeout: limits.timeoutMs,
    bodyTimeout: limits.timeoutMs,
    maxHeaderSize: 16 * 1024,
    connect(options, callback) {
      // A literal address needs no look-up, so it is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '')
      const isRefused = isIP(host) === 0 ? isMetadataHost(host) : !limits.isAllowed(host)
      if (policy.allowPrivate !== true && isRefused) callback(new RefusedAddress('literal address or metadata host'), null)
      else connect(options, callback)
    },
  })
}

/** Returns a lookup function that fails if any address of the name is not allowed, because Node chooses later to which one it connects. */
function allowedOnly({ lookup, isAllowed }: AgentLimits): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, options, (error, address, family) => {
      const addresses = typeof address === 'string' ? [address] : (address ?? []).map((entry) => entry.address)
      if (error === null && !addresses.every(isAllowed)) callback(new RefusedAddress('resolved address'), address, family)
      else callback(error, address, family)
    })
  }
}
