import type { DescMessage, Message } from '@bufbuild/protobuf'
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import { fromBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { parentOf, type Uid } from '../core/uid.ts'
import { EnvelopeSchema, type Envelope } from '../gen/taproot/store/v1/envelope_pb.ts'
import type { Revision } from '../store/store.ts'

/** What every resource message has (spec 2.1, architecture 6). */
export interface ResourceFields {
  uid: string
  etag: string
  managedBy: string
  createTime?: Timestamp
  updateTime?: Timestamp
}

/** A resource as the schema generates it. */
export type Resource = Message & ResourceFields

/** What a kind tells the snapshot about its records. */
export interface KindIndex {
  readonly kind: string
  readonly desc: DescMessage
  /** The value that `order_by=name` sorts by and the `name` filter compares. */
  nameOf(record: Resource): string
  /** Exact filters beyond `name` and the parent: field name -> the record's value, or undefined where it has none. */
  readonly filters: Readonly<Record<string, (record: Resource) => string | undefined>>
  /** Records of these kinds take this one along when they are removed: this record's `filter` value is then the removed uid. */
  readonly removedWith: readonly { readonly kind: string; readonly filter: string }[]
}

/** One record as of one commit: immutable; a later commit brings another row. */
export interface Row {
  readonly kind: string
  readonly uid: Uid
  readonly parent: Uid | '/'
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  readonly etag: string
  readonly managedBy: string
  /** The commit that wrote it; 0 for built-in records. */
  readonly revision: Revision
  /** Exact-filter values, in the order of the kind's filters. */
  readonly filterValues: readonly (string | undefined)[]
  readonly envelope: Envelope
  /** The whole resource. Shared by all readers: never change it. */
  readonly message: Resource
}

/** The resource in `envelope`, its envelope fields filled in. */
function decodeResource(desc: DescMessage, uid: Uid, envelope: Envelope): Resource {
  // Every resource message of the schema has these fields; test/core/schema.test.ts walks it.
  const message = fromBinary(desc, envelope.record) as Resource
  message.uid = uid
  message.etag = envelope.etag
  message.managedBy = envelope.managedBy
  message.createTime = timestampFromMs(Number(envelope.createTimeMs))
  message.updateTime = timestampFromMs(Number(envelope.updateTimeMs))
  return message
}

/** A row made of a decoded envelope. */
export function rowOfEnvelope(index: KindIndex, source: { uid: Uid; envelope: Envelope; revision: Revision }): Row {
  const { uid, envelope, revision } = source
  const message = decodeResource(index.desc, uid, envelope)
  return {
    kind: index.kind,
    uid,
    parent: parentOf(uid),
    name: index.nameOf(message),
    createMs: Number(envelope.createTimeMs),
    updateMs: Number(envelope.updateTimeMs),
    etag: envelope.etag,
    managedBy: envelope.managedBy,
    revision,
    filterValues: Object.values(index.filters).map((valueOf) => valueOf(message)),
    envelope,
    message,
  }
}

/** A row made of the stored bytes. Throws where they are no envelope of this kind. */
export function rowOfBytes(index: KindIndex, source: { uid: Uid; bytes: Uint8Array; revision: Revision }): Row {
  return rowOfEnvelope(index, { uid: source.uid, envelope: fromBinary(EnvelopeSchema, source.bytes), revision: source.revision })
}
