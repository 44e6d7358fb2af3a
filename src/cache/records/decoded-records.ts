/** The cache entry of a decoded record; `used` is true if it was read since the last check. */
export interface DecodedEntry {
  readonly holder: DecodedHolder
  /** Encoded size in bytes. */
  readonly bytes: number
  used: boolean
  /** Index among the kept entries; -1 before and after. Only for DecodedRecords. */
  at: number
}

/** The holder of a decoded record, which drops it when `forget` is called. */
export interface DecodedHolder {
  forget(): void
}

/**
 * Decides which records stay decoded: the latest ones up to a number and a size, preferring those that were read again (the clock algorithm). The holders keep
 * the decoded records, so a hit needs no search.
 */
export class DecodedRecords {
  readonly #maxRecords: number
  readonly #maxBytes: number
  readonly #ring: DecodedEntry[] = []
  #hand = 0
  #bytes = 0

  /** `maxBytes` counts encoded bytes; decoded records take several times as much. */
  constructor(maxRecords = 16_384, maxBytes = 4 * 1024 * 1024) {
    this.#maxRecords = maxRecords
    this.#maxBytes = maxBytes
  }

  /** Keeps one more entry and evicts others if there are too many. */
  keep(decoded: DecodedEntry): void {
    while (this.#ring.length > 0 && (this.#ring.length >= this.#maxRecords || this.#bytes + decoded.bytes > this.#maxBytes)) this.#dropOne()
    decoded.at = this.#ring.push(decoded) - 1
    this.#bytes += decoded.bytes
  }

  /** Removes an entry that is no longer needed, so that it causes no eviction. Ignores an entry that is not kept. */
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
