import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { RegistryError } from '../../registry-error.ts'
import { transferOwnership } from '../../release.ts'

/** Limits for reading a body. */
export interface BodyOptions {
  /** How long the client may send nothing while the server waits for it, in milliseconds. */
  readonly idleMs: number
  /** The required number of bytes, if known. */
  readonly length?: number
  /** Maximum number of bytes, and the error if there are more. */
  readonly most?: { readonly bytes: number; readonly failure: () => RegistryError }
}

/**
 * Body of a request as a separate stream. Destroying it does not destroy the connection, which still carries the response. Reads from the
 * connection only as fast as the stream itself is read. `failure` says why it ended early: the client was idle, disconnected, or sent more
 * or less than it declared.
 */
export class RequestBody extends Readable {
  readonly #request: IncomingMessage
  readonly #options: BodyOptions
  #received = 0
  #timer: NodeJS.Timeout | undefined
  #failure: RegistryError | undefined

  constructor(request: IncomingMessage, options: BodyOptions) {
    super()
    // Without this listener, an error before the reader attaches ends the process.
    this.on('error', () => undefined)
    this.#request = request
    this.#options = options
    request.on('data', this.#onData)
    request.once('end', this.#onEnd)
    request.once('error', this.#onGone)
    request.once('close', this.#onGone)
    request.pause()
  }

  get failure(): RegistryError | undefined {
    return this.#failure
  }

  /** Number of bytes received so far. */
  get received(): number {
    return this.#received
  }

  override _read(): void {
    this.#wait()
    this.#request.resume()
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#rest()
    this.#request.off('data', this.#onData)
    this.#request.off('end', this.#onEnd)
    this.#request.off('close', this.#onGone)
    // The rest of the request is discarded, so its errors no longer matter.
    this.#request.off('error', this.#onGone)
    this.#request.on('error', () => undefined)
    callback(error)
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#received += chunk.length
    if (this.#options.length !== undefined && this.#received > this.#options.length) {
      this.#fail(new RegistryError('SIZE_INVALID', 'the body is longer than its Content-Length', { status: 400 }))
      return
    }
    const { most } = this.#options
    if (most !== undefined && this.#received > most.bytes) {
      this.#fail(most.failure())
      return
    }
    if (this.push(transferOwnership(chunk))) {
      this.#wait()
      return
    }
    // The reader is slow, not the client, so the idle limit does not apply.
    this.#rest()
    this.#request.pause()
  }

  readonly #onEnd = (): void => {
    this.#rest()
    if (this.#options.length !== undefined && this.#received < this.#options.length)
      this.#fail(new RegistryError('SIZE_INVALID', 'the body is shorter than its Content-Length', { status: 400 }))
    else this.push(null)
  }

  readonly #onGone = (): void => {
    if (!this.#request.complete) this.#fail(new RegistryError('BLOB_UPLOAD_INVALID', 'the client went away'))
  }

  /** Starts the idle limit: from now on the server waits for the client. */
  #wait(): void {
    if (this.destroyed) return
    if (this.#timer === undefined) this.#timer = setTimeout(this.#onIdle, this.#options.idleMs)
    else this.#timer.refresh()
  }

  #rest(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  readonly #onIdle = (): void => this.#fail(new RegistryError('BLOB_UPLOAD_INVALID', 'no bytes arrived for too long', { status: 408 }))

  #fail(failure: RegistryError): void {
    this.#failure ??= failure
    this.destroy(failure)
  }
}

/** Returns the value of `Content-Length`; undefined if the header is absent. */
export function lengthOf(request: IncomingMessage): number | undefined {
  const header = request.headers['content-length']
  return header === undefined ? undefined : Number(header)
}

/** Returns true if the request has a body, or may have one. */
export function hasBody(request: IncomingMessage): boolean {
  const length = lengthOf(request)
  return length === undefined ? request.headers['transfer-encoding'] !== undefined : length > 0
}

/** Minimum time allowed for a whole body, in milliseconds, and the number of bytes per second that a body must reach after that. */
const shortestMs = 10_000
const slowestBytesPerSecond = 16 * 1024

/**
 * Reads the whole body. Throws RegistryError: SIZE_INVALID (413) if it has more than `maxBytes`, 408 if it takes longer than `wholeMs`, or its `failure`.
 * `wholeMs` defaults to 10 s plus 1 s for each 16 KiB of `maxBytes`.
 */
export async function readBody(request: IncomingMessage, options: { idleMs: number; maxBytes: number; wholeMs?: number }): Promise<Uint8Array> {
  const { idleMs, maxBytes, wholeMs = shortestMs + (maxBytes / slowestBytesPerSecond) * 1000 } = options
  const tooLarge = (): RegistryError => new RegistryError('SIZE_INVALID', `the body has more than ${maxBytes} bytes`)
  const length = lengthOf(request)
  if (length !== undefined && length > maxBytes) throw tooLarge()
  const body = new RequestBody(request, { idleMs })
  const tooSlow = setTimeout(() => body.destroy(new RegistryError('BLOB_UPLOAD_INVALID', 'the body took too long', { status: 408 })), wholeMs)
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > maxBytes) throw tooLarge()
      chunks.push(chunk)
    }
  } finally {
    clearTimeout(tooSlow)
  }
  return Buffer.concat(chunks, size)
}
