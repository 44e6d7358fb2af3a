import { Readable } from 'node:stream'
import { UpstreamError } from './upstream.ts'

/** How bytes are passed on. */
export interface ExactBodyOptions {
  /** How many there are to be. */
  readonly bytes: number
  /** What an error of the source means. */
  readonly translate: (error: unknown) => Error
  /** Ends the stream with its reason. */
  readonly signal: AbortSignal
}

/** `source`, byte for byte and at the reader's pace; it ends with an UpstreamError unless there are exactly as many bytes as were promised. */
export function exactBody(source: Readable, options: ExactBodyOptions): Readable {
  return new ExactBody(source, options)
}

class ExactBody extends Readable {
  readonly #source: Readable
  readonly #options: ExactBodyOptions
  readonly #onAbort = (): void => void this.destroy(this.#options.signal.reason as Error) // a cast: destroy passes on what it gets
  #left: number
  #started = false

  constructor(source: Readable, options: ExactBodyOptions) {
    super({ highWaterMark: source.readableHighWaterMark })
    this.#source = source
    this.#options = options
    this.#left = options.bytes
    options.signal.addEventListener('abort', this.#onAbort, { once: true })
    source.on('error', (error) => this.destroy(options.signal.aborted ? (options.signal.reason as Error) : options.translate(error)))
    source.on('close', () => this.#ended())
    if (options.signal.aborted) this.#onAbort()
  }

  override _read(): void {
    if (this.#started) return void this.#source.resume()
    this.#started = true
    this.#source.on('end', () => this.#ended())
    this.#source.on('data', (piece: Uint8Array) => {
      this.#left -= piece.length
      if (this.#left < 0) this.destroy(new UpstreamError('unavailable', 'the upstream sent more bytes than it promised'))
      else if (!this.push(piece)) this.#source.pause()
    })
  }

  #ended(): void {
    if (this.destroyed || this.readableEnded) return
    if (this.#left === 0) this.push(null)
    else this.destroy(new UpstreamError('unavailable', `${this.#left} bytes are missing of what the upstream promised`))
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#options.signal.removeEventListener('abort', this.#onAbort)
    this.#source.destroy()
    callback(error)
  }
}
