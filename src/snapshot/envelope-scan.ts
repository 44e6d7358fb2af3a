import { WireError, WireReader, wireType } from './wire-reader.ts'

/** Where the parts of a stored envelope lie in a buffer, and its times in milliseconds since 1970. */
export interface EnvelopeParts {
  recordStart: number
  recordEnd: number
  etag: string
  managedBy: string
  createMs: number
  updateMs: number
}

/** The layout of envelopes that this program knows. */
const knownFormat = 1

/** Field numbers of taproot.store.v1.Envelope; test/snapshot/envelope-scan.test.ts compares them with the schema. */
export const envelopeFields = { format: 1, record: 2, etag: 3, createTimeMs: 4, updateTimeMs: 5, managedBy: 6, sealed: 7 } as const

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
]

/** Reads the envelope that lies in `buffer` from `start` to `end`. Throws WireError where it is none, or one of a format that is not known. */
export function scanEnvelope(buffer: Buffer, start: number, end: number): EnvelopeParts {
  const parts: EnvelopeParts = { recordStart: start, recordEnd: start, etag: '', managedBy: '', createMs: 0, updateMs: 0 }
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
      default:
        reader.skip(type)
    }
  }
  if (format !== knownFormat) throw new WireError(`envelope format ${format}`)
  return parts
}
