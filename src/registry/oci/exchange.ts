import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ClientAddress } from '../../base/client-address.ts'
import type { Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import type { AdmittedRequest, Presented } from '../gate.ts'
import type { PolicyResult } from '../policies/verdict.ts'
import { endWhenIdle } from './blobs/idle-limit.ts'
import { requestTarget } from './request-target.ts'

/** Header lines: name, value, name, value. */
export type HeaderLines = readonly (string | number)[]

const requestIdPattern = /^[A-Za-z0-9._:/=+-]{1,128}$/

/** Dependencies and limits of an exchange. */
export interface RegistryExchangeOptions {
  /** Creates an id for a request without one. */
  readonly newRequestId: () => string
  /** How long the client may read nothing of the response, in milliseconds; default 60,000. */
  readonly idleMs?: number | undefined
  /** Returns the client's address; default: the remote address of the connection. */
  readonly clientAddress?: ClientAddress | undefined
}

/** One request and its response. */
export class RegistryExchange implements Presented {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly requestId: string
  /** The client's address, see ClientAddress. */
  readonly remoteAddress: string
  /** The path in the request line, without the query and not decoded. */
  readonly path: string
  /** The result of the gate's last admission. */
  admitted: AdmittedRequest | undefined
  /** What pull policies say about the pull of a manifest; undefined if there is none. */
  judged: { readonly digest: Digest; readonly results: readonly PolicyResult[] } | undefined
  readonly #search: string
  #query: URLSearchParams | undefined
  #signal: AbortSignal | undefined
  readonly #idleMs: number | undefined

  /** Uses the client's `X-Request-Id` if it has 1 to 128 characters of [A-Za-z0-9._:/=+-]. */
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

  /** The header `taproot-identity`. */
  get identity(): string | undefined {
    return this.header('taproot-identity')
  }

  /** The header `user-agent`. */
  get userAgent(): string | undefined {
    return this.header('user-agent')
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.#search))
  }

  /** Aborts with code 1 if the client disconnects before its response is complete. Created on first use, since most requests do not need it. */
  get signal(): AbortSignal {
    return (this.#signal ??= this.#createSignal())
  }

  /** Returns the value of a header that may occur once. */
  header(name: string): string | undefined {
    const value = this.request.headers[name]
    return typeof value === 'string' ? value : undefined
  }

  /**
   * Calls `listener` once when the response has ended, completely or not. Passes the number of bytes that the connection has sent since
   * this call.
   */
  onceAnswered(listener: (sentBytes: number) => void): void {
    const { socket } = this.request
    const before = socket.bytesWritten
    if (this.response.closed) listener(0)
    else this.response.once('close', () => listener(socket.bytesWritten - before))
  }

  /** Sends a response with the headers that every response has, and with `body`. HEAD requests get no body. */
  send(status: number, headers: HeaderLines = [], body?: string | Uint8Array): void {
    this.open(status, headers)
    // Plain ASCII has as many bytes as characters. Node copies it without encoding it.
    if (typeof body === 'string' && Buffer.byteLength(body) === body.length) this.response.end(body, 'latin1')
    else this.response.end(body)
  }

  /** Sends status and headers; the caller sends the body. Disconnects a client that reads nothing for too long. */
  open(status: number, headers: HeaderLines): void {
    // Node sends a flat list unchanged. It accepts numbers, although its types exclude them.
    const lines = [...headers, 'Docker-Distribution-Api-Version', 'registry/2.0', 'X-Request-Id', this.requestId] as string[]
    this.response.writeHead(status, lines)
    endWhenIdle(this.response, this.#idleMs)
  }

  #createSignal(): AbortSignal {
    const controller = new AbortController()
    const closed = (): void => {
      if (!this.response.writableFinished) controller.abort(new DomainError(1, 'the client disconnected'))
    }
    if (this.response.closed || this.request.socket.destroyed) closed()
    else this.response.once('close', closed)
    return controller.signal
  }
}

/** Headers of every response with pushed content. Browsers use only the declared type, and run no scripts of it. */
export const contentHeaders: HeaderLines = ['X-Content-Type-Options', 'nosniff', 'Content-Security-Policy', 'sandbox']
