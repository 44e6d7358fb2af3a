import type { DescMessage, Message } from '@bufbuild/protobuf'
import { fromBinary } from '@bufbuild/protobuf'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { rootParent, Uid } from '../../base/uid.ts'
import { EnvelopeSchema, type Envelope } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { Revision } from '../../store/store.ts'
import type { DecodedEntry, DecodedHolder, DecodedRecords } from './decoded-records.ts'
import { scanEnvelope, type EnvelopeParts } from './envelope-scan.ts'
import type { ScanTarget } from './record-scan.ts'
import { PooledBuffer, type RecordBufferPool, type BufferItem } from './record-buffer-pool.ts'

/** The fields that every resource message has (docs/spec/resources.md#common-fields). */
export interface ResourceFields {
  uid: string
  etag: string
  managedBy: string
  createTime?: Timestamp | undefined
  updateTime?: Timestamp | undefined
}

/** A resource message of the schema. */
export type Resource = Message & ResourceFields

/**
 * Where the value of an exact filter comes from:
 * - the field of the record with this proto name. With `of`, the value is the uid of a record of that kind. `as` converts the field's text
 * - the texts of several fields
 * - the name of the member of a oneof that is set
 * - the uid of the record, or of its parent
 */
export type FilterSource =
  | (ScanTarget & { readonly of?: string; readonly as?: (text: string) => string })
  | { readonly fields: readonly string[]; readonly from: (texts: readonly string[]) => string }
  | { readonly uid: (uid: Uid) => string }
  | { readonly parent: true }

/** How the records of one kind are indexed in the snapshot. */
export interface KindIndex {
  readonly kind: string
  readonly desc: DescMessage
  /** Proto name of the text field that `order_by=name` sorts by and the filter `name` compares. Absent if the kind has no names. */
  readonly name?: string
  /** True if a record belongs to the group with the record's own uid: groups, and kinds with one record per group. All other records lie below their group. */
  readonly seenAtUid?: true
  /** True if records can also be found by parent and name (KindTable.child). That takes a few bytes of memory for each record. */
  readonly foundByPath?: true
  /** True if the table counts changes by parent (KindTable.changeOf). That takes memory for each parent with a change. */
  readonly countsChanges?: true
  /** Exact filters, by name, in addition to `name` and `parent`. */
  readonly filters: Readonly<Record<string, FilterSource>>
  /** The kinds on whose records this kind's records depend. A record is removed together with the record whose uid is the value of `filter`. */
  readonly removedWith: readonly { readonly kind: string; readonly filter: string }[]
}

/** Returns the name of a decoded record; empty if the kind has no names. */
export function nameOf(index: KindIndex, record: Resource): string {
  const field = index.desc.fields.find(({ name }) => name === index.name)
  // The name field is a text: compileScan checked that.
  return field === undefined ? '' : ((record as unknown as Record<string, string>)[field.localName] ?? '')
}

/** Data and helpers that all records of one kind share. */
export interface KindContext {
  readonly index: KindIndex
  /** Decides which records stay decoded; undefined if all do. */
  readonly decoded: DecodedRecords | undefined
  /** Buffers in which the bytes of the records are stored. If undefined, each record keeps its own bytes. */
  readonly bufferPool: RecordBufferPool | undefined
  /** Functions that read the values of the exact filters, in the order of the kind's filters. */
  readonly filters: readonly FilterReader[]
}

/** Reads the value of an exact filter from a record. */
export type FilterReader = (record: CachedRecord) => string | undefined

/** Returns functions that read the values of a kind's exact filters. */
export function filterReaders(index: KindIndex): FilterReader[] {
  let slot = 0
  return Object.values(index.filters).map((source) => ('parent' in source ? (record) => record.parent : readerOfSlot(slot++)))
}

/**
 * Returns the reader of the filter value at an index. Most kinds have at most two values; these are fields of the record itself, which makes comparisons
 * faster.
 */
function readerOfSlot(slot: number): FilterReader {
  if (slot === 0) return (record) => record.value0
  if (slot === 1) return (record) => record.value1
  return (record) => record.values[slot]
}

/** The values of a new CachedRecord. */
export interface CachedRecordFields {
  readonly uid: Uid
  readonly parent: Uid | typeof rootParent
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  readonly revision: Revision
  /** The values of exact filters, in their order, without those that are the parent's uid. */
  readonly values: readonly (string | undefined)[]
}

/** A decoded record, with a value that a reader derived from it. */
interface DecodedRecord extends DecodedEntry {
  readonly message: Resource
  derived?: object | undefined
}

const noValues: readonly undefined[] = []
const nowhere = new PooledBuffer(Buffer.alloc(0))
/** The value of a record's index in its buffer after the record was released. */
const released = -2

/**
 * One record as of one commit. It never changes; a later commit creates another CachedRecord. Values for sorting and filters are in memory; all others are
 * decoded from the stored bytes when needed.
 */
export class CachedRecord implements BufferItem, DecodedHolder {
  readonly uid: Uid
  readonly parent: Uid | typeof rootParent
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  /** The revision of the commit that wrote the record; 0 for built-in records. */
  readonly revision: Revision
  /** The first two exact-filter values. If the kind has more, `values` contains all of them. */
  readonly value0: string | undefined
  readonly value1: string | undefined
  readonly values: readonly (string | undefined)[]
  /** Size in bytes of the stored envelope. */
  readonly length: number
  /** True once a record on which this one depends was removed. Readers ignore the record until its table has removed it. Only the table sets it. */
  isHidden = false
  readonly #home: KindContext
  #pooled = nowhere
  #offset = 0
  #index = -1
  #decoded: DecodedRecord | undefined

  /** Creates a record. `bytes` is its stored envelope. */
  constructor(home: KindContext, fields: CachedRecordFields, bytes: Uint8Array) {
    this.uid = fields.uid
    this.parent = fields.parent
    this.name = fields.name
    this.createMs = fields.createMs
    this.updateMs = fields.updateMs
    this.revision = fields.revision
    this.value0 = fields.values[0]
    this.value1 = fields.values[1]
    this.values = fields.values.length > 2 ? fields.values : noValues
    this.length = bytes.length
    this.#home = home
    if (home.bufferPool === undefined) this.#pooled = new PooledBuffer(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    else home.bufferPool.put(this, bytes)
  }

  get kind(): string {
    return this.#home.index.kind
  }

  /** Exact-filter values, in the order of the kind's filters. */
  get filterValues(): readonly (string | undefined)[] {
    return this.#home.filters.map((read) => read(this))
  }

  get etag(): string {
    return this.#parts().etag
  }

  get managedBy(): string {
    return this.#parts().managedBy
  }

  /** For a tag: the digest under which its manifest was pushed, if it differs from the digest in the record. Empty otherwise. */
  get pushedDigest(): string {
    return this.#parts().pushedDigest
  }

  /** For a tag: the digest for which its life cycle set `deprecated`, or for which a caller cleared it. Empty otherwise. */
  get lifeCycleDigest(): string {
    return this.#parts().lifeCycleDigest
  }

  /** Proto names of the fields that the Kubernetes object owning the record sets; empty if unknown. Decodes the envelope. */
  get ownedFields(): readonly string[] {
    return this.managedBy === '' ? [] : this.envelope.ownedFields
  }

  /**
   * The stored bytes of the resource's message, without uid, etag, managed_by and times. They are a view, not a copy: never write to them. They stay unchanged
   * while a reference to them exists.
   */
  get bytes(): Uint8Array {
    const { recordStart, recordEnd } = this.#parts()
    return this.#pooled.buffer.subarray(recordStart, recordEnd)
  }

  /** The stored envelope. It is decoded on each access. */
  get envelope(): Envelope {
    return fromBinary(EnvelopeSchema, this.#pooled.buffer.subarray(this.#offset, this.#offset + this.length))
  }

  /** The whole resource. It is decoded unless that happened recently. All readers share it: never change it. */
  get message(): Resource {
    const decoded = this.#decoded
    if (decoded === undefined) return this.#decode()
    decoded.used = true
    return decoded.message
  }

  /** A value that a reader derived from the message and stored here. It is kept as long as the message stays decoded. */
  get derived(): object | undefined {
    const decoded = this.#decoded
    if (decoded === undefined) return undefined
    decoded.used = true
    return decoded.derived
  }

  set derived(derived: object | undefined) {
    if (this.#decoded !== undefined) this.#decoded.derived = derived
  }

  /** The offset of the stored envelope in the buffer. */
  get offset(): number {
    return this.#offset
  }

  get index(): number {
    return this.#index
  }

  place(pooled: PooledBuffer, offset: number, index: number): void {
    this.#pooled = pooled
    this.#offset = offset
    this.#index = index
  }

  forget(): void {
    this.#decoded = undefined
  }

  /**
   * Reports that no table contains the record any more; call it once. The record stays readable, but its bytes no longer count as used, and it does not stay
   * decoded.
   */
  release(): void {
    const { decoded, bufferPool } = this.#home
    bufferPool?.release(this.#pooled, this)
    this.#index = released
    if (this.#decoded !== undefined) decoded?.drop(this.#decoded)
    this.#decoded = undefined
  }

  #parts(): EnvelopeParts {
    return scanEnvelope(this.#pooled.buffer, this.#offset, this.#offset + this.length)
  }

  #decode(): Resource {
    const { index, decoded } = this.#home
    const { recordStart, recordEnd, etag, managedBy } = this.#parts()
    // Every resource message of the schema has these fields, as test/base/schema.test.ts checks.
    const message = fromBinary(index.desc, this.#pooled.buffer.subarray(recordStart, recordEnd)) as Resource
    message.uid = this.uid
    message.etag = etag
    message.managedBy = managedBy
    message.createTime = timestampFromMs(this.createMs)
    message.updateTime = timestampFromMs(this.updateMs)
    if (this.#index === released) return message
    this.#decoded = { message, holder: this, bytes: this.length, used: false, at: -1, derived: undefined }
    decoded?.keep(this.#decoded)
    return message
  }
}
