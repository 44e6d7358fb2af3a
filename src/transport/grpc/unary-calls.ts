import { toBinary, type DescMessage } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { Metadata, type ServerInterceptingCall, type ServerInterceptingCallInterface, type ServerInterceptor } from '@grpc/grpc-js'
import type { ClientAddress } from '../../base/client-address.ts'
import { codeNames, DomainError, type Code } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import type { Tracing } from '../../base/tracing.ts'
import type { ShownPage } from '../../engine/services.ts'
import { sendStream } from '../answer-stream.ts'
import { parseCallHeaders } from '../calls/call-headers.ts'
import { callName, type Answer, type Dispatch } from '../calls/call.ts'
import { platformDomain, toDomainError } from '../errors-details.ts'
import { GrpcCall, metadataText } from './grpc-call.ts'
import { grpcStatus } from './grpc-status.ts'
import type { CallMetrics } from '../metrics.ts'

/** A call that is answered before the library's handler sees it. Everything that the handler would send is dropped. */
abstract class AnsweredCall implements ServerInterceptingCallInterface {
  protected readonly base: ServerInterceptingCallInterface

  constructor(base: ServerInterceptingCallInterface) {
    this.base = base
  }

  /** Answers the call. */
  abstract start(): void

  sendMetadata(): void {
    // Does nothing, because the library's handler is never called. The same applies to the methods below.
  }

  sendMessage(): void {}

  sendStatus(): void {}

  startRead(): void {}

  getPeer(): string {
    return this.base.getPeer()
  }

  getDeadline(): ReturnType<ServerInterceptingCallInterface['getDeadline']> {
    return this.base.getDeadline()
  }

  getHost(): string {
    return this.base.getHost()
  }

  getAuthContext(): ReturnType<ServerInterceptingCallInterface['getAuthContext']> {
    return this.base.getAuthContext()
  }

  getConnectionInfo(): ReturnType<ServerInterceptingCallInterface['getConnectionInfo']> {
    return this.base.getConnectionInfo()
  }

  getMetricsRecorder(): ReturnType<ServerInterceptingCallInterface['getMetricsRecorder']> {
    return this.base.getMetricsRecorder()
  }
}

/** Maximum length of a path in an error message, in characters. */
const shownPathLength = 300

/** A call of an unknown path. It is answered with code 12, in the common error format, before its message is read. */
class UnknownCall extends AnsweredCall {
  readonly #path: string
  readonly #newRequestId: () => string

  constructor(path: string, base: ServerInterceptingCallInterface, newRequestId: () => string) {
    super(base)
    this.#path = path
    this.#newRequestId = newRequestId
  }

  start(): void {
    const ignore = (): void => undefined
    this.base.start({
      onReceiveMetadata: (metadata) => {
        const { requestId } = parseCallHeaders((name) => metadataText(metadata, name), this.#newRequestId)
        const error = new DomainError(12, `no such method: ${this.#path.slice(0, shownPathLength)}`)
        this.base.sendStatus(grpcStatus(error, { requestId, domain: platformDomain }))
      },
      onReceiveMessage: ignore,
      onReceiveHalfClose: ignore,
      onCancel: ignore,
    })
  }
}

/** Returns the protobuf bytes of an answer of type `desc`. Reuses the bytes of records that were encoded before, and joins those of a list. */
export function answerBinary(desc: DescMessage, answer: Answer): Buffer {
  const { message, shown, page } = answer
  if (shown !== undefined) return bufferOf((shown.binary ??= toBinary(desc, shown.message)))
  if (page?.field.message === undefined) return bufferOf(toBinary(desc, message))
  const item = page.field.message
  const writer = new BinaryWriter()
  for (const piece of page.joined ?? []) writer.raw(piece)
  for (const one of page.items) writer.tag(page.field.number, WireType.LengthDelimited).bytes((one.binary ??= toBinary(item, one.message)))
  // The order of fields in the bytes does not matter.
  writer.raw(toBinary(desc, { ...message, [page.field.localName]: [] }))
  return bufferOf(writer.finish())
}

/** Maximum size of the pages of a list in one message, in bytes. It leaves room for the rest of the message. */
const maxListBytes = 100 * 1024 * 1024 - 1024

/** Returns the answer with all pages in one. Throws code 9 `LIST_TOO_LARGE` if they have more than `maxBytes`, before it encodes the rest. */
export async function gathered(answer: Answer, maxBytes = maxListBytes): Promise<Answer> {
  const { page, more } = answer
  const item = page?.field.message
  if (page === undefined || more === undefined || item === undefined) return answer
  const { field } = page
  const joined: Uint8Array[] = []
  let size = 0
  const take = ({ items }: ShownPage): void => {
    const writer = new BinaryWriter()
    for (const one of items) writer.tag(field.number, WireType.LengthDelimited).bytes((one.binary ??= toBinary(item, one.message)))
    const bytes = writer.finish()
    size += bytes.length
    if (size > maxBytes) throw new DomainError(9, 'the list is too large for one message: filter it, or use REST or version 2', { reason: 'LIST_TOO_LARGE' })
    joined.push(bytes)
  }
  take(page)
  for await (const next of more) take(next)
  return { message: answer.message, page: { field, items: [], joined } }
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** The dependencies and options of unary calls. */
export interface UnaryCallOptions {
  readonly dispatch: Dispatch
  readonly log: Log
  /** Returns a new request id, for calls without one. */
  readonly newRequestId: () => string
  readonly metrics?: CallMetrics
  readonly tracing?: Tracing | undefined
  /** Maximum time in milliseconds for a message to arrive after the server asked for it. */
  readonly messageTimeoutMs: number
  /** Returns the client's address. By default, it is the peer address of the connection. */
  readonly clientAddress?: ClientAddress
  /** True for the path of a method that the library serves: health and reflection. */
  readonly hasHandler: (path: string) => boolean
}

/**
 * Returns the interceptor that answers the methods of `rows` (by path) without the library's handlers. Those handlers read the whole message before the token
 * is checked, and create streams that a unary call does not need. Calls of other paths go to their handlers, or get code 12. It must be the first interceptor
 * of the server.
 */
export function unaryCalls(rows: ReadonlyMap<string, MethodRow>, options: UnaryCallOptions): ServerInterceptor {
  return (method, call) => {
    const { path } = method
    const row = rows.get(path)
    const others = (): ServerInterceptingCallInterface =>
      options.hasHandler(path) ? withReadable(call, options) : new UnknownCall(path, call, options.newRequestId)
    const answered = row === undefined ? others() : new UnaryCall(row, call, options)
    // The library only calls the members of this interface.
    return answered as ServerInterceptingCall
  }
}

const ignore = (): void => undefined

/**
 * Wraps a call of the library's own handlers, for health and reflection. A message that cannot be read is the client's fault, so it becomes code 3 instead of
 * the library's 13.
 */
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
    sendStatus(isUnreadable ? grpcStatus(DomainError.invalid('body', 'is not a valid protobuf message'), { requestId, domain: platformDomain }) : status)
  }
  return call
}

/** The codes that are a fault of the server, by OpenTelemetry's conventions: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. */
const serverFaults: ReadonlySet<Code | 0> = new Set([2, 4, 12, 13, 14, 15])

/** A call of an API method, which takes one message. Its answer is a message, or a stream of messages. */
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
    // The library itself ends some calls (message too large, invalid timeout, deadline), with its own codes and without details.
    base.sendStatus = (status) => {
      const error = libraryError(this.#row, Number(status.code), status.details ?? '')
      call?.abort(error)
      sendStatus(grpcStatus(error, { requestId: call?.headers.requestId ?? this.#options.newRequestId(), domain: this.#row.domain }))
    }
    base.start({
      onReceiveMetadata: (metadata) => {
        call = new GrpcCall(this.#row, base, { metadata, ...this.#options })
        const { tracing } = this.#options
        if (tracing === undefined) void this.#serve(call, sendStatus)
        else void this.#traced(tracing, call, sendStatus)
      },
      onReceiveMessage: (message: Buffer) => call?.receive(message),
      onReceiveHalfClose: () => call?.receiveEnd(),
      onCancel: () => call?.cancelled(),
    })
  }

  async #traced(tracing: Tracing, call: GrpcCall, sendStatus: ServerInterceptingCallInterface['sendStatus']): Promise<void> {
    const { service, rpc } = this.#row
    const { requestId, traceparent, userAgent } = call.headers
    const name = `${service}/${rpc}`
    const attributes = {
      'rpc.system.name': 'grpc',
      'rpc.method': name,
      'client.address': call.remoteAddress,
      'user_agent.original': userAgent,
      'taproot.method': callName(this.#row),
      'taproot.request_id': requestId,
    }
    await tracing.span({ kind: 'request', name, traceparent, attributes }, async (span) => {
      const code = await this.#serve(call, sendStatus)
      const status = code === 0 ? 'OK' : codeNames[code]
      span.set({ 'rpc.response.status_code': status })
      if (serverFaults.has(code)) span.fail(status)
    })
  }

  /** Answers the call. Resolves with the code of the answer. Never rejects. */
  #serve(call: GrpcCall, sendStatus: ServerInterceptingCallInterface['sendStatus']): Promise<Code | 0> {
    const { dispatch, log, metrics } = this.#options
    const row = this.#row
    const method = callName(row)
    const { requestId } = call.headers
    let done = metrics?.start(method, 'grpc')
    const dispatched = async (): Promise<Answer> => {
      const result = await dispatch(call)
      if (result.stream === undefined) return gathered(result)
      // Stop measuring the call when its answer begins, because the length of a stream says nothing about the server.
      done?.(0)
      done = undefined
      return this.#sendStream(result, { stream: result.stream, call })
    }
    const answer = async (): Promise<Code | 0> => {
      const result = await call.answered(dispatched())
      const bytes = answerBinary(row.output, result)
      this.base.sendMetadata(answerMetadata(requestId, result))
      // Do not wait until the message is sent, so that message and status leave together.
      this.base.sendMessage(bytes, ignore)
      sendStatus({ code: 0, details: 'OK', metadata: null })
      done?.(0)
      return 0
    }
    const refuse = (thrown: unknown): Code => {
      const error = toDomainError(thrown, { requestId, method, signal: call.signal, log })
      done?.(error.code, error.reason)
      sendStatus(grpcStatus(error, { requestId, domain: row.domain }))
      return error.code
    }
    const refuseWithout = (failure: unknown): Code => {
      log.error('error could not be sent', { requestId, method, error: failure })
      sendStatus({ code: 13, details: 'internal error', metadata: null })
      return 13
    }
    // An unhandled rejection would end the process.
    return answer()
      .catch(refuse)
      .catch(refuseWithout)
      .catch(() => 13)
  }

  async #sendStream(answer: Answer, { stream, call }: { stream: NonNullable<Answer['stream']>; call: GrpcCall }): Promise<never> {
    const { base } = this
    const { output } = this.#row
    base.sendMetadata(answerMetadata(call.headers.requestId, answer))
    await sendStream(stream, {
      signal: call.signal,
      send: ({ message }) => new Promise((resolve) => base.sendMessage(bufferOf(toBinary(output, message)), resolve)),
    })
    throw new DomainError(14, 'the stream ended')
  }
}

function answerMetadata(requestId: string, answer: Answer): Metadata {
  const metadata = new Metadata()
  metadata.set('x-request-id', requestId)
  if (answer.etag !== undefined) metadata.set('etag', answer.etag)
  if (answer.pageTokenRestarted === true) metadata.set('page-token-restarted', 'true')
  return metadata
}

/** The library's private field with the maximum size of a call's message. */
interface MessageLimits {
  maxReceiveMessageSize: number
  readonly decoder: { maxReadMessageLength: number }
}

/** Sets the maximum message size of one call, also after decompression. The library itself has one limit for all methods. */
function limitMessage(base: ServerInterceptingCallInterface, maxBytes: number): void {
  const limits = base as unknown as MessageLimits // See MessageLimits.
  limits.maxReceiveMessageSize = maxBytes
  limits.decoder.maxReadMessageLength = maxBytes
}

function libraryError({ maxRequestBytes }: MethodRow, code: number, details: string): DomainError {
  if (/^Received message (?:larger|that decompresses)/.test(details)) return DomainError.invalid('body', `must not be larger than ${maxRequestBytes} bytes`)
  if (details.startsWith('Failed to decompress')) return DomainError.invalid('body', 'cannot be decompressed')
  if (details.startsWith('Invalid grpc-timeout')) return DomainError.invalid('grpc-timeout', 'is not a timeout')
  // The library uses gRPC's codes, and 0 does not occur here.
  return new DomainError(code as Code, details)
}
