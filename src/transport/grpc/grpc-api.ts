import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import { Server, ServerCredentials, logVerbosity, setLogVerbosity } from '@grpc/grpc-js'
import { HealthImplementation } from 'grpc-health-check'
import type { ClientAddress } from '../../base/client-address.ts'
import type { Log } from '../../base/log.ts'
import { maxOpenRequestBytes, type MethodRow } from '../../base/schema/method.ts'
import { grpcPaths, serviceAliases } from '../aliases.ts'
import type { Dispatch } from '../call.ts'
import { addReflection } from './reflection.ts'
import { unaryCalls } from './unary-calls.ts'
import type { Http2Requests } from '../http/http2-requests.ts'
import type { CallMetrics } from '../metrics.ts'
import type { PortListener } from '../one-port.ts'

/** Serves grpc.health.v1 on `server` for the empty name and each service; NOT_SERVING until `setReady(true)`. */
function createHealth(
  server: Server,
  options: { readonly methods: readonly MethodRow[]; readonly namespaces?: readonly string[] },
): { setReady(ready: boolean): void } {
  const services = new Set(options.methods.map((row) => row.service))
  const names = ['', ...[...services].flatMap((service) => [service, ...serviceAliases(service, options.namespaces ?? [])])]
  const health = new HealthImplementation(Object.fromEntries(names.map((name) => [name, 'NOT_SERVING'] as const)))
  health.addToServer(server)
  return {
    setReady(ready) {
      for (const name of names) health.setStatus(name, ready ? 'SERVING' : 'NOT_SERVING')
    },
  }
}

/** What the gRPC side is made of. */
export interface GrpcApiOptions {
  readonly methods: readonly MethodRow[]
  readonly dispatch: Dispatch
  readonly log: Log
  /** A fresh request id for calls that bring none. */
  readonly newRequestId: () => string
  /** Foreign namespaces that the services are served under too. */
  readonly namespaces?: readonly string[]
  /** What reflection serves, imports included. */
  readonly fileDescriptors: readonly FileDescriptorProto[]
  readonly metrics?: CallMetrics
  /** 5 minutes without calls, a ping every minute and a minute for a message where absent. */
  readonly limits?: Partial<GrpcLimits>
  /** Whose call it is; the connection's other end where absent. */
  readonly clientAddress?: ClientAddress
  /** Serves what is no gRPC: REST over HTTP/2. Answered with HTTP status 415 where absent. */
  readonly otherRequests?: Http2Requests
}

/** The gRPC side: a listener for HTTP/2 connections. */
export interface GrpcApi extends PortListener {
  /** What grpc.health.v1 answers for the whole server and for every service; NOT_SERVING until first set. */
  setReady(ready: boolean): void
  /** Ends every call and connection at once. */
  stop(): void
}

/** Limits of connections and messages. */
export interface GrpcLimits {
  /** How long a connection may be without calls, milliseconds. */
  readonly idleMs: number
  /** How often the peer is asked whether it is still there, milliseconds. */
  readonly pingMs: number
  /** How long a message may take to arrive once it is wanted, milliseconds. */
  readonly messageTimeoutMs: number
}

/** The port destroys what is left after its grace; the injector's own timer is only a backstop. */
const backstopMs = 2 * 3_600_000
const defaultLimits: GrpcLimits = { idleMs: 300_000, pingMs: 60_000, messageTimeoutMs: 60_000 }

/** Builds a server with every method of the table under each of its names, reflection and health. */
export function createGrpcApi(options: GrpcApiOptions): GrpcApi {
  const limits = { ...defaultLimits, ...options.limits }
  const rows = new Map(options.methods.flatMap((row) => grpcPaths(row, options.namespaces ?? []).map((path) => [path, row] as const)))
  // The library's lines hold what clients sent, tokens too.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({
    // Of health and reflection; the methods have their own.
    'grpc.max_receive_message_length': maxOpenRequestBytes,
    'grpc.max_send_message_length': 100 * 1024 * 1024,
    'grpc.max_concurrent_streams': 100,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.keepalive_time_ms': limits.pingMs,
    // Disabled: no client can read its counters.
    'grpc.enable_channelz': 0,
    interceptors: [unaryCalls(rows, { ...options, messageTimeoutMs: limits.messageTimeoutMs, hasHandler: (path) => handling.handlers.has(path) })],
  })
  const handling = server as unknown as StreamHandling // see StreamHandling
  const { otherRequests } = options
  const isGrpc = (headers: IncomingHttpHeaders): boolean => {
    const path = headers[':path'] as string // Node sends streams of requests only, which have one.
    return (headers['content-type'] ?? '').startsWith('application/grpc') || rows.has(path) || handling.handlers.has(path)
  }
  guardStreams(handling, {
    log: options.log,
    takeOther(stream, headers, rawHeaders) {
      if (otherRequests === undefined || isGrpc(headers)) return false
      otherRequests(stream, headers, rawHeaders)
      return true
    },
  })
  const health = createHealth(server, options)
  addReflection(server, options)
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure())
  return {
    accept(socket) {
      // Each request that is under way listens to its connection.
      socket.setMaxListeners(0)
      injector.injectConnection(socket)
    },
    // Clients receive a GOAWAY: they finish their calls and reconnect.
    beginDrain: () => injector.drain(backstopMs),
    drain: () => injector.drain(backstopMs),
    setReady: (ready) => health.setReady(ready),
    stop: () => server.forceShutdown(),
  }
}

/** A handler of the library. */
interface GrpcHandler {
  readonly path: string
  readonly type: 'unary'
  readonly func: () => void
  readonly serialize: (message: Buffer) => Buffer
  readonly deserialize: (bytes: Buffer) => Buffer
}

/** What the library does with each stream; private to it. */
interface StreamHandling {
  readonly handlers: ReadonlyMap<string, unknown>
  _retrieveHandler(path: string): unknown
  _streamHandler(interceptors: unknown, stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, rawHeaders: string[]): void
}

/** What is done with streams besides gRPC. */
interface OtherStreams {
  readonly log: Log
  /** Serves a stream that is no gRPC call; false where it is one. */
  takeOther(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: string[]): boolean
}

const bytes = (message: Buffer): Buffer => message

/** Never called: the interceptor answers. */
function handlerOf(path: string): GrpcHandler {
  return { path, type: 'unary', func: () => undefined, serialize: bytes, deserialize: bytes }
}

/**
 * Ignores streams that were reset before the library handles them. The library answers calls of other content types without checking the stream, and its error
 * would end the process. Also passes calls of unknown methods to the interceptor, because the library answers them without details. Call it before the first
 * connection.
 */
function guardStreams(handling: StreamHandling, { log, takeOther }: OtherStreams): void {
  const handle = handling._streamHandler.bind(handling)
  handling._retrieveHandler = (path) => handling.handlers.get(path) ?? handlerOf(path)
  handling._streamHandler = (...begun) => {
    const [, stream, headers, , rawHeaders] = begun
    stream.once('error', () => undefined)
    if (stream.destroyed || stream.closed) return
    try {
      if (!takeOther(stream, headers, rawHeaders)) handle(...begun)
    } catch (error) {
      log.error('a call could not be begun', { error })
      stream.destroy()
    }
  }
}
