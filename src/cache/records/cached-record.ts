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

/** A resource as the schema generates it. */
export type Resource = Message & ResourceFields

/**
 * The source of an exact filter's value:
 * - A field of the record by its proto name. With `of`, it is the uid of a record of that kind. `as` converts the field's text.
 * - The texts of several fields.
 * - The set member of a oneof.
 * - The record's uid, or its parent's uid.
 */
export type FilterSource =
  | (ScanTarget & { readonly of?: string; readonly as?: (text: string) => string })
  | { readonly fields: readonly string[]; readonly from: (texts: readonly string[]) => string }
  | { readonly uid: (uid: Uid) => string }
  | { readonly parent: true }

/** A kind's description of its records for the snapshot. */
export interface KindIndex {
  readonly kind: string
  readonly desc: DescMessage
  /** The text field (proto name) that `order_by=name` sorts by and the `name` filter compares; absent where the kind has no names. */
  readonly name?: string
  /**
   * True if a record's uid is that of the group that shows it: groups, and kinds with one record per group. All other records lie below the group that shows
   * them.
   */
  readonly seenAtUid?: true
  /** True if records are also found by parent and name (KindTable.child), which takes a few bytes of memory for each. */
  readonly foundByPath?: true
  /** Exact filters beyond `name` and the parent. */
  readonly filters: Readonly<Record<string, FilterSource>>
  /** Kinds whose removal also removes this record: its `filter` value is the removed uid. */
  readonly removedWith: readonly { readonly kind: string; readonly filter: string }[]
}

/** Returns the name of a decoded record, from the name field of its kind's index. */
export function nameOf(index: KindIndex, record: Resource): string {
  const field = index.desc.fields.find(({ name }) => name === index.name)
  // The field is a text: compileScan checked it.
  return field === undefined ? '' : ((record as unknown as Record<string, string>)[field.localName] ?? '')
}

/** What the records of one kind share. */
export interface KindContext {
  readonly index: KindIndex
  /** Selects the records that stay decoded; undefined if all do. */
  readonly decoded: DecodedRecords | undefined
  /** The buffers that hold the records' bytes; undefined if each record keeps its own source bytes. */
  readonly bufferPool: RecordBufferPool | undefined
  /** Readers of the exact filters' values, in the order of the kind's filters. */
  readonly filters: readonly FilterReader[]
}

/** Reads an exact filter's value from a record. */
export type FilterReader = (record: CachedRecord) => string | undefined

/** Returns readers for the values of a kind's exact filters. */
export function filterReaders(index: KindIndex): FilterReader[] {
  let slot = 0
  return Object.values(index.filters).map((source) => ('parent' in source ? (record) => record.parent : readerOfSlot(slot++)))
}

/** Most kinds have at most two filter values. These lie in the record itself, which saves a step in each comparison. */
function readerOfSlot(slot: number): FilterReader {
  if (slot === 0) return (record) => record.value0
  if (slot === 1) return (record) => record.value1
  return (record) => record.values[slot]
}

/** The fields of a new record. */
export interface CachedRecordFields {
  readonly uid: Uid
  readonly parent: Uid | typeof rootParent
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  readonly revision: Revision
  /** The values of exact filters, without those that are the parent. */
  readonly values: readonly (string | undefined)[]
}

/** A decoded record and the values that readers derived from it. */
interface DecodedRecord extends DecodedEntry {
  readonly message: Resource
  derived?: object | undefined
}

const noValues: readonly undefined[] = []
const nowhere = new PooledBuffer(Buffer.alloc(0))
/** Replaces a record's index in its buffer once no table holds the record. */
const released = -2

/**
 * One record as of one commit. Immutable; a later commit creates another record. Sort and filter values are in memory; other values are read from the stored bytes
 * on demand.
 */
export class CachedRecord implements BufferItem, DecodedHolder {
  readonly uid: Uid
  readonly parent: Uid | typeof rootParent
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  /** The commit that wrote it; 0 for built-in records. */
  readonly revision: Revision
  /** Exact-filter values; all of them are in `values` where there are more than two. Read by the filters' readers. */
  readonly value0: string | undefined
  readonly value1: string | undefined
  readonly values: readonly (string | undefined)[]
  /** The size of the stored envelope. */
  readonly length: number
  /** True once a record that this one depends on was removed. Readers skip the record until its table has removed it from all orders. Set by the table. */
  isHidden = false
  readonly #home: KindContext
  #pooled = nowhere
  #offset = 0
  #index = -1
  #decoded: DecodedRecord | undefined

  /** Creates a record whose stored envelope is `bytes`. */
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

  /** For a tag: the digest under which its manifest was pushed, if it differs from the record's; empty otherwise. */
  get pushedDigest(): string {
    return this.#parts().pushedDigest
  }

  /** The fields (proto names) that the object which owns the record sets; empty if unknown. Decodes the envelope of an owned record. */
  get ownedFields(): readonly string[] {
    return this.managedBy === '' ? [] : this.envelope.ownedFields
  }

  /**
   * The stored bytes of the resource's own message, without uid, etag, managed_by and times. Not a copy: never write to it. It does not change while a
   * reference to it exists.
   */
  get bytes(): Uint8Array {
    const { recordStart, recordEnd } = this.#parts()
    return this.#pooled.buffer.subarray(recordStart, recordEnd)
  }

  /** The stored envelope, decoded on each access. */
  get envelope(): Envelope {
    return fromBinary(EnvelopeSchema, this.#pooled.buffer.subarray(this.#offset, this.#offset + this.length))
  }

  /** The whole resource, decoded unless it was read recently. Shared by all readers: never change it. */
  get message(): Resource {
    const decoded = this.#decoded
    if (decoded === undefined) return this.#decode()
    decoded.used = true
    return decoded.message
  }

  /** The value that a reader derived from the message and stored here. Kept while the message stays decoded. */
  get derived(): object | undefined {
    const decoded = this.#decoded
    if (decoded === undefined) return undefined
    decoded.used = true
    return decoded.derived
  }

  set derived(derived: object | undefined) {
    if (this.#decoded !== undefined) this.#decoded.derived = derived
  }

  /** The offset of the stored envelope in its buffer. */
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

  /** Marks the record as in no table; call it once. The record stays readable, but its bytes no longer count as in use, and it does not stay decoded. */
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
    // Every resource message of the schema has these fields; test/base/schema.test.ts walks it.
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
