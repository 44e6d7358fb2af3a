import type { ServerReadableStream } from '@grpc/grpc-js'
import { fromBinary } from '@bufbuild/protobuf'
import type { Message } from '@bufbuild/protobuf'
import { DomainError } from '../../core/errors.ts'
import type { MethodRow } from '../../core/method.ts'
import { untilAborted } from '../../core/until-aborted.ts'
import type { Call } from '../call.ts'
import { parseCallHeaders } from '../call-headers.ts'

/** A call of which the metadata has arrived; its message is read when asked for. */
export type RawCall = ServerReadableStream<Buffer, Buffer>

/** What a call is made with. */
export interface GrpcCallOptions {
  /** A fresh request id for calls that bring none. */
  readonly newRequestId: () => string
  /** How long the message may take to arrive once it is wanted, milliseconds. */
  readonly messageTimeoutMs: number
}

/** A gRPC call as the pipeline takes it. `abort` aborts its signal. */
export function createCall(row: MethodRow, raw: RawCall, options: GrpcCallOptions): { call: Call; abort: (reason: DomainError) => void } {
  const controller = new AbortController()
  raw.on('cancelled', () => controller.abort(abortReason(raw)))
  const get = (name: string): string | undefined => {
    const value = raw.metadata.get(name)[0]
    return typeof value === 'string' ? value : undefined
  }
  const validateOnly = get('validate-only') ?? 'false'
  const call: Call = {
    headers: parseCallHeaders(get, options.newRequestId),
    method: row,
    transport: 'grpc',
    validateOnly: validateOnly !== 'false' && validateOnly !== '',
    remoteAddress: addressOf(raw.getPeer()),
    signal: controller.signal,
    decode: async () => {
      assertBoolean(validateOnly)
      return { message: parse(row, await arrived(raw, controller.signal, options.messageTimeoutMs)) }
    },
  }
  return { call, abort: (reason) => controller.abort(reason) }
}

/** How much earlier than ours a client's own deadline may fire, in milliseconds: ours started when the call arrived. */
const deadlineSlackMs = 50

/** A client whose own timer was first cancels the call. */
function abortReason(raw: RawCall): DomainError {
  const isLate = Date.now() + deadlineSlackMs >= Number(raw.getDeadline())
  return isLate ? new DomainError(4, 'the deadline passed before the request was done') : new DomainError(1, 'the client cancelled the call')
}

/** `127.0.0.1:4711` or `[::1]:4711` without the port. */
function addressOf(peer: string): string {
  return peer.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
}

function assertBoolean(validateOnly: string): void {
  if (!['true', 'false', '1', '0', ''].includes(validateOnly)) throw DomainError.invalid('validate_only', 'must be true or false')
}

/** The message, or the reason why the call ended before it was whole. */
async function arrived(raw: RawCall, signal: AbortSignal, timeoutMs: number): Promise<Buffer> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(new DomainError(4, `the message did not arrive within ${timeoutMs} ms`)), timeoutMs)
  try {
    return await untilAborted(onlyMessage(raw), AbortSignal.any([signal, late.signal]))
  } finally {
    clearTimeout(timer)
  }
}

function onlyMessage(raw: RawCall): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
  let message: Buffer | undefined
  raw.on('data', (bytes: Buffer) => {
    if (message === undefined) message = bytes
    else reject(new DomainError(12, 'the method takes one message'))
  })
  raw.on('end', () => {
    if (message === undefined) reject(new DomainError(12, 'the method takes a message'))
    else resolve(message)
  })
  return promise
}

function parse(row: MethodRow, bytes: Buffer): Message {
  try {
    return fromBinary(row.input, bytes)
  } catch (error) {
    throw DomainError.invalid('body', `is not a valid ${row.input.typeName}`, { cause: error })
  }
}
