import { crc32 } from 'node:zlib'
import { WireError, WireReader, wireType } from './wire-reader.ts'

/** Where the parts of a stored envelope lie in a buffer, and its times in milliseconds since 1970. */
export interface EnvelopeParts {
  recordStart: number
  recordEnd: number
  etag: string
  managedBy: string
  /** Of a tag: the digest that its manifest was pushed by, where it is not that of the record; empty elsewhere. */
  pushedDigest: string
  createMs: number
  updateMs: number
  /** Where the checksum begins, with its tag; -1 where there is none. */
  checksumAt: number
}

/** The layout of envelopes that this program knows. */
const knownFormat = 1

/** Field numbers of taproot.store.v1.Envelope; test/cache/envelope-scan.test.ts compares them with the schema. */
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
]

/** The bytes that a checksum takes: its tag and four more. */
const checksumBytes = 5

/** Reads the envelope that lies in `buffer` from `start` to `end`. Throws WireError where it is none, or one of a format that is not known. */
export function scanEnvelope(buffer: Buffer, start: number, end: number): EnvelopeParts {
  const parts: EnvelopeParts = { recordStart: start, recordEnd: start, etag: '', managedBy: '', pushedDigest: '', createMs: 0, updateMs: 0, checksumAt: -1 }
  let format = 0
  reader.open(buffer, start, end)
  while (reader.tag()) {
    const { field, type } = reader
    if ((typeOf[field] ?? type) !== type) throw new WireError(`wire type ${type} of envelope field ${field}`)
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
      case envelopeFields.checksum:
        parts.checksumAt = reader.position - 1
        reader.skip(type)
        break
      default:
        reader.skip(type)
    }
  }
  if (format !== knownFormat) throw new WireError(`envelope format ${format}`)
  return parts
}

/** Throws WireError where the bytes between `start` and `end`, which `parts` is of, have a checksum of other bytes. Costs a look at every byte: for what was just read. */
export function assertChecksum(buffer: Buffer, parts: EnvelopeParts, { start, end }: { readonly start: number; readonly end: number }): void {
  const { checksumAt } = parts
  if (checksumAt < 0) return
  const isLast = checksumAt === end - checksumBytes
  if (!isLast || buffer.readUInt32LE(checksumAt + 1) !== crc32(buffer.subarray(start, checksumAt))) throw new WireError('the checksum does not match')
}

/** The envelope's bytes with their checksum. `bytes` have none. */
export function withChecksum(bytes: Uint8Array): Uint8Array {
  const whole = Buffer.allocUnsafeSlow(bytes.length + checksumBytes)
  whole.set(bytes)
  whole.writeUInt8((envelopeFields.checksum << 3) | wireType.fixed32, bytes.length)
  whole.writeUInt32LE(crc32(bytes), bytes.length + 1)
  return whole
}
