/** The entry of a decoded record in DecodedRecords. `used` is true if the record was read since the last check. */
export interface DecodedEntry {
  readonly holder: DecodedHolder
  /** Size in bytes of the encoded record. */
  readonly bytes: number
  used: boolean
  /** Index of the entry in DecodedRecords; -1 if it is not kept there. */
  at: number
}

/** An object that keeps a decoded record, and drops it when `forget` is called. */
export interface DecodedHolder {
  forget(): void
}

/**
 * Decides which records stay decoded: the latest ones, up to a number and a size. Records that were read again are preferred (the clock algorithm). The
 * decoded records are kept by their holders, so finding one needs no look-up.
 */
export class DecodedRecords {
  readonly #maxRecords: number
  readonly #maxBytes: number
  readonly #ring: DecodedEntry[] = []
  #hand = 0
  #bytes = 0

  /** `maxBytes` limits the encoded size of the records. Decoded records take several times as much memory. */
  constructor(maxRecords = 16_384, maxBytes = 4 * 1024 * 1024) {
    this.#maxRecords = maxRecords
    this.#maxBytes = maxBytes
  }

  /** Adds an entry. Evicts others if a limit is exceeded. */
  keep(decoded: DecodedEntry): void {
    while (this.#ring.length > 0 && (this.#ring.length >= this.#maxRecords || this.#bytes + decoded.bytes > this.#maxBytes)) this.#dropOne()
    decoded.at = this.#ring.push(decoded) - 1
    this.#bytes += decoded.bytes
  }

  /** Removes an entry, if it is kept, so that it no longer counts towards the limits. */
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
