/** Maximum number of requests that start in one turn of the event loop. */
const startsPerRound = 64

/**
 * Divides the event loop's capacity fairly among keys, such as callers, without refusing requests. A request starts at once while there is capacity. Otherwise
 * it waits. Each turn of the event loop starts one waiting request per key, in rotation. So the next request of a key waits for at most one round, however
 * many requests other keys have.
 */
export class FairScheduler {
  readonly #startsPerRound: number
  /** Waiting requests by key, in order. The first key in the map is the next one. */
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
