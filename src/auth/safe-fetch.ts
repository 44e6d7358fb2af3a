import { lookup as systemLookup } from 'node:dns'
import type { LookupFunction } from 'node:net'
import type { Agent, Dispatcher } from 'undici'
import type { Networks } from '../base/client-address.ts'
import { RecentMap } from '../base/recent-map.ts'
import { isPublicAddress } from './safe-address.ts'
import { createAgent, FetchError, parseUrl, translate, trusting, type AgentLimits, type FetchPolicy } from './safe-agent.ts'
import { download, type DownloadResult, type DownloadTarget } from './safe-download.ts'
import { exchange, type FetchResponse } from './safe-exchange.ts'

export { FetchError, type FetchErrorReason, type FetchPolicy } from './safe-agent.ts'
export type { FetchResponse } from './safe-exchange.ts'

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

/** Creates a SafeFetch. */
export function createSafeFetch(options: SafeFetchOptions = {}): SafeFetch {
  const timeoutMs = options.timeoutMs ?? 5000
  const maxBytes = options.maxBytes ?? 64 * 1024
  const lookup = options.lookup ?? systemLookup
  const limits: AgentLimits = { lookup, timeoutMs, isAllowed: (address) => isPublicAddress(address) || options.networks?.has(address) === true }
  const targetOf = createTargets()
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
    const target = targetOf(input)
    signal.throwIfAborted()
    const own = input.ca === undefined ? undefined : createAgent(limits, input)
    try {
      const dispatcher = own ?? (input.allowPrivate === true ? privateAgent : currentAgent())
      return await exchange({ request: dispatchOptions(target, input), dispatcher, timeoutMs, maxBytes, discardBody: input.discardBody === true }, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw translate(error)
    } finally {
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

/** A Kubernetes API server offers its keys only under the second type (RFC 7517 8.5.1). */
const accept = 'application/json, application/jwk-set+json'

/** The parts of a URL that a request names. */
interface Target {
  readonly origin: string
  readonly path: string
}

/** Maximum size of the cache of parsed URLs, in bytes. */
const keptTargetBytes = 256 * 1024

/** Returns a function that parses a request's URL like `parseUrl`. It keeps results, since a client sends many requests to few URLs. */
function createTargets(): (input: FetchRequest) => Target {
  const targets = new RecentMap<string, Target>(keptTargetBytes, ({ path }) => 2 * path.length + 256)
  return (input) => {
    const name = `${input.allowPrivate === true ? 'private' : 'public'} ${input.url}`
    const known = targets.get(name)
    if (known !== undefined) return known
    const { origin, pathname, search } = parseUrl(input)
    const target = { origin, path: `${pathname}${search}` }
    targets.set(name, target)
    return target
  }
}

function dispatchOptions({ origin, path }: Target, { method = 'GET', headers, body }: FetchRequest): Dispatcher.DispatchOptions {
  return {
    origin,
    path,
    method,
    headers: method === 'POST' ? (headers ?? {}) : { accept, ...headers },
    ...(body === undefined ? {} : { body }),
  }
}
