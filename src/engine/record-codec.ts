import { clearField, clone, create, fromBinary, toBinary, type DescMessage } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { EnvelopeSchema, type Envelope } from '../gen/taproot/store/v1/envelope_pb.ts'
import { assertChecksum, scanEnvelope, withChecksum } from '../cache/records/envelope-scan.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import { takeSecrets } from './secret-fields.ts'
import type { SealedSecrets } from './secrets.ts'

/** Grows when the form of stored records changes; docs/adr says how older ones are read. */
const envelopeFormat = 1

/** The facts about a record that its envelope keeps. */
export interface EnvelopeFacts {
  readonly etag: string
  readonly createMs: number
  readonly updateMs: number
  readonly managedBy: string
  /** The fields (proto names) that the object in `managedBy` sets. In place of a record with the same owner those that are stored, where absent. */
  readonly ownedFields?: readonly string[]
  /** Of a tag: the digest that its manifest was pushed by, where it is not that of the record. In place of a record the stored one, where absent. */
  readonly pushedDigest?: string
  /** Its secrets. In place of a record those that are stored, where absent. */
  readonly sealed?: SealedSecrets
}

/** `record` with its envelope fields as `facts` say, without secrets: what is answered after a write. */
export function stamped<R extends Resource>(desc: DescMessage, record: R, facts: EnvelopeFacts): R {
  const message = clone(desc, record) as R
  message.etag = facts.etag
  message.managedBy = facts.managedBy
  message.createTime = timestampFromMs(facts.createMs)
  message.updateTime = timestampFromMs(facts.updateMs)
  takeSecrets(desc, message)
  return message
}

/** A copy of `record` without its uid, its secrets and what its envelope keeps. */
export function bareOf(desc: DescMessage, record: Resource): Resource {
  const bare = clone(desc, record) as Resource
  bare.uid = ''
  bare.etag = ''
  bare.managedBy = ''
  for (const field of desc.fields) if (field.localName === 'createTime' || field.localName === 'updateTime') clearField(bare, field)
  takeSecrets(desc, bare)
  return bare
}

/** The envelope that stores `record`: what it keeps itself is left out of the record's bytes. */
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
  })
}

/** The bytes of an envelope, with a checksum of their own. */
export function envelopeBytes(envelope: Envelope): Uint8Array {
  const { checksum: _checksum, ...bare } = envelope
  return withChecksum(toBinary(EnvelopeSchema, bare))
}

/** The envelope in these bytes. Throws WireError where their checksum does not match. */
export function readEnvelope(bytes: Uint8Array): Envelope {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  assertChecksum(buffer, scanEnvelope(buffer, 0, buffer.length), { start: 0, end: buffer.length })
  return fromBinary(EnvelopeSchema, bytes)
}
