import { untilAborted } from '../../../base/until-aborted.ts'

/** Lets one piece of work at a time have a key, in the order of asking. */
export class KeyedLock {
  readonly #last = new Map<string, Promise<void>>()

  /** True where some work has the key or waits for it. */
  holds(key: string): boolean {
    return this.#last.has(key)
  }

  /** Runs `work` once nothing else has the key. Rejects with the signal's reason where it is aborted before. */
  async run<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted()
    const before = this.#last.get(key)
    const mine = Promise.withResolvers<void>()
    const chained = before === undefined ? mine.promise : before.then(() => mine.promise)
    this.#last.set(key, chained)
    void chained.then(() => {
      if (this.#last.get(key) === chained) this.#last.delete(key)
    })
    try {
      if (before !== undefined) await untilAborted(before, signal)
      return await work()
    } finally {
      mine.resolve()
    }
  }
}
