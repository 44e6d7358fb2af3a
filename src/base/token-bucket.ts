/** The rate of a token bucket: `perSecond` tokens on average, and at most `burst` at once. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** A token bucket for rate limits. It starts full and refills at its rate. */
export class TokenBucket {
  readonly #rate: Rate
  readonly #now: () => number
  #tokens: number
  #filledAtMs: number

  /** `now` returns the milliseconds since an arbitrary moment. */
  constructor(rate: Rate, now: () => number) {
    this.#rate = rate
    this.#now = now
    this.#tokens = rate.burst
    this.#filledAtMs = now()
  }

  /** Returns the milliseconds until the bucket holds this number of tokens; 0 if it holds them now. */
  waitMs(tokens: number): number {
    this.#fill()
    return this.#tokens >= tokens ? 0 : Math.ceil(((tokens - this.#tokens) * 1000) / this.#rate.perSecond)
  }

  /** Returns the number of tokens; negative if more were spent. */
  get tokens(): number {
    this.#fill()
    return this.#tokens
  }

  /** Takes tokens, even if the bucket then holds a negative number. */
  spend(tokens: number): void {
    this.#fill()
    this.#tokens -= tokens
  }

  #fill(): void {
    const now = this.#now()
    // Do not subtract tokens if the clock was set back.
    const elapsedMs = Math.max(0, now - this.#filledAtMs)
    this.#tokens = Math.min(this.#rate.burst, this.#tokens + (elapsedMs * this.#rate.perSecond) / 1000)
    this.#filledAtMs = now
  }
}
