import { toBinary } from '@bufbuild/protobuf'
import { rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import { EnvelopeSchema, type Envelope } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { Revision } from '../../store/store.ts'
import { assertChecksum, scanEnvelope } from './envelope-scan.ts'
import { compileScan, type Scan, type ScanTarget } from './record-scan.ts'
import { CachedRecord, filterReaders, type FilterSource, type KindIndex, type KindContext } from './cached-record.ts'

/** A stored record. */
export interface RecordSource {
  readonly uid: string
  /** The envelope. */
  readonly bytes: Uint8Array
  readonly revision: Revision
}

/**
 * Returns the string object that other records already use for the same uid, so that a uid is stored once. `kind` is set if only records of that kind can have it.
 * Undefined if no record has it.
 */
export type FindUid = (uid: string, kind: string | undefined) => string | undefined

/** Returns the index of a target's value among the scanned values. Each field is scanned once, however many targets need it. */
function slotOf(targets: ScanTarget[], target: ScanTarget): number {
  const known = targets.findIndex((other) => 'field' in other && 'field' in target && other.field === target.field)
  return known < 0 ? targets.push(target) - 1 : known
}

type FilterValue = (uid: Uid, scanned: readonly (string | undefined)[]) => string | undefined

/** Maximum number of short filter values, other than uids, that are stored once. */
const maxInterned = 1_000

/** Makes the records of one kind from stored bytes. */
export class RecordFactory {
  readonly #home: KindContext
  readonly #findUid: FindUid
  readonly #scan: Scan
  /** The index of the name among the scanned values; -1 without a name. */
  readonly #nameAt: number
  readonly #filters: readonly FilterValue[]
  readonly #interned = new Map<string, string>()
  #lastParent: string = rootParent

  /** Throws TypeError if the kind's index names fields that its records do not have. */
  constructor(home: KindContext, findUid: FindUid = () => undefined) {
    this.#home = home
    this.#findUid = findUid
    const targets: ScanTarget[] = []
    const { index } = home
    this.#filters = Object.values(index.filters).flatMap((source) => ('parent' in source ? [] : [this.#filterValue(source, targets)]))
    this.#nameAt = index.name === undefined ? -1 : slotOf(targets, { field: index.name })
    this.#scan = compileScan(index.desc, targets)
  }

  /** Returns the cached record. Throws WireError if the bytes are not an envelope of this kind, or their checksum does not match. */
  make(source: RecordSource): CachedRecord {
    const { bytes, revision } = source
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const parts = scanEnvelope(buffer, 0, buffer.length)
    assertChecksum(buffer, parts, { start: 0, end: buffer.length })
    const scanned = this.#scan(buffer, parts.recordStart, parts.recordEnd)
    const uid = trustedUid(flat(source.uid))
    const parent = this.#parentOf(uid)
    const values = this.#filters.map((value) => value(uid, scanned))
    const { createMs, updateMs } = parts
    return new CachedRecord(this.#home, { uid, parent, name: scanned[this.#nameAt] ?? '', createMs, updateMs, revision, values }, buffer)
  }

  #filterValue(source: Exclude<FilterSource, { readonly parent: true }>, targets: ScanTarget[]): FilterValue {
    if ('uid' in source) return (uid) => flat(source.uid(uid))
    if ('fields' in source) {
      const slots = source.fields.map((field) => slotOf(targets, { field }))
      return (_uid, scanned) => this.#intern(source.from(slots.map((slot) => scanned[slot] ?? '')))
    }
    const at = slotOf(targets, source)
    const { of, as } = source
    return (_uid, scanned) => {
      const text = scanned[at]
      const value = text === undefined || as === undefined ? text : as(text)
      if (value === undefined || of === undefined) return value === undefined ? undefined : this.#intern(value)
      return this.#findUid(value, of) ?? value
    }
  }

  /** Stores values such as kinds and families once: they have few values for many records. */
  #intern(value: string): string {
    const known = this.#interned.get(value)
    if (known !== undefined) return known
    if (this.#interned.size < maxInterned) this.#interned.set(value, value)
    return value
  }

  /** Returns the parent's uid, as the same string object as the parent's own record if there is one. */
  #parentOf(uid: string): Uid | typeof rootParent {
    const slash = uid.lastIndexOf('/')
    if (slash < 0) return rootParent
    const last = this.#lastParent
    // Siblings arrive in sequence.
    if (slash === last.length && uid.startsWith(last)) return trustedUid(last)
    const text = uid.slice(0, slash)
    this.#lastParent = this.#findUid(text, undefined) ?? flat(text)
    return trustedUid(this.#lastParent)
  }
}

const scratch = Buffer.alloc(1024)

/** Returns a copy of the text: a substring would keep the whole original in memory. Uids and their parts are ASCII. */
function flat(text: string): string {
  const length = scratch.write(text, 'latin1')
  return length < text.length ? text : scratch.toString('latin1', 0, length)
}

const makers = new WeakMap<KindIndex, RecordFactory>()

/** Creates a record outside any table; it keeps its source bytes. Throws WireError if they are not an envelope of this kind. */
export function recordOfBytes(index: KindIndex, source: RecordSource): CachedRecord {
  let maker = makers.get(index)
  if (maker === undefined) {
    maker = new RecordFactory({ index, decoded: undefined, bufferPool: undefined, filters: filterReaders(index) })
    makers.set(index, maker)
  }
  return maker.make(source)
}

/** Creates the same kind of record from an envelope. */
export function recordOfEnvelope(index: KindIndex, source: { uid: Uid; envelope: Envelope; revision: Revision }): CachedRecord {
  return recordOfBytes(index, { uid: source.uid, bytes: toBinary(EnvelopeSchema, source.envelope), revision: source.revision })
}
