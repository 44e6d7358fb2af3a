import { trustedUid, type Uid } from '../base/uid.ts'
import type { CachedRecord } from './records/cached-record.ts'

/** The number and size of the records of one organisation. */
export interface Usage {
  /** Number of records by kind. A kind without records may be absent. */
  readonly records: ReadonlyMap<string, number>
  /** Total size of the stored envelopes in bytes. */
  readonly bytes: number
}

interface Counters extends Usage {
  readonly records: Map<string, number>
  bytes: number
  rows: number
}

const rootLength = 40

/** Returns the organisation whose usage includes the record; undefined for a person's record. */
export function countedFor(kind: string, uid: string): Uid | undefined {
  if (uid.length > rootLength) return trustedUid(uid.slice(0, rootLength))
  return kind === 'Identity' ? undefined : trustedUid(uid)
}

/** The number and size of each organisation's records, updated with every change. Records of persons are not counted. */
export class UsageIndex {
  readonly #roots = new Map<string, Counters>()
  /** The counters used last. Records of one organisation usually come in sequence. */
  #last: { readonly root: string; readonly counters: Counters } | undefined

  /** Returns the usage of an organisation's records; undefined if it has none. Never change the result. It changes with the next commit. */
  of(root: string): Usage | undefined {
    return this.#roots.get(root)
  }

  /** Counts `record` instead of `old`, which has the same uid. Either or both may be absent. */
  changed(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    const either = record ?? old
    if (either === undefined) return
    const { uid, kind } = either
    const root = countedFor(kind, uid)
    if (root === undefined) return
    const records = (record === undefined ? 0 : 1) - (old === undefined ? 0 : 1)
    this.#add({ root, kind, records, bytes: (record?.length ?? 0) - (old?.length ?? 0) })
  }

  /** Subtracts records of one kind, given in uid order. It costs a fraction of separate calls. */
  removed(records: readonly CachedRecord[]): void {
    for (let at = 0; at < records.length;) {
      const { uid = '', kind = '' } = records[at] ?? {}
      const root = countedFor(kind, uid)
      const run = { from: at, bytes: 0 }
      // Records of one organisation are next to each other.
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
