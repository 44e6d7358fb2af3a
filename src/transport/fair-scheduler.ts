/** Maximum number of requests that start in one turn of the event loop. */
const startsPerRound = 64

/**
 * Shares the event loop among keys without refusing requests. A request starts at once while there is capacity. Otherwise it waits, and each turn of the loop
 * starts one request per waiting key, in rotation. However many requests one key has, the next request of another key waits for at most one round.
 */
export class FairScheduler {
  readonly #startsPerRound: number
  /** Waiting requests in order, by key. The first key in the map is the next one. */
  readonly #waiting = new Map<string, (() => void)[]>()
  #started = 0
  #isScheduled = false

  constructor(starts = startsPerRound) {
    this.#startsPerRound = starts
  }

  /** Resolves when a request of `key` may start; undefined if it may start now. */
  take(key: string): Promise<void> | undefined {
    this.#scheduleRound()
    if (this.#started < this.#startsPerRound && this.#waiting.size === 0) {
      this.#started++
      return undefined
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    const queue = this.#waiting.get(key)
    if (queue === undefined) this.#waiting.set(key, [resolve])
    else queue.push(resolve)
    return promise
  }

  #scheduleRound(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#nextRound)
  }

  readonly #nextRound = (): void => {
    this.#isScheduled = false
    for (this.#started = 0; this.#started < this.#startsPerRound; this.#started++) {
      const [next] = this.#waiting
      if (next === undefined) return
      const [key, queue] = next
      const begin = queue.shift()
      this.#waiting.delete(key)
      if (queue.length > 0) this.#waiting.set(key, queue)
      begin?.()
    }
    this.#scheduleRound()
  }
}
