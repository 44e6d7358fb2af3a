import { Readable } from 'node:stream'
import { UpstreamError } from './upstream.ts'

/** How bytes are passed on. */
export interface PassedBodyOptions {
  /** Translates an error of the source. */
  readonly translate: (error: unknown) => Error
  /** Ends the stream with its reason. */
  readonly signal: AbortSignal
  /** How many bytes there are to be; the stream ends with an UpstreamError where there are others. Not checked where absent. */
  readonly bytes?: number
}

/** `source`, byte for byte and at the reader's pace. Each destroys the other. */
export class PassedBody extends Readable {
  readonly #source: Readable
  readonly #options: PassedBodyOptions
  readonly #onAbort = (): void => void this.destroy(this.#options.signal.reason as Error) // a cast: destroy passes on what it gets
  #passed = 0
  #started = false
  #isComplete = false

  constructor(source: Readable, options: PassedBodyOptions) {
    super({ highWaterMark: source.readableHighWaterMark })
    // The source may break before its reader listens; the reader gets the error all the same. Without this listener, an upstream that breaks off would end the
    // process.
    this.on('error', () => undefined)
    this.#source = source
    this.#options = options
    options.signal.addEventListener('abort', this.#onAbort, { once: true })
    source.on('error', (error) => this.destroy(options.signal.aborted ? (options.signal.reason as Error) : options.translate(error)))
    source.on('close', () => this.#ended())
    if (options.signal.aborted) this.#onAbort()
  }

  /** Bytes that went through so far. */
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
