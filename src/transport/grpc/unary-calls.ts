import { Metadata } from '@grpc/grpc-js'
import type { ServerInterceptingCall, ServerInterceptingCallInterface, ServerInterceptor } from '@grpc/grpc-js'
import type { ClientAddress } from '../../base/client-address.ts'
import { DomainError } from '../../base/errors.ts'
import type { Code } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import type { Answer, Dispatch } from '../call.ts'
import { callName } from '../call-name.ts'
import { parseCallHeaders } from '../call-headers.ts'
import { platformDomain, toDomainError } from '../errors-details.ts'
import type { CallMetrics } from '../metrics.ts'
import { answerBinary } from './answer-binary.ts'
import { AnsweredCall } from './answered-call.ts'
import { GrpcCall, metadataText } from './grpc-call.ts'
import { grpcStatus } from './grpc-status.ts'
import { UnknownCall } from './unknown-call.ts'

/** What unary calls are served with. */
export interface UnaryCallOptions {
  readonly dispatch: Dispatch
  readonly log: Log
  /** A fresh request id for calls that bring none. */
  readonly newRequestId: () => string
  readonly metrics?: CallMetrics
  /** How long a message may take to arrive once it is wanted, milliseconds. */
  readonly messageTimeoutMs: number
  /** Whose call it is; the connection's other end where absent. */
  readonly clientAddress?: ClientAddress
  /** True of the paths that the library has a handler for. */
  readonly hasHandler: (path: string) => boolean
}

/**
 * Serves the methods of `rows` (by path), without the library's handlers: those read the whole message before anybody has looked at the token, and keep streams
 * that a unary call has no use for. Calls of other paths go on to their handlers, and are answered with code 12 where there is none. Must be the first
 * interceptor of the server.
 */
export function unaryCalls(rows: ReadonlyMap<string, MethodRow>, options: UnaryCallOptions): ServerInterceptor {
  return (method, call) => {
    const { path } = method
    const row = rows.get(path)
    const others = (): ServerInterceptingCallInterface =>
      options.hasHandler(path) ? withReadable(call, options) : new UnknownCall(path, call, options.newRequestId)
    const answered = row === undefined ? others() : new UnaryCall(row, call, options)
    // The library calls nothing but what the interface has.
    return answered as ServerInterceptingCall
  }
}

const ignore = (): void => undefined

/** A call of the library's own handlers, health and reflection. A message that they can't read is the client's fault: code 3 in place of the library's 13. */
function withReadable<Call extends ServerInterceptingCallInterface>(call: Call, { newRequestId }: UnaryCallOptions): Call {
  const start = call.start.bind(call)
  const sendStatus = call.sendStatus.bind(call)
  let requestId = ''
  call.start = (listener) => {
    start({
      ...listener,
      onReceiveMetadata(metadata) {
        requestId = parseCallHeaders((name) => metadataText(metadata, name), newRequestId).requestId
        listener.onReceiveMetadata(metadata)
      },
    })
  }
  call.sendStatus = (status) => {
    const isUnreadable = Number(status.code) === 13 && status.details?.startsWith('Error deserializing request') === true
    sendStatus(isUnreadable ? grpcStatus(DomainError.invalid('body', 'is not a readable message'), { requestId, domain: platformDomain }) : status)
  }
  return call
}

/** One call of a method of ours. */
class UnaryCall extends AnsweredCall {
  readonly #row: MethodRow
  readonly #options: UnaryCallOptions

  constructor(row: MethodRow, base: ServerInterceptingCallInterface, options: UnaryCallOptions) {
    super(base)
    this.#row = row
    this.#options = options
  }

  start(): void {
    const { base } = this
    const sendStatus = base.sendStatus.bind(base)
    limitMessage(base, this.#row.maxRequestBytes)
    let call: GrpcCall | undefined
    // The library ends some calls by itself (message too large, bad timeout, deadline), with codes of its own and without details.
    base.sendStatus = (status) => {
      const error = libraryError(this.#row, Number(status.code), status.details ?? '')
      call?.abort(error)
      sendStatus(grpcStatus(error, { requestId: call?.headers.requestId ?? this.#options.newRequestId(), domain: this.#row.domain }))
    }
    base.start({
      onReceiveMetadata: (metadata) => {
        call = new GrpcCall(this.#row, base, { metadata, ...this.#options })
        this.#serve(call, sendStatus)
      },
      onReceiveMessage: (message: Buffer) => call?.receive(message),
      onReceiveHalfClose: () => call?.receiveEnd(),
      onCancel: () => call?.cancelled(),
    })
  }

  #serve(call: GrpcCall, sendStatus: ServerInterceptingCallInterface['sendStatus']): void {
    const { dispatch, log, metrics } = this.#options
    const row = this.#row
    const method = callName(row)
    const { requestId } = call.headers
    const done = metrics?.start(method, 'grpc')
    const answer = async (): Promise<void> => {
      const result = await call.answered(dispatch(call))
      const bytes = answerBinary(row.output, result)
      this.base.sendMetadata(answerMetadata(requestId, result))
      // Not only once the message is on its way, so that both leave together.
      this.base.sendMessage(bytes, ignore)
      sendStatus({ code: 0, details: 'OK', metadata: null })
      done?.(0)
    }
    const refuse = (thrown: unknown): void => {
      const error = toDomainError(thrown, { requestId, method, signal: call.signal, log })
      done?.(error.code)
      sendStatus(grpcStatus(error, { requestId, domain: row.domain }))
    }
    const refuseWithout = (failure: unknown): void => {
      log.error('error could not be sent', { requestId, method, error: failure })
      sendStatus({ code: 13, details: 'internal error', metadata: null })
    }
    // A rejection that nothing handles would end the process.
    answer().catch(refuse).catch(refuseWithout).catch(ignore)
  }
}

function answerMetadata(requestId: string, answer: Answer): Metadata {
  const metadata = new Metadata()
  metadata.set('x-request-id', requestId)
  if (answer.etag !== undefined) metadata.set('etag', answer.etag)
  if (answer.pageTokenRestarted === true) metadata.set('page-token-restarted', 'true')
  return metadata
}

/** Where the library keeps the limit of a call's message; private to it. */
interface MessageLimits {
  maxReceiveMessageSize: number
  readonly decoder: { maxReadMessageLength: number }
}

/** Bounds what is read of one call, also once decompressed: the library has one limit for all methods. */
function limitMessage(base: ServerInterceptingCallInterface, maxBytes: number): void {
  const limits = base as unknown as MessageLimits // see MessageLimits
  limits.maxReceiveMessageSize = maxBytes
  limits.decoder.maxReadMessageLength = maxBytes
}

function libraryError({ maxRequestBytes }: MethodRow, code: number, details: string): DomainError {
  if (/^Received message (?:larger|that decompresses)/.test(details)) return DomainError.invalid('body', `must not be larger than ${maxRequestBytes} bytes`)
  if (details.startsWith('Failed to decompress')) return DomainError.invalid('body', 'can not be decompressed')
  if (details.startsWith('Invalid grpc-timeout')) return DomainError.invalid('grpc-timeout', 'is not a timeout')
  // The library's codes are gRPC's; 0 never comes here.
  return new DomainError(code as Code, details)
}
