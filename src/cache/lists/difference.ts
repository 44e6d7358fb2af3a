import type { OrderTree, Side } from './order-tree.ts'

/** A sorted set with ranks, for reading. A reader that holds ranks checks `version` to see whether they are still valid. */
export interface Ranked<T> {
  readonly size: number
  readonly version: number
  rank(probe: T, side: Side): number
  rankBy(holds: (item: T) => boolean): number
  at(rank: number): T | undefined
  items(from: number, to: number): T[]
}

/** Minimum number of items to read if some of them may be left out. */
const leastRead = 128

/**
 * The items of one tree that are not in another tree, which holds some of them in the same order. Both may change. A rank costs O(log n), an item O(log² n). A
 * range costs one item plus all items of the tree between its ends.
 */
export class Difference<T> implements Ranked<T> {
  readonly #whole: OrderTree<T>
  readonly #left: OrderTree<T>
  readonly #isLeftOut: (item: T) => boolean

  /** `isLeftOut` is true for the items of `left`, and for no other item of `whole`. */
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

  /** Maps a rank among the visible records to a rank in the whole tree. */
  #placeOf(rank: number): number {
    let low = rank
    let high = rank + this.#left.size
    while (low < high) {
      const middle = (low + high) >>> 1
      // In range: more than `rank` items are not left out.
      const item = this.#whole.at(middle) as T
      if (middle + 1 - this.#left.rank(item, 'right') > rank) high = middle
      else low = middle + 1
    }
    return low
  }
}
