import { isIP } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { checkServerIdentity as verifyIdentity, type PeerCertificate } from 'node:tls'
import { ChannelCredentials, Client, connectivityState, credentials, Metadata, type ClientDuplexStream } from '@grpc/grpc-js'
import { ClosingCredentials } from './closing-credentials.ts'
import {
  decodeAuthenticate,
  decodeHeader,
  decodeLease,
  decodeWatch,
  encodeAuthenticate,
  encodeLeaseGrant,
  encodeLeaseId,
  encodeWatchCreate,
  type AuthenticateResponse,
  type LeaseResponse,
  type WatchCreateRequest,
  type WatchResponse,
} from './etcd-lease-messages.ts'
import {
  decodeRange,
  decodeTransaction,
  encodeRange,
  encodeTransaction,
  type EtcdRangeRequest,
  type RangeResponse,
  type ResponseHeader,
  type TransactionRequest,
  type TransactionResponse,
} from './etcd-messages.ts'
import { UnarySession, type EtcdTls, type RunningCall, type UnaryOptions } from './unary-session.ts'

type CreateConnector = ChannelCredentials['_createSecureConnector']

/**
 * gRPC credentials that read the current certificates for each connection to an address. gRPC's own credentials keep the certificates with which the channel
 * was created.
 */
class TlsCredentials extends ChannelCredentials {
  readonly #address: string
  readonly #tls: (() => EtcdTls) | undefined

  /** `tls` returns the TLS settings. It is called for each connection. */
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
    // Verify the certificate against the address itself, not against the name that was sent.
    const checkServerIdentity = (_name: string, certificate: PeerCertificate): Error | undefined => verifyIdentity(this.#address, certificate)
    const { ca = null, key = null, cert = null } = this.#tls?.() ?? {}
    return ChannelCredentials.createSsl(ca, key, cert, { checkServerIdentity })
  }
}

/** The unary calls that the adapter makes, with their messages. */
export interface UnaryCalls {
  range: { request: EtcdRangeRequest; response: RangeResponse }
  txn: { request: TransactionRequest; response: TransactionResponse }
  leaseGrant: { request: { readonly TTL: number }; response: LeaseResponse }
  leaseRevoke: { request: { readonly ID: string }; response: { readonly header: ResponseHeader } }
  authenticate: { request: { readonly name: string; readonly password: string }; response: AuthenticateResponse }
}

/** The streams that the adapter opens, with their messages. */
export interface StreamCalls {
  watch: { request: WatchCreateRequest; response: WatchResponse }
  leaseKeepAlive: { request: { readonly ID: string }; response: LeaseResponse }
}

/** The path of a gRPC call, and the codec of its messages. */
interface Method<Request, Response> {
  readonly path: string
  readonly encode: (request: Request) => Uint8Array
  readonly decode: (bytes: Uint8Array) => Response
}

type Methods<Calls extends Record<keyof Calls, { request: unknown; response: unknown }>> = {
  readonly [M in keyof Calls]: Method<Calls[M]['request'], Calls[M]['response']>
}

const unaryMethods: Methods<UnaryCalls> = {
  range: { path: '/etcdserverpb.KV/Range', encode: encodeRange, decode: decodeRange },
  txn: { path: '/etcdserverpb.KV/Txn', encode: encodeTransaction, decode: decodeTransaction },
  leaseGrant: { path: '/etcdserverpb.Lease/LeaseGrant', encode: encodeLeaseGrant, decode: decodeLease },
  leaseRevoke: { path: '/etcdserverpb.Lease/LeaseRevoke', encode: encodeLeaseId, decode: decodeHeader },
  authenticate: { path: '/etcdserverpb.Auth/Authenticate', encode: encodeAuthenticate, decode: decodeAuthenticate },
}

const streamMethods: Methods<StreamCalls> = {
  watch: { path: '/etcdserverpb.Watch/Watch', encode: encodeWatchCreate, decode: decodeWatch },
  leaseKeepAlive: { path: '/etcdserverpb.Lease/LeaseKeepAlive', encode: encodeLeaseId, decode: decodeLease },
}

/** Pause in milliseconds between connection attempts for a caller that retries. The channel reconnects at its own pace. */
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

/** Calls that go over a lean connection of their own, because every read and write of the API waits for them. */
const direct: ReadonlySet<keyof UnaryCalls> = new Set(['range', 'txn'])

/** Returns a Buffer of the same memory, which is the type that gRPC accepts. */
function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * A client of one etcd member: a gRPC channel for streams and leases, and a lean connection for reads and transactions. Both connect on first use. Does not
 * repeat failed calls.
 */
export class EtcdEndpoint {
  readonly #address: string
  readonly #createClient: () => Client
  readonly #session: UnarySession
  #client: Client
  /** The time limit for connecting the channel, while it connects. */
  #connectTimer: NodeJS.Timeout | undefined

  /** `tls` returns the TLS settings. It is called for each connection. */
  constructor(endpoint: string, tls: (() => EtcdTls) | undefined) {
    const { hostname, protocol, origin } = new URL(endpoint)
    this.#address = origin
    const address = hostname.replace(/^\[|\]$/g, '')
    const secure = protocol === 'https:'
    // grpc-js would send an IP address as the TLS server name, which TLS forbids and Node refuses. etcd ignores the name, so any name works.
    const nameOption = secure && isIP(address) !== 0 ? { 'grpc.ssl_target_name_override': 'etcd' } : {}
    this.#session = new UnarySession(endpoint, secure ? tls : undefined)
    const channelCredentials = new ClosingCredentials(secure ? new TlsCredentials(address, tls) : credentials.createInsecure())
    this.#createClient = () => new Client(new URL(endpoint).host, channelCredentials, { ...channelOptions, ...nameOption })
    this.#client = this.#createClient()
  }

  /** True if a call could be sent now, without waiting for a connection. */
  isConnected(): boolean {
    return this.#session.isConnected && this.#client.getChannel().getConnectivityState(true) === connectivityState.READY
  }

  /** The address of the member, and why the last attempt to connect failed. */
  get problem(): string {
    return `${this.#address}: ${this.#session.problem}`
  }

  /**
   * Resolves true once the channel is connected, and false if connecting failed or took until `deadline` (in `performance.now()` time). With `retries`,
   * repeats failed attempts until the deadline. While not connected, no call has been sent.
   */
  async connected(deadline: number, retries: boolean): Promise<boolean> {
    // At the same time as the channel, which does not say why it cannot connect.
    this.#session.connected(deadline).catch(() => undefined)
    for (;;) {
      // The channel may be a new one after each wait.
      const channel = this.#client.getChannel()
      const state = channel.getConnectivityState(true)
      if (state === connectivityState.READY) {
        if (await this.#session.connected(deadline)) return true
        if (!retries || performance.now() + reconnectEveryMs > deadline) return false
        await delay(reconnectEveryMs)
        continue
      }
      if (state === connectivityState.SHUTDOWN) return false
      this.#connectTimer ??= setTimeout(() => this.#replaceUnconnected(), connectTimeoutMs).unref()
      if (state === connectivityState.TRANSIENT_FAILURE && !retries) return false
      const changed = await new Promise<boolean>((resolve) => {
        channel.watchConnectivityState(state, dateOf(deadline), (error) => resolve(error === undefined))
      })
      if (!changed) return false
    }
  }

  /** Replaces the channel if it is still not connected. Calls that wait for the old channel fail. */
  #replaceUnconnected(): void {
    this.#connectTimer = undefined
    const old = this.#client
    if (old.getChannel().getConnectivityState(false) === connectivityState.READY) return
    this.#client = this.#createClient()
    old.close()
  }

  /** Sends one request. `deadline` is in `performance.now()` time: clock changes neither end nor extend a range or a transaction. */
  call<M extends keyof UnaryCalls>(method: M, request: UnaryCalls[M]['request'], options: UnaryOptions): RunningCall<UnaryCalls[M]['response']> {
    const { path, encode, decode } = unaryMethods[method]
    if (direct.has(method)) {
      const { response, cancel } = this.#session.call(path, encode(request), options)
      return { response: response.then(decode), cancel }
    }
    const { promise, resolve, reject } = Promise.withResolvers<UnaryCalls[M]['response']>()
    const serialize = (message: UnaryCalls[M]['request']): Buffer => bufferOf(encode(message))
    const callOptions = { deadline: dateOf(options.deadline) }
    const call = this.#client.makeUnaryRequest(path, serialize, decode, request, callMetadata(options.token), callOptions, (error, response) => {
      if (response === undefined) reject(error)
      else resolve(response)
    })
    return { response: promise, cancel: () => call.cancel() }
  }

  /** Opens a stream; errors arrive as its `error` events. */
  open<M extends keyof StreamCalls>(method: M, metadata: Metadata): ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']> {
    const { path, encode, decode } = streamMethods[method]
    const serialize = (message: StreamCalls[M]['request']): Buffer => bufferOf(encode(message))
    return this.#client.makeBidiStreamRequest(path, serialize, decode, metadata)
  }

  close(): void {
    clearTimeout(this.#connectTimer)
    this.#session.close()
    this.#client.close()
  }
}

/** Returns the gRPC metadata of every call. It requires a leader: a member without one refuses calls at once and ends its streams. */
export function callMetadata(token: string | undefined): Metadata {
  const metadata = new Metadata()
  metadata.set('hasleader', 'true')
  if (token !== undefined) metadata.set('token', token)
  return metadata
}
