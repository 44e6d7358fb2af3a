import { Readable } from 'node:stream'
import { UpstreamError } from './upstream.ts'

/** Options of PassedBody. */
export interface PassedBodyOptions {
  /** Converts an error of the source. */
  readonly translate: (error: unknown) => Error
  /** Destroys the stream with its reason. */
  readonly signal: AbortSignal
  /** The expected number of bytes; not checked if absent. The stream fails with an UpstreamError if the source has more or fewer. */
  readonly bytes?: number
}

/** Passes on the bytes of `source` at the reader's pace. Destroying either stream destroys the other. */
export class PassedBody extends Readable {
  readonly #source: Readable
  readonly #options: PassedBodyOptions
  readonly #onAbort = (): void => void this.destroy(this.#options.signal.reason as Error) // a cast: destroy accepts any reason
  #passed = 0
  #started = false
  #isComplete = false

  constructor(source: Readable, options: PassedBodyOptions) {
    super({ highWaterMark: source.readableHighWaterMark })
    // The source may fail before the reader listens; the reader gets the error later. Without this listener, the failure would end the
    // process.
    this.on('error', () => undefined)
    this.#source = source
    this.#options = options
    options.signal.addEventListener('abort', this.#onAbort, { once: true })
    source.on('error', (error) => this.destroy(options.signal.aborted ? (options.signal.reason as Error) : options.translate(error)))
    source.on('close', () => this.#ended())
    if (options.signal.aborted) this.#onAbort()
  }

  /** Number of bytes passed on so far. */
  get passed(): number {
    return this.#passed
  }

  override _read(): void {
    if (this.#started) return void this.#source.resume()
    this.#started = true
    const { bytes = Infinity } = this.#options
    this.#source.on('end', () => {
      this.#isComplete = true
      this.#ended()
    })
    this.#source.on('data', (piece: Uint8Array) => {
      this.#passed += piece.length
      if (this.#passed > bytes) this.destroy(new UpstreamError('unavailable', 'the upstream sent more bytes than it announced'))
      else if (!this.push(piece)) this.#source.pause()
    })
  }

  #ended(): void {
    if (this.destroyed || this.readableEnded) return
    const { bytes, translate } = this.#options
    if (this.#passed === bytes || (bytes === undefined && this.#isComplete)) this.push(null)
    else if (bytes === undefined) this.destroy(translate(new Error('the body was closed before its end')))
    else this.destroy(new UpstreamError('unavailable', `${bytes - this.#passed} bytes are missing of those that the upstream announced`))
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#options.signal.removeEventListener('abort', this.#onAbort)
    this.#source.destroy()
    callback(error)
  }
}
