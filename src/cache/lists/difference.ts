import type { OrderTree, Side } from './order-tree.ts'

/** A read-only sorted set in which items are also found by rank, their position in the order. Ranks are valid while `version` stays the same. */
export interface Ranked<T> {
  readonly size: number
  readonly version: number
  rank(probe: T, side: Side): number
  rankBy(holds: (item: T) => boolean): number
  at(rank: number): T | undefined
  items(from: number, to: number): T[]
}

/** Minimum number of items to read at a time from a tree of which some items may be left out. */
const leastRead = 128

/**
 * A sorted set: the items of the tree `whole` without the items of the tree `left`, in the same order. Both trees may change. A rank costs O(log n), an item
 * O(log² n). A range costs one item plus all items of `whole` between its ends.
 */
export class Difference<T> implements Ranked<T> {
  readonly #whole: OrderTree<T>
  readonly #left: OrderTree<T>
  readonly #isLeftOut: (item: T) => boolean

  /** `isLeftOut` must return true for exactly those items of `whole` that are in `left`. */
  constructor(whole: OrderTree<T>, left: OrderTree<T>, isLeftOut: (item: T) => boolean) {
    this.#whole = whole
    this.#left = left
    this.#isLeftOut = isLeftOut
  }

  get size(): number {
    return this.#whole.size - this.#left.size
  }

  get version(): number {
    return this.#whole.version + this.#left.version
  }

  rank(probe: T, side: Side): number {
    return this.#whole.rank(probe, side) - this.#left.rank(probe, side)
  }

  rankBy(holds: (item: T) => boolean): number {
    return this.#whole.rankBy(holds) - this.#left.rankBy(holds)
  }

  at(rank: number): T | undefined {
    return rank >= 0 && rank < this.size ? this.#whole.at(this.#placeOf(rank)) : undefined
  }

  items(from: number, to: number): T[] {
    const first = Math.max(from, 0)
    const wanted = Math.min(to, this.size) - first
    const found: T[] = []
    if (wanted <= 0) return found
    for (let place = this.#placeOf(first); found.length < wanted;) {
      const end = place + Math.max(leastRead, wanted - found.length)
      for (const item of this.#whole.items(place, end)) if (!this.#isLeftOut(item) && found.length < wanted) found.push(item)
      place = end
    }
    return found
  }

  /** Converts the rank of an item in this set to its rank in the tree `whole`. */
  #placeOf(rank: number): number {
    let low = rank
    let high = rank + this.#left.size
    while (low < high) {
      const middle = (low + high) >>> 1
      // The item exists: more than `rank` items are not left out.
      const item = this.#whole.at(middle) as T
      if (middle + 1 - this.#left.rank(item, 'right') > rank) high = middle
      else low = middle + 1
    }
    return low
  }
}
