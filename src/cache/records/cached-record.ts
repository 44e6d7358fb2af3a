import type { DescMessage, Message } from '@bufbuild/protobuf'
import { fromBinary } from '@bufbuild/protobuf'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { rootParent, Uid } from '../../base/uid.ts'
import { EnvelopeSchema, type Envelope } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { Revision } from '../../store/store.ts'
import type { DecodedEntry, DecodedHolder, DecodedRows } from './decoded-rows.ts'
import { scanEnvelope, type EnvelopeParts } from './envelope-scan.ts'
import type { ScanTarget } from './record-scan.ts'
import { Slab, type RecordBufferPool, type SlabItem } from './record-buffer-pool.ts'

/** What every resource message has (docs/spec/resources.md#common-fields). */
export interface ResourceFields {
  uid: string
  etag: string
  managedBy: string
  createTime?: Timestamp
  updateTime?: Timestamp
}

/** A resource as the schema generates it. */
export type Resource = Message & ResourceFields

/**
 * Where an exact filter's value comes from: a field of the record by its proto name (`of`: it is the uid of a record of that kind; `as`: what the filter makes
 * of the field's text), the texts of several fields, the member of a oneof that is set, the record's uid, or its parent's uid.
 */
export type FilterSource =
  | (ScanTarget & { readonly of?: string; readonly as?: (text: string) => string })
  | { readonly fields: readonly string[]; readonly from: (texts: readonly string[]) => string }
  | { readonly uid: (uid: Uid) => string }
  | { readonly parent: true }

/** What a kind tells the snapshot about its records. */
export interface KindIndex {
  readonly kind: string
  readonly desc: DescMessage
  /** The text field (proto name) that `order_by=name` sorts by and the `name` filter compares; absent where the kind has no names. */
  readonly name?: string
  /** A record's uid is that of the group which it is seen in: groups, and records of which a group has one. All others lie below the group that they are seen in. */
  readonly seenAtUid?: true
  /** Records are found by parent and name too (KindTable.child), which takes a few bytes of memory for each. */
  readonly foundByPath?: true
  /** Exact filters beyond `name` and the parent. */
  readonly filters: Readonly<Record<string, FilterSource>>
  /** Records of these kinds take this one along when they are removed: this record's `filter` value is then the removed uid. */
  readonly removedWith: readonly { readonly kind: string; readonly filter: string }[]
}

/** The name of a decoded record, as its kind's index has it. */
export function nameOf(index: KindIndex, record: Resource): string {
  const field = index.desc.fields.find(({ name }) => name === index.name)
  // The field is a text: compileScan checked it.
  return field === undefined ? '' : ((record as unknown as Record<string, string>)[field.localName] ?? '')
}

/** What the rows of one kind have in common. */
export interface RowHome {
  readonly index: KindIndex
  /** Which rows stay decoded; undefined where all do. */
  readonly decoded: DecodedRows | undefined
  /** Where the rows' bytes are kept; undefined where each keeps what it was made of. */
  readonly slabs: RecordBufferPool | undefined
  /** How each exact filter's value is read from a row, in the order of the kind's filters. */
  readonly filters: readonly FilterReader[]
}

/** Reads an exact filter's value from a row. */
export type FilterReader = (row: CachedRecord) => string | undefined

/** How the values of a kind's exact filters are read from its rows. */
export function filterReaders(index: KindIndex): FilterReader[] {
  let slot = 0
  return Object.values(index.filters).map((source) => ('parent' in source ? (row) => row.parent : readerOfSlot(slot++)))
}

/** Most kinds have two filter values at most: these lie in the row itself, which is one step less for each comparison. */
function readerOfSlot(slot: number): FilterReader {
  if (slot === 0) return (row) => row.value0
  if (slot === 1) return (row) => row.value1
  return (row) => row.values[slot]
}

/** What a row is made of. */
export interface RowFields {
  readonly uid: Uid
  readonly parent: Uid | typeof rootParent
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  readonly revision: Revision
  /** The values of exact filters but those that are the parent. */
  readonly values: readonly (string | undefined)[]
}

/** A decoded record and what readers made of it. */
interface DecodedRecord extends DecodedEntry {
  readonly message: Resource
  derived?: object | undefined
}

const noValues: readonly undefined[] = []
const nowhere = new Slab(Buffer.alloc(0))
/** In place of a row's index in its slab, once it is in no table. */
const released = -2

/**
 * One record as of one commit: immutable; a later commit brings another row. What lists sort and filter by is at hand; the rest is read from the stored
 * bytes when it is asked for.
 */
export class CachedRecord implements SlabItem, DecodedHolder {
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
  /** True once a record that it goes with was removed: readers pass it over until its table has let it out of all orders. Set by the table. */
  isHidden = false
  readonly #home: RowHome
  #slab = nowhere
  #offset = 0
  #index = -1
  #decoded: DecodedRecord | undefined

  /** A row whose stored envelope is `bytes`. */
  constructor(home: RowHome, fields: RowFields, bytes: Uint8Array) {
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
    if (home.slabs === undefined) this.#slab = new Slab(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    else home.slabs.put(this, bytes)
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

  /** Of a tag: the digest that its manifest was pushed by, where it is not that of the record; empty elsewhere. */
  get pushedDigest(): string {
    return this.#parts().pushedDigest
  }

  /** The fields (proto names) that the object which owns the record sets; none where that is not known. Decodes the envelope of an owned record. */
  get ownedFields(): readonly string[] {
    return this.managedBy === '' ? [] : this.envelope.ownedFields
  }

  /**
   * The resource's own message as it is stored: without uid, etag, managed_by and times. No copy: never write to it. It stays as it is for as long as
   * somebody holds it.
   */
  get bytes(): Uint8Array {
    const { recordStart, recordEnd } = this.#parts()
    return this.#slab.buffer.subarray(recordStart, recordEnd)
  }

  /** All that is stored, decoded anew. */
  get envelope(): Envelope {
    return fromBinary(EnvelopeSchema, this.#slab.buffer.subarray(this.#offset, this.#offset + this.length))
  }

  /** The whole resource, decoded when it was not read for a while. Shared by all readers: never change it. */
  get message(): Resource {
    const decoded = this.#decoded
    if (decoded === undefined) return this.#decode()
    decoded.used = true
    return decoded.message
  }

  /** What a reader made of the message and left here; kept for as long as the message stays decoded. */
  get derived(): object | undefined {
    const decoded = this.#decoded
    if (decoded === undefined) return undefined
    decoded.used = true
    return decoded.derived
  }

  set derived(derived: object | undefined) {
    if (this.#decoded !== undefined) this.#decoded.derived = derived
  }

  /** Where the stored envelope lies in its slab. */
  get offset(): number {
    return this.#offset
  }

  get index(): number {
    return this.#index
  }

  place(slab: Slab, offset: number, index: number): void {
    this.#slab = slab
    this.#offset = offset
    this.#index = index
  }

  forget(): void {
    this.#decoded = undefined
  }

  /** Tells, once, that the row is in no table any more: it may be read, but its bytes no longer count as in use, and it does not stay decoded. */
  release(): void {
    const { decoded, slabs } = this.#home
    slabs?.release(this.#slab, this)
    this.#index = released
    if (this.#decoded !== undefined) decoded?.drop(this.#decoded)
    this.#decoded = undefined
  }

  #parts(): EnvelopeParts {
    return scanEnvelope(this.#slab.buffer, this.#offset, this.#offset + this.length)
  }

  #decode(): Resource {
    const { index, decoded } = this.#home
    const { recordStart, recordEnd, etag, managedBy } = this.#parts()
    // Every resource message of the schema has these fields; test/base/schema.test.ts walks it.
    const message = fromBinary(index.desc, this.#slab.buffer.subarray(recordStart, recordEnd)) as Resource
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
