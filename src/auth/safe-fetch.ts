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
 * - `refused_url`: not https (or http where allowed), has userinfo, or can't be read.
 * - `refused_address`: the name leads to an address that is not public.
 * - `unresolved`: the name does not exist.
 * - `unreachable`: no connection, or it broke.
 * - `untrusted`: the server's certificate is not good for its name, or it speaks no TLS that we accept.
 * - `timeout`: no whole answer in time.
 * - `redirect`: the server wants to send us elsewhere.
 * - `status`: another status than 2xx; see `status`.
 * - `too_large`: the body is over the limit.
 * - `unreadable`: the body is not JSON.
 */
export type FetchErrorReason =
  'refused_url' | 'refused_address' | 'unresolved' | 'unreachable' | 'untrusted' | 'timeout' | 'redirect' | 'status' | 'too_large' | 'unreadable'

/** A fetch of a URL that a tenant named failed. Carries nothing of the answer but its status. */
export class FetchError extends Error {
  override readonly name = 'FetchError'
  readonly reason: FetchErrorReason
  readonly status: number | undefined
  /** How long the server asked to wait by `Retry-After`. */
  readonly retryAfterMs: number | undefined
  constructor(errorReason: FetchErrorReason, options: { readonly status?: number; readonly retryAfterMs?: number | undefined; readonly cause?: unknown } = {}) {
    super(`fetch: ${errorReason}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.reason = errorReason
    this.status = options.status
    this.retryAfterMs = options.retryAfterMs
  }

  /** True where the same fetch may succeed later without anything being changed. */
  get transient(): boolean {
    if (this.reason === 'status') return this.status === 429 || (this.status ?? 0) >= 500
    return this.reason === 'timeout' || this.reason === 'unreachable'
  }
}

/** What configuration allows for one destination beyond the default. */
export interface FetchPolicy {
  /** Addresses that are not public, and http, are allowed. */
  readonly allowPrivate?: boolean
  /** PEM certificates to trust in place of the system's. */
  readonly ca?: string
}

/** One request. */
export interface FetchRequest extends FetchPolicy {
  readonly url: string
  /** GET where absent. */
  readonly method?: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** The body of the answer is of no use: the call resolves with the status, and an empty body. */
  readonly discardBody?: boolean
}

/** A whole answer with a 2xx status. */
export interface FetchResponse {
  readonly status: number
  readonly body: Uint8Array
}

/**
 * The client for every URL that a tenant names (docs/spec/tokens.md#tenant-urls). It allows https only, no redirects, and bounded size and time.
 * It allows public addresses only, and checks them when connecting, so that a name cannot change in between.
 */
export interface SafeFetch {
  /** Throws FetchError, or the signal's reason. */
  send(request: FetchRequest, signal: AbortSignal): Promise<FetchResponse>
  /** As `send`, with the body read as JSON. */
  json(request: FetchRequest, signal: AbortSignal): Promise<unknown>
  /** Closes kept connections; running requests fail. */
  close(): Promise<void>
}

/** Limits of a client. */
export interface SafeFetchOptions {
  /** For a whole request, name look-up included; 5000 by default. */
  readonly timeoutMs?: number
  /** 65,536 by default. */
  readonly maxBytes?: number
  /** How names are resolved; the system's way by default. */
  readonly lookup?: LookupFunction
  /** Private networks that may be reached. */
  readonly networks?: Networks
  /** Returns PEM certificates to trust in addition to the system's. They may change. */
  readonly extraCa?: () => string
}

class RefusedAddress extends Error {}

/** Ends a request after a time, or when its caller does. Composed signals would cost a tenth of a request. */
class Deadline {
  readonly #caller: AbortSignal
  readonly #controller = new AbortController()
  readonly #timer: NodeJS.Timeout
  /** True once the time has passed. */
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

/** See SafeFetch. */
export function createSafeFetch(options: SafeFetchOptions = {}): SafeFetch {
  const timeoutMs = options.timeoutMs ?? 5000
  const maxBytes = options.maxBytes ?? 64 * 1024
  const lookup = options.lookup ?? systemLookup
  const limits: AgentLimits = { lookup, timeoutMs, isAllowed: (address) => isPublicAddress(address) || options.networks?.has(address) === true }
  const privateAgent = createAgent(limits, { allowPrivate: true })
  let extraCa = options.extraCa?.()
  let publicAgent = createAgent(limits, trusting(extraCa))

  /** Replaces the agent if the certificates have changed. Requests that run go on. */
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
        // A syntax error's text repeats the body: it is not kept as a cause.
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

/** How long the rest of an answer whose body is of no use may take, in milliseconds. */
const discardMs = 1_000

interface FetchOptions {
  readonly dispatcher: Dispatcher
  readonly signal: AbortSignal
  readonly maxBytes: number
}

/** The second is all that a Kubernetes API server has for its keys (RFC 7517 8.5.1). */
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
    // What is left unread is thrown away; an error while doing so says nothing new.
    response.body.on('error', () => undefined).destroy()
    throw new FetchError(status >= 300 && status < 400 ? 'redirect' : 'status', { status, retryAfterMs: retryAfterOf(response.headers['retry-after']) })
  }
  if (input.discardBody === true) {
    // A short rest is read, so that the connection can be used again. A long or slow one ends the connection: no answer keeps it after this call.
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

/** Foreign errors by class and code. */
function translate(error: unknown, timedOut: boolean): FetchError {
  if (error instanceof FetchError) return error
  if (timedOut || error instanceof errors.ConnectTimeoutError || error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError) {
    return new FetchError('timeout', { cause: error })
  }
  if (error instanceof RefusedAddress) return new FetchError('refused_address', { cause: error })
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return new FetchError(reasonOf(code), { cause: error })
}

/** Node's error codes for failed certificate checks (X509_V_ERR_* without the prefix) and for handshakes that the two sides' settings rule out. */
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
      // No name is looked up for a literal address, so it is judged here.
      const host = options.hostname.replace(/^\[|\]$/g, '')
      const isRefused = isIP(host) === 0 ? isMetadataHost(host) : !limits.isAllowed(host)
      if (policy.allowPrivate !== true && isRefused) callback(new RefusedAddress('literal address or metadata host'), null)
      else connect(options, callback)
    },
  })
}

/** Resolves as `lookup` does; fails if any of the addresses is not allowed, since the one that is connected to is chosen later. */
function allowedOnly({ lookup, isAllowed }: AgentLimits): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, options, (error, address, family) => {
      const addresses = typeof address === 'string' ? [address] : (address ?? []).map((entry) => entry.address)
      if (error === null && !addresses.every(isAllowed)) callback(new RefusedAddress('resolved address'), address, family)
      else callback(error, address, family)
    })
  }
}
