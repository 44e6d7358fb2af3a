import type { Dispatcher } from 'undici'
import { FetchError, retryAfterOf } from './safe-agent.ts'

/** A complete answer with a 2xx status. */
export interface FetchResponse {
  readonly status: number
  readonly body: Uint8Array
  /** The `Content-Type` header; empty without one. */
  readonly contentType: string
  /** The wait that the server asked for, in milliseconds; undefined if it asked for none. */
  readonly retryAfterMs: number | undefined
}

/** What an exchange sends, and its limits. */
export interface ExchangeOptions {
  readonly request: Dispatcher.DispatchOptions
  readonly dispatcher: Dispatcher
  readonly timeoutMs: number
  /** Maximum size of the body of the answer, in bytes. */
  readonly maxBytes: number
  /** True if the body of the answer is not needed. */
  readonly discardBody: boolean
}

/** Maximum time in milliseconds for reading the rest of an answer whose body is not needed. */
const discardMs = 1_000

/**
 * One request and its answer. It uses the client's handler interface: the promises, streams and signals of its `request` function take as
 * much time as the rest of a request.
 */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #options: ExchangeOptions
  readonly #signal: AbortSignal
  readonly #resolve: (response: FetchResponse) => void
  readonly #reject: (error: unknown) => void
  readonly #chunks: Uint8Array[] = []
  #timer: NodeJS.Timeout
  #controller: Dispatcher.DispatchController | undefined
  #status = 0
  #contentType = ''
  #retryAfterMs: number | undefined
  #size = 0
  #isOver = false

  constructor(options: ExchangeOptions, signal: AbortSignal, { resolve, reject }: Pick<PromiseWithResolvers<FetchResponse>, 'resolve' | 'reject'>) {
    this.#options = options
    this.#signal = signal
    this.#resolve = resolve
    this.#reject = reject
    this.#timer = setTimeout(() => this.#fail(new FetchError('timeout')), options.timeoutMs)
    signal.addEventListener('abort', this.#onAbort)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#isOver) controller.abort(new Error('the request has ended'))
    else this.#controller = controller
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: Record<string, string | string[] | undefined>): void {
    if (status < 200 || this.#isOver) return
    this.#status = status
    const { 'content-type': type, 'retry-after': retryAfter, 'refresh-after': refreshAfter } = headers
    if (typeof type === 'string') this.#contentType = type
    // Scanners for Harbor have a header of their own.
    this.#retryAfterMs = retryAfterOf(retryAfter ?? refreshAfter)
    if (status > 299) {
      // The rest of the answer is not read.
      this.#fail(new FetchError(status < 400 ? 'redirect' : 'status', { status, retryAfterMs: this.#retryAfterMs }))
    } else if (this.#options.discardBody) {
      clearTimeout(this.#timer)
      // Closes the connection of a slow rest. A short rest is read, so that the connection can be used again.
      this.#timer = setTimeout(this.#discard, discardMs)
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (this.#isOver) return
    this.#size += chunk.length
    const isTooLarge = this.#size > this.#options.maxBytes
    if (this.#options.discardBody) {
      if (isTooLarge) this.#discard()
    } else if (isTooLarge) this.#fail(new FetchError('too_large', { status: this.#status }))
    else this.#chunks.push(chunk)
  }

  onResponseEnd(): void {
    if (!this.#isOver) this.#succeed()
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#isOver) return
    if (this.#isAccepted) this.#succeed()
    else this.#fail(error)
  }

  /** True once the server has accepted the request, if the body of its answer is not needed. Then an error in it does not matter. */
  get #isAccepted(): boolean {
    return this.#options.discardBody && this.#status !== 0
  }

  readonly #onAbort = (): void => {
    if (this.#isAccepted) this.#discard()
    else this.#fail(this.#signal.reason)
  }

  readonly #discard = (): void => {
    this.#succeed()
    this.#controller?.abort(new Error('the answer is not needed'))
  }

  #succeed(): void {
    this.#end()
    this.#resolve({ status: this.#status, body: Buffer.concat(this.#chunks), contentType: this.#contentType, retryAfterMs: this.#retryAfterMs })
  }

  #fail(error: unknown): void {
    if (this.#isOver) return
    this.#end()
    this.#reject(error)
    this.#controller?.abort(error instanceof Error ? error : new Error('the request was aborted'))
  }

  #end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#signal.removeEventListener('abort', this.#onAbort)
  }
}

/** Sends a request. Rejects with FetchError, an error of the client, or the signal's reason. A connection with an unread rest is closed. */
export function exchange(options: ExchangeOptions, signal: AbortSignal): Promise<FetchResponse> {
  const { promise, ...settle } = Promise.withResolvers<FetchResponse>()
  const handler = new Exchange(options, signal, settle)
  try {
    options.dispatcher.dispatch(options.request, handler)
  } catch (error) {
    handler.onResponseError(undefined, error as Error)
  }
  return promise
}
