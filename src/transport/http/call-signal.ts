import type { IncomingMessage, ServerResponse } from 'node:http'
import { DomainError } from '../../base/errors.ts'
import { untilAborted } from '../../base/timing.ts'

/** Maximum deadline that a client can set, in seconds. Longer ones are reduced to it. */
const maxTimeoutSeconds = 3600

/**
 * The abort signal of an HTTP call. It aborts with code 1 if the client disconnects, and with code 4 after the time in the header `Request-Timeout`. This
 * Taproot header contains seconds, which may have decimals, e.g. `2.5`; other values are ignored. The signal is created when it is first used, because most
 * calls are answered before.
 */
export class CallSignal {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #timeoutSeconds: number | undefined
  #signal: AbortSignal | undefined

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request
    this.#response = response
    this.#timeoutSeconds = timeoutSeconds(request.headers['request-timeout'])
    // If there is a deadline, its time starts now.
    if (this.#timeoutSeconds !== undefined) this.#signal = this.#create()
  }

  get signal(): AbortSignal {
    return (this.#signal ??= this.#create())
  }

  /** Throws the signal's reason if the signal has aborted, or would have if it had been created. */
  throwIfEnded(): void {
    if (this.#signal !== undefined || this.#response.closed) this.signal.throwIfAborted()
  }

  /** Settles like `work`, or rejects with code 4 at the deadline. Without a deadline, returns `work`. */
  async bound<T>(work: Promise<T>): Promise<T> {
    return this.#timeoutSeconds === undefined ? work : untilAborted(work, this.signal)
  }

  #create(): AbortSignal {
    const controller = new AbortController()
    const response = this.#response
    const seconds = this.#timeoutSeconds
    const timer =
      seconds === undefined
        ? undefined
        : setTimeout(() => controller.abort(new DomainError(4, 'the deadline passed: if this was a change, it may have been made')), seconds * 1000)
    const closed = (): void => {
      clearTimeout(timer)
      if (!response.writableFinished) controller.abort(new DomainError(1, 'the client disconnected'))
    }
    if (response.closed || this.#request.socket.destroyed) closed()
    else response.once('close', closed)
    return controller.signal
  }
}

function timeoutSeconds(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string' || !/^\d{1,6}(?:\.\d{1,6})?$/.test(header)) return undefined
  return Math.min(Number(header), maxTimeoutSeconds)
}
