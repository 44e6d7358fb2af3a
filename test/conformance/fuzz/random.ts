/** Random numbers that follow from a seed alone (sfc32), the same on every machine. */
export class Random {
  #a: number
  #b: number
  #c: number
  #counter = 1

  /** `seed` and `stream` choose the sequence. The stream of a request is its number. */
  constructor(seed: number, stream: number) {
    this.#a = seed | 0
    this.#b = stream | 0
    this.#c = 0x9e3779b9
    for (let round = 0; round < 15; round++) this.#word()
  }

  #word(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0
    this.#counter = (this.#counter + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    return sum >>> 0
  }

  /** A whole number from 0 to below `end`. */
  below(end: number): number {
    return Math.floor((this.#word() / 2 ** 32) * end)
  }

  /** Returns true with probability `part`. */
  chance(part: number): boolean {
    return this.#word() / 2 ** 32 < part
  }

  /** Returns a random item of a list that must not be empty. */
  pick<T>(list: readonly T[]): T {
    const found = list[this.below(list.length)]
    if (list.length === 0) throw new TypeError('nothing to pick from')
    // Any item of the list; T may include undefined.
    return found as T
  }

  /** Returns a random item of a list, or undefined if it is empty. */
  pickMaybe<T>(list: readonly T[]): T | undefined {
    return list.length === 0 ? undefined : this.pick(list)
  }

  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.below(256)))
  }

  /** Returns `count` different items of the list, in its order. */
  some<T>(list: readonly T[], count: number): T[] {
    const chosen = new Set<number>()
    while (chosen.size < Math.min(count, list.length)) chosen.add(this.below(list.length))
    return list.filter((_, index) => chosen.has(index))
  }
}
