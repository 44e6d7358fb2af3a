import type { RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'

/** Idle connections are kept so long; API servers keep them longer. */
const keepAliveMs = 60_000
const connectMs = 10_000
/** Idle connections are probed so often, so that nothing in between forgets them. */
const probeMs = 30_000

/** What a request is sent by and with. */
export interface KubeRoute {
  readonly dispatcher: Dispatcher
  readonly headers: Readonly<Record<string, string>>
}

/** What decides over a connection: another one is made where any of it is another. */
type Identity = Pick<RequestOptions, 'ca' | 'cert' | 'key'>

const identityFields = ['ca', 'cert', 'key'] as const
const tlsFields = [...identityFields, 'rejectUnauthorized', 'servername'] as const

/**
 * The connections to one API server, and the credential for each request. The library reads files and runs plugins as the configuration says; the pool of connections is
 * kept here, since the library would open one for every request.
 */
export class KubeConnection {
  readonly server: string
  readonly #config: KubeConfig
  #open: { readonly identity: Identity; readonly dispatcher: Dispatcher } | undefined

  constructor(config: KubeConfig) {
    this.#config = config
    this.server = (config.getCurrentCluster()?.server ?? '').replace(/\/+$/, '')
  }

  /** How a request is sent now. Rejects where a credential can't be read. */
  async route(): Promise<KubeRoute> {
    const options: RequestOptions = {}
    await this.#config.applyToHTTPSOptions(options)
    const headers: Record<string, string> = {}
    for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = String(value).trim()
    if (typeof options.auth === 'string') headers['authorization'] = `Basic ${Buffer.from(options.auth).toString('base64')}`
    return { dispatcher: this.#dispatcher(options), headers }
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await this.#open?.dispatcher.destroy()
  }

  #dispatcher(options: RequestOptions): Dispatcher {
    if (this.#open !== undefined && isSame(this.#open.identity, options)) return this.#open.dispatcher
    // What is under way over the old connections, watches too, ends as it would have.
    // One that was destroyed refuses to be closed.
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
