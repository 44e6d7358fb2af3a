import { connectivityState, credentials, Metadata, type ChannelCredentials, type Client, type ClientDuplexStream, type ServiceError } from '@grpc/grpc-js'
import { isIP } from 'node:net'
import { checkServerIdentity as verifyIdentity, type PeerCertificate } from 'node:tls'
import type {
  IAuthenticateRequest,
  IAuthenticateResponse,
  ILeaseGrantRequest,
  ILeaseGrantResponse,
  ILeaseKeepAliveRequest,
  ILeaseKeepAliveResponse,
  ILeaseRevokeRequest,
  ILeaseRevokeResponse,
  IRangeRequest,
  IRangeResponse,
  ITxnRequest,
  ITxnResponse,
  IWatchRequest,
  IWatchResponse,
} from 'etcd3'
// The stubs themselves: etcd3's own pool repeats transactions that may have committed, and hides gRPC codes and running calls.
import { Host } from 'etcd3/lib/connection-pool.js'

/** The unary calls that the adapter makes, with their messages. */
export interface UnaryCalls {
  range: { request: IRangeRequest; response: IRangeResponse }
  txn: { request: ITxnRequest; response: ITxnResponse }
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

/** Certificates for `https` endpoints, as PEM. Without `ca` the system's roots are trusted. */
export interface EtcdTls {
  readonly ca?: Buffer
  readonly key?: Buffer
  readonly cert?: Buffer
}

const channelOptions = {
  // A range of large records is larger than gRPC's default of 4 MiB.
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
  // A connection that went silent is noticed within 9 s. etcd drops clients that ping more often than every 5 s.
  'grpc.keepalive_time_ms': 6000,
  'grpc.keepalive_timeout_ms': 3000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
}

/** One running unary call: `response` rejects with the driver's error; `cancel` makes it do so. */
export interface RunningCall<T> {
  readonly response: Promise<T>
  cancel(): void
}

type UnaryCallback = (error: ServiceError | null, response: unknown) => void
type UnaryStub = (...call: [request: unknown, metadata: Metadata, options: { deadline: Date }, callback: UnaryCallback]) => { cancel(): void }
type StreamStub = (metadata: Metadata) => unknown

/** One etcd member: its channel, made on first use. Nothing is repeated here. */
export class EtcdEndpoint {
  readonly #host: Host

  constructor(endpoint: string, tls: EtcdTls | undefined) {
    const { hostname, protocol } = new URL(endpoint)
    const address = hostname.replace(/^\[|\]$/g, '')
    const secure = protocol === 'https:'
    // grpc-js would send an address as the server's name, which TLS forbids and Node refuses. etcd takes no notice of the name.
    const nameOption = secure && isIP(address) !== 0 ? { 'grpc.ssl_target_name_override': 'etcd' } : {}
    this.#host = new Host(endpoint, secure ? tlsCredentials(address, tls) : credentials.createInsecure(), { ...channelOptions, ...nameOption })
  }

  /** True where a call would be sent at once. */
  isConnected(): boolean {
    return this.#host.getServiceClient('KV').getChannel().getConnectivityState(true) === connectivityState.READY
  }

  /**
   * Resolves true once the channel is connected, false when connecting failed or took until `deadline` (milliseconds since 1970). With
   * `patient` a failed attempt is followed by others until the deadline. While this is false nothing has been sent.
   */
  async connected(deadline: number, patient: boolean): Promise<boolean> {
    const channel = this.#host.getServiceClient('KV').getChannel()
    for (;;) {
      const state = channel.getConnectivityState(true)
      if (state === connectivityState.READY) return true
      if (state === connectivityState.SHUTDOWN || (state === connectivityState.TRANSIENT_FAILURE && !patient)) return false
      const changed = await new Promise<boolean>((resolve) => {
        channel.watchConnectivityState(state, deadline, (error) => resolve(error === undefined))
      })
      if (!changed) return false
    }
  }

  /** Sends one request. `deadline` is in milliseconds since 1970. */
  call<M extends keyof UnaryCalls>(
    method: M,
    request: UnaryCalls[M]['request'],
    options: { metadata: Metadata; deadline: number },
  ): RunningCall<UnaryCalls[M]['response']> {
    const client = this.#host.getServiceClient(serviceOf[method])
    const { promise, resolve, reject } = Promise.withResolvers<UnaryCalls[M]['response']>()
    // The stub's methods come from the .proto file at run time; UnaryCalls has their types.
    const stub = (client as Client & Record<M, UnaryStub>)[method].bind(client)
    const call = stub(request, options.metadata, { deadline: new Date(options.deadline) }, (error, response) => {
      if (error === null) resolve(response as UnaryCalls[M]['response'])
      else reject(error)
    })
    return { response: promise, cancel: () => call.cancel() }
  }

  /** Opens a stream; errors come as its `error` events. */
  open<M extends keyof StreamCalls>(method: M, metadata: Metadata): ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']> {
    const client = this.#host.getServiceClient(serviceOf[method])
    // As above: StreamCalls has the types.
    return (client as Client & Record<M, StreamStub>)[method](metadata) as ClientDuplexStream<StreamCalls[M]['request'], StreamCalls[M]['response']>
  }

  close(): void {
    this.#host.close()
  }
}

/** What goes with every call: etcd then refuses at once where its member has lost the leader, and ends streams that lose it. */
export function callMetadata(token: string | undefined): Metadata {
  const metadata = new Metadata()
  metadata.set('hasleader', 'true')
  if (token !== undefined) metadata.set('token', token)
  return metadata
}

function tlsCredentials(address: string, tls: EtcdTls | undefined): ChannelCredentials {
  // Against the address itself, whatever name was sent.
  const checkServerIdentity = (_name: string, certificate: PeerCertificate): Error | undefined => verifyIdentity(address, certificate)
  return credentials.createSsl(tls?.ca ?? null, tls?.key ?? null, tls?.cert ?? null, { checkServerIdentity })
}
