/** How fast tokens can be taken: `perSecond` on average, `burst` at once. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** A bucket that starts full and is refilled at a rate. */
export class TokenBucket {
  readonly #rate: Rate
  readonly #now: () => number
  #tokens: number
  #filledAtMs: number

  /** `now` returns milliseconds since some moment in the past. */
  constructor(rate: Rate, now: () => number) {
    this.#rate = rate
    this.#now = now
    this.#tokens = rate.burst
    this.#filledAtMs = now()
  }

  /** Milliseconds until the bucket has so many tokens; 0 if it has them. */
  waitMs(tokens: number): number {
    this.#fill()
    return this.#tokens >= tokens ? 0 : Math.ceil(((tokens - this.#tokens) * 1000) / this.#rate.perSecond)
  }

  /** Takes tokens, even more than the bucket has. */
  spend(tokens: number): void {
    this.#fill()
    this.#tokens -= tokens
  }

  #fill(): void {
    const now = this.#now()
    // A clock that was set back must not empty a bucket.
    const elapsedMs = Math.max(0, now - this.#filledAtMs)
    this.#tokens = Math.min(this.#rate.burst, this.#tokens + (elapsedMs * this.#rate.perSecond) / 1000)
    this.#filledAtMs = now
  }
}
