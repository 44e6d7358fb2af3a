import { createHash } from 'node:crypto'

/** Random numbers that follow from a seed alone. */
export interface SeededRandom {
  /** At least 0, less than 1. */
  fraction(): number
  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number
  /** Returns one of the items. Throws if there are none. */
  pick<T>(items: readonly T[]): T
}

/** Returns a generator for a name: the same name always gives the same numbers. */
export function seededRandom(name: string): SeededRandom {
  let state = createHash('sha256').update(name).digest().readUInt32LE(0)
  // mulberry32
  const fraction = (): number => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const between = (low: number, high: number): number => low + Math.floor(fraction() * (high - low + 1))
  return {
    fraction,
    between,
    pick: (items) => {
      const item = items[between(0, items.length - 1)]
      if (item === undefined) throw new RangeError('nothing to pick from')
      return item
    },
  }
}
