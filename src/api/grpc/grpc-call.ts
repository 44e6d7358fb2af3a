import type { ServerReadableStream } from '@grpc/grpc-js'
import { fromBinary } from '@bufbuild/protobuf'
import type { Message } from '@bufbuild/protobuf'
import { DomainError } from '../../core/errors.ts'
import type { MethodRow } from '../../core/method.ts'
import type { Call, Decoded } from '../call.ts'
import { parseCallHeaders } from '../call-headers.ts'
import type { CallHeaders } from '../call-headers.ts'

/** A call of which the metadata has arrived; its message is read when asked for. */
export type RawCall = ServerReadableStream<Buffer, Buffer>

/** What a call is made with. */
export interface GrpcCallOptions {
  /** A fresh request id for calls that bring none. */
  readonly newRequestId: () => string
  /** How long the message may take to arrive once it is wanted, milliseconds. */
  readonly messageTimeoutMs: number
}

/**
 * A gRPC call as the pipeline takes it.
 * States: running -> `aborted` (by the client, its deadline, or the library; the signal, made when it is first asked for, aborts) or `finished`. Both final.
 */
export class GrpcCall implements Call {
  readonly method: MethodRow
  readonly headers: CallHeaders
  readonly transport = 'grpc'
  readonly validateOnly: boolean
  readonly remoteAddress: string
  readonly #raw: RawCall
  readonly #validateOnlyText: string
  readonly #messageTimeoutMs: number
  #controller: AbortController | undefined
  #ended: 'finished' | DomainError | undefined
  /** Those who wait for something of this call. */
  #onAbort: ((reason: DomainError) => void)[] = []

  constructor(row: MethodRow, raw: RawCall, options: GrpcCallOptions) {
    const get = (name: string): string | undefined => {
      const value = raw.metadata.get(name)[0]
      return typeof value === 'string' ? value : undefined
    }
    this.method = row
    this.headers = parseCallHeaders(get, options.newRequestId)
    this.#validateOnlyText = get('validate-only') ?? 'false'
    this.validateOnly = this.#validateOnlyText !== 'false' && this.#validateOnlyText !== ''
    this.remoteAddress = addressOf(raw.getPeer())
    this.#raw = raw
    this.#messageTimeoutMs = options.messageTimeoutMs
    // The library says so of calls that were answered too.
    raw.on('cancelled', () => {
      if (this.#ended === undefined) this.abort(abortReason(raw))
    })
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

  /** Ends the call before its answer. */
  abort(reason: DomainError): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    this.#controller?.abort(reason)
    for (const tell of this.#onAbort) tell(reason)
  }

  /** Settles as `work` does, or rejects with the reason for which the call was aborted, whichever comes first; the call has ended then. */
  async answered<T>(work: Promise<T>): Promise<T> {
    try {
      return await this.#unlessAborted(work)
    } finally {
      this.#ended ??= 'finished'
    }
  }

  async decode(): Promise<Decoded> {
    if (!booleanTexts.has(this.#validateOnlyText)) throw DomainError.invalid('validate_only', 'must be true or false')
    return { message: parse(this.method, await this.#arrived()) }
  }

  #unlessAborted<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#ended instanceof DomainError) reject(this.#ended)
      this.#onAbort.push(reject)
      work.then(resolve, reject)
    })
  }

  /** The message, or the reason why the call ended before it was whole. */
  async #arrived(): Promise<Buffer> {
    const late = setTimeout(() => this.abort(new DomainError(4, `the message did not arrive within ${this.#messageTimeoutMs} ms`)), this.#messageTimeoutMs)
    try {
      return await this.#unlessAborted(onlyMessage(this.#raw))
    } finally {
      clearTimeout(late)
    }
  }
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

const booleanTexts: ReadonlySet<string> = new Set(['true', 'false', '1', '0', ''])

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
