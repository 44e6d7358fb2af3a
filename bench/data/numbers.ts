/**
 * Generator of pseudorandom numbers that are the same in every run with the same seed (32-bit xorshift with a Weyl sequence, Marsaglia
 * 2003).
 */
export class Numbers {
  #state: number
  #weyl = 0

  constructor(seed: number) {
    this.#state = seed === 0 ? 1 : seed
  }

  /** Returns a whole number from 0 to 2^32 - 1. */
  next(): number {
    let state = this.#state
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    this.#state = state
    this.#weyl = (this.#weyl + 362_437) | 0
    return (state + this.#weyl) >>> 0
  }

  below(bound: number): number {
    return Math.floor((this.next() / 2 ** 32) * bound)
  }

  pick<T>(list: readonly T[]): T {
    const found = list[this.below(list.length)]
    if (found === undefined) throw new RangeError('the list to pick from is empty')
    return found
  }

  hex(digits: number): string {
    let text = ''
    while (text.length < digits) text += this.next().toString(16).padStart(8, '0')
    return text.slice(0, digits)
  }
}
