import { Metadata, Server, ServerCredentials } from '@grpc/grpc-js'
import type { ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js'
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Message } from '@bufbuild/protobuf'
import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../../core/errors.ts'
import type { Code } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { MethodRow } from '../../core/method.ts'
import { grpcPaths } from '../aliases.ts'
import type { Answer, Call, Decoded, Dispatch } from '../call.ts'
import { callName } from '../call-name.ts'
import { parseCallHeaders } from '../call-headers.ts'
import { toDomainError } from '../errors-details.ts'
import { grpcError } from '../errors-grpc.ts'
import type { CallMetrics } from '../metrics.ts'
import type { Door } from '../one-port.ts'
import { untilAborted } from '../../core/until-aborted.ts'
import { createHealth } from './health.ts'
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
}

/** The gRPC side: a door for HTTP/2 connections. */
export interface GrpcApi extends Door {
  /** What grpc.health.v1 answers for the whole server and for every service; NOT_SERVING until first set. */
  setReady(ready: boolean): void
  /** Ends every call and connection at once. */
  stop(): void
}

/** The largest request message, in bytes; over it code 3, as over REST. */
const maxMessageBytes = 1024 * 1024

/** Above this grpc-js itself refuses, with code 8 and without details. */
const hardLimitBytes = 4 * maxMessageBytes

type RawCall = ServerUnaryCall<Buffer, Buffer>

/** Builds a server with every method of the table under each of its names, reflection and health. */
export function createGrpcApi(options: GrpcApiOptions): GrpcApi {
  const server = new Server({
    'grpc.max_receive_message_length': hardLimitBytes,
    'grpc.max_send_message_length': 100 * maxMessageBytes,
    'grpc.max_concurrent_streams': 1000,
  })
  for (const row of options.methods) {
    const handle = unaryHandler(row, options)
    for (const path of grpcPaths(row, options.namespaces ?? []))
      server.register(
        path,
        handle,
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => bytes,
        'unary',
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

function unaryHandler(row: MethodRow, options: GrpcApiOptions): (call: RawCall, callback: sendUnaryData<Buffer>) => void {
  const name = callName(row)
  const fail = createFailure(row, name, options)
  return (raw, callback) => {
    const done = options.metrics?.start(name, 'grpc')
    const call = createCall(row, raw, options.newRequestId)
    const answer = async (): Promise<void> => {
      const result = await untilAborted(options.dispatch(call), call.signal)
      const bytes = encode(row, result)
      raw.sendMetadata(answerMetadata(call, result))
      done?.(0)
      callback(null, bytes)
    }
    answer().catch((thrown: unknown) => {
      const { code, status } = fail(thrown, call)
      done?.(code)
      callback(status)
    })
  }
}

type Failure = (thrown: unknown, call: Call) => { readonly code: Code; readonly status: { code: number; details: string; metadata: Metadata } }

function createFailure(row: MethodRow, name: string, options: GrpcApiOptions): Failure {
  return (thrown, { requestId, signal }) => {
    const error = toDomainError(thrown, { requestId, method: name, signal, log: options.log })
    const { code, message, details } = grpcError(error, { requestId, domain: row.domain })
    const metadata = new Metadata()
    metadata.set('x-request-id', requestId)
    metadata.set('grpc-status-details-bin', Buffer.from(details))
    return { code: error.code, status: { code, details: message, metadata } }
  }
}

function encode(row: MethodRow, answer: Answer): Buffer {
  const bytes = toBinary(row.output, answer.message)
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function answerMetadata(call: Call, answer: Answer): Metadata {
  const metadata = new Metadata()
  metadata.set('x-request-id', call.requestId)
  if (answer.etag !== undefined) metadata.set('etag', answer.etag)
  if (answer.pageTokenRestarted === true) metadata.set('page-token-restarted', 'true')
  return metadata
}

function createCall(row: MethodRow, raw: RawCall, newRequestId: () => string): Call {
  const controller = new AbortController()
  raw.on('cancelled', () => controller.abort(abortReason(raw)))
  const get = (name: string): string | undefined => {
    const value = raw.metadata.get(name)[0]
    return typeof value === 'string' ? value : undefined
  }
  const validateOnly = get('validate-only') ?? 'false'
  return {
    ...parseCallHeaders(get, newRequestId),
    method: row,
    transport: 'grpc',
    validateOnly: validateOnly !== 'false' && validateOnly !== '',
    remoteAddress: addressOf(raw.getPeer()),
    signal: controller.signal,
    decode: async () => decode(row, raw.request, validateOnly),
  }
}

/** How much earlier than ours a client's own deadline may fire, in milliseconds: ours started when the call arrived. */
const deadlineSlackMs = 50

/** grpc-js reports a passed deadline as a cancellation, and so does a client whose own timer was first. */
function abortReason(raw: RawCall): DomainError {
  const isLate = Date.now() + deadlineSlackMs >= Number(raw.getDeadline())
  return isLate ? new DomainError(4, 'the deadline passed before the request was done') : new DomainError(1, 'the client cancelled the call')
}

/** `127.0.0.1:4711` or `[::1]:4711` without the port. */
function addressOf(peer: string): string {
  return peer.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
}

function decode(row: MethodRow, bytes: Buffer, validateOnly: string): Decoded {
  if (!['true', 'false', '1', '0', ''].includes(validateOnly)) throw DomainError.invalid('validate_only', 'must be true or false')
  if (bytes.length > maxMessageBytes) throw DomainError.invalid('body', `must not be larger than ${maxMessageBytes} bytes`)
  return { message: parse(row, bytes) }
}

function parse(row: MethodRow, bytes: Buffer): Message {
  try {
    return fromBinary(row.input, bytes)
  } catch (error) {
    throw DomainError.invalid('body', `is not a valid ${row.input.typeName}`, { cause: error })
  }
}
