/** Number of callers per query at which the process counts as busy. Then another query costs the other callers more time than a short wait. */
const crowd = 12
/** Maximum wait for more callers, in milliseconds. */
const crowdPauseMs = 1
/** Factor by which the expected number of callers decreases with each query. */
const memory = 0.9

/**
 * Shares one query among several callers, each of which needs an answer to a query sent after its call. Calls in one turn of the event loop share a query. So
 * do calls while another query is under way; theirs is sent when that one is answered (as in Raft's read index, docs/spec/storage.md#consistent-reads). Under
 * load a query costs as much as about ten requests. It then waits, for at most a millisecond, until as many callers arrived as shared recent queries.
 */
export class SharedQuestion<Answer, Result> {
  readonly #ask: () => Promise<Answer>
  readonly #finish: (answer: Answer) => Promise<Result>
  #running: Promise<Answer> | undefined
  #next: Promise<Result> | undefined
  #callers = 0
  /** The number of callers that shared recent queries. */
  #expected = 0
  #endWait: (() => void) | undefined

  /** `ask` sends the query. `finish` converts its answer to the result; the next query does not wait for it. */
  constructor(ask: () => Promise<Answer>, finish: (answer: Answer) => Promise<Result>) {
    this.#ask = ask
    this.#finish = finish
  }

  /** Returns the result of a query that is sent after this call. Rejects if the query does. */
  result(): Promise<Result> {
    this.#callers += 1
    if (this.#callers >= this.#expected) this.#endWait?.()
    return (this.#next ??= this.#askNext())
  }

  async #askNext(): Promise<Result> {
    const running = this.#running
    if (running !== undefined) await Promise.allSettled([running])
    await this.#gathering()
    this.#next = undefined
    this.#expected = Math.max(this.#callers, this.#expected * memory)
    this.#callers = 0
    const asked = this.#ask()
    this.#running = asked
    const clear = (): void => {
      if (this.#running === asked) this.#running = undefined
    }
    asked.then(clear, clear)
    return this.#finish(await asked)
  }

  /** Waits until the event loop has read all requests that arrived in this turn. Under load, also waits a moment for more. */
  async #gathering(): Promise<void> {
    if (this.#expected >= crowd && this.#callers < this.#expected) await this.#crowded()
    const { promise, resolve } = Promise.withResolvers<void>()
    setImmediate(resolve)
    await promise
  }

  #crowded(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const end = (): void => {
      clearTimeout(timer)
      this.#endWait = undefined
      resolve()
    }
    const timer = setTimeout(end, crowdPauseMs)
    this.#endWait = end
    return promise
  }
}
