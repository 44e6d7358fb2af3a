/** A total order: negative, zero or positive if `a` comes before, equals or comes after `b`; always the same for the same pair. */
export type Compare<T> = (a: T, b: T) => number

/** How a rank counts an item equal to the probe: `left` counts only the items before the probe, `right` also the equal item. */
export type Side = 'left' | 'right'

interface OrderLeaf<T> {
  readonly leaf: true
  readonly items: T[]
}

interface OrderBranch<T> {
  readonly leaf: false
  readonly children: OrderNode<T>[]
  /** The number of items below each child. */
  readonly counts: number[]
  /** The smallest item below each child. It is always an item of the tree, so no removed item stays in memory. */
  readonly firsts: T[]
}

type OrderNode<T> = OrderLeaf<T> | OrderBranch<T>

const leafWidth = 128
const branchWidth = 64

/**
 * A sorted set in which items are also found by rank (position): a B+ tree with subtree counts over a total order. No two items compare equal. A leaf is an
 * array of references to the items. An item must keep its place in the order while it is in the tree.
 * `insert`, `delete`, `rank`, `rankBy` and `at` cost O(log n); a range costs O(log n) plus its items. Every node except the root is at least an eighth full,
 * so memory stays O(n) after deletes. Inserts in ascending or descending order leave nodes 7/8 full.
 */
export class OrderTree<T> {
  readonly #compare: Compare<T>
  #root: OrderNode<T> = leafOf([])
  #size = 0
  #version = 0

  constructor(compare: Compare<T>) {
    this.#compare = compare
  }

  /** Builds the tree of `items` in O(n). Throws RangeError if they are not strictly ascending under `compare`. */
  static fromSorted<T>(items: readonly T[], compare: Compare<T>): OrderTree<T> {
    for (let index = 1; index < items.length; index++) {
      if (!(compare(entry(items, index - 1), entry(items, index)) < 0)) throw new RangeError(`items are not strictly ascending at ${index}`)
    }
    return OrderTree.ofAscending(items, compare)
  }

  /** Builds the tree without checking the order. The items must be strictly ascending under `compare`. */
  static ofAscending<T>(items: readonly T[], compare: Compare<T>): OrderTree<T> {
    const tree = new OrderTree(compare)
    tree.#root = rootOver(portions(items, leafWidth).map(leafOf))
    tree.#size = items.length
    return tree
  }

  /** Returns the number of items in the tree. */
  get size(): number {
    return this.#size
  }

  /**
   * A number that changes with every insert or delete that may change ranks. Results computed from ranks are then invalid. Replacing an item does not change
   * it.
   */
  get version(): number {
    return this.#version
  }

  /** Adds an item and returns true. Replaces an equal item and returns false. */
  insert(item: T): boolean {
    const added = this.#insertBelow(this.#root, item)
    if (!added) return false
    this.#size += 1
    this.#version += 1
    if (width(this.#root) > capacity(this.#root)) {
      const root = branchOver([this.#root])
      split(root, 0, cutFor(this.#root, item))
      this.#root = root
    }
    return true
  }

  /** Removes the item that compares equal to the probe; returns false if no item does. */
  delete(probe: T): boolean {
    if (!this.#deleteBelow(this.#root, probe)) return false
    this.#size -= 1
    this.#version += 1
    if (!this.#root.leaf && this.#root.children.length === 1) this.#root = entry(this.#root.children, 0)
    return true
  }

  /** Returns the number of items before the probe (`left`), or before or equal to it (`right`). The probe need not be in the tree. */
  rank(probe: T, side: Side): number {
    const compare = this.#compare
    return side === 'left' ? this.rankBy((item) => compare(item, probe) < 0) : this.rankBy((item) => compare(item, probe) <= 0)
  }

  /** Returns the number of items for which the predicate holds. It must hold for the first items of the tree and for no others. */
  rankBy(holds: (item: T) => boolean): number {
    let node = this.#root
    let rank = 0
    while (!node.leaf) {
      const index = lead(node.firsts, holds) - 1
      if (index < 0) return rank
      for (let before = 0; before < index; before++) rank += entry(node.counts, before)
      node = entry(node.children, index)
    }
    return rank + lead(node.items, holds)
  }

  /** Returns the item at `rank`, counted from 0; undefined if out of range. */
  at(rank: number): T | undefined {
    if (!(rank >= 0 && rank < this.#size)) return undefined
    let node = this.#root
    let index = rank
    while (!node.leaf) {
      let child = 0
      for (let count = entry(node.counts, 0); index >= count; count = entry(node.counts, child)) {
        index -= count
        child += 1
      }
      node = entry(node.children, child)
    }
    return node.items[index]
  }

  /** Returns the items with ranks from `from` (included) to `to` (excluded), in order. Ignores ranks outside the tree. */
  items(from: number, to: number): T[] {
    const found: T[] = []
    itemsInRange(this.#root, { from: Math.max(from, 0), to: Math.min(to, this.#size) }, found)
    return found
  }

  /**
   * Yields the same items as `items`, but one leaf at a time, for ranges too long for an array. Throws if the tree's version changes during the iteration,
   * because items would be missing or repeated.
   */
  slice(from = 0, to = this.#size): Generator<T, void, undefined> {
    return this.#walk(Math.max(from, 0), Math.min(to, this.#size), this.#version)
  }

  *#walk(from: number, to: number, version: number): Generator<T, void, undefined> {
    for (let rank = from; rank < to; rank += leafWidth) {
      this.#assertVersion(version)
      for (const item of this.items(rank, Math.min(rank + leafWidth, to))) {
        yield item
        this.#assertVersion(version)
      }
    }
  }

  #assertVersion(version: number): void {
    if (version !== this.#version) throw new Error('the tree changed during the iteration')
  }

  /** Inserts an item below a node. It makes all comparisons before the first change, so that a comparator that throws leaves the tree unchanged. */
  #insertBelow(node: OrderNode<T>, item: T): boolean {
    if (node.leaf) {
      const index = this.#lowerBound(node.items, item)
      const found = index < node.items.length && this.#compare(entry(node.items, index), item) === 0
      if (found) node.items[index] = item
      else putAt(node.items, index, item)
      return !found
    }
    const index = Math.max(this.#childFor(node, item), 0)
    const child = entry(node.children, index)
    const added = this.#insertBelow(child, item)
    node.firsts[index] = firstOf(child)
    if (!added) return false
    node.counts[index] = entry(node.counts, index) + 1
    if (width(child) > capacity(child)) split(node, index, cutFor(child, item))
    return true
  }

  #deleteBelow(node: OrderNode<T>, probe: T): boolean {
    if (node.leaf) {
      const index = this.#lowerBound(node.items, probe)
      if (index === node.items.length || this.#compare(entry(node.items, index), probe) !== 0) return false
      dropAt(node.items, index)
      return true
    }
    const index = this.#childFor(node, probe)
    if (index < 0) return false
    const child = entry(node.children, index)
    if (!this.#deleteBelow(child, probe)) return false
    node.counts[index] = entry(node.counts, index) - 1
    node.firsts[index] = firstOf(child)
    if (width(child) < leastWidth(child)) mend(node, index)
    return true
  }

  /** Returns the index of the only child that may hold an item equal to the probe; -1 if the probe is before all items. */
  #childFor(branch: OrderBranch<T>, probe: T): number {
    return lead(branch.firsts, (first) => this.#compare(first, probe) <= 0) - 1
  }

  #lowerBound(items: readonly T[], probe: T): number {
    return lead(items, (item) => this.#compare(item, probe) < 0)
  }
}

/** Returns the element at an index. The index is in bounds by the tree's invariants, which the type system cannot express. */
function entry<E>(list: readonly E[], index: number): E {
  return list[index] as E
}

/** Returns the number of elements for which the predicate holds. It must hold for the first elements of the list and for no others. */
function lead<T>(list: readonly T[], holds: (item: T) => boolean): number {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (holds(entry(list, middle))) low = middle + 1
    else high = middle
  }
  return low
}

/** Inserts an element into a list in place. Faster than `splice` for lists as short as those of a node, and allocates nothing. */
function putAt<E>(list: E[], index: number, element: E): void {
  list.push(element)
  for (let to = list.length - 1; to > index; to--) list[to] = entry(list, to - 1)
  list[index] = element
}

function dropAt<E>(list: E[], index: number): void {
  for (let to = index; to < list.length - 1; to++) list[to] = entry(list, to + 1)
  list.pop()
}

/** Appends the items of a subtree from position `from` up to `to` (not included). Positions count from its first item, and must exist. */
function itemsInRange<T>(node: OrderNode<T>, { from, to }: { from: number; to: number }, into: T[]): void {
  if (node.leaf) {
    for (let index = from; index < to; index++) into.push(entry(node.items, index))
    return
  }
  let start = 0
  for (let child = 0; start < to; child++) {
    const end = start + entry(node.counts, child)
    if (from < end) itemsInRange(entry(node.children, child), { from: Math.max(from, start) - start, to: Math.min(to, end) - start }, into)
    start = end
  }
}

function leafOf<T>(items: T[]): OrderLeaf<T> {
  return { leaf: true, items }
}

function branchOver<T>(children: OrderNode<T>[]): OrderBranch<T> {
  return { leaf: false, children, counts: children.map(countBelow), firsts: children.map(firstOf) }
}

function width<T>(node: OrderNode<T>): number {
  return node.leaf ? node.items.length : node.children.length
}

function capacity<T>(node: OrderNode<T>): number {
  return node.leaf ? leafWidth : branchWidth
}

function leastWidth<T>(node: OrderNode<T>): number {
  return capacity(node) / 8
}

function countBelow<T>(node: OrderNode<T>): number {
  return node.leaf ? node.items.length : node.counts.reduce((sum, count) => sum + count, 0)
}

/** Returns the smallest item below a node. Undefined only for the leaf of an empty tree, which is in no branch. */
function firstOf<T>(node: OrderNode<T>): T {
  return entry(node.leaf ? node.items : node.firsts, 0)
}

function lastOf<T>(node: OrderNode<T>): T {
  let last = node
  while (!last.leaf) last = entry(last.children, last.children.length - 1)
  return entry(last.items, last.items.length - 1)
}

/** Returns the index at which to split a node that an insert made too wide. It is the middle, or near an end for inserts in order. */
function cutFor<T>(node: OrderNode<T>, inserted: T): number {
  if (lastOf(node) === inserted) return width(node) - leastWidth(node)
  if (firstOf(node) === inserted) return leastWidth(node)
  return width(node) >>> 1
}

/** Moves all entries of a child except its first `keep` to a new right neighbour. */
function split<T>(parent: OrderBranch<T>, index: number, keep: number): void {
  const child = entry(parent.children, index)
  const right = cut(child, keep)
  const moved = countBelow(right)
  parent.counts[index] = entry(parent.counts, index) - moved
  putAt(parent.children, index + 1, right)
  putAt(parent.counts, index + 1, moved)
  putAt(parent.firsts, index + 1, firstOf(right))
}

function cut<T>(node: OrderNode<T>, keep: number): OrderNode<T> {
  if (node.leaf) return leafOf(node.items.splice(keep))
  return { leaf: false, children: node.children.splice(keep), counts: node.counts.splice(keep), firsts: node.firsts.splice(keep) }
}

/**
 * Merges a child that became too narrow with a neighbour. Splits the result evenly if it is nearly full, so that the next inserts do not split it again. A
 * neighbour always exists, because a branch has at least two children.
 */
function mend<T>(parent: OrderBranch<T>, index: number): void {
  const at = Math.max(index - 1, 0)
  const left = entry(parent.children, at)
  absorb(left, entry(parent.children, at + 1))
  parent.counts[at] = entry(parent.counts, at) + entry(parent.counts, at + 1)
  dropAt(parent.children, at + 1)
  dropAt(parent.counts, at + 1)
  dropAt(parent.firsts, at + 1)
  if (width(left) > (capacity(left) * 3) / 4) split(parent, at, width(left) >>> 1)
}

/** Moves all entries of the right neighbour into `left`. Both nodes have the same height. */
function absorb<T>(left: OrderNode<T>, right: OrderNode<T>): void {
  if (left.leaf && right.leaf) {
    left.items.push(...right.items)
  } else if (!left.leaf && !right.leaf) {
    left.children.push(...right.children)
    left.counts.push(...right.counts)
    left.firsts.push(...right.firsts)
  }
}

function rootOver<T>(nodes: readonly OrderNode<T>[]): OrderNode<T> {
  let level = nodes
  while (level.length > 1) level = portions(level, branchWidth).map((children) => branchOver(children))
  return level[0] ?? leafOf([])
}

/** Splits a list evenly into parts of at most 7/8 of the maximum width, which leaves room for inserts. */
function portions<E>(list: readonly E[], fullWidth: number): E[][] {
  const parts = Math.ceil(list.length / ((fullWidth * 7) / 8))
  return Array.from({ length: parts }, (_, part) => list.slice(Math.floor((part * list.length) / parts), Math.floor(((part + 1) * list.length) / parts)))
}
