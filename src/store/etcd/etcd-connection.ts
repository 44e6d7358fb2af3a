import { status, type ClientDuplexStream } from '@grpc/grpc-js'
import type { Log } from '../../base/log.ts'
import { StoreError } from '../store.ts'
import { untilAborted } from '../../base/timing.ts'
import { ClusterIdentity } from './cluster-identity.ts'
import { callMetadata, EtcdEndpoint, type StreamCalls, type UnaryCalls } from './etcd-endpoint.ts'
import { etcdError, statusOf } from './etcd-errors.ts'
import type { EtcdTls } from './unary-session.ts'

/** Addresses and credentials of the etcd cluster. */
export interface EtcdConnectionOptions {
  /** Client URLs of the members, `http://host:port` or `https://host:port`. The first one is used while it answers. */
  readonly endpoints: readonly string[]
  /** Returns the TLS settings. Called for each new connection. */
  readonly tls?: () => EtcdTls
  readonly username?: string
  /** Returns the password. Called for each new authentication token. */
  readonly password?: () => string
  /** Maximum duration of a call in milliseconds; 5000 by default. */
  readonly requestTimeoutMs?: number
  readonly log: Log
}

/** The options of one call. */
export interface CallOptions {
  readonly signal: AbortSignal
  /** True if the call may be sent to another member although the first member may have executed it. */
  readonly repeatable: boolean
}

const defaultRequestTimeoutMs = 5000

/** Maximum wait for a connection, in milliseconds, after every member refused one. */
const reconnectTimeoutMs = 1000

/** gRPC statuses with which etcd refuses an invalid token, before it executes the call. INVALID_ARGUMENT also stands for "revision of auth store is old". */
const tokenStatuses = new Set<number | undefined>([status.UNAUTHENTICATED, status.INVALID_ARGUMENT])

/**
 * Sends calls to one member of an etcd cluster, and to the next member when that one fails. A call ends at the latest with its signal, with `close`
 * (StoreError `closed`) or with the request timeout. Rejects with StoreError, or the signal's reason. A call that may have reached a member is sent again only
 * if it is `repeatable`. Otherwise it rejects with `indeterminate`, even if its signal aborts or the connection is closed in the meantime.
 */
export class EtcdConnection {
  readonly identity = new ClusterIdentity()
  readonly #options: EtcdConnectionOptions
  readonly #endpoints: readonly EtcdEndpoint[]
  readonly #requestTimeoutMs: number
  readonly #closing = new AbortController()
  /** The functions that cancel the running calls. */
  readonly #running = new Set<() => void>()
  #current = 0
  #token: Promise<string> | undefined

  constructor(options: EtcdConnectionOptions) {
    if (options.endpoints.length === 0) throw new TypeError('etcd needs at least one endpoint')
    this.#options = options
    this.#endpoints = options.endpoints.map((endpoint) => new EtcdEndpoint(endpoint, options.tls))
    this.#requestTimeoutMs = options.requestTimeoutMs ?? defaultRequestTimeoutMs
  }

  /** A signal that aborts with StoreError `closed` when the connection is closed. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  /** True if a call could be sent now, without waiting for a connection. */
  get isConnected(): boolean {
    return this.#endpoints[this.#current % this.#endpoints.length]?.isConnected() === true
  }

  /** Resolves once a member is connected. Rejects with StoreError, or the signal's reason. */
  async connected(signal: AbortSignal): Promise<void> {
    await this.#attempts({ signal, repeatable: true }, () => Promise.resolve())
  }

  /** Makes one call. Checks the answers of `range` and `txn`, which are linearizable, for a replaced cluster. */
  async call<M extends keyof UnaryCalls>(method: M, request: UnaryCalls[M]['request'], options: CallOptions): Promise<UnaryCalls[M]['response']> {
    const before = method === 'range' || method === 'txn' ? this.identity.seen : undefined
    const response = await this.#attempts(options, async (endpoint, deadline) =>
      this.#authorized(endpoint, deadline, (token) => this.#send(endpoint, { method, request, token, deadline, signal: options.signal })),
    )
    this.identity.observe(response.header, before)
    return response
  }

  /** Opens a stream on a connected member. The caller must cancel it. */
  async open<M extends keyof StreamCalls>(method: M, signal: AbortSignal): Promise<ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']>> {
    return this.#attempts({ signal, repeatable: true }, async (endpoint, deadline) =>
      endpoint.open(method, callMetadata(await this.#authenticate(endpoint, deadline))),
    )
  }

  /** Reports that a stream broke. The next call then goes to the next member, with a new token. */
  streamFailed(): void {
    this.#token = undefined
    this.#current++
  }

  close(): void {
    this.#closing.abort(new StoreError('closed', 'the store was closed'))
    for (const cancel of this.#running) cancel()
    for (const endpoint of this.#endpoints) endpoint.close()
  }

  /** Tries the members in turn, each once and for its share of the remaining time. */
  async #attempts<T>({ signal, repeatable }: CallOptions, attempt: (endpoint: EtcdEndpoint, deadline: number) => Promise<T>): Promise<T> {
    const end = performance.now() + this.#requestTimeoutMs
    let failure: unknown
    for (let left = this.#endpoints.length; left > 0; left--) {
      this.#throwIfEnded(signal)
      const at = this.#current
      const endpoint = this.#endpoints[at % this.#endpoints.length]
      if (endpoint === undefined) break
      const deadline = performance.now() + (end - performance.now()) / left
      if (await this.#isConnected(endpoint, { deadline, signal, last: left === 1 })) {
        try {
          return await attempt(endpoint, deadline)
        } catch (error) {
          // Do not stop waiting for a write when its caller aborts or the store is closed: it may still commit.
          if (repeatable) this.#throwIfEnded(signal)
          failure = etcdError(error, !repeatable)
          if (signal.aborted || !isUnanswered(failure)) throw failure
          // Log once for all calls that fail together.
          if (this.#current === at)
            this.#options.log.warn('an etcd member failed a call', { endpoint: this.#options.endpoints[at % this.#endpoints.length], error })
          if (!repeatable) left = 0
        }
      }
      // Another call may already have switched to the next member.
      if (this.#current === at) this.#current++
    }
    if (failure === undefined || repeatable) this.#throwIfEnded(signal)
    // The value was created by etcdError(), so it is an Error.
    throw failure === undefined
      ? new StoreError('unavailable', `no etcd member can be reached: ${this.#endpoints.map(({ problem }) => problem).join('; ')}`)
      : (failure as Error)
  }

  async #isConnected(endpoint: EtcdEndpoint, { deadline, signal, last }: { deadline: number; signal: AbortSignal; last: boolean }): Promise<boolean> {
    if (endpoint.isConnected()) return true
    const waited = endpoint.connected(last ? Math.min(deadline, performance.now() + reconnectTimeoutMs) : deadline, last)
    return untilAborted(untilAborted(waited, signal), this.#closing.signal)
  }

  async #send<M extends keyof UnaryCalls>(
    endpoint: EtcdEndpoint,
    {
      method,
      request,
      token,
      deadline,
      signal,
    }: { method: M; request: UnaryCalls[M]['request']; token: string | undefined; deadline: number; signal: AbortSignal },
  ): Promise<UnaryCalls[M]['response']> {
    signal.throwIfAborted()
    const call = endpoint.call(method, request, { token, deadline })
    const cancel = (): void => call.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    this.#running.add(cancel)
    try {
      return await call.response
    } finally {
      signal.removeEventListener('abort', cancel)
      this.#running.delete(cancel)
    }
  }

  /** Sends a call with the authentication token. If etcd refuses the token, gets a new one and sends the call again: etcd had not executed it. */
  async #authorized<T>(endpoint: EtcdEndpoint, deadline: number, send: (token: string | undefined) => Promise<T>): Promise<T> {
    const token = await this.#authenticate(endpoint, deadline)
    try {
      return await send(token)
    } catch (error) {
      if (token === undefined || !tokenStatuses.has(statusOf(error))) throw error
      this.#token = undefined
      return await send(await this.#authenticate(endpoint, deadline))
    }
  }

  async #authenticate(endpoint: EtcdEndpoint, deadline: number): Promise<string | undefined> {
    const { username, password } = this.#options
    if (username === undefined) return undefined
    this.#token ??= endpoint
      .call('authenticate', { name: username, password: password?.() ?? '' }, { token: undefined, deadline })
      .response.then(({ token }) => token)
    const token = this.#token
    try {
      return await token
    } catch (error) {
      if (this.#token === token) this.#token = undefined
      // etcd answers INVALID_ARGUMENT to wrong credentials. For other calls, this status means a request that is too large.
      if (statusOf(error) === status.INVALID_ARGUMENT) throw new StoreError('unavailable', 'etcd refused the user name or password', error)
      // Also correct for a write, which has not been sent yet.
      throw etcdError(error)
    }
  }

  #throwIfEnded(signal: AbortSignal): void {
    signal.throwIfAborted()
    this.#closing.signal.throwIfAborted()
  }
}

function isUnanswered(failure: unknown): boolean {
  return failure instanceof StoreError && (failure.kind === 'unavailable' || failure.kind === 'indeterminate')
}
