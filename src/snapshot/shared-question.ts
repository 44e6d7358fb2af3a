/** Lets the rest of what has arrived in this turn of the event loop be read first. */
function endOfTurn(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  setImmediate(resolve)
  return promise
}

/**
 * Asks one question for all who want an answer from after their own call. Those who call in one turn of the event loop share a question, and so do those who call
 * while another is under way: their question is sent when that one is answered (the read index of Raft, architecture 5).
 */
export class SharedQuestion<Answer, Result> {
  readonly #ask: () => Promise<Answer>
  readonly #finish: (answer: Answer) => Promise<Result>
  #running: Promise<Answer> | undefined
  #next: Promise<Result> | undefined

  /** `finish` makes the result of an answer; the next question does not wait for it. */
  constructor(ask: () => Promise<Answer>, finish: (answer: Answer) => Promise<Result>) {
    this.#ask = ask
    this.#finish = finish
  }

  /** The result of a question that is sent after this call; rejects as the question does. */
  result(): Promise<Result> {
    return (this.#next ??= this.#askNext())
  }

  async #askNext(): Promise<Result> {
    const running = this.#running
    if (running !== undefined) await Promise.allSettled([running])
    await endOfTurn()
    this.#next = undefined
    const asked = this.#ask()
    this.#running = asked
    const clear = (): void => {
      if (this.#running === asked) this.#running = undefined
    }
    asked.then(clear, clear)
    return this.#finish(await asked)
  }
}
