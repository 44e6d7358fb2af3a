import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ClientAddress } from '../../base/client-address.ts'
import { DomainError } from '../../base/errors.ts'
import type { AdmittedRequest, Presented } from '../gate.ts'
import { endWhenIdle } from './blobs/idle-limit.ts'
import { requestTarget } from './request-target.ts'

/** Header lines: name, value, name, value. */
export type HeaderLines = readonly (string | number)[]

const requestIdPattern = /^[A-Za-z0-9._:/=+-]{1,128}$/

/** What an exchange is made with. */
export interface RegistryExchangeOptions {
  /** For requests that bring no id. */
  readonly newRequestId: () => string
  /** How long the client may take nothing of the answer, in milliseconds; 60,000 where absent. */
  readonly idleMs?: number | undefined
  /** Whose request it is; the connection's other end where absent. */
  readonly clientAddress?: ClientAddress | undefined
}

/** One request and its answer. */
export class RegistryExchange implements Presented {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly requestId: string
  /** The client's, see ClientAddress. */
  readonly remoteAddress: string
  /** As it stands in the request line, without the query. */
  readonly path: string
  /** What the gate let in last. */
  admitted: AdmittedRequest | undefined
  readonly #search: string
  #query: URLSearchParams | undefined
  #signal: AbortSignal | undefined
  readonly #idleMs: number | undefined

  /** The client's `X-Request-Id` counts where it is 1 to 128 characters of [A-Za-z0-9._:/=+-]. */
  constructor(request: IncomingMessage, response: ServerResponse, { newRequestId, idleMs, clientAddress }: RegistryExchangeOptions) {
    this.request = request
    this.response = response
    const given = request.headers['x-request-id']
    this.requestId = typeof given === 'string' && requestIdPattern.test(given) ? given : newRequestId()
    this.#idleMs = idleMs
    const peer = request.socket.remoteAddress
    this.remoteAddress = clientAddress?.(peer, this.header('x-forwarded-for')) ?? peer ?? ''
    const { path, search } = requestTarget(request)
    this.path = path
    this.#search = search
  }

  get authorization(): string | undefined {
    return this.request.headers.authorization
  }

  /** Header `taproot-identity`. */
  get identity(): string | undefined {
    return this.header('taproot-identity')
  }

  /** Header `user-agent`. */
  get userAgent(): string | undefined {
    return this.header('user-agent')
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.#search))
  }

  /** Aborts with code 1 where the client goes away before its answer is complete. Made when it is first asked for: most requests are answered before. */
  get signal(): AbortSignal {
    return (this.#signal ??= this.#createSignal())
  }

  /** The value of a header that may stand once. */
  header(name: string): string | undefined {
    const value = this.request.headers[name]
    return typeof value === 'string' ? value : undefined
  }

  /** Calls `listener` once when the answer is over, whole or not, with the bytes that the connection sent since now. */
  onceAnswered(listener: (sentBytes: number) => void): void {
    const { socket } = this.request
    const before = socket.bytesWritten
    if (this.response.closed) listener(0)
    else this.response.once('close', () => listener(socket.bytesWritten - before))
  }

  /** Answers with the headers that every answer has, and `body`, which a HEAD request does not get. */
  send(status: number, headers: HeaderLines = [], body?: string | Uint8Array): void {
    this.open(status, headers)
    // As many bytes as characters: plain ASCII, which is copied and not encoded.
    if (typeof body === 'string' && Buffer.byteLength(body) === body.length) this.response.end(body, 'latin1')
    else this.response.end(body)
  }

  /** Sends status and headers; the body follows. Disconnects a client that takes nothing for too long. */
  open(status: number, headers: HeaderLines): void {
    // A flat list is what Node sends as it is. It takes numbers, though its types do not say so.
    const lines = [...headers, 'Docker-Distribution-Api-Version', 'registry/2.0', 'X-Request-Id', this.requestId] as string[]
    this.response.writeHead(status, lines)
    endWhenIdle(this.response, this.#idleMs)
  }

  #createSignal(): AbortSignal {
    const controller = new AbortController()
    const closed = (): void => {
      if (!this.response.writableFinished) controller.abort(new DomainError(1, 'the client went away'))
    }
    if (this.response.closed || this.request.socket.destroyed) closed()
    else this.response.once('close', closed)
    return controller.signal
  }
}

/** Headers of every answer with pushed content. A browser trusts only the declared type, and runs nothing of it. */
export const contentHeaders: HeaderLines = ['X-Content-Type-Options', 'nosniff', 'Content-Security-Policy', 'sandbox']
