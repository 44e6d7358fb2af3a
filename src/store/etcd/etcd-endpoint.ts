import { isIP } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { checkServerIdentity as verifyIdentity, type PeerCertificate } from 'node:tls'
import { Channel, connectivityState, credentials, Metadata, ChannelCredentials, type Client, type ClientDuplexStream, type ServiceError } from '@grpc/grpc-js'
import type {
  IAuthenticateRequest,
  IAuthenticateResponse,
  ILeaseGrantRequest,
  ILeaseGrantResponse,
  ILeaseKeepAliveRequest,
  ILeaseKeepAliveResponse,
  ILeaseRevokeRequest,
  ILeaseRevokeResponse,
  IWatchRequest,
  IWatchResponse,
} from 'etcd3'
import { Host } from 'etcd3/lib/connection-pool.js'
import { ClosingCredentials } from './closing-credentials.ts'
import {
  decodeRange,
  decodeTransaction,
  encodeRange,
  encodeTransaction,
  type EtcdRangeRequest,
  type RangeResponse,
  type TransactionRequest,
  type TransactionResponse,
} from './etcd-messages.ts'
import { UnarySession, type EtcdTls, type RunningCall, type UnaryOptions } from './unary-session.ts'

type CreateConnector = ChannelCredentials['_createSecureConnector']

/** TLS to one address with the current certificates. gRPC's own credentials keep those from when the channel was made, even when it reconnects. */
class TlsCredentials extends ChannelCredentials {
  readonly #address: string
  readonly #tls: (() => EtcdTls) | undefined

  /** `tls` is called for each connection. */
  constructor(address: string, tls: (() => EtcdTls) | undefined) {
    super()
    this.#address = address
    this.#tls = tls
  }

  override _isSecure(): boolean {
    return true
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other
  }

  override _createSecureConnector(...target: Parameters<CreateConnector>): ReturnType<CreateConnector> {
    const connector = (): ReturnType<CreateConnector> => this.#ofNow()._createSecureConnector(...target)
    const first = connector()
    return {
      connect: (socket) => connector().connect(socket),
      waitForReady: () => first.waitForReady(),
      getCallCredentials: () => first.getCallCredentials(),
      destroy: () => first.destroy(),
    }
  }

  #ofNow(): ChannelCredentials {
    // Check against the address itself, whatever name was sent.
    const checkServerIdentity = (_name: string, certificate: PeerCertificate): Error | undefined => verifyIdentity(this.#address, certificate)
    const { ca = null, key = null, cert = null } = this.#tls?.() ?? {}
    return ChannelCredentials.createSsl(ca, key, cert, { checkServerIdentity })
  }
}

/** The unary calls that the adapter makes, with their messages. */
export interface UnaryCalls {
  range: { request: EtcdRangeRequest; response: RangeResponse }
  txn: { request: TransactionRequest; response: TransactionResponse }
  leaseGrant: { request: ILeaseGrantRequest; response: ILeaseGrantResponse }
  leaseRevoke: { request: ILeaseRevokeRequest; response: ILeaseRevokeResponse }
  authenticate: { request: IAuthenticateRequest; response: IAuthenticateResponse }
}

/** The streams that the adapter opens, with their messages. */
export interface StreamCalls {
  watch: { request: IWatchRequest; response: IWatchResponse }
  leaseKeepAlive: { request: ILeaseKeepAliveRequest; response: ILeaseKeepAliveResponse }
}

const serviceOf = { range: 'KV', txn: 'KV', leaseGrant: 'Lease', leaseRevoke: 'Lease', authenticate: 'Auth', watch: 'Watch', leaseKeepAlive: 'Lease' } as const

/** Pause of a `patient` caller between its own failed connections; the channel has its own pace. */
const reconnectEveryMs = 100

/** Maximum time for a channel to connect, in milliseconds. gRPC has no limit of its own, and the system resends lost packets for minutes. */
const connectTimeoutMs = 3_000

const channelOptions = {
  // A new channel would share the subchannel that an old one cannot connect.
  'grpc.use_local_subchannel_pool': 1,
  // A range of large records is larger than gRPC's default of 4 MiB.
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
  // Detects a silent connection within 9 s. etcd drops clients that ping more often than every 5 s.
  'grpc.keepalive_time_ms': 6000,
  'grpc.keepalive_timeout_ms': 3000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
}

/** Converts a deadline in `performance.now()` time to a date. */
function dateOf(deadline: number): Date {
  return new Date(Date.now() + deadline - performance.now())
}

type UnaryCallback = (error: ServiceError | null, response: unknown) => void
type UnaryStub = (...call: [request: unknown, metadata: Metadata, options: { deadline: Date }, callback: UnaryCallback]) => { cancel(): void }
type StreamStub = (metadata: Metadata) => unknown

/** The calls for which all reads and writes wait: sent over a separate connection, with a separate codec. */
const direct = {
  range: { path: '/etcdserverpb.KV/Range', encode: encodeRange, decode: decodeRange },
  txn: { path: '/etcdserverpb.KV/Txn', encode: encodeTransaction, decode: decodeTransaction },
} as const satisfies { [M in 'range' | 'txn']: DirectCall<M> }

interface DirectCall<M extends keyof UnaryCalls> {
  readonly path: string
  readonly encode: (request: UnaryCalls[M]['request']) => Uint8Array
  readonly decode: (bytes: Uint8Array) => UnaryCalls[M]['response']
}

function directCall<M extends keyof UnaryCalls>(method: M): DirectCall<M> | undefined {
  // `direct` maps each method to its own call.
  return method in direct ? (direct[method as keyof typeof direct] as unknown as DirectCall<M>) : undefined
}

/** One channel and its stubs. */
class Stubs {
  readonly channel: Channel
  readonly #host: Host

  constructor(endpoint: string, channelCredentials: ChannelCredentials, options: Record<string, unknown>) {
    this.channel = new Channel(new URL(endpoint).host, channelCredentials, options)
    this.#host = new Host(endpoint, channelCredentials, { ...options, channelOverride: this.channel })
  }

  client(service: (typeof serviceOf)[keyof typeof serviceOf]): Client {
    return this.#host.getServiceClient(service)
  }

  close(): void {
    this.channel.close()
  }
}

/** One etcd member: a channel for streams and leases, and a lean connection for reads and transactions. Both are made on first use. Repeats no call. */
export class EtcdEndpoint {
  readonly #makeStubs: () => Stubs
  readonly #session: UnarySession
  #stubs: Stubs
  /** The timer while the channel connects. */
  #connectTimer: NodeJS.Timeout | undefined

  /** `tls` is called for each connection. */
  constructor(endpoint: string, tls: (() => EtcdTls) | undefined) {
    const { hostname, protocol } = new URL(endpoint)
    const address = hostname.replace(/^\[|\]$/g, '')
    const secure = protocol === 'https:'
    // grpc-js would send an address as the server's name, which TLS forbids and Node refuses. etcd ignores the name.
    const nameOption = secure && isIP(address) !== 0 ? { 'grpc.ssl_target_name_override': 'etcd' } : {}
    this.#session = new UnarySession(endpoint, secure ? tls : undefined)
    const channelCredentials = new ClosingCredentials(secure ? new TlsCredentials(address, tls) : credentials.createInsecure())
    this.#makeStubs = () => new Stubs(endpoint, channelCredentials, { ...channelOptions, ...nameOption })
    this.#stubs = this.#makeStubs()
  }

  /** True if a call would be sent at once. */
  isConnected(): boolean {
    return this.#session.isConnected && this.#stubs.channel.getConnectivityState(true) === connectivityState.READY
  }

  /**
   * Resolves true once the channel is connected, false if connecting failed or took until `deadline` (in `performance.now()` time). With `patient`, repeats
   * failed attempts until the deadline. Nothing has been sent while this is false.
   */
  async connected(deadline: number, patient: boolean): Promise<boolean> {
    for (;;) {
      // Each wait may replace the channel.
      const { channel } = this.#stubs
      const state = channel.getConnectivityState(true)
      if (state === connectivityState.READY) {
        if (await this.#session.connected(deadline)) return true
        if (!patient || performance.now() + reconnectEveryMs > deadline) return false
        await delay(reconnectEveryMs)
        continue
      }
      if (state === connectivityState.SHUTDOWN) return false
      this.#connectTimer ??= setTimeout(() => this.#replaceUnconnected(), connectTimeoutMs).unref()
      if (state === connectivityState.TRANSIENT_FAILURE && !patient) return false
      const changed = await new Promise<boolean>((resolve) => {
        channel.watchConnectivityState(state, dateOf(deadline), (error) => resolve(error === undefined))
      })
      if (!changed) return false
    }
  }

  /** Replaces a channel that is still not connected. Calls that wait for the old one fail. */
  #replaceUnconnected(): void {
    this.#connectTimer = undefined
    const old = this.#stubs
    if (old.channel.getConnectivityState(false) === connectivityState.READY) return
    this.#stubs = this.#makeStubs()
    old.close()
  }

  /** Sends one request. `deadline` is in `performance.now()` time: clock changes neither end nor extend a range or a transaction. */
  call<M extends keyof UnaryCalls>(method: M, request: UnaryCalls[M]['request'], options: UnaryOptions): RunningCall<UnaryCalls[M]['response']> {
    const lean = directCall(method)
    if (lean !== undefined) {
      const { response, cancel } = this.#session.call(lean.path, lean.encode(request), options)
      return { response: response.then(lean.decode), cancel }
    }
    const client = this.#stubs.client(serviceOf[method])
    const { promise, resolve, reject } = Promise.withResolvers<UnaryCalls[M]['response']>()
    // The stub's methods come from the .proto file at run time; UnaryCalls declares their types.
    const stub = (client as Client & Record<M, UnaryStub>)[method].bind(client)
    const call = stub(request, callMetadata(options.token), { deadline: dateOf(options.deadline) }, (error, response) => {
      if (error === null) resolve(response as UnaryCalls[M]['response'])
      else reject(error)
    })
    return { response: promise, cancel: () => call.cancel() }
  }

  /** Opens a stream; errors arrive as its `error` events. */
  open<M extends keyof StreamCalls>(method: M, metadata: Metadata): ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']> {
    const client = this.#stubs.client(serviceOf[method])
    // As above: StreamCalls declares the types.
    return (client as Client & Record<M, StreamStub>)[method](metadata) as ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']>
  }

  close(): void {
    clearTimeout(this.#connectTimer)
    this.#session.close()
    this.#stubs.close()
  }
}

/** Returns the metadata of every call. With it, a member without a leader refuses calls at once and ends its streams. */
export function callMetadata(token: string | undefined): Metadata {
  const metadata = new Metadata()
  metadata.set('hasleader', 'true')
  if (token !== undefined) metadata.set('token', token)
  return metadata
}
