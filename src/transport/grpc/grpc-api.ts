import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import { Server, ServerCredentials, logVerbosity, setLogVerbosity } from '@grpc/grpc-js'
import { HealthImplementation } from 'grpc-health-check'
import type { ClientAddress } from '../../base/client-address.ts'
import type { Log } from '../../base/log.ts'
import { maxOpenRequestBytes, type MethodRow } from '../../base/schema/method.ts'
import { grpcPaths, serviceAliases } from '../aliases.ts'
import type { Dispatch } from '../calls/call.ts'
import { lazyReflection } from './reflection.ts'
import { unaryCalls } from './unary-calls.ts'
import type { Http2Requests } from '../http/http2-requests.ts'
import type { CallMetrics } from '../metrics.ts'
import type { PortListener } from '../one-port.ts'

/**
 * Serves the health service grpc.health.v1 on `server`, for the whole server (an empty name) and for each service. It reports NOT_SERVING until
 * `setReady(true)`.
 */
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

/** The dependencies and options of the gRPC side of a port. */
export interface GrpcApiOptions {
  readonly methods: readonly MethodRow[]
  readonly dispatch: Dispatch
  readonly log: Log
  /** Returns a new request id, for calls without one. */
  readonly newRequestId: () => string
  /** Additional package prefixes under which the services are served. */
  readonly namespaces?: readonly string[]
  /** The file descriptors, including imports, that reflection serves. */
  readonly fileDescriptors: readonly FileDescriptorProto[]
  readonly metrics?: CallMetrics
  /** By default: 5 minutes without calls, a ping every minute, and a minute for a message. */
  readonly limits?: Partial<GrpcLimits>
  /** Returns the client's address. By default, it is the peer address of the connection. */
  readonly clientAddress?: ClientAddress
  /** Serves requests that are not gRPC: REST over HTTP/2. Without it, they get HTTP status 415. */
  readonly otherRequests?: Http2Requests
}

/** The gRPC side of a port. It serves HTTP/2 connections. */
export interface GrpcApi extends PortListener {
  /** Sets the status that grpc.health.v1 reports for the whole server and for every service. Before the first call it is NOT_SERVING. */
  setReady(ready: boolean): void
  /** Ends every call and connection immediately. */
  stop(): void
}

/** Limits of connections and messages. */
export interface GrpcLimits {
  /** Maximum time in milliseconds for which a connection may have no calls. */
  readonly idleMs: number
  /** Interval of keepalive pings in milliseconds. */
  readonly pingMs: number
  /** Maximum time in milliseconds for a message to arrive after the server asked for it. */
  readonly messageTimeoutMs: number
}

/** Time in milliseconds after which the library closes connections that are being drained. The port closes them much earlier, so this limit is rarely reached. */
const backstopMs = 2 * 3_600_000
const defaultLimits: GrpcLimits = { idleMs: 300_000, pingMs: 60_000, messageTimeoutMs: 60_000 }

/** Builds a gRPC server with every method of the table under each of its names, and with reflection and health. */
export function createGrpcApi(options: GrpcApiOptions): GrpcApi {
  const limits = { ...defaultLimits, ...options.limits }
  const rows = new Map(options.methods.flatMap((row) => grpcPaths(row, options.namespaces ?? []).map((path) => [path, row] as const)))
  // The library's log lines contain data from clients, including tokens.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({
    // Applies to health and reflection. The API methods have their own limits.
    'grpc.max_receive_message_length': maxOpenRequestBytes,
    'grpc.max_send_message_length': 100 * 1024 * 1024,
    'grpc.max_concurrent_streams': 100,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.keepalive_time_ms': limits.pingMs,
    // Disabled, because no client can read channelz counters here.
    'grpc.enable_channelz': 0,
    interceptors: [unaryCalls(rows, { ...options, messageTimeoutMs: limits.messageTimeoutMs, hasHandler: (path) => hasHandler(path) })],
  })
  const handling = server as unknown as StreamHandling // See StreamHandling.
  const reflection = lazyReflection(server, options)
  const hasHandler = (path: string): boolean => handling.handlers.has(path) || reflection.serves(path)
  const { otherRequests } = options
  const isGrpc = (headers: IncomingHttpHeaders): boolean => {
    const path = headers[':path'] as string // Node only emits request streams, which have a path.
    return (headers['content-type'] ?? '').startsWith('application/grpc') || rows.has(path) || hasHandler(path)
  }
  guardStreams(handling, {
    log: options.log,
    beforeLookup: (path) => reflection.serves(path) && reflection.load(),
    takeOther(stream, headers, rawHeaders) {
      if (otherRequests === undefined || isGrpc(headers)) return false
      otherRequests(stream, headers, rawHeaders)
      return true
    },
  })
  const health = createHealth(server, options)
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure())
  return {
    accept(socket) {
      // Each running request adds a listener to its connection.
      socket.setMaxListeners(0)
      injector.injectConnection(socket)
    },
    // Sends GOAWAY: clients finish their calls and reconnect.
    beginDrain: () => injector.drain(backstopMs),
    drain: () => injector.drain(backstopMs),
    setReady: (ready) => health.setReady(ready),
    stop: () => server.forceShutdown(),
  }
}

/** A call handler in the gRPC library. */
interface GrpcHandler {
  readonly path: string
  readonly type: 'unary'
  readonly func: () => void
  readonly serialize: (message: Buffer) => Buffer
  readonly deserialize: (bytes: Buffer) => Buffer
}

/** The library's private function that handles each stream. */
interface StreamHandling {
  readonly handlers: ReadonlyMap<string, unknown>
  _retrieveHandler(path: string): unknown
  _streamHandler(interceptors: unknown, stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, rawHeaders: string[]): void
}

/** The dependencies for handling HTTP/2 streams that are not gRPC calls. */
interface OtherStreams {
  readonly log: Log
  /** Called before the handler of a path is looked up. */
  beforeLookup(path: string): void
  /** Serves a stream that is not a gRPC call and returns true. Returns false for a gRPC call. */
  takeOther(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: string[]): boolean
}

const bytes = (message: Buffer): Buffer => message

/** Returns a handler that the library requires but never calls, because the interceptor answers the call. */
function handlerOf(path: string): GrpcHandler {
  return { path, type: 'unary', func: () => undefined, serialize: bytes, deserialize: bytes }
}

/**
 * Corrects the library's handling of streams in two cases. Call it before the first connection.
 * - It ignores streams that were reset before they are handled. The library answers calls of other content types without checking the stream, and its error
 *   would end the process.
 * - It passes calls of unknown methods to the interceptor. The library answers them without error details.
 */
function guardStreams(handling: StreamHandling, { log, beforeLookup, takeOther }: OtherStreams): void {
  const handle = handling._streamHandler.bind(handling)
  handling._retrieveHandler = (path) => {
    beforeLookup(path)
    return handling.handlers.get(path) ?? handlerOf(path)
  }
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
