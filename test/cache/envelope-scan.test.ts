import { create, toBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { EnvelopeSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { envelopeFields, scanEnvelope } from '../../src/cache/records/envelope-scan.ts'
import { WireError } from '../../src/cache/records/wire-reader.ts'

const envelopes = fc.record({
  record: fc.uint8Array({ maxLength: 300 }),
  etag: fc.string({ unit: 'grapheme', maxLength: 20 }),
  createMs: fc.maxSafeInteger(),
  updateMs: fc.maxSafeInteger(),
  managedBy: fc.string({ unit: 'grapheme', maxLength: 20 }),
  sealed: fc.array(fc.uint8Array({ maxLength: 9 }), { maxLength: 3 }),
  ownedFields: fc.array(fc.string({ maxLength: 9 }), { maxLength: 3 }),
  pushedDigest: fc.string({ maxLength: 20 }),
  lifeCycleDigest: fc.string({ maxLength: 20 }),
})

describe('scanEnvelope', () => {
  test('scanEnvelope knows all fields of the schema', () => {
    expect(Object.fromEntries(EnvelopeSchema.fields.map((field) => [field.localName, field.number]))).toEqual(envelopeFields)
  })

  test('scanEnvelope reads any envelope at any offset of a buffer', () => {
    fc.assert(
      fc.property(envelopes, fc.nat(9), ({ record, etag, createMs, updateMs, managedBy, sealed, ownedFields, pushedDigest, lifeCycleDigest }, padding) => {
        const bytes = toBinary(
          EnvelopeSchema,
          create(EnvelopeSchema, {
            format: 1,
            record,
            etag,
            createTimeMs: BigInt(createMs),
            updateTimeMs: BigInt(updateMs),
            managedBy,
            ownedFields,
            pushedDigest,
            lifeCycleDigest,
            sealed: Object.fromEntries(sealed.map((value, at) => [`field.${at}`, value])),
          }),
        )
        const buffer = Buffer.concat([Buffer.alloc(padding, 0xff), bytes, Buffer.alloc(padding, 0xff)])
        const parts = scanEnvelope(buffer, padding, padding + bytes.length)
        expect(new Uint8Array(buffer.subarray(parts.recordStart, parts.recordEnd))).toEqual(record)
        expect(parts).toMatchObject({ etag, createMs, updateMs, managedBy, pushedDigest, lifeCycleDigest })
      }),
    )
  })

  test.each([
    ['an unknown format', toBinary(EnvelopeSchema, create(EnvelopeSchema, { format: 2 }))],
    ['an empty record', new Uint8Array()],
    ['a truncated record', Uint8Array.of(0x08, 1, 0x12, 5, 1, 2)],
    ['a truncated varint', Uint8Array.of(0x08)],
    ['a field of another type', Uint8Array.of(0x08, 1, 0x10, 1)],
    ['an etag that is not text', Uint8Array.of(0x08, 1, 0x1a, 2, 0xc3, 0x28)],
  ])('scanEnvelope refuses %s', (_what, bytes) => {
    expect(() => scanEnvelope(Buffer.from(bytes), 0, bytes.length)).toThrow(WireError)
  })
})
