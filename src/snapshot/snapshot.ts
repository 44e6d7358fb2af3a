import { trustedUid, type Uid } from '../core/uid.ts'
import { parseRecordKey, sweepPrefix } from '../store/keys.ts'
import type { Change, Entry, Revision } from '../store/store.ts'
import { rowOfBytes, type KindIndex, type Row } from './row.ts'
import { KindTable } from './table.ts'

/** Told of every row that came, changed or went; `kind` is the row's. */
export type RowListener = (kind: string, old: Row | undefined, row: Row | undefined) => void

/** Index keys that readers need besides the records; the others only ever guard transactions. */
const keptPrefixes = ['i/owners/', sweepPrefix, 'meta/'] as const

/** Told when something that could not be read was left out. */
export type FaultListener = (fault: { key: string; cause: unknown }) => void

/**
 * The replica's view of the watched keys as of one commit. Changes are applied whole commits at a time and synchronously, so whoever reads
 * without awaiting sees one commit's state. What depends on a removed record is absent from the moment its sweep mark is there (architecture 4).
 */
export class Snapshot {
  readonly #tables: ReadonlyMap<string, KindTable>
  readonly #kept = new Map<string, Entry>()
  readonly #marks = new Map<string, string>()
  readonly #builtIns: readonly Row[]
  readonly #listener: RowListener
  readonly #fault: FaultListener

  constructor(options: { kinds: readonly KindIndex[]; builtIns: readonly Row[]; listener: RowListener; fault: FaultListener }) {
    this.#tables = new Map(options.kinds.map((index) => [index.kind, new KindTable(index)]))
    this.#builtIns = options.builtIns
    this.#listener = options.listener
    this.#fault = options.fault
    for (const row of this.#builtIns) this.table(row.kind).put(row)
  }

  /** The records of one kind. Throws TypeError for a kind that is not registered. */
  table(kind: string): KindTable {
    const table = this.#tables.get(kind)
    if (table === undefined) throw new TypeError(`no kind ${kind}`)
    return table
  }

  /** True where records of this kind are kept. */
  hasKind(kind: string): boolean {
    return this.#tables.has(kind)
  }

  /** The kinds that are kept, in the order of their registration. */
  kinds(): Iterable<KindTable> {
    return this.#tables.values()
  }

  /** The record of `kind` under `uid`, if there is one that is not about to be swept. */
  get(kind: string, uid: string): Row | undefined {
    return this.#tables.get(kind)?.get(uid)
  }

  /** A kept key's entry. */
  entry(key: string): Entry | undefined {
    return this.#kept.get(key)
  }

  /** The removed records whose dependents are still to be swept: uid and kind. */
  sweeps(): { uid: Uid; kind: string }[] {
    return [...this.#marks].map(([uid, kind]) => ({ uid: trustedUid(uid), kind }))
  }

  /** Applies whole commits. */
  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.key.startsWith('r/')) this.#applyRecord(change)
      else if (keptPrefixes.some((prefix) => change.key.startsWith(prefix))) this.#applyKept(change)
    }
  }

  #applyRecord(change: Change): void {
    const { kind, uid } = parseRecordKey(change.key)
    const table = this.#tables.get(kind)
    if (table === undefined) return
    const row =
      change.value === undefined
        ? undefined
        : this.#decode(table.index, { key: change.key, uid: trustedUid(uid), bytes: change.value, revision: change.revision })
    if (row === undefined || this.#isOrphan(table, row)) this.#drop(table, uid)
    else this.#listener(kind, table.put(row), row)
  }

  #decode(index: KindIndex, source: { key: string; uid: Uid; bytes: Uint8Array; revision: Revision }): Row | undefined {
    try {
      return rowOfBytes(index, source)
    } catch (cause) {
      // One unreadable record must not take the replica down; it is absent, and the log says so.
      this.#fault({ key: source.key, cause })
      return undefined
    }
  }

  #drop(table: KindTable, uid: string): void {
    const old = table.remove(uid)
    if (old !== undefined) this.#listener(table.index.kind, old, undefined)
  }

  /** True where a record that `row` goes with was removed. */
  #isOrphan(table: KindTable, row: Row): boolean {
    if (this.#marks.size === 0) return false
    return table.index.removedWith.some(({ kind, filter }) => {
      const owner = table.valueOf(row, filter)
      return owner !== undefined && this.#marks.get(owner) === kind
    })
  }

  #applyKept(change: Change): void {
    if (change.value === undefined) this.#kept.delete(change.key)
    else this.#kept.set(change.key, { key: change.key, value: change.value, revision: change.revision })
    if (!change.key.startsWith(sweepPrefix)) return
    const uid = change.key.slice(sweepPrefix.length)
    if (change.value === undefined) {
      this.#marks.delete(uid)
      return
    }
    const kind = Buffer.from(change.value).toString('utf8')
    this.#marks.set(uid, kind)
    for (const table of this.#tables.values()) {
      for (const rule of table.index.removedWith) {
        if (rule.kind !== kind) continue
        for (const row of [...table.matching(rule.filter, uid)]) this.#drop(table, row.uid)
      }
    }
  }
}
