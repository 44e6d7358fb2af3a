import { clearField, clone, create, fromBinary, toBinary, type DescMessage } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { EnvelopeSchema, type Envelope } from '../gen/taproot/store/v1/envelope_pb.ts'
import { assertChecksum, scanEnvelope, withChecksum } from '../cache/records/envelope-scan.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import { takeSecrets } from './secret-fields.ts'
import type { SealedSecrets } from './secrets.ts'

/** Format number of stored envelopes. It increases when the format changes; docs/adr describes how to read older ones. */
const envelopeFormat = 1

/** The facts about a record that its envelope stores. */
export interface EnvelopeFacts {
  readonly etag: string
  readonly createMs: number
  readonly updateMs: number
  readonly managedBy: string
  /** Proto names of the fields that the object in `managedBy` sets. By default, those of the replaced record if it had the same owner. */
  readonly ownedFields?: readonly string[]
  /** For a tag: the digest under which its manifest was pushed, if it differs from the digest in the record. By default, that of the replaced record. */
  readonly pushedDigest?: string
  /** For a tag: the digest for which its life cycle set `deprecated`, or for which a caller cleared it. By default, that of the replaced record. */
  readonly lifeCycleDigest?: string
  /** The encrypted secrets of the record. By default, those of the replaced record. */
  readonly sealed?: SealedSecrets
}

/** Returns a copy of `record` with the fields that `facts` contains, and without secrets. It is the answer to a write. */
export function stamped<R extends Resource>(desc: DescMessage, record: R, facts: EnvelopeFacts): R {
  const message = clone(desc, record) as R
  message.etag = facts.etag
  message.managedBy = facts.managedBy
  message.createTime = timestampFromMs(facts.createMs)
  message.updateTime = timestampFromMs(facts.updateMs)
  takeSecrets(desc, message)
  return message
}

/** Returns a copy of `record` without its uid, its secrets and the fields that its envelope stores. */
export function bareOf(desc: DescMessage, record: Resource): Resource {
  const bare = clone(desc, record) as Resource
  bare.uid = ''
  bare.etag = ''
  bare.managedBy = ''
  for (const field of desc.fields) if (field.localName === 'createTime' || field.localName === 'updateTime') clearField(bare, field)
  takeSecrets(desc, bare)
  return bare
}

/** Returns the envelope that stores `record`. */
export function envelopeOf(desc: DescMessage, record: Resource, facts: EnvelopeFacts): Envelope {
  return create(EnvelopeSchema, {
    format: envelopeFormat,
    record: toBinary(desc, bareOf(desc, record)),
    etag: facts.etag,
    createTimeMs: BigInt(facts.createMs),
    updateTimeMs: BigInt(facts.updateMs),
    managedBy: facts.managedBy,
    sealed: facts.sealed ?? {},
    ownedFields: [...(facts.ownedFields ?? [])],
    pushedDigest: facts.pushedDigest ?? '',
    lifeCycleDigest: facts.lifeCycleDigest ?? '',
  })
}

/** Returns the bytes of an envelope, with their checksum. */
export function envelopeBytes(envelope: Envelope): Uint8Array {
  const { checksum: _checksum, ...bare } = envelope
  return withChecksum(toBinary(EnvelopeSchema, bare))
}

/** Decodes an envelope. Throws WireError if the checksum does not match. */
export function readEnvelope(bytes: Uint8Array): Envelope {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  assertChecksum(buffer, scanEnvelope(buffer, 0, buffer.length), { start: 0, end: buffer.length })
  return fromBinary(EnvelopeSchema, bytes)
}
