/** What a decoded record says of itself; `used` says that it was read since it was looked at last. */
export interface DecodedEntry {
  readonly holder: DecodedHolder
  /** Encoded size. */
  readonly bytes: number
  used: boolean
  /** Where it is among those that are kept; -1 before that and after. For the use of DecodedRows. */
  at: number
}

/** Who forgets its decoded record when it is told to. */
export interface DecodedHolder {
  forget(): void
}

/**
 * Says which records stay decoded: the latest up to a number and a size, those that were read again in between first (the clock algorithm). The holders have
 * the decoded records themselves, so that a hit costs no search.
 */
export class DecodedRows {
  readonly #maxRecords: number
  readonly #maxBytes: number
  readonly #ring: DecodedEntry[] = []
  #hand = 0
  #bytes = 0

  /** `maxBytes` counts encoded bytes; decoded ones take several times as much. */
  constructor(maxRecords = 16_384, maxBytes = 4 * 1024 * 1024) {
    this.#maxRecords = maxRecords
    this.#maxBytes = maxBytes
  }

  /** Keeps one more, and makes others go where there are too many. */
  keep(decoded: DecodedEntry): void {
    while (this.#ring.length > 0 && (this.#ring.length >= this.#maxRecords || this.#bytes + decoded.bytes > this.#maxBytes)) this.#dropOne()
    decoded.at = this.#ring.push(decoded) - 1
    this.#bytes += decoded.bytes
  }

  /** Takes one out that nobody asks for any more, so that no other goes for it. One that is not kept is passed over. */
  drop(decoded: DecodedEntry): void {
    const { at } = decoded
    if (this.#ring[at] !== decoded) return
    const last = this.#ring.pop()
    if (last !== undefined && last !== decoded) {
      this.#ring[at] = last
      last.at = at
    }
    decoded.at = -1
    this.#bytes -= decoded.bytes
  }

  #dropOne(): void {
    for (;;) {
      if (this.#hand >= this.#ring.length) this.#hand = 0
      const decoded = this.#ring[this.#hand]
      if (decoded === undefined) return
      if (decoded.used) {
        decoded.used = false
        this.#hand += 1
        continue
      }
      this.drop(decoded)
      decoded.holder.forget()
      return
    }
  }
}
