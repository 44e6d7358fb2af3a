import { trustedUid, type Uid } from '../base/uid.ts'
import type { CachedRecord } from './records/cached-record.ts'

/** The usage of one root's records. */
export interface Usage {
  /** Records by kind; a kind without records may be absent. */
  readonly records: ReadonlyMap<string, number>
  /** The total size of their stored envelopes, in bytes. */
  readonly bytes: number
}

interface Counters extends Usage {
  readonly records: Map<string, number>
  bytes: number
  rows: number
}

const rootLength = 40

/** Returns the organisation to which a record counts; undefined for a person. */
export function countedFor(kind: string, uid: string): Uid | undefined {
  if (uid.length > rootLength) return trustedUid(uid.slice(0, rootLength))
  return kind === 'Identity' ? undefined : trustedUid(uid)
}

/** Counts and sizes of the records of each organisation, updated with every change. Persons have no usage: a root identity is not counted. */
export class UsageIndex {
  readonly #roots = new Map<string, Counters>()
  /** Cached because siblings arrive in sequence. */
  #last: { readonly root: string; readonly counters: Counters } | undefined

  /** Returns the usage of the organisation's records; undefined if it has none. Read-only; it changes with the next commit. */
  of(root: string): Usage | undefined {
    return this.#roots.get(root)
  }

  /** Replaces a record in the count with another one of the same uid; either or both may be absent. */
  changed(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    const either = record ?? old
    if (either === undefined) return
    const { uid, kind } = either
    const root = countedFor(kind, uid)
    if (root === undefined) return
    const records = (record === undefined ? 0 : 1) - (old === undefined ? 0 : 1)
    this.#add({ root, kind, records, bytes: (record?.length ?? 0) - (old?.length ?? 0) })
  }

  /** Subtracts records of one kind in uid order. Costs a fraction of one call for each. */
  removed(records: readonly CachedRecord[]): void {
    for (let at = 0; at < records.length;) {
      const { uid = '', kind = '' } = records[at] ?? {}
      const root = countedFor(kind, uid)
      const run = { from: at, bytes: 0 }
      // Records of one organisation are adjacent.
      do run.bytes += records[at++]?.length ?? 0
      while (root !== undefined && records[at]?.uid.startsWith(root) === true)
      if (root !== undefined) this.#add({ root, kind, records: run.from - at, bytes: -run.bytes })
    }
  }

  #add({ root, kind, records, bytes }: { root: Uid; kind: string; records: number; bytes: number }): void {
    const counters = this.#countersOf(root)
    if (records !== 0) counters.records.set(kind, (counters.records.get(kind) ?? 0) + records)
    counters.rows += records
    counters.bytes += bytes
    if (counters.rows > 0) return
    this.#roots.delete(root)
    this.#last = undefined
  }

  #countersOf(root: string): Counters {
    if (this.#last?.root === root) return this.#last.counters
    let counters = this.#roots.get(root)
    if (counters === undefined) {
      counters = { records: new Map(), bytes: 0, rows: 0 }
      this.#roots.set(root, counters)
    }
    this.#last = { root, counters }
    return counters
  }
}
