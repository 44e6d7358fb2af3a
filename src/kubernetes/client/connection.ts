import type { RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'

/** How long an idle connection stays open, in milliseconds. API servers keep connections longer. */
const keepAliveMs = 60_000
const connectMs = 10_000
/** Interval of keep-alive probes on idle connections, in milliseconds, so that no network device drops them. */
const probeMs = 30_000

/** The dispatcher and the headers with which to send a request. */
export interface KubeRoute {
  readonly dispatcher: Dispatcher
  readonly headers: Readonly<Record<string, string>>
}

/** The TLS credentials of a connection. A change of any of them needs a new connection. */
type Identity = Pick<RequestOptions, 'ca' | 'cert' | 'key'>

const identityFields = ['ca', 'cert', 'key'] as const
const tlsFields = [...identityFields, 'rejectUnauthorized', 'servername'] as const

/**
 * The connections to one API server, and the credential for each request. The Kubernetes client library reads files and runs credential
 * plugins as configured. This class has its own connection pool, because the library opens one connection for each request.
 */
export class KubeConnection {
  readonly server: string
  readonly #config: KubeConfig
  #open: { readonly identity: Identity; readonly dispatcher: Dispatcher } | undefined

  constructor(config: KubeConfig) {
    this.#config = config
    this.server = (config.getCurrentCluster()?.server ?? '').replace(/\/+$/, '')
  }

  /** Returns the current route. Rejects if a credential cannot be read. */
  async route(): Promise<KubeRoute> {
    const options: RequestOptions = {}
    await this.#config.applyToHTTPSOptions(options)
    const headers: Record<string, string> = {}
    for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = String(value).trim()
    if (typeof options.auth === 'string') headers['authorization'] = `Basic ${Buffer.from(options.auth).toString('base64')}`
    return { dispatcher: this.#dispatcher(options), headers }
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    await this.#open?.dispatcher.destroy()
  }

  #dispatcher(options: RequestOptions): Dispatcher {
    if (this.#open !== undefined && isSame(this.#open.identity, options)) return this.#open.dispatcher
    // Requests and watches on the old connections continue to their end. Closing an already destroyed dispatcher fails, which is ignored.
    this.#open?.dispatcher.close().catch(() => undefined)
    this.#open = { identity: options, dispatcher: this.#connect(options) }
    return this.#open.dispatcher
  }

  #connect(options: RequestOptions): Dispatcher {
    const tls: Record<string, unknown> = {}
    for (const field of tlsFields) if (options[field] !== undefined) tls[field] = options[field]
    const pool = { allowH2: false, keepAliveTimeout: keepAliveMs, keepAliveMaxTimeout: keepAliveMs }
    const connect = { timeout: connectMs, keepAlive: true, keepAliveInitialDelay: probeMs }
    const proxy = this.#config.getCurrentCluster()?.proxyUrl
    return proxy === undefined ? new Agent({ ...pool, connect: { ...tls, ...connect } }) : new ProxyAgent({ ...pool, uri: proxy, requestTls: tls, connect })
  }
}

function isSame(one: Identity, other: Identity): boolean {
  return identityFields.every((field) => bytesOf(one[field]).equals(bytesOf(other[field])))
}

function bytesOf(pem: Identity['ca' | 'key']): Buffer {
  return typeof pem === 'string' || Buffer.isBuffer(pem) ? Buffer.from(pem) : Buffer.alloc(0)
}
