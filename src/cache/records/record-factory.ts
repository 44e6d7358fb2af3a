import { toBinary } from '@bufbuild/protobuf'
import { rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import { EnvelopeSchema, type Envelope } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { Revision } from '../../store/store.ts'
import { assertChecksum, scanEnvelope } from './envelope-scan.ts'
import { compileScan, type Scan, type ScanTarget } from './record-scan.ts'
import { CachedRecord, filterReaders, type FilterSource, type KindIndex, type KindContext } from './cached-record.ts'

/** A record as it is stored. */
export interface RecordSource {
  readonly uid: string
  /** The bytes of the stored envelope. */
  readonly bytes: Uint8Array
  readonly revision: Revision
}

/**
 * Returns the string object that another record already uses for the same uid, so that each uid is in memory once. `kind` is set if only records of that kind
 * can have the uid. Undefined if no record has it.
 */
export type FindUid = (uid: string, kind: string | undefined) => string | undefined

/** Returns the index of a target's value among the scanned values. Adds the target if it is new, so each field is scanned once. */
function slotOf(targets: ScanTarget[], target: ScanTarget): number {
  const known = targets.findIndex((other) => 'field' in other && 'field' in target && other.field === target.field)
  return known < 0 ? targets.push(target) - 1 : known
}

type FilterValue = (uid: Uid, scanned: readonly (string | undefined)[]) => string | undefined

/** Maximum number of distinct short filter values, other than uids, that are kept in memory once each. */
const maxInterned = 1_000

/** Creates the CachedRecords of one kind from stored bytes. */
export class RecordFactory {
  readonly #home: KindContext
  readonly #findUid: FindUid
  readonly #scan: Scan
  /** The index of the name among the scanned values; -1 if the kind has no names. */
  readonly #nameAt: number
  readonly #filters: readonly FilterValue[]
  readonly #interned = new Map<string, string>()
  #lastParent: string = rootParent

  /** Throws TypeError if the kind's index names fields that the kind's message does not have. */
  constructor(home: KindContext, findUid: FindUid = () => undefined) {
    this.#home = home
    this.#findUid = findUid
    const targets: ScanTarget[] = []
    const { index } = home
    this.#filters = Object.values(index.filters).flatMap((source) => ('parent' in source ? [] : [this.#filterValue(source, targets)]))
    this.#nameAt = index.name === undefined ? -1 : slotOf(targets, { field: index.name })
    this.#scan = compileScan(index.desc, targets)
  }

  /** Returns the CachedRecord for stored bytes. Throws WireError if they are not an envelope of this kind, or their checksum does not match. */
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

  /** Returns the same string object for equal values. Values such as kinds and families are few, for many records. */
  #intern(value: string): string {
    const known = this.#interned.get(value)
    if (known !== undefined) return known
    if (this.#interned.size < maxInterned) this.#interned.set(value, value)
    return value
  }

  /** Returns the uid of the parent. It is the same string object as in the parent's own record, if that exists. */
  #parentOf(uid: string): Uid | typeof rootParent {
    const slash = uid.lastIndexOf('/')
    if (slash < 0) return rootParent
    const last = this.#lastParent
    // Records with the same parent usually come in sequence.
    if (slash === last.length && uid.startsWith(last)) return trustedUid(last)
    const text = uid.slice(0, slash)
    this.#lastParent = this.#findUid(text, undefined) ?? flat(text)
    return trustedUid(this.#lastParent)
  }
}

const scratch = Buffer.alloc(1024)

/** Returns a copy of the text, because a substring keeps the whole original in memory. Uids and their parts are ASCII. */
function flat(text: string): string {
  const length = scratch.write(text, 'latin1')
  return length < text.length ? text : scratch.toString('latin1', 0, length)
}

const makers = new WeakMap<KindIndex, RecordFactory>()

/** Creates a CachedRecord that is in no table and keeps its own bytes. Throws WireError if they are not an envelope of this kind. */
export function recordOfBytes(index: KindIndex, source: RecordSource): CachedRecord {
  let maker = makers.get(index)
  if (maker === undefined) {
    maker = new RecordFactory({ index, decoded: undefined, bufferPool: undefined, filters: filterReaders(index) })
    makers.set(index, maker)
  }
  return maker.make(source)
}

/** Creates a CachedRecord that is in no table from an envelope. */
export function recordOfEnvelope(index: KindIndex, source: { uid: Uid; envelope: Envelope; revision: Revision }): CachedRecord {
  return recordOfBytes(index, { uid: source.uid, bytes: toBinary(EnvelopeSchema, source.envelope), revision: source.revision })
}
