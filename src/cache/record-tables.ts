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
  cascadePrefix,
} from '../store/keys.ts'
import type { Change, Entry, Revision } from '../store/store.ts'
import { DecodedRecords } from './records/decoded-records.ts'
import { RecordBufferPool } from './records/record-buffer-pool.ts'
import { RecordFactory } from './records/record-factory.ts'
import { filterReaders, type KindIndex, type CachedRecord } from './records/cached-record.ts'
import type { RecordOf } from './records/record-types.ts'
import { CooperativeTask, CooperativeScheduler } from './cooperative-task.ts'
import { KindTable } from './table.ts'
import { UsageIndex, type Usage } from './usage.ts'

/** Called for every record that was added, changed or removed, with its kind. For hidden records it is called later, when they leave their table. */
export type RecordListener = (kind: string, old: CachedRecord | undefined, record: CachedRecord | undefined) => void

/** Prefixes of index keys whose entries are kept in memory, because readers need them. All other index keys only serve as guards of transactions. */
export const keptPrefixes = [
  'i/manifests/',
  'i/indexes/',
  'i/referrers/',
  'i/owners/',
  founderPrefix,
  heldNamePrefix,
  managedPrefix,
  pausePrefix,
  pendingPrefix,
  quotaPrefix,
  releasedNamesPrefix,
  scimPrefix,
  cascadePrefix,
  'meta/',
] as const

/** Called with records of one kind, in uid order, when readers can no longer find them. */
export type HideListener = (kind: string, records: readonly CachedRecord[]) => void

const entriesPerLook = 64
/** Maximum number of dependent records that are removed at once with a record. If there are more, they are hidden first. */
const removedAtOnce = 50
const recordsPerCheck = 16

/** Called for each key that was skipped because its value could not be read. */
export type UnreadableListener = (failure: { key: string; cause: unknown }) => void

/**
 * The records and kept index keys of the store as of one commit. Commits are applied as a whole without a wait, so code that does not await sees the state of
 * one commit. Dependents of a removed record are absent as soon as its deletion mark exists (docs/spec/storage.md#deletion-marks). If there are many, they are
 * hidden at once and then removed from the tables in slices (ADR 0005).
 */
export class RecordTables {
  readonly #tables: ReadonlyMap<string, KindTable>
  /** The tables that count changes. */
  readonly #counting: readonly KindTable[]
  readonly #makers: ReadonlyMap<string, RecordFactory>
  readonly #kept = new Map<string, Entry>()
  readonly #marks = new Map<string, string>()
  readonly #scheduler = new CooperativeScheduler()
  readonly #usage = new UsageIndex()
  readonly #listener: RecordListener
  readonly #onHide: HideListener
  readonly #onUnreadable: UnreadableListener

  constructor(options: {
    kinds: readonly KindIndex[]
    builtIns: readonly CachedRecord[]
    listener: RecordListener
    onHide: HideListener
    onUnreadable: UnreadableListener
  }) {
    this.#tables = new Map(options.kinds.map((index) => [index.kind, new KindTable(index, this.#scheduler)]))
    this.#counting = [...this.#tables.values()].filter(({ index }) => index.countsChanges === true)
    const decoded = new DecodedRecords()
    const bufferPool = new RecordBufferPool()
    const findUid = (uid: string, kind: string | undefined): string | undefined => this.#findUid(uid, kind)
    this.#makers = new Map(
      options.kinds.map((index) => [index.kind, new RecordFactory({ index, decoded, bufferPool, filters: filterReaders(index) }, findUid)]),
    )
    this.#listener = options.listener
    this.#onHide = options.onHide
    this.#onUnreadable = options.onUnreadable
    for (const record of options.builtIns) this.table(record.kind).put(record)
  }

  /** Returns the table of one kind's records. Throws TypeError for a kind that is not registered. */
  table(kind: string): KindTable {
    const table = this.#tables.get(kind)
    if (table === undefined) throw new TypeError(`unknown kind ${kind}`)
    return table
  }

  /** True if the snapshot keeps records of this kind. */
  hasKind(kind: string): boolean {
    return this.#tables.has(kind)
  }

  /** Returns the tables of all kinds in the order of registration. */
  kinds(): Iterable<KindTable> {
    return this.#tables.values()
  }

  /** Returns the record of `kind` under `uid`; undefined if it does not exist or is hidden because a record on which it depends was removed. */
  get<Kind extends string>(kind: Kind, uid: string): RecordOf<Kind> | undefined {
    return this.#tables.get(kind)?.get(uid) as RecordOf<Kind> | undefined // a cast: a table holds records of its kind
  }

  /** Returns the usage of an organisation's records as of this commit; undefined if it has no records. */
  usageOf(root: Uid): Usage | undefined {
    return this.#usage.of(root)
  }

  /** Yields the kept keys that start with `prefix`, in no particular order. It costs a pass over all kept keys. */
  *keysUnder(prefix: string): Generator<string, void> {
    for (const key of this.#kept.keys()) if (key.startsWith(prefix)) yield key
  }

  /** Returns the entry of an index key that is kept in memory. */
  entry(key: string): Entry | undefined {
    return this.#kept.get(key)
  }

  /** Returns uid and kind of each removed record of which not all dependents are removed yet. */
  cascades(): { uid: Uid; kind: string }[] {
    return [...this.#marks].map(([uid, kind]) => ({ uid: trustedUid(uid), kind }))
  }

  /** Applies the changes of whole commits to the tables, and calls the listeners. */
  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.key.startsWith('r/')) this.#applyRecord(change)
      else if (keptPrefixes.some((prefix) => change.key.startsWith(prefix))) this.#applyKept(change)
    }
  }

  /**
   * Adds a page of entries while a snapshot is loaded. All pages are as of one commit, kept keys come before records, and no key comes twice. Until `settle`,
   * records are found by uid only, and no listeners are called.
   */
  async stage(entries: readonly Entry[], task: CooperativeTask): Promise<void> {
    for (const [at, entry] of entries.entries()) {
      if (!entry.key.startsWith('r/')) this.apply([{ ...entry }])
      else {
        const { table, record } = this.#read(entry)
        if (record !== undefined) {
          table?.stage(record)
          this.#count(undefined, record)
        }
      }
      if (at % entriesPerLook === 0 && task.shouldYield) await task.pause()
    }
  }

  /** Ends the loading: sorts all records that were added with `stage`. */
  async settle(task: CooperativeTask): Promise<void> {
    for (const table of this.#tables.values()) await table.settle(task)
  }

  #applyRecord(change: Change): void {
    const { table, uid, record } = this.#read(change)
    if (table === undefined) return
    if (record === undefined) this.#drop(table, uid)
    else {
      const old = table.put(record)
      this.#count(old, record)
      this.#listener(table.index.kind, old, record)
    }
  }

  /** Returns the table of a change, and the new record in it. There is no record if it was removed, cannot be read, or depends on a removed record. */
  #read({ key, value, revision }: Change): { table: KindTable | undefined; uid: string; record: CachedRecord | undefined } {
    const { kind, uid } = parseRecordKey(key)
    const table = this.#tables.get(kind)
    if (table === undefined || value === undefined) return { table, uid, record: undefined }
    const record = this.#make(table.index.kind, { key, uid, bytes: value, revision })
    if (record === undefined || !this.#isOrphan(table, record)) return { table, uid, record }
    record.release()
    return { table, uid, record: undefined }
  }

  #make(kind: string, source: { key: string; uid: string; bytes: Uint8Array; revision: Revision }): CachedRecord | undefined {
    try {
      return this.#makers.get(kind)?.make(source)
    } catch (cause) {
      // One unreadable record must not stop the cache. It counts as absent, and the listener reports it.
      this.#onUnreadable({ key: source.key, cause })
      return undefined
    }
  }

  #findUid(uid: string, kind: string | undefined): string | undefined {
    if (kind !== undefined) return this.#tables.get(kind)?.get(uid)?.uid
    for (const table of this.#tables.values()) {
      const record = table.get(uid)
      if (record !== undefined) return record.uid
    }
    return undefined
  }

  #drop(table: KindTable, uid: string): void {
    const old = table.remove(uid)
    if (old === undefined) return
    this.#count(old, undefined)
    this.#forgetChanges(uid)
    this.#listener(table.index.kind, old, undefined)
  }

  /** Forgets how often records below a deleted one changed: the memory must not grow with each record that ever was. */
  #forgetChanges(uid: string): void {
    for (const table of this.#counting) table.forgetChanges(uid)
  }

  /** Updates the usage for a record that replaces `old`. A hidden record was already subtracted when it was hidden. */
  #count(old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    this.#usage.changed(old?.isHidden === true ? undefined : old, record)
  }

  /** True if a record on which `record` depends was removed. */
  #isOrphan(table: KindTable, record: CachedRecord): boolean {
    if (this.#marks.size === 0) return false
    return table.index.removedWith.some(({ kind, filter }) => {
      const owner = table.valueOf(record, filter)
      return owner !== undefined && this.#marks.get(owner) === kind
    })
  }

  #applyKept(change: Change): void {
    if (change.value === undefined) this.#kept.delete(change.key)
    else this.#kept.set(change.key, { key: change.key, value: change.value, revision: change.revision })
    if (!change.key.startsWith(cascadePrefix)) return
    const uid = change.key.slice(cascadePrefix.length)
    if (change.value === undefined) {
      this.#marks.delete(uid)
      this.#forgetChanges(uid)
      return
    }
    const kind = Buffer.from(change.value).toString('utf8')
    this.#marks.set(uid, kind)
    for (const table of this.#tables.values()) {
      for (const rule of table.index.removedWith) {
        if (rule.kind !== kind) continue
        const records = [...table.matching(rule.filter, uid)]
        if (records.length <= removedAtOnce) for (const record of records) this.#drop(table, record.uid)
        else this.#hide(table, records)
      }
    }
  }

  #hide(table: KindTable, records: readonly CachedRecord[]): void {
    this.#usage.removed(records)
    table.hide(records)
    this.#onHide(table.index.kind, records)
    void this.#dropCooperatively(table, records)
  }

  async #dropCooperatively(table: KindTable, records: readonly CachedRecord[]): Promise<void> {
    const task = new CooperativeTask(this.#scheduler)
    await task.pause()
    for (const [at, record] of records.entries()) {
      // A later commit may have removed or replaced the record.
      if (table.remove(record.uid, record) !== undefined) this.#listener(table.index.kind, record, undefined)
      if (at % recordsPerCheck === 0 && task.shouldYield) await task.pause()
    }
  }
}
