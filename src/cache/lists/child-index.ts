import { OrderTree } from './order-tree.ts'
import type { CachedRecord } from '../records/cached-record.ts'
import { sortInSlices, type Slices } from '../slices.ts'

/** The rows of a table by parent and name: a few bytes per row. A look-up costs O(log n). */
export class ChildIndex {
  #tree = new OrderTree<CachedRecord>(compare)

  /** Loads the rows of a whole table. */
  async load(rows: readonly CachedRecord[], slices: Slices): Promise<void> {
    this.#tree = OrderTree.ofAscending(await sortInSlices(rows, compare, slices), compare)
  }

  /** Adds `row`, in place of `old` if given. */
  put(old: CachedRecord | undefined, row: CachedRecord): void {
    if (old !== undefined && old.name !== row.name) this.#tree.delete(old)
    this.#tree.insert(row)
  }

  remove(row: CachedRecord): void {
    this.#tree.delete(row)
  }

  /** Returns the row of this name among the children of `parent` (`/` for roots); the first in uid order if there are several. Ignores hidden rows. */
  find(parent: string, name: string): CachedRecord | undefined {
    const rank = this.#tree.rankBy((row) => row.parent < parent || (row.parent === parent && row.name < name))
    for (let at = rank; ; at++) {
      const row = this.#tree.at(at)
      if (row?.parent !== parent || row.name !== name) return undefined
      if (!row.isHidden) return row
    }
  }
}

function compare(a: CachedRecord, b: CachedRecord): number {
  return compareTexts(a.parent, b.parent) || compareTexts(a.name, b.name) || compareTexts(a.uid, b.uid)
}

function compareTexts(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1
}
