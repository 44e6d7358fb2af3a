/** A set of numbers below a limit. A small set is a sorted list, a large one has a bit for each number. So none needs more than a bit per number. */
export class NumberSet {
  /** The number of members. */
  readonly size: number
  readonly #limit: number
  readonly #list: Uint32Array | undefined
  readonly #bits: Uint32Array | undefined

  private constructor(limit: number, size: number, content: { readonly list: Uint32Array } | { readonly bits: Uint32Array }) {
    this.#limit = limit
    this.size = size
    this.#list = 'list' in content ? content.list : undefined
    this.#bits = 'bits' in content ? content.bits : undefined
  }

  /** Returns the set of these numbers, which ascend. */
  static of(numbers: Uint32Array, limit: number): NumberSet {
    if (isFew(numbers.length, limit)) return new NumberSet(limit, numbers.length, { list: numbers })
    const bits = new Uint32Array(wordsOf(limit))
    for (const number of numbers) bits[number >>> 5] = (bits[number >>> 5] ?? 0) | (1 << (number & 31))
    return new NumberSet(limit, numbers.length, { bits })
  }

  /** Returns a set that was stored. `size` is the number of its members. */
  static read(bytes: Uint8Array, size: number, limit: number): NumberSet {
    const content = numbersIn(bytes)
    return new NumberSet(limit, size, isFew(size, limit) ? { list: content } : { bits: content })
  }

  /** Returns the set of all numbers that are in one of the sets. */
  static union(sets: readonly NumberSet[], limit: number): NumberSet {
    const [only] = sets
    if (only !== undefined && sets.length === 1) return only
    const most = sets.reduce((sum, { size }) => sum + size, 0)
    if (isFew(most, limit)) {
      const all = Uint32Array.from(sets.flatMap((set) => [...set.ascending(0)])).sort()
      return NumberSet.of(
        all.filter((number, at) => number !== all[at - 1]),
        limit,
      )
    }
    const bits = new Uint32Array(wordsOf(limit))
    for (const set of sets) set.#addTo(bits)
    return NumberSet.#ofBits(bits, limit)
  }

  /** Returns the set of all numbers that are in each of the sets, of which there is at least one. */
  static intersection(sets: readonly NumberSet[]): NumberSet {
    const [first, ...others] = sets.toSorted((one, other) => one.size - other.size)
    if (first === undefined) throw new TypeError('an intersection of no sets')
    if (others.length === 0) return first
    if (first.#list !== undefined)
      return NumberSet.of(
        first.#list.filter((number) => others.every((other) => other.has(number))),
        first.#limit,
      )
    // The smallest set has bits, so all of them do.
    const bits = (first.#bits ?? new Uint32Array()).slice()
    for (const other of others) {
      const theirs = other.#bits ?? new Uint32Array()
      for (let at = 0; at < bits.length; at += 1) bits[at] = (bits[at] ?? 0) & (theirs[at] ?? 0)
    }
    return NumberSet.#ofBits(bits, first.#limit)
  }

  /** Returns this set without the members of the other. */
  without(other: NumberSet): NumberSet {
    if (this.#list !== undefined)
      return NumberSet.of(
        this.#list.filter((number) => !other.has(number)),
        this.#limit,
      )
    const bits = (this.#bits ?? new Uint32Array()).slice()
    const gone = new Uint32Array(bits.length)
    other.#addTo(gone)
    for (let at = 0; at < bits.length; at += 1) bits[at] = (bits[at] ?? 0) & ~(gone[at] ?? 0)
    return NumberSet.#ofBits(bits, this.#limit)
  }

  has(number: number): boolean {
    if (this.#list === undefined) return (((this.#bits?.[number >>> 5] ?? 0) >>> (number & 31)) & 1) === 1
    return this.#list[firstAtLeast(this.#list.length, (at) => (this.#list?.[at] ?? 0) >= number)] === number
  }

  /** Yields the members from `from`, smallest first, without the first `drop` of them. */
  *ascending(from: number, drop = 0): Generator<number, void, undefined> {
    const [list, bits] = [this.#list, this.#bits ?? new Uint32Array()]
    let left = drop
    if (list !== undefined) {
      for (let at = firstAtLeast(list.length, (one) => (list[one] ?? 0) >= from) + left; at < list.length; at += 1) yield list[at] ?? 0
      return
    }
    for (let number = from; number < this.#limit; number += 1) {
      const whole = (number & 31) === 0 ? onesIn(bits[number >>> 5] ?? 0) : Infinity
      if (whole === 0 || whole <= left) {
        left -= whole
        number |= 31
      } else if (this.has(number)) {
        if (left > 0) left -= 1
        else yield number
      }
    }
  }

  /** Yields the members below `end`, greatest first, without the first `drop` of them. */
  *descending(end: number, drop = 0): Generator<number, void, undefined> {
    const [list, bits] = [this.#list, this.#bits ?? new Uint32Array()]
    let left = drop
    if (list !== undefined) {
      for (let at = firstAtLeast(list.length, (one) => (list[one] ?? 0) >= end) - 1 - left; at >= 0; at -= 1) yield list[at] ?? 0
      return
    }
    for (let number = Math.min(end, this.#limit) - 1; number >= 0; number -= 1) {
      const whole = (number & 31) === 31 ? onesIn(bits[number >>> 5] ?? 0) : Infinity
      if (whole === 0 || whole <= left) {
        left -= whole
        number &= ~31
      } else if (this.has(number)) {
        if (left > 0) left -= 1
        else yield number
      }
    }
  }

  /** Returns the same set with a bit for each number, in which `has` is fastest. */
  withBits(): NumberSet {
    if (this.#bits !== undefined) return this
    const bits = new Uint32Array(wordsOf(this.#limit))
    this.#addTo(bits)
    return new NumberSet(this.#limit, this.size, { bits })
  }

  /** The size of its content in bytes. */
  get byteLength(): number {
    return (this.#list ?? this.#bits ?? new Uint32Array()).byteLength
  }

  /** Returns the content to store. */
  bytes(): Uint8Array {
    return bytesOf(this.#list ?? this.#bits ?? new Uint32Array())
  }

  static #ofBits(bits: Uint32Array, limit: number): NumberSet {
    let size = 0
    for (const word of bits) size += onesIn(word)
    const dense = new NumberSet(limit, size, { bits })
    return isFew(size, limit) ? new NumberSet(limit, size, { list: Uint32Array.from(dense.ascending(0)) }) : dense
  }

  #addTo(bits: Uint32Array): void {
    if (this.#bits !== undefined) for (const [at, word] of this.#bits.entries()) bits[at] = (bits[at] ?? 0) | word
    else for (const number of this.#list ?? []) bits[number >>> 5] = (bits[number >>> 5] ?? 0) | (1 << (number & 31))
  }
}

/** Returns the smallest number from 0 to `count` of which a condition is true. It is true of all greater ones, and of `count`. */
export function firstAtLeast(count: number, isReached: (at: number) => boolean): number {
  let [low, high] = [0, count]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isReached(middle)) high = middle
    else low = middle + 1
  }
  return low
}

/** Returns the bytes of a list of numbers. All machines that run this are little-endian. */
export function bytesOf({ buffer, byteOffset, byteLength }: Uint32Array | Float64Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}

/** Returns the list with these bytes. */
export function numbersIn(bytes: Uint8Array): Uint32Array {
  return new Uint32Array(bytes.slice().buffer)
}

/** True if a set of this size is a list: it is smaller than the bits then. */
function isFew(size: number, limit: number): boolean {
  return size * 32 < limit
}

function wordsOf(limit: number): number {
  return Math.ceil(limit / 32)
}

/** Returns the number of bits that are 1. */
function onesIn(word: number): number {
  const pairs = word - ((word >>> 1) & 0x55555555)
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333)
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
