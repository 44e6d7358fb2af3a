import { Metadata, Server, ServerCredentials, logVerbosity, setLogVerbosity } from '@grpc/grpc-js'
import type { sendUnaryData } from '@grpc/grpc-js'
import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import type { Log } from '../../core/log.ts'
import type { MethodRow } from '../../core/method.ts'
import { grpcPaths } from '../aliases.ts'
import type { Answer, Call, Dispatch } from '../call.ts'
import { callName } from '../call-name.ts'
import { toDomainError } from '../errors-details.ts'
import type { CallMetrics } from '../metrics.ts'
import type { Door } from '../one-port.ts'
import { answerBinary } from './answer-binary.ts'
import { GrpcCall } from './grpc-call.ts'
import type { RawCall } from './grpc-call.ts'
import { grpcStatus } from './grpc-status.ts'
import { createHealth } from './health.ts'
import { LibraryRefusals, maxMessageBytes } from './library-refusals.ts'
import { addReflection } from './reflection.ts'

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
}

/** The gRPC side: a door for HTTP/2 connections. */
export interface GrpcApi extends Door {
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

const defaultLimits: GrpcLimits = { idleMs: 300_000, pingMs: 60_000, messageTimeoutMs: 60_000 }

/** Builds a server with every method of the table under each of its names, reflection and health. */
export function createGrpcApi(options: GrpcApiOptions): GrpcApi {
  const limits = { ...defaultLimits, ...options.limits }
  const refusals = new LibraryRefusals()
  // The library's lines hold what clients sent, tokens too.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': 100 * 1024 * 1024,
    'grpc.max_concurrent_streams': 100,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.keepalive_time_ms': limits.pingMs,
    // Nobody can ask for what it would count.
    'grpc.enable_channelz': 0,
    interceptors: [refusals.interceptor],
  })
  for (const row of options.methods) {
    const handle = unaryHandler(row, { ...options, limits, refusals })
    for (const path of grpcPaths(row, options.namespaces ?? []))
      server.register(
        path,
        handle,
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => bytes,
        'clientStream',
      )
  }
  const health = createHealth(server, options)
  addReflection(server, options)
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure())
  return {
    accept: (socket) => injector.injectConnection(socket),
    // The port destroys what is left after its grace; the injector's own timer is only a backstop.
    drain: () => injector.drain(60_000),
    setReady: (ready) => health.setReady(ready),
    stop: () => server.forceShutdown(),
  }
}

interface HandlerOptions extends GrpcApiOptions {
  readonly limits: GrpcLimits
  readonly refusals: LibraryRefusals
}

/**
 * Serves a unary method as grpc-js serves client streams (the same on the wire): the call starts with its metadata, and the message is
 * read, and only then held in memory, when the pipeline asks for it after the token was checked.
 */
function unaryHandler(row: MethodRow, options: HandlerOptions): (raw: RawCall, callback: sendUnaryData<Buffer>) => void {
  const { dispatch, log } = options
  const method = callName(row)
  return (raw, callback) => {
    const done = options.metrics?.start(method, 'grpc')
    const call = new GrpcCall(row, raw, { newRequestId: options.newRequestId, messageTimeoutMs: options.limits.messageTimeoutMs })
    const { requestId } = call.headers
    options.refusals.onRefusal(raw.metadata, (error) => {
      call.abort(error)
      return grpcStatus(error, { requestId, domain: row.domain })
    })
    const answer = async (): Promise<void> => {
      const result = await call.answered(dispatch(call))
      const bytes = answerBinary(row.output, result)
      raw.sendMetadata(answerMetadata(call, result))
      callback(null, bytes)
      done?.(0)
    }
    const refuse = (thrown: unknown): void => {
      const error = toDomainError(thrown, { requestId, method, signal: call.signal, log })
      done?.(error.code)
      callback(grpcStatus(error, { requestId, domain: row.domain }))
    }
    const refuseWithout = (failure: unknown): void => {
      log.error('error could not be sent', { requestId, method, error: failure })
      callback({ code: 13, details: 'internal error' })
    }
    // A rejection that nothing handles would end the process.
    answer()
      .catch(refuse)
      .catch(refuseWithout)
      .catch(() => undefined)
  }
}

function answerMetadata(call: Call, answer: Answer): Metadata {
  const metadata = new Metadata()
  metadata.set('x-request-id', call.headers.requestId)
  if (answer.etag !== undefined) metadata.set('etag', answer.etag)
  if (answer.pageTokenRestarted === true) metadata.set('page-token-restarted', 'true')
  return metadata
}
