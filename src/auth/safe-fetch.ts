import { lookup as systemLookup } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { request, type Agent } from 'undici'
import type { Dispatcher } from 'undici'
import type { Networks } from '../base/client-address.ts'
import { isPublicAddress } from './safe-address.ts'
import { createAgent, FetchError, parseUrl, retryAfterOf, translate, trusting, type AgentLimits, type FetchPolicy } from './safe-agent.ts'
import { download, type DownloadResult, type DownloadTarget } from './safe-download.ts'

export { FetchError, type FetchErrorReason, type FetchPolicy } from './safe-agent.ts'

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
  /**
   * Downloads a body into a new file, however long it takes: each part of it must arrive in the time limit. Follows redirects to URLs that the request may have.
   * Resolves with `isModified: false` if the server says that the conditions in the headers hold. Throws like `send`, or an error of the file system.
   */
  download(request: FetchRequest, target: DownloadTarget, signal: AbortSignal): Promise<DownloadResult>
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
    async download(input, target, signal) {
      const own = input.ca === undefined ? undefined : createAgent(limits, input)
      const dispatcher = own ?? (input.allowPrivate === true ? privateAgent : currentAgent())
      try {
        return await download(input, { dispatcher, ...target }, signal)
      } finally {
        await own?.destroy()
      }
    },
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
