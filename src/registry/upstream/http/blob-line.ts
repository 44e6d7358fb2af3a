import { connect, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import type { UpstreamTimeouts } from './registry-answers.ts'
import { ReadPieces } from './read-pieces.ts'
import { UpstreamError } from '../upstream.ts'

/** Status and headers of an answer over HTTP/1.1. */
interface AnswerHead {
  readonly statusCode: number
  /** By name in lower case; those of one name are joined by a comma. */
  readonly headers: Readonly<Record<string, string>>
  /** Bytes of the body; undefined where something else than a plain `Content-Length` says where it ends. */
  readonly length: number | undefined
  /** True where another request may follow on the connection. */
  readonly keepsConnection: boolean
}

const statusLine = /^HTTP\/1\.1 (\d{3})(?: [\t\x20-\x7e\x80-\xff]*)?$/
const headerLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*$/

/**
 * Parses the head of an answer (RFC 9112), without the empty line at its end. Returns undefined if it deviates from the standard. A more lenient client may
 * then repeat the request.
 */
export function parseAnswerHead(text: string): AnswerHead | undefined {
  const [first = '', ...lines] = text.split('\r\n')
  const status = statusLine.exec(first)?.[1]
  if (status === undefined) return undefined
  const headers: Record<string, string> = Object.create(null) as Record<string, string> // a cast: names are the server's
  for (const line of lines) {
    const [, name, value] = headerLine.exec(line) ?? []
    if (name === undefined || value === undefined) return undefined
    const key = name.toLowerCase()
    headers[key] = key in headers ? `${headers[key]}, ${value}` : value
  }
  return { statusCode: Number(status), headers, length: lengthOf(headers), keepsConnection: !/\bclose\b/i.test(headers['connection'] ?? '') }
}

function lengthOf(headers: Readonly<Record<string, string>>): number | undefined {
  const isPlain = !('transfer-encoding' in headers) && ['', 'identity'].includes(headers['content-encoding'] ?? '')
  const length = headers['content-length'] ?? ''
  return isPlain && /^\d{1,15}$/.test(length) ? Number(length) : undefined
}

const maxHeadBytes = 64 * 1024
/** A connection is kept for so long without a request: less than servers keep theirs. */
const idleMs = 4_000

/** A head with the body that follows. */
export interface BlobAnswer extends AnswerHead {
  /** Ends with an UpstreamError unless all of its bytes came. Its pieces may be released. */
  readonly body: Readable
}

/**
 * What a connection does:
 * - `idle`: waits for a request. To `head` by `get`; to `closed` when anything comes.
 * - `head`: a request was sent. To `body` once a head came that says how long the body is and that it is a blob's; to `closed` with any other.
 * - `body`: its bytes go to the reader. To `idle` with the last byte; to `closed` where it breaks, stalls, has too many, or the reader wants no more.
 * - `closed`: for good.
 */
type State =
  | { readonly kind: 'idle' | 'closed' }
  | { readonly kind: 'head'; bytes: Buffer; readonly settle: (answer: BlobAnswer | AnswerHead | undefined) => void; readonly fail: (error: Error) => void }
  | { readonly kind: 'body'; left: number; isPaused: boolean; readonly keeps: boolean; readonly body: Readable }

/** How a line is made. */
export interface BlobLineOptions {
  readonly host: string
  readonly port: number
  readonly timeouts: UpstreamTimeouts
  /** Called when the connection becomes idle or closed. */
  readonly changed: (line: BlobLine, state: 'idle' | 'closed') => void
}

/** An unencrypted connection for GETs of blobs, one at a time. After the head the bytes go from the socket to the reader unchanged. */
export class BlobLine {
  readonly #socket: Socket
  readonly #options: BlobLineOptions
  readonly #pieces = new ReadPieces()
  #state: State = { kind: 'idle' }
  #forgetSignal: () => void = () => undefined

  constructor(options: BlobLineOptions) {
    this.#options = options
    const onread = { buffer: () => this.#pieces.memory, callback: (length: number) => this.#read(length) }
    this.#socket = connect({ host: options.host, port: options.port, noDelay: true, onread })
    this.#socket.on('timeout', () => this.#timedOut())
    // Why it broke is of no interest: `close` follows.
    this.#socket.on('error', () => undefined)
    this.#socket.on('close', () => this.#broke())
    this.#socket.resume()
  }

  /**
   * Requests `path` with these header lines. Resolves with the answer of a blob, or a part of one. Resolves with only the head of any other answer, and with
   * undefined if there is no answer or an unusual one. In these cases the connection is closed. Rejects with UpstreamError if nothing arrives for too long, or
   * with the signal's reason.
   */
  get(path: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<BlobAnswer | AnswerHead | undefined> {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    const text = `GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`
    // What would end a line early never gets this far; were it otherwise, nothing is sent.
    if (/[^\r\n\x20-\x7e]/.test(text) || text.split('\r\n').length !== lines.length + 3) throw new TypeError('a request has signs that do not belong there')
    const { promise, resolve, reject } = Promise.withResolvers<BlobAnswer | AnswerHead | undefined>()
    this.#state = { kind: 'head', bytes: Buffer.alloc(0), settle: resolve, fail: reject }
    const onAbort = (): void => this.close(signal.reason as Error) // a cast: it is passed on as it is
    signal.addEventListener('abort', onAbort, { once: true })
    this.#forgetSignal = () => signal.removeEventListener('abort', onAbort)
    this.#socket.setTimeout(this.#options.timeouts.headersMs)
    this.#socket.write(text, 'latin1')
    if (signal.aborted) onAbort()
    return promise
  }

  /** Closes the connection in any state. A reader that waits for an answer or its bytes gets the error. */
  close(error?: Error): void {
    const state = this.#state
    if (state.kind === 'closed') return
    this.#state = { kind: 'closed' }
    this.#forgetSignal()
    this.#socket.destroy()
    if (state.kind === 'body') state.body.destroy(error)
    else if (state.kind === 'head' && error === undefined) state.settle(undefined)
    else if (state.kind === 'head' && error !== undefined) state.fail(error)
    this.#options.changed(this, 'closed')
  }

  /** Takes what was read; false where nothing more is wanted for now. */
  #read(length: number): boolean {
    const state = this.#state
    if (state.kind === 'body') return this.#pass(state, this.#pieces.take(length))
    if (state.kind === 'head') return this.#readHead(state, this.#pieces.take(length))
    this.close()
    return false
  }

  #readHead(state: State & { kind: 'head' }, piece: Buffer): boolean {
    state.bytes = state.bytes.length === 0 ? piece : Buffer.concat([state.bytes, piece])
    const end = state.bytes.indexOf('\r\n\r\n')
    if (end < 0 && state.bytes.length < maxHeadBytes) return true
    const head = end < 0 ? undefined : parseAnswerHead(state.bytes.toString('latin1', 0, end))
    if (head?.length === undefined || (head.statusCode !== 200 && head.statusCode !== 206)) {
      state.settle(head)
      this.close()
      return false
    }
    const rest = state.bytes.subarray(end + 4)
    const body = this.#createBody()
    const next = { kind: 'body', left: head.length, isPaused: false, keeps: head.keepsConnection, body } as const
    this.#state = next
    this.#socket.setTimeout(this.#options.timeouts.stallMs)
    state.settle({ ...head, body })
    return this.#pass(next, rest)
  }

  #createBody(): Readable {
    const body: Readable = new Readable({
      read: () => this.#resume(),
      destroy: (error, callback) => {
        // Unwanted bytes would have to be read all the same.
        if (this.#state.kind === 'body' && this.#state.body === body) this.close(error ?? undefined)
        callback(error)
      },
    })
    // The body may break before its reader listens; the reader gets the error all the same.
    return body.on('error', () => undefined)
  }

  #pass(state: State & { kind: 'body' }, piece: Buffer): boolean {
    state.left -= piece.length
    if (state.left < 0) {
      this.close(new UpstreamError('unavailable', 'the upstream sent more bytes than it promised'))
      return false
    }
    const wantsMore = piece.length === 0 || state.body.push(piece)
    if (state.left === 0) this.#done(state)
    else state.isPaused = !wantsMore
    return wantsMore || state.left === 0
  }

  #done({ body, keeps }: State & { kind: 'body' }): void {
    this.#state = { kind: 'idle' }
    this.#forgetSignal()
    this.#socket.setTimeout(idleMs)
    this.#pieces.rest()
    body.push(null)
    if (keeps) this.#options.changed(this, 'idle')
    else this.close()
  }

  #resume(): void {
    if (this.#state.kind !== 'body' || !this.#state.isPaused) return
    this.#state.isPaused = false
    // From now on it is the upstream that is waited for.
    this.#socket.setTimeout(this.#options.timeouts.stallMs)
    this.#socket.resume()
  }

  #broke(): void {
    const state = this.#state
    this.close(state.kind === 'body' ? new UpstreamError('unavailable', `${state.left} bytes are missing of what the upstream promised`) : undefined)
  }

  #timedOut(): void {
    const state = this.#state
    // The reader is slow, not the upstream.
    if (state.kind === 'body' && state.isPaused) return
    this.close(state.kind === 'idle' ? undefined : new UpstreamError('unavailable', 'the upstream sends nothing any more'))
  }
}
