/** Where so many share a question the process is busy: then a question more costs others more time than a short wait does. */
const crowd = 12
/** How long a crowd is waited for, in milliseconds. */
const crowdPauseMs = 1
/** How much of the largest number of callers is still expected after one question more. */
const memory = 0.9

/**
 * Asks one question for all who want an answer from after their own call. Those who call in one turn of the event loop share a question, and so do those who call
 * while another is under way: their question is sent when that one is answered (the read index of Raft, docs/spec/storage.md#consistent-reads). Under load a question costs as much as some
 * ten requests: it waits until as many have come as lately shared one, for a millisecond at most.
 */
export class SharedQuestion<Answer, Result> {
  readonly #ask: () => Promise<Answer>
  readonly #finish: (answer: Answer) => Promise<Result>
  #running: Promise<Answer> | undefined
  #next: Promise<Result> | undefined
  #callers = 0
  /** As many as lately shared a question. */
  #expected = 0
  #endWait: (() => void) | undefined

  /** `finish` makes the result of an answer; the next question does not wait for it. */
  constructor(ask: () => Promise<Answer>, finish: (answer: Answer) => Promise<Result>) {
    this.#ask = ask
    this.#finish = finish
  }

  /** The result of a question that is sent after this call; rejects as the question does. */
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

  /** Lets the rest of what has arrived in this turn of the event loop be read first; in a crowd also what comes within a moment. */
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
