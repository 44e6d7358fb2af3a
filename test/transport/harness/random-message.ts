import { ScalarType, create, fromJson } from '@bufbuild/protobuf'
import type { DescField, DescMessage, Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import type { ReflectMessage } from '@bufbuild/protobuf/reflect'
import fc from 'fast-check'
import { maxItemsOf } from '../../../src/base/schema/list-limit.ts'

const text = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 12 }), fc.constantFrom('', '"\\\u2028\n\u0000', 'ü€😀', '__proto__x'))
const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })

/** A message of any type with random fields; timestamps have whole milliseconds, the precision of JSON. */
export function randomMessage(desc: DescMessage, depth = 4): fc.Arbitrary<Message> {
  switch (desc.typeName) {
    case 'google.protobuf.Timestamp':
      return fc.date({ min: new Date('0001-01-01T00:00:00Z'), max: new Date('9999-12-31T23:59:59.999Z'), noInvalidDate: true }).map((date) => {
        const ms = date.getTime()
        return build(desc, { seconds: BigInt(Math.floor(ms / 1000)), nanos: (((ms % 1000) + 1000) % 1000) * 1_000_000 })
      })
    case 'google.protobuf.Duration':
      return fc
        .tuple(fc.integer({ min: 0, max: 315_576_000_000 }), fc.constantFrom(0, 5_000_000, 5000, 5), fc.constantFrom(1, -1))
        .map(([seconds, nanos, sign]) => build(desc, { seconds: BigInt(seconds * sign), nanos: nanos * sign }))
    case 'google.protobuf.FieldMask':
      return fc.array(fc.constantFrom('name', 'claim_match.issuer', 'resource_limits')).map((paths) => build(desc, { paths }))
    case 'google.protobuf.Struct':
      // JSON has only finite numbers, and a value has a kind.
      return fc
        .dictionary(text, fc.oneof(text, fc.boolean(), fc.constant(null), fc.integer()), { maxKeys: 3, noNullPrototype: true })
        .map((fields) => fromJson(desc, fields))
    default:
      return fc.tuple(...desc.members.map((member) => memberOf(member, depth))).map((parts) => {
        const message = reflect(desc)
        for (const part of parts) part?.(message)
        return message.message
      })
  }
}

type Setter = ((message: ReflectMessage) => void) | undefined

function memberOf(member: DescMessage['members'][number], depth: number): fc.Arbitrary<Setter> {
  if (member.kind !== 'oneof') return fieldOf(member, depth)
  return fc.oneof(fc.constant(undefined), ...member.fields.map((field) => fieldOf(field, depth)))
}

function fieldOf(field: DescField, depth: number): fc.Arbitrary<Setter> {
  if (depth === 0 && field.message !== undefined) return fc.constant(undefined)
  const value = singular(field, depth - 1)
  if (field.fieldKind === 'list') {
    return fc.array(value, { maxLength: Math.min(3, maxItemsOf(field)) }).map((items) => (message) => {
      const list = message.get(field)
      for (const item of items) list.add(item)
    })
  }
  if (field.fieldKind === 'map') {
    const key: fc.Arbitrary<unknown> =
      field.mapKey === ScalarType.STRING ? text.filter((name) => name !== '__proto__') : field.mapKey === ScalarType.INT32 ? fc.integer() : int64
    return fc.array(fc.tuple(key, value), { maxLength: 3 }).map((entries) => (message) => {
      const map = message.get(field)
      for (const [name, item] of entries) map.set(name, item)
    })
  }
  return fc.option(value).map((item) => (item === null ? undefined : (message) => message.set(field, item)))
}

function singular(field: DescField, depth: number): fc.Arbitrary<unknown> {
  if (field.message !== undefined) {
    const { message } = field
    return randomMessage(message, depth).map((value) => reflect(message, value))
  }
  if (field.enum !== undefined) return fc.constantFrom(...field.enum.values.map(({ number }) => number))
  switch (field.scalar) {
    case ScalarType.STRING:
      return text
    case ScalarType.BOOL:
      return fc.boolean()
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 20 })
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return fc.constantFrom(0, 1.5, -2, Infinity, -Infinity)
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return int64
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return fc.nat()
    default:
      return fc.integer()
  }
}

function build(desc: DescMessage, fields: Readonly<Record<string, unknown>>): Message {
  return Object.assign(create(desc), fields)
}
