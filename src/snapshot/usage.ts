import { trustedUid, type Uid } from '../core/uid.ts'
import type { Row } from './row.ts'

/** What the records of one root take. */
export interface Usage {
  /** Records by kind; a kind without records may be absent. */
  readonly records: ReadonlyMap<string, number>
  /** The sizes of their stored envelopes together, in bytes. */
  readonly bytes: number
}

interface Counters extends Usage {
  readonly records: Map<string, number>
  bytes: number
  rows: number
}

const rootLength = 40

/** The organisation that a record counts for; undefined for a person. */
export function countedFor(kind: string, uid: string): Uid | undefined {
  if (uid.length > rootLength) return trustedUid(uid.slice(0, rootLength))
  return kind === 'Identity' ? undefined : trustedUid(uid)
}

/** Counts and sizes of the records of each organisation, kept with every change. Persons have none: a root identity is not counted. */
export class UsageIndex {
  readonly #roots = new Map<string, Counters>()
  /** Siblings come one after another. */
  #last: { readonly root: string; readonly counters: Counters } | undefined

  /** What the organisation's records take; undefined where it has none. Never change it; it changes with the next commit. */
  of(root: string): Usage | undefined {
    return this.#roots.get(root)
  }

  /** Counts a record in place of another one with its uid. */
  changed(old: Row | undefined, row: Row | undefined): void {
    const { uid = '', kind = '' } = row ?? old ?? {}
    const root = countedFor(kind, uid)
    if (root === undefined) return
    const counters = this.#countersOf(root)
    const added = (row === undefined ? 0 : 1) - (old === undefined ? 0 : 1)
    if (added !== 0) counters.records.set(kind, (counters.records.get(kind) ?? 0) + added)
    counters.rows += added
    counters.bytes += (row?.length ?? 0) - (old?.length ?? 0)
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
