/** How many calls are begun: `perSecond` on average, `burst` at once. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** Lets calls begin no faster than a rate; those that have to wait go in the order in which they came. */
export class TokenBucket {
  readonly #rate: Rate
  readonly #waiting: (() => void)[] = []
  #tokens: number
  #filledAt = performance.now()
  #timer: NodeJS.Timeout | undefined

  constructor(rate: Rate) {
    this.#rate = rate
    this.#tokens = rate.burst
  }

  /** Resolves when the call may begin; rejects with the signal's reason. */
  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    this.#fill()
    if (this.#waiting.length === 0 && this.#tokens >= 1) {
      this.#tokens--
      return
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const leave = (): void => {
      this.#waiting.splice(this.#waiting.indexOf(resolve), 1)
      reject(signal.reason)
    }
    this.#waiting.push(resolve)
    signal.addEventListener('abort', leave, { once: true })
    this.#schedule()
    await promise.finally(() => signal.removeEventListener('abort', leave))
  }

  #fill(): void {
    const now = performance.now()
    this.#tokens = Math.min(this.#rate.burst, this.#tokens + ((now - this.#filledAt) * this.#rate.perSecond) / 1000)
    this.#filledAt = now
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#waiting.length === 0) return
    const waitMs = Math.max(1, Math.ceil(((1 - this.#tokens) * 1000) / this.#rate.perSecond))
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#fill()
      for (; this.#tokens >= 1 && this.#waiting.length > 0; this.#tokens--) this.#waiting.shift()?.()
      this.#schedule()
    }, waitMs)
  }
}
