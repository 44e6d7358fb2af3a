import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { RegistryError } from '../../registry-error.ts'
import { transferOwnership } from '../../release.ts'

/** How a body is read. */
export interface BodyOptions {
  /** How long the client may send nothing while it is waited for, in milliseconds. */
  readonly idleMs: number
  /** How many bytes there must be, where that is known. */
  readonly length?: number
  /** Maximum number of bytes, and the error if there are more. */
  readonly most?: { readonly bytes: number; readonly failure: () => RegistryError }
}

/**
 * Body of a request as a separate stream. Destroying it does not destroy the connection, which still carries the answer. Reads from the connection only as fast
 * as it is read itself. `failure` is why it ended early: the client was idle, went away, or sent more or less than it declared.
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

  /** Bytes that came so far. */
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
    // What still comes is dropped; its errors are of no interest any more.
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
    // The reader is slow, not the client.
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

  /** From now on it is the client who is waited for. */
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

/** The number that `Content-Length` says; undefined where the body ends by itself. */
export function lengthOf(request: IncomingMessage): number | undefined {
  const header = request.headers['content-length']
  return header === undefined ? undefined : Number(header)
}

/** True where the request brings bytes, or may. */
export function hasBody(request: IncomingMessage): boolean {
  const length = lengthOf(request)
  return length === undefined ? request.headers['transfer-encoding'] !== undefined : length > 0
}

/** How long a whole body may take at least, in milliseconds, and the bytes that must then arrive in each second. */
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
