import { trustedUid, type Uid } from '../base/uid.ts'
import {
  founderPrefix,
  heldNamePrefix,
  managedPrefix,
  parseRecordKey,
  pausePrefix,
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

/** Receives every row that was added, changed or removed; `kind` is the row's kind. Receives hidden rows a little later, one by one. */
export type RowListener = (kind: string, old: CachedRecord | undefined, row: CachedRecord | undefined) => void

/** Prefixes of index keys that readers need in addition to records; other index keys only guard transactions. */
export const keptPrefixes = [
  'i/manifests/',
  'i/owners/',
  founderPrefix,
  heldNamePrefix,
  managedPrefix,
  pausePrefix,
  pendingPrefix,
  quotaPrefix,
  releasedNamesPrefix,
  scimPrefix,
  sweepPrefix,
  'meta/',
] as const

/** Receives rows of one kind, in uid order, at the moment when readers no longer find them. */
export type HideListener = (kind: string, rows: readonly CachedRecord[]) => void

const entriesPerLook = 64
/** Maximum number of dependent rows that are removed at once with a record; more are hidden first. */
const removedAtOnce = 50
const rowsPerLook = 16

/** Receives each key that was skipped because its value could not be read. */
export type FaultListener = (fault: { key: string; cause: unknown }) => void

/**
 * The replica's view of the watched keys as of one commit. Changes are applied synchronously, in whole commits. So a reader that does not await sees the state
 * of one commit. Dependents of a removed record are absent as soon as its deletion mark exists (docs/spec/storage.md#deletion-marks). If there are many, their
 * rows are hidden at once and leave the tables in slices, between which other work runs (ADR 0005).
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

  /** Returns the records of one kind. Throws TypeError for a kind that is not registered. */
  table(kind: string): KindTable {
    const table = this.#tables.get(kind)
    if (table === undefined) throw new TypeError(`no kind ${kind}`)
    return table
  }

  /** True if the snapshot keeps records of this kind. */
  hasKind(kind: string): boolean {
    return this.#tables.has(kind)
  }

  /** Returns the tables of all kinds, in the order of their registration. */
  kinds(): Iterable<KindTable> {
    return this.#tables.values()
  }

  /** Returns the visible record of `kind` under `uid`, if any: dependents of removed records are hidden. */
  get(kind: string, uid: string): CachedRecord | undefined {
    return this.#tables.get(kind)?.get(uid)
  }

  /** Returns the usage of an organisation's records as of this commit; undefined if it has no records. */
  usageOf(root: Uid): Usage | undefined {
    return this.#usage.of(root)
  }

  /** Yields the kept keys that start with `prefix`, in no order. The cost grows with the number of all kept keys. */
  *keysUnder(prefix: string): Generator<string, void> {
    for (const key of this.#kept.keys()) if (key.startsWith(prefix)) yield key
  }

  /** Returns a kept key's entry. */
  entry(key: string): Entry | undefined {
    return this.#kept.get(key)
  }

  /** Returns the removed records whose dependents are not all removed yet: uid and kind. */
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
   * Adds a part of the data to load: all as of one commit, kept keys before records, and no key twice. Until `settle`, rows are found by uid only, and
   * listeners receive no rows.
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

  /** Ends the loading: sorts all staged rows. */
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

  /** Returns the table of a change and its new row. There is no row if the record is removed, unreadable, or depends on a removed record. */
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
      // One unreadable record must not stop the replica. It is absent, and the log reports it.
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

  /** True if a record that `row` depends on was removed. */
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
