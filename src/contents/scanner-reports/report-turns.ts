/** Maximum number of tasks of one organisation that wait. */
const maxWaiting = 100

type Task = () => Promise<void>

/** Runs one task at a time. Keys take turns: the tasks of one key cannot hold up those of another. */
export class ReportTurns {
  /** Tasks that wait, by key. The first key is the next one. */
  readonly #waiting = new Map<string, Task[]>()
  readonly #ending = new AbortController()
  #running: Promise<void> | undefined

  /** Resolves with what the task returns, after those before it. Rejects with its error, if too many tasks of the key wait, or if the turns ended. */
  async take<T>(key: string, task: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if ((this.#waiting.get(key)?.length ?? 0) >= maxWaiting) throw new Error('too many tasks wait')
    return this.next(key, task)
  }

  /** Takes a further turn for something that had one. It is not refused, however many tasks wait. */
  async next<T>(key: string, task: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { signal } = this.#ending
    signal.throwIfAborted()
    const queue = this.#waiting.get(key) ?? []
    const done = Promise.withResolvers<T>()
    queue.push(async () => {
      try {
        signal.throwIfAborted()
        done.resolve(await task(signal))
      } catch (error) {
        done.reject(error)
      }
    })
    this.#waiting.set(key, queue)
    this.#running ??= this.#run()
    return done.promise
  }

  /** Ends the tasks. Resolves once none runs. */
  async close(): Promise<void> {
    this.#ending.abort(new Error('the turns ended'))
    await this.#running
  }

  async #run(): Promise<void> {
    for (;;) {
      const [next] = this.#waiting
      if (next === undefined) break
      const [key, [task, ...others]] = next
      this.#waiting.delete(key)
      if (others.length > 0) this.#waiting.set(key, others)
      await task?.()
    }
    this.#running = undefined
  }
}
