import { status } from '@grpc/grpc-js'
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders, type IncomingHttpStatusHeader } from 'node:http2'
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { errorMessage } from '../../base/error-text.ts'
import { untilAborted } from '../../base/timing.ts'

const noAnswer = 'no answer'

/** The error of a failed call, with its gRPC status. */
class UnaryError extends Error {
  override readonly name = 'UnaryError'
  readonly code: number
  constructor(code: number, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/** TLS certificates for `https` endpoints in PEM form. Without `ca`, the CA certificates of the system are trusted. */
export interface EtcdTls {
  readonly ca?: Buffer
  readonly key?: Buffer
  readonly cert?: Buffer
}

/** A unary call under way. `response` rejects with the error of the call. `cancel` makes it reject. */
export interface RunningCall<T> {
  readonly response: Promise<T>
  cancel(): void
}

/** The options of one call. */
export interface UnaryOptions {
  readonly token: string | undefined
  /** Time at which the call fails, in `performance.now()` milliseconds. */
  readonly deadline: number
}

/** HTTP/2 flow-control window in bytes: enough for a page of records without waiting for an acknowledgement. */
const windowBytes = 8 * 1024 * 1024
const frameHeaderBytes = 5
/** Maximum time until the server's first HTTP/2 frame on a new connection, in milliseconds. */
const connectTimeoutMs = 3_000

/** Returns the message with the gRPC frame header in front. */
function framed(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(frameHeaderBytes + message.length)
  frame[0] = 0
  frame.writeUInt32BE(message.length, 1)
  frame.set(message, frameHeaderBytes)
  return frame
}

/** Returns the message in the frames of an answer. Throws unless there is exactly one message. */
function unframed(chunks: readonly Buffer[]): Buffer {
  const [only] = chunks
  const bytes = chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks)
  if (bytes.length < frameHeaderBytes || bytes[0] !== 0 || bytes.readUInt32BE(1) !== bytes.length - frameHeaderBytes) {
    throw new UnaryError(status.INTERNAL, 'the answer is not a single message')
  }
  return bytes.subarray(frameHeaderBytes)
}

/** Returns the error of a failed answer; undefined if it succeeded. */
function failureOf(headers: IncomingHttpHeaders): UnaryError | undefined {
  const code = headers['grpc-status']
  if (code === '0') return undefined
  const message = headers['grpc-message']
  if (code === undefined) return new UnaryError(status.UNAVAILABLE, 'the answer was cut off')
  return new UnaryError(Number(code), typeof message === 'string' ? unescaped(message) : '')
}

/** Decodes percent-encoded text; returns malformed text unchanged. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/**
 * Sends unary gRPC calls to one etcd member over one HTTP/2 connection; messages are bytes. It takes a third of the time of a general gRPC client, and every
 * read of the API waits for such a call. Connects when needed, also after the connection broke. Does not repeat calls.
 */
export class UnarySession {
  readonly #address: string
  readonly #tls: (() => EtcdTls) | undefined
  #session: ClientHttp2Session | undefined
  #connecting: { readonly outcome: Promise<boolean>; end(): void } | undefined
  #problem = noAnswer

  /** `tls` returns the TLS settings. It is called for each connection. */
  constructor(address: string, tls: (() => EtcdTls) | undefined) {
    this.#address = address
    this.#tls = tls
  }

  /** True if a call could be sent now, without waiting for a connection. */
  get isConnected(): boolean {
    return this.#usable() !== undefined
  }

  /** Why the last attempt to connect failed. */
  get problem(): string {
    return this.#problem
  }

  /** Resolves true once connected, false if connecting failed or took until `deadline` (in `performance.now()` time). */
  async connected(deadline: number): Promise<boolean> {
    if (this.isConnected) return true
    const { outcome } = (this.#connecting ??= this.#connect())
    const timeout = AbortSignal.timeout(Math.max(0, Math.ceil(deadline - performance.now())))
    return untilAborted(outcome, timeout).catch((error: unknown) => {
      if (timeout.aborted) return false
      throw error
    })
  }

  /** Sends one request on the current connection. `response` rejects with an error whose `code` is a gRPC status. */
  call(path: string, message: Uint8Array, { token, deadline }: UnaryOptions): RunningCall<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
    const session = this.#usable()
    if (session === undefined) {
      reject(new UnaryError(status.UNAVAILABLE, 'there is no connection to etcd'))
      return { response: promise, cancel: () => undefined }
    }
    const leftMs = Math.max(1, Math.ceil(deadline - performance.now()))
    const stream = session.request({
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      // With this header, a member without a leader refuses the call at once.
      hasleader: 'true',
      'grpc-timeout': `${leftMs}m`,
      ...(token === undefined ? {} : { token }),
    })
    const end = (error: UnaryError): void => {
      reject(error)
      stream.close(constants.NGHTTP2_CANCEL)
    }
    const timer = setTimeout(() => {
      end(new UnaryError(status.DEADLINE_EXCEEDED, 'etcd did not answer in time'))
      // The connection may be dead without an error, so the next call opens a new one.
      this.#drop(session)
    }, leftMs)
    const settle = (outcome: Buffer | UnaryError): void => {
      clearTimeout(timer)
      if (Buffer.isBuffer(outcome)) resolve(outcome)
      else reject(outcome)
    }
    receive(stream, settle)
    stream.end(framed(message))
    return {
      response: promise,
      cancel: () => {
        clearTimeout(timer)
        end(new UnaryError(status.CANCELLED, 'the call was cancelled'))
      },
    }
  }

  /** Closes the connection, even while connecting; `connected` then resolves false. */
  close(): void {
    this.#connecting?.end()
    const session = this.#session
    if (session !== undefined) {
      this.#drop(session)
      session.destroy()
    }
  }

  /** Returns the connection if it accepts calls. A connection can be broken before its error event arrives. */
  #usable(): ClientHttp2Session | undefined {
    const session = this.#session
    return session === undefined || session.closed || session.destroyed ? undefined : session
  }

  /** Stops using the connection. Its running calls continue; new calls open another connection. */
  #drop(session: ClientHttp2Session): void {
    if (this.#session === session) this.#session = undefined
    session.close()
  }

  #connect(): { outcome: Promise<boolean>; end(): void } {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const isMine = (): boolean => this.#connecting?.outcome === promise
    this.#problem = noAnswer
    const socket = openSocket(this.#address, this.#tls?.())
    const session = connect(this.#address, { createConnection: () => socket, settings: { enablePush: false, initialWindowSize: windowBytes } })
    // Also destroy the socket. Otherwise a session destroyed while connecting waits for its socket, and then emits `connect`.
    const end = (): void => {
      session.destroy()
      socket.destroy()
    }
    session.once('connect', () => {
      if (!session.destroyed) session.setLocalWindowSize(windowBytes)
    })
    // Wait for the first frame of the HTTP/2 server: a proxy in front of etcd may accept connections for a member that is gone.
    session.once('remoteSettings', () => {
      clearTimeout(connectTimer)
      this.#session = session
      if (isMine()) this.#connecting = undefined
      resolve(true)
    })
    // Limit the time to connect: packets may be lost, or a proxy may accept a connection and never answer.
    const connectTimer = setTimeout(end, connectTimeoutMs)
    const ended = (): void => {
      clearTimeout(connectTimer)
      if (this.#session === session) this.#session = undefined
      if (isMine()) this.#connecting = undefined
      resolve(false)
    }
    // The calls receive the error themselves; this listener only notes that the connection is gone.
    session.on('error', (error) => {
      this.#problem = errorMessage(error)
      ended()
    })
    session.on('goaway', ended)
    session.on('close', ended)
    return { outcome: promise, end }
  }
}

/** Opens a TCP or TLS socket with the options that `http2.connect` would use. */
function openSocket(address: string, tls: EtcdTls | undefined): Socket {
  const { protocol, hostname, port } = new URL(address)
  const host = hostname.replace(/^\[|\]$/g, '')
  if (protocol !== 'https:') return connectTcp({ host, port: Number(port || 80) })
  return connectTls({ host, port: Number(port || 443), ALPNProtocols: ['h2'], ...(isIP(host) === 0 ? { servername: host } : {}), ...tls })
}

/** Collects the answer on a stream and calls `settle` once: with the bytes of its message, or with the error. */
function receive(stream: ClientHttp2Stream, settle: (outcome: Buffer | UnaryError) => void): void {
  const chunks: Buffer[] = []
  let failure: UnaryError | undefined
  let isSettled = false
  const settleFrom = (headers: IncomingHttpHeaders): void => {
    failure = failureOf(headers)
    isSettled = true
  }
  stream.on('response', (headers: IncomingHttpHeaders & IncomingHttpStatusHeader) => {
    if (headers[':status'] !== 200) failure = new UnaryError(status.UNAVAILABLE, `HTTP status ${headers[':status']}`)
    else if (headers['grpc-status'] !== undefined) settleFrom(headers)
  })
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  stream.on('trailers', settleFrom)
  stream.on('error', (error: Error) => settle(new UnaryError(status.UNAVAILABLE, 'the connection to etcd broke', error)))
  // `close` is the last event, even after an error.
  stream.on('close', () => {
    if (failure !== undefined) settle(failure)
    else if (!isSettled) settle(new UnaryError(status.UNAVAILABLE, 'the answer was cut off'))
    else settle(messageIn(chunks))
  })
}

function messageIn(chunks: readonly Buffer[]): Buffer | UnaryError {
  try {
    return unframed(chunks)
  } catch (error) {
    return error instanceof UnaryError ? error : new UnaryError(status.INTERNAL, 'the answer cannot be read', error)
  }
}
