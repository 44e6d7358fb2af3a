/** Where so many shared a question the process is busy: then a question more costs others more time than a short wait does. */
const crowd = 12
const crowdPauseMs = 1

/** Lets the rest of what has arrived in this turn of the event loop be read first; in a crowd also what comes within a moment. */
function gathering(isCrowd: boolean): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  if (isCrowd) setTimeout(resolve, crowdPauseMs)
  else setImmediate(resolve)
  return promise
}

/**
 * Asks one question for all who want an answer from after their own call. Those who call in one turn of the event loop share a question, and so do those who call
 * while another is under way: their question is sent when that one is answered (the read index of Raft, architecture 5). Under load a question waits a
 * millisecond for company: it costs as much as some ten requests, and without the wait it would be answered before many have come.
 */
export class SharedQuestion<Answer, Result> {
  readonly #ask: () => Promise<Answer>
  readonly #finish: (answer: Answer) => Promise<Result>
  #running: Promise<Answer> | undefined
  #next: Promise<Result> | undefined
  #callers = 0
  #lastCallers = 0

  /** `finish` makes the result of an answer; the next question does not wait for it. */
  constructor(ask: () => Promise<Answer>, finish: (answer: Answer) => Promise<Result>) {
    this.#ask = ask
    this.#finish = finish
  }

  /** The result of a question that is sent after this call; rejects as the question does. */
  result(): Promise<Result> {
    this.#callers += 1
    return (this.#next ??= this.#askNext())
  }

  async #askNext(): Promise<Result> {
    const running = this.#running
    if (running !== undefined) await Promise.allSettled([running])
    await gathering(this.#lastCallers + this.#callers >= crowd)
    this.#next = undefined
    this.#lastCallers = this.#callers
    this.#callers = 0
    const asked = this.#ask()
    this.#running = asked
    const clear = (): void => {
      if (this.#running === asked) this.#running = undefined
    }
    asked.then(clear, clear)
    return this.#finish(await asked)
  }
}
