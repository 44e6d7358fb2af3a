import { fromBinary, toBinary, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { ScalarType } from '@bufbuild/protobuf'
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { resources } from '../../src/base/schema/schema.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { compileScan, type ScanTarget } from '../../src/cache/records/record-scan.ts'
import { WireError } from '../../src/cache/records/wire-reader.ts'
import { randomMessage } from '../transport/harness/random-message.ts'

const kinds: readonly DescMessage[] = [...resources.values()].map(({ desc }) => desc)

function isReadable(field: DescField): boolean {
  if (field.fieldKind === 'enum') return true
  return field.fieldKind === 'scalar' && [ScalarType.STRING, ScalarType.BOOL, ScalarType.INT32].includes(field.scalar)
}

/** Returns all targets of a message: its own fields and oneofs, and those of nested messages. */
function targetsOf(desc: DescMessage, prefix = ''): ScanTarget[] {
  const fields = desc.fields.flatMap((field): ScanTarget[] => {
    if (isReadable(field)) return [{ field: prefix + field.name }]
    return field.fieldKind === 'message' && prefix === '' ? targetsOf(field.message, `${field.name}.`) : []
  })
  if (prefix !== '') return fields
  return [...fields, ...desc.oneofs.map((oneof) => ({ oneof: oneof.name, values: Object.fromEntries(oneof.fields.map(({ name }) => [name, `is ${name}`])) }))]
}

/** Returns the value of a target in the decoded message. */
function valueIn(desc: DescMessage, message: Message, target: ScanTarget): string | undefined {
  const reflected = reflect(desc, message)
  if ('oneof' in target) {
    const set = reflected.oneofCase(desc.oneofs.find(({ name }) => name === target.oneof) ?? fail())
    return set === undefined ? undefined : target.values[set.name]
  }
  const [name, inner] = target.field.split('.')
  const field = desc.fields.find((candidate) => candidate.name === name) ?? fail()
  if (inner !== undefined && field.fieldKind === 'message') {
    if (!reflected.isSet(field)) return undefined
    const below = reflect(field.message, reflected.get(field).message)
    const leaf = field.message.fields.find((candidate) => candidate.name === inner) ?? fail()
    return below.isSet(leaf) ? String(below.get(leaf)) : undefined
  }
  return reflected.isSet(field) || field.presence === FeatureSet_FieldPresence.IMPLICIT ? String(reflected.get(field)) : undefined
}

function fail(): never {
  throw new Error('not in the schema')
}

function decodes(desc: DescMessage, bytes: Uint8Array): boolean {
  try {
    fromBinary(desc, bytes)
    return true
  } catch {
    return false
  }
}

describe.each(kinds.map((desc) => [desc.name, desc] as const))('a scan of %s', (_name, desc) => {
  const targets = targetsOf(desc)
  const scan = compileScan(desc, targets)

  test('a scan reads the same as a full decode, at any offset of a buffer', () => {
    fc.assert(
      fc.property(randomMessage(desc), fc.uint8Array({ maxLength: 9 }), (message, padding) => {
        const bytes = toBinary(desc, message)
        const buffer = Buffer.concat([padding, bytes, padding])
        const expected = targets.map((target) => valueIn(desc, fromBinary(desc, bytes), target))
        expect(scan(buffer, padding.length, padding.length + bytes.length)).toEqual(expected)
      }),
    )
  })

  test('a scan merges a record that is written in two parts', () => {
    fc.assert(
      fc.property(randomMessage(desc), randomMessage(desc), (one, other) => {
        const bytes = Buffer.concat([toBinary(desc, one), toBinary(desc, other)])
        expect(scan(bytes, 0, bytes.length)).toEqual(targets.map((target) => valueIn(desc, fromBinary(desc, bytes), target)))
      }),
    )
  })

  test('a scan fails where a full decode fails, and reads the same from what both accept', () => {
    const damage = fc.record({ at: fc.nat(), value: fc.nat(255), cut: fc.boolean() })
    fc.assert(
      fc.property(randomMessage(desc), fc.array(damage, { minLength: 1, maxLength: 4 }), (message, damages) => {
        let bytes = Buffer.from(toBinary(desc, message))
        for (const { at, value, cut } of damages) {
          if (bytes.length === 0) return
          if (cut) bytes = bytes.subarray(0, at % bytes.length)
          else bytes[at % bytes.length] = value
        }
        let values: (string | undefined)[]
        try {
          values = scan(bytes, 0, bytes.length)
        } catch (error) {
          expect(error).toBeInstanceOf(WireError)
          return
        }
        expect(decodes(desc, bytes), bytes.toString('hex')).toBe(true)
        // A full decode treats an explicit zero in a nested message as unset.
        const isZero = (target: ScanTarget, value: string | undefined): boolean =>
          'field' in target && target.field.includes('.') && ['', '0', 'false'].includes(value ?? '')
        const expected = targets.map((target) => valueIn(desc, fromBinary(desc, bytes), target))
        const notified = (list: readonly (string | undefined)[]): unknown => list.map((value, at) => (isZero(targets[at] ?? fail(), value) ? undefined : value))
        expect(notified(values)).toEqual(notified(expected))
      }),
      { numRuns: 300 },
    )
  })
})

describe('a scan', () => {
  test('a scan requires valid UTF-8, also in text that is not requested', () => {
    const scan = compileScan(IdentitySchema, [])
    expect(() => scan(Buffer.from([0x12, 2, 0xc3, 0x28]), 0, 4)).toThrow(WireError)
  })

  test.each([
    [{ field: 'no_such' }, 'is not a field'],
    [{ field: 'name.no_such' }, 'is not a field of a nested message'],
    [{ field: 'create_time' }, 'is not a single value'],
    [{ oneof: 'no_such', values: {} }, 'is not a oneof'],
    [{ oneof: 'relationship', values: { claim_match: '1' } }, 'leaves members of the oneof out'],
  ])('a scan refuses a target when it is compiled: %j %s', (target: ScanTarget, _what) => {
    expect(() => compileScan(IdentitySchema, [target])).toThrow(TypeError)
  })
})
