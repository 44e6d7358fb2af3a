import { crc32 } from 'node:zlib'
import { WireError, WireReader, wireType } from './wire-reader.ts'

/** The positions of a stored envelope's parts in a buffer, and the envelope's times in milliseconds since 1970. */
export interface EnvelopeParts {
  recordStart: number
  recordEnd: number
  etag: string
  managedBy: string
  /** For a tag: the digest under which its manifest was pushed, if it differs from the digest in the record. Empty otherwise. */
  pushedDigest: string
  /** For a tag: the digest for which its life cycle set `deprecated`, or for which a caller cleared it. Empty otherwise. */
  lifeCycleDigest: string
  createMs: number
  updateMs: number
  /** The position of the checksum field, including its tag; -1 if there is no checksum. */
  checksumAt: number
}

/** The only envelope format that this version can read. */
const knownFormat = 1

/** Field numbers of taproot.store.v1.Envelope. test/cache/envelope-scan.test.ts compares them with the schema. */
export const envelopeFields = {
  format: 1,
  record: 2,
  etag: 3,
  createTimeMs: 4,
  updateTimeMs: 5,
  managedBy: 6,
  sealed: 7,
  checksum: 8,
  ownedFields: 9,
  pushedDigest: 10,
  lifeCycleDigest: 11,
} as const

const reader = new WireReader()

const typeOf: readonly (number | undefined)[] = [
  undefined,
  wireType.varint,
  wireType.delimited,
  wireType.delimited,
  wireType.varint,
  wireType.varint,
  wireType.delimited,
  wireType.delimited,
  wireType.fixed32,
  wireType.delimited,
  wireType.delimited,
  wireType.delimited,
]

/** Size of the checksum field in bytes: one for its tag and four for the checksum. */
const checksumBytes = 5

/** Finds the parts of the envelope in `buffer` from `start` to `end`. Throws WireError if the bytes are not an envelope or have an unknown format. */
export function scanEnvelope(buffer: Buffer, start: number, end: number): EnvelopeParts {
  const parts: EnvelopeParts = {
    recordStart: start,
    recordEnd: start,
    etag: '',
    managedBy: '',
    pushedDigest: '',
    lifeCycleDigest: '',
    createMs: 0,
    updateMs: 0,
    checksumAt: -1,
  }
  let format = 0
  reader.open(buffer, start, end)
  while (reader.tag()) {
    const { field, type } = reader
    if ((typeOf[field] ?? type) !== type) throw new WireError(`invalid wire type ${type} of envelope field ${field}`)
    switch (field) {
      case envelopeFields.format:
        format = reader.varint()
        break
      case envelopeFields.record:
        parts.recordEnd = reader.delimitedEnd()
        parts.recordStart = reader.position
        reader.position = parts.recordEnd
        break
      case envelopeFields.etag:
        parts.etag = reader.text()
        break
      case envelopeFields.createTimeMs:
        parts.createMs = reader.int64()
        break
      case envelopeFields.updateTimeMs:
        parts.updateMs = reader.int64()
        break
      case envelopeFields.managedBy:
        parts.managedBy = reader.text()
        break
      case envelopeFields.pushedDigest:
        parts.pushedDigest = reader.text()
        break
      case envelopeFields.lifeCycleDigest:
        parts.lifeCycleDigest = reader.text()
        break
      case envelopeFields.checksum:
        parts.checksumAt = reader.position - 1
        reader.skip(type)
        break
      default:
        reader.skip(type)
    }
  }
  if (format !== knownFormat) throw new WireError(`unknown envelope format ${format}`)
  return parts
}

/**
 * Throws WireError if the checksum does not match the bytes between `start` and `end`. It reads every byte, so use it only for bytes that were just read from
 * the store.
 */
export function assertChecksum(buffer: Buffer, parts: EnvelopeParts, { start, end }: { readonly start: number; readonly end: number }): void {
  const { checksumAt } = parts
  if (checksumAt < 0) return
  const isLast = checksumAt === end - checksumBytes
  if (!isLast || buffer.readUInt32LE(checksumAt + 1) !== crc32(buffer.subarray(start, checksumAt)))
    throw new WireError('the checksum does not match the stored bytes')
}

/** Returns the bytes of an envelope with their checksum appended. `bytes` must not contain a checksum yet. */
export function withChecksum(bytes: Uint8Array): Uint8Array {
  const whole = Buffer.allocUnsafeSlow(bytes.length + checksumBytes)
  whole.set(bytes)
  whole.writeUInt8((envelopeFields.checksum << 3) | wireType.fixed32, bytes.length)
  whole.writeUInt32LE(crc32(bytes), bytes.length + 1)
  return whole
}
