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

/** The dependencies and options of the gRPC side. */
export interface GrpcApiOptions {
  readonly methods: readonly MethodRow[]
  readonly dispatch: Dispatch
  readonly log: Log
  /** Creates a request id for calls without one. */
  readonly newRequestId: () => string
  /** Foreign namespaces under which the services are also served. */
  readonly namespaces?: readonly string[]
  /** The descriptors that reflection serves, including imports. */
  readonly fileDescriptors: readonly FileDescriptorProto[]
  readonly metrics?: CallMetrics
  /** Defaults: 5 minutes without calls, a ping every minute, and a minute for a message. */
  readonly limits?: Partial<GrpcLimits>
  /** Returns the client's address; by default the peer address of the connection. */
  readonly clientAddress?: ClientAddress
  /** Serves requests other than gRPC: REST over HTTP/2. Without it they get HTTP status 415. */
  readonly otherRequests?: Http2Requests
}

/** The gRPC side: a listener for HTTP/2 connections. */
export interface GrpcApi extends PortListener {
  /** Sets the answer of grpc.health.v1 for the whole server and for every service; NOT_SERVING until first set. */
  setReady(ready: boolean): void
  /** Ends every call and connection at once. */
  stop(): void
}

/** Limits of connections and messages. */
export interface GrpcLimits {
  /** Maximum time for which a connection may have no calls, in milliseconds. */
  readonly idleMs: number
  /** Interval of keepalive pings, in milliseconds. */
  readonly pingMs: number
  /** Maximum time for a message to arrive once it is requested, in milliseconds. */
  readonly messageTimeoutMs: number
}

/** The port destroys remaining connections after its grace period; the injector's own timer is only a backstop. */
const backstopMs = 2 * 3_600_000
const defaultLimits: GrpcLimits = { idleMs: 300_000, pingMs: 60_000, messageTimeoutMs: 60_000 }

/** Builds a server with every method of the table under each of its names, reflection and health. */
export function createGrpcApi(options: GrpcApiOptions): GrpcApi {
  const limits = { ...defaultLimits, ...options.limits }
  const rows = new Map(options.methods.flatMap((row) => grpcPaths(row, options.namespaces ?? []).map((path) => [path, row] as const)))
  // The library's log lines contain what clients sent, including tokens.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({
    // For health and reflection; the methods have their own limits.
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
    const path = headers[':path'] as string // Node only emits request streams, which have a path.
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
      // Each request under way adds a listener to its connection.
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

/** The library's private function for each stream. */
interface StreamHandling {
  readonly handlers: ReadonlyMap<string, unknown>
  _retrieveHandler(path: string): unknown
  _streamHandler(interceptors: unknown, stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, rawHeaders: string[]): void
}

/** Options for streams other than gRPC. */
interface OtherStreams {
  readonly log: Log
  /** Serves a stream that is not a gRPC call; returns false if it is one. */
  takeOther(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: string[]): boolean
}

const bytes = (message: Buffer): Buffer => message

/** Returns a handler that is never called: the interceptor answers. */
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
      log.error('a call could not be started', { error })
      stream.destroy()
    }
  }
}
