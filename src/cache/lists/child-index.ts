import { OrderTree } from './order-tree.ts'
import type { CachedRecord } from '../records/cached-record.ts'
import { sortCooperatively, type CooperativeTask } from '../cooperative-task.ts'

/** Finds records of a table by parent and name. It takes a few bytes of memory per record; a look-up costs O(log n). */
export class ChildIndex {
  #tree = new OrderTree<CachedRecord>(compare)

  /** Adds all records of a table to the empty index. */
  async load(records: readonly CachedRecord[], task: CooperativeTask): Promise<void> {
    this.#tree = OrderTree.ofAscending(await sortCooperatively(records, compare, task), compare)
  }

  /** Adds `record` and removes `old`, if given. */
  put(old: CachedRecord | undefined, record: CachedRecord): void {
    if (old !== undefined && old.name !== record.name) this.#tree.delete(old)
    this.#tree.insert(record)
  }

  remove(record: CachedRecord): void {
    this.#tree.delete(record)
  }

  /** Returns the child of `parent` (`/` for roots) with this name. If there are several, returns the first in uid order. Ignores hidden records. */
  find(parent: string, name: string): CachedRecord | undefined {
    const rank = this.#tree.rankBy((record) => record.parent < parent || (record.parent === parent && record.name < name))
    for (let at = rank; ; at++) {
      const record = this.#tree.at(at)
      if (record?.parent !== parent || record.name !== name) return undefined
      if (!record.isHidden) return record
    }
  }
}

function compare(a: CachedRecord, b: CachedRecord): number {
  return compareTexts(a.parent, b.parent) || compareTexts(a.name, b.name) || compareTexts(a.uid, b.uid)
}

function compareTexts(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1
}
