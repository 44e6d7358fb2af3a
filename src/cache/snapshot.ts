import { trustedUid, type Uid } from '../base/uid.ts'
import {
  founderPrefix,
  heldNamePrefix,
  managedPrefix,
  parseRecordKey,
  pendingPrefix,
  quotaPrefix,
  releasedNamesPrefix,
  scimPrefix,
  sweepPrefix,
} from '../store/keys.ts'
import type { Change, Entry, Revision } from '../store/store.ts'
import { DecodedRows } from './records/decoded-rows.ts'
import { RecordBufferPool } from './records/record-buffer-pool.ts'
import { RowMaker } from './records/row-maker.ts'
import { filterReaders, type KindIndex, type CachedRecord } from './records/cached-record.ts'
import { Slices, Turns } from './slices.ts'
import { KindTable } from './table.ts'
import { UsageIndex, type Usage } from './usage.ts'

/** Told of every row that came, changed or went; `kind` is the row's. Of rows that are hidden it is told a little later, one by one. */
export type RowListener = (kind: string, old: CachedRecord | undefined, row: CachedRecord | undefined) => void

/** Index keys that readers need besides the records; the others only ever guard transactions. */
export const keptPrefixes = [
  'i/manifests/',
  'i/owners/',
  founderPrefix,
  heldNamePrefix,
  managedPrefix,
  pendingPrefix,
  quotaPrefix,
  releasedNamesPrefix,
  scimPrefix,
  sweepPrefix,
  'meta/',
] as const

/** Told of rows of one kind, in uid order, in the moment in which readers no longer find them. */
export type HideListener = (kind: string, rows: readonly CachedRecord[]) => void

const entriesPerLook = 64
/** Up to so many rows that go with a removed record leave at once; more are hidden first. */
const removedAtOnce = 50
const rowsPerLook = 16

/** Told when something that could not be read was left out. */
export type FaultListener = (fault: { key: string; cause: unknown }) => void

/**
 * The replica's view of the watched keys as of one commit. Changes are applied whole commits at a time and synchronously, so whoever reads
 * without awaiting sees one commit's state. What depends on a removed record is absent from the moment its sweep mark is there (docs/spec/storage.md#deletion-marks). Where
 * that is much, its rows are hidden in that moment, and leave the tables in slices between which other work runs (ADR 0005).
 */
export class Snapshot {
  readonly #tables: ReadonlyMap<string, KindTable>
  readonly #makers: ReadonlyMap<string, RowMaker>
  readonly #kept = new Map<string, Entry>()
  readonly #marks = new Map<string, string>()
  readonly #turns = new Turns()
  readonly #usage = new UsageIndex()
  readonly #listener: RowListener
  readonly #onHide: HideListener
  readonly #fault: FaultListener

  constructor(options: { kinds: readonly KindIndex[]; builtIns: readonly CachedRecord[]; listener: RowListener; onHide: HideListener; fault: FaultListener }) {
    this.#tables = new Map(options.kinds.map((index) => [index.kind, new KindTable(index, this.#turns)]))
    const decoded = new DecodedRows()
    const slabs = new RecordBufferPool()
    const findUid = (uid: string, kind: string | undefined): string | undefined => this.#findUid(uid, kind)
    this.#makers = new Map(options.kinds.map((index) => [index.kind, new RowMaker({ index, decoded, slabs, filters: filterReaders(index) }, findUid)]))
    this.#listener = options.listener
    this.#onHide = options.onHide
    this.#fault = options.fault
    for (const row of options.builtIns) this.table(row.kind).put(row)
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
  get(kind: string, uid: string): CachedRecord | undefined {
    return this.#tables.get(kind)?.get(uid)
  }

  /** What the records of an organisation take as of this commit; undefined where it has none. */
  usageOf(root: Uid): Usage | undefined {
    return this.#usage.of(root)
  }

  /** The kept keys that start with `prefix`, in no order. Costs what all kept keys do. */
  *keysUnder(prefix: string): Generator<string, void> {
    for (const key of this.#kept.keys()) if (key.startsWith(prefix)) yield key
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

  /**
   * Takes a part of what a snapshot is loaded from: all of it as of one commit, kept keys before records, and no key twice. Until `settle` the rows are
   * found by uid only; listeners are not told.
   */
  async stage(entries: readonly Entry[], slices: Slices): Promise<void> {
    for (const [at, entry] of entries.entries()) {
      if (!entry.key.startsWith('r/')) this.apply([{ ...entry }])
      else {
        const { table, row } = this.#read(entry)
        if (row !== undefined) {
          table?.stage(row)
          this.#count(undefined, row)
        }
      }
      if (at % entriesPerLook === 0 && slices.isOver) await slices.pause()
    }
  }

  /** Ends the loading: brings all that was staged in order. */
  async settle(slices: Slices): Promise<void> {
    for (const table of this.#tables.values()) await table.settle(slices)
  }

  #applyRecord(change: Change): void {
    const { table, uid, row } = this.#read(change)
    if (table === undefined) return
    if (row === undefined) this.#drop(table, uid)
    else {
      const old = table.put(row)
      this.#count(old, row)
      this.#listener(table.index.kind, old, row)
    }
  }

  /** The table that the change is in, and the row that comes there; no row where the record goes, can't be read, or goes with one that was removed. */
  #read({ key, value, revision }: Change): { table: KindTable | undefined; uid: string; row: CachedRecord | undefined } {
    const { kind, uid } = parseRecordKey(key)
    const table = this.#tables.get(kind)
    if (table === undefined || value === undefined) return { table, uid, row: undefined }
    const row = this.#make(table.index.kind, { key, uid, bytes: value, revision })
    if (row === undefined || !this.#isOrphan(table, row)) return { table, uid, row }
    row.release()
    return { table, uid, row: undefined }
  }

  #make(kind: string, source: { key: string; uid: string; bytes: Uint8Array; revision: Revision }): CachedRecord | undefined {
    try {
      return this.#makers.get(kind)?.make(source)
    } catch (cause) {
      // One unreadable record must not take the replica down; it is absent, and the log says so.
      this.#fault({ key: source.key, cause })
      return undefined
    }
  }

  #findUid(uid: string, kind: string | undefined): string | undefined {
    if (kind !== undefined) return this.#tables.get(kind)?.get(uid)?.uid
    for (const table of this.#tables.values()) {
      const row = table.get(uid)
      if (row !== undefined) return row.uid
    }
    return undefined
  }

  #drop(table: KindTable, uid: string): void {
    const old = table.remove(uid)
    if (old === undefined) return
    this.#count(old, undefined)
    this.#listener(table.index.kind, old, undefined)
  }

  /** Counts `row` in place of `old`. A hidden row was subtracted when it was hidden. */
  #count(old: CachedRecord | undefined, row: CachedRecord | undefined): void {
    this.#usage.changed(old?.isHidden === true ? undefined : old, row)
  }

  /** True where a record that `row` goes with was removed. */
  #isOrphan(table: KindTable, row: CachedRecord): boolean {
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
        const rows = [...table.matching(rule.filter, uid)]
        if (rows.length <= removedAtOnce) for (const row of rows) this.#drop(table, row.uid)
        else this.#hide(table, rows)
      }
    }
  }

  #hide(table: KindTable, rows: readonly CachedRecord[]): void {
    this.#usage.removed(rows)
    table.hide(rows)
    this.#onHide(table.index.kind, rows)
    void this.#dropInSlices(table, rows)
  }

  async #dropInSlices(table: KindTable, rows: readonly CachedRecord[]): Promise<void> {
    const slices = new Slices(this.#turns)
    await slices.pause()
    for (const [at, row] of rows.entries()) {
      // A later commit may have removed or replaced it.
      if (table.remove(row.uid, row) !== undefined) this.#listener(table.index.kind, row, undefined)
      if (at % rowsPerLook === 0 && slices.isOver) await slices.pause()
    }
  }
}
