import { fromBinary, ScalarType, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import type { Metadata, ServerInterceptingCallInterface } from '@grpc/grpc-js'
import { requestBounds } from '../../base/bounded-json.ts'
import type { ClientAddress } from '../../base/client-address.ts'
import { DomainError } from '../../base/errors.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { parseCallHeaders, type CallHeaders } from '../calls/call-headers.ts'
import type { Call, DecodedCall } from '../calls/call.ts'

/** Size in bytes below which a message cannot contain more values than allowed. */
const minBytes = 2 * requestBounds.maxValues

const fieldsByNumber = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>()

function fieldNumbered(desc: DescMessage, number: number): DescField | undefined {
  let fields = fieldsByNumber.get(desc)
  if (fields === undefined) {
    fields = new Map(desc.fields.map((field) => [field.number, field]))
    fieldsByNumber.set(desc, fields)
  }
  return fields.get(number)
}

/** True for a list of numbers. It can be packed into one field, with one byte per number. */
function isPackable(field: DescField): boolean {
  return field.fieldKind === 'list' && field.listKind !== 'message' && field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES
}

/** Returns the maximum number of values that the bytes can contain. Stops counting above the limit. Throws if the bytes are not a message. */
function countValues(desc: DescMessage, bytes: Uint8Array, depth: number): number {
  if (depth > requestBounds.maxDepth) return Infinity
  const reader = new BinaryReader(bytes)
  let values = 0
  while (reader.pos < reader.len && values <= requestBounds.maxValues) {
    const [number, wireType] = reader.tag()
    const field = fieldNumbered(desc, number)
    values += 1
    if (wireType !== WireType.LengthDelimited) {
      reader.skip(wireType, number)
      continue
    }
    const inner = reader.bytes()
    if (field?.message !== undefined && field.fieldKind !== 'map') values += countValues(field.message, inner, depth + 1)
    else if (field !== undefined && isPackable(field)) values += inner.length
  }
  return values
}

/** Decodes a message. Before that, it checks the same limits as for JSON. Throws code 3 on `body`. */
function decodeBounded(desc: DescMessage, bytes: Uint8Array): Message {
  try {
    if (bytes.length <= minBytes || countValues(desc, bytes, 0) <= requestBounds.maxValues) return fromBinary(desc, bytes)
  } catch (error) {
    throw DomainError.invalid('body', `is not a valid ${desc.typeName}`, { cause: error })
  }
  throw DomainError.invalid('body', `must not have more than ${requestBounds.maxValues} values, nor nest deeper than ${requestBounds.maxDepth} levels`)
}

/** The dependencies and limits of a gRPC call. */
export interface GrpcCallOptions {
  readonly metadata: Metadata
  /** Returns a new request id, for calls without one. */
  readonly newRequestId: () => string
  /** Maximum time in milliseconds for the message to arrive after the server asked for it. */
  readonly messageTimeoutMs: number
  /** Returns the client's address. By default, it is the peer address of the connection. */
  readonly clientAddress?: ClientAddress
}

/**
 * A gRPC call as the pipeline takes it. It is running until it is `finished` or `aborted`; both are final. The client, its deadline or the library can abort
 * it, and the signal aborts then. The signal is created when it is first used.
 */
export class GrpcCall implements Call {
  readonly method: MethodRow
  readonly headers: CallHeaders
  readonly transport = 'grpc'
  readonly validateOnly: boolean
  readonly remoteAddress: string
  readonly #base: ServerInterceptingCallInterface
  readonly #validateOnlyText: string
  readonly #messageTimeoutMs: number
  #controller: AbortController | undefined
  #ended: 'finished' | DomainError | undefined
  #rejectAnswer: ((reason: DomainError) => void) | undefined
  #message: { bytes: Buffer | undefined; readonly arrived: PromiseWithResolvers<Buffer> } | undefined

  constructor(row: MethodRow, base: ServerInterceptingCallInterface, options: GrpcCallOptions) {
    const get = (name: string): string | undefined => metadataText(options.metadata, name)
    this.method = row
    this.headers = parseCallHeaders(get, options.newRequestId)
    this.#validateOnlyText = get('validate-only') ?? 'false'
    // A value that is not a boolean counts as true here, and is refused when the message is read.
    this.validateOnly = !falseTexts.has(this.#validateOnlyText)
    const peer = addressOf(base.getPeer())
    this.remoteAddress = options.clientAddress?.(peer, forwardedFor(options.metadata)) ?? peer
    this.#base = base
    this.#messageTimeoutMs = options.messageTimeoutMs
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#ended instanceof DomainError) this.#controller.abort(this.#ended)
    }
    return this.#controller.signal
  }

  throwIfEnded(): void {
    if (this.#ended instanceof DomainError) throw this.#ended
  }

  /** Ends the call with an error before it is answered. */
  abort(reason: DomainError): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    this.#controller?.abort(reason)
    this.#message?.arrived.reject(reason)
    this.#rejectAnswer?.(reason)
  }

  /** Called when the client disconnected or its deadline passed. The library also calls it for calls that were answered. */
  cancelled(): void {
    if (this.#ended === undefined) this.abort(abortReason(this.#base))
  }

  /** Settles like `work`, or rejects with the reason of an abort that comes first. The call has ended then. */
  answered<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#ended instanceof DomainError) reject(this.#ended)
      this.#rejectAnswer = reject
      work.then(resolve, reject).finally(() => (this.#ended ??= 'finished'))
    })
  }

  async decode(arrived?: () => void): Promise<DecodedCall> {
    if (!booleanTexts.has(this.#validateOnlyText)) throw DomainError.invalid('validate_only', 'must be true or false')
    const bytes = await this.#arrived()
    arrived?.()
    return { message: decodeBounded(this.method.input, bytes) }
  }

  /** Takes a message that arrived: the one that was requested, or one too many. */
  receive(bytes: Buffer): void {
    const message = this.#message
    if (message === undefined) return
    if (message.bytes === undefined) message.bytes = bytes
    else message.arrived.reject(new DomainError(12, 'the method takes only one request message'))
    this.#base.startRead()
  }

  /** Called when the client has sent all its messages. */
  receiveEnd(): void {
    const message = this.#message
    if (message?.bytes === undefined) message?.arrived.reject(new DomainError(12, 'the request has no message: send exactly one'))
    else message.arrived.resolve(message.bytes)
  }

  /** Returns the message. Only from this call on it is read and kept in memory. Rejects with the reason why the call ended before the message was complete. */
  async #arrived(): Promise<Buffer> {
    this.throwIfEnded()
    const arrived = Promise.withResolvers<Buffer>()
    this.#message = { bytes: undefined, arrived }
    const late = setTimeout(
      () => this.abort(new DomainError(4, `the request message did not arrive within ${this.#messageTimeoutMs} ms`)),
      this.#messageTimeoutMs,
    )
    this.#base.startRead()
    try {
      return await arrived.promise
    } finally {
      clearTimeout(late)
    }
  }
}

/** Returns the first text value of a metadata key; undefined if it is not set. */
export function metadataText(metadata: Metadata, name: string): string | undefined {
  const value = metadata.get(name)[0]
  return typeof value === 'string' ? value : undefined
}

/** Maximum time in milliseconds by which a client's own deadline may pass before the server's. The server's timer starts when the call arrives. */
const deadlineSlackMs = 50

/** Returns why a call was cancelled. If its deadline is about to pass, that is the reason: a client whose own timer fires first cancels the call. */
function abortReason(base: ServerInterceptingCallInterface): DomainError {
  const isLate = Date.now() + deadlineSlackMs >= Number(base.getDeadline())
  return isLate ? new DomainError(4, 'the deadline passed: if this was a change, it may have been made') : new DomainError(1, 'the client cancelled the call')
}

function forwardedFor(metadata: Metadata): string | undefined {
  const values = metadata.get('x-forwarded-for')
  return values.length === 0 ? undefined : values.join(',')
}

/** Returns the address without the port: `127.0.0.1:4711` -> `127.0.0.1`, `[::1]:4711` -> `::1`. */
function addressOf(peer: string): string {
  return peer.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
}

const falseTexts: ReadonlySet<string> = new Set(['false', '0', ''])
const booleanTexts: ReadonlySet<string> = new Set(['true', '1', ...falseTexts])
