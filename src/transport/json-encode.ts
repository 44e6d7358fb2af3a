import { ScalarType, getOption, toJson } from '@bufbuild/protobuf'
import type { DescEnum, DescField, DescMessage, Message } from '@bufbuild/protobuf'
import { protoCamelCase } from '@bufbuild/protobuf/reflect'
import { isWrapperDesc } from '@bufbuild/protobuf/wkt'
import type { Duration, FieldMask, Timestamp } from '@bufbuild/protobuf/wkt'
import { fieldAccess, isNullIfUnset } from '../base/schema/field-behavior.ts'
import { secret } from '../gen/taproot/api/v1/annotations_pb.ts'

/** Encodes a message of one type as JSON text. */
export type JsonEncoder = (message: Message) => string

/** Returns the encoder of a message type. */
export type JsonEncoders = (desc: DescMessage) => JsonEncoder

type Value = (value: unknown) => string
/** Encodes a field as `"key":value`, or as '' if the field is omitted. */
type MemberEncoder = (message: Readonly<Record<string, unknown>>) => string

/** Fields that are omitted if they are empty. Secret and input-only fields are always omitted. */
const omittedEmpty: ReadonlySet<string> = new Set(['next_page_token', 'managed_by'])

function omitEmpty(field: DescField): boolean {
  return omittedEmpty.has(field.name) || getOption(field, secret) || fieldAccess(field).inputOnly
}

/**
 * Returns encoders for proto3 JSON with the exceptions of the specification (docs/spec/resources.md#json-form):
 * - Scalars, enums, lists and maps are always present.
 * - Messages, oneof members and `optional` fields that are not set are omitted. In version 1, messages are `null` (docs/spec/version-1.md#json-form).
 * - Timestamps have exactly three decimals of a second, and end with Z.
 * The encoder of a message type is compiled once.
 */
export function createJsonEncoders(): JsonEncoders {
  const encoders = new Map<DescMessage, Value>()
  const encoderOf = (desc: DescMessage): Value => {
    const known = encoders.get(desc)
    if (known !== undefined) return known
    // Registered before its members are compiled, so that a recursive type can refer to itself.
    let compiled: Value | undefined
    const encoder: Value = (message) => (compiled ??= compileMessage(desc, encoderOf))(message)
    encoders.set(desc, encoder)
    return encoder
  }
  return encoderOf
}

type EncoderOf = (desc: DescMessage) => Value

function compileMessage(desc: DescMessage, encoderOf: EncoderOf): Value {
  const special = compileWellKnown(desc)
  if (special !== undefined) return special
  const members = desc.members.map((member) =>
    member.kind === 'oneof' ? oneofMember(member.localName, member.fields, encoderOf) : fieldMember(member, encoderOf),
  )
  return (message) => {
    // A message of type `desc` has the members that `desc` lists.
    const record = message as Readonly<Record<string, unknown>>
    let text = ''
    for (const member of members) {
      const part = member(record)
      if (part !== '') text += text === '' ? part : `,${part}`
    }
    return `{${text}}`
  }
}

function oneofMember(localName: string, fields: readonly DescField[], encoderOf: EncoderOf): MemberEncoder {
  const cases = new Map(fields.map((field) => [field.localName, { key: `${JSON.stringify(field.jsonName)}:`, encode: compileSingular(field, encoderOf) }]))
  return (message) => {
    // protobuf-es stores a oneof as {case, value}. `case` is undefined if no member is set.
    const chosen = message[localName] as { readonly case?: string; readonly value?: unknown }
    const member = chosen.case === undefined ? undefined : cases.get(chosen.case)
    return member === undefined ? '' : member.key + member.encode(chosen.value)
  }
}

function fieldMember(field: DescField, encoderOf: EncoderOf): MemberEncoder {
  const { localName } = field
  const key = `${JSON.stringify(field.jsonName)}:`
  const encode = compileField(field, encoderOf)
  if (omitEmpty(field)) {
    return (message) => {
      const value = message[localName]
      return isEmpty(value) ? '' : key + encode(value)
    }
  }
  const unset = isNullIfUnset(field) ? `${key}null` : ''
  return (message) => {
    const value = message[localName]
    return value === undefined ? unset : key + encode(value)
  }
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === '' || value === 0 || value === 0n || value === false || (value instanceof Uint8Array && value.length === 0)
}

function compileField(field: DescField, encoderOf: EncoderOf): Value {
  if (field.fieldKind === 'list') return listOf(compileSingular(field, encoderOf))
  if (field.fieldKind === 'map') return mapOf(compileSingular(field, encoderOf))
  return compileSingular(field, encoderOf)
}

function listOf(encode: Value): Value {
  return (value) => {
    const items = value as readonly unknown[]
    let text = ''
    for (const item of items) text += text === '' ? encode(item) : `,${encode(item)}`
    return `[${text}]`
  }
}

function mapOf(encode: Value): Value {
  return (value) => {
    const entries = Object.entries(value as Readonly<Record<string, unknown>>)
    return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${encode(item)}`).join(',')}}`
  }
}

/** Compiles the encoder for the value of a field, for the items of a list, or for the values of a map. */
function compileSingular(field: DescField, encoderOf: EncoderOf): Value {
  if (field.message !== undefined) return compileMessageValue(field.message, encoderOf)
  if (field.enum !== undefined) return enumValue(field.enum)
  return scalarValue(field.scalar)
}

function compileMessageValue(desc: DescMessage, encoderOf: EncoderOf): Value {
  // protobuf-es stores a Struct field as a plain JSON object, and the field of a wrapper type as its bare value.
  if (desc.typeName === 'google.protobuf.Struct') return (value) => JSON.stringify(value)
  const wrapped = isWrapperDesc(desc) ? desc.fields[0] : undefined
  if (wrapped !== undefined) {
    const scalar = compileSingular(wrapped, encoderOf)
    const message = encoderOf(desc)
    return (value) => (typeof value === 'object' && !(value instanceof Uint8Array) ? message(value) : scalar(value))
  }
  return encoderOf(desc)
}

function enumValue(desc: DescEnum): Value {
  if (desc.typeName === 'google.protobuf.NullValue') return () => 'null'
  const names = new Map(desc.values.map((value) => [value.number, JSON.stringify(value.name)]))
  return (value) => names.get(value as number) ?? String(value)
}

function scalarValue(scalar: ScalarType | undefined): Value {
  switch (scalar) {
    case ScalarType.STRING:
      return (value) => JSON.stringify(value)
    case ScalarType.BYTES:
      return (value) => {
        const { buffer, byteOffset, byteLength } = value as Uint8Array
        return `"${Buffer.from(buffer, byteOffset, byteLength).toString('base64')}"`
      }
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return (value) => `"${String(value)}"`
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return (value) => (Number.isFinite(value) ? JSON.stringify(value) : `"${String(value)}"`)
    default:
      return (value) => String(value)
  }
}

/** Compiles the encoder of a well-known type with a special JSON form; undefined for all other types. */
function compileWellKnown(desc: DescMessage): Value | undefined {
  switch (desc.typeName) {
    case 'google.protobuf.Timestamp':
      return (message) => timestampText(message as Timestamp)
    case 'google.protobuf.Duration':
      return (message) => durationText(message as Duration)
    case 'google.protobuf.FieldMask':
      return (message) => JSON.stringify((message as FieldMask).paths.map(protoCamelCase).join(','))
    default:
      return desc.file.proto.package === 'google.protobuf' ? (message) => JSON.stringify(toJson(desc, message as Message)) : undefined
  }
}

const secondsPerDay = 86_400
const twoDigits: readonly string[] = Array.from({ length: 60 }, (_, value) => String(value).padStart(2, '0'))

/** The texts of dates, such as `2026-01-31T`, by the number of days since 1970. Date's own formatting takes longer than the rest of a record. */
const dayTexts = new Map<number, string>()
const keptDays = 4096

function dayText(day: number): string {
  const known = dayTexts.get(day)
  if (known !== undefined) return known
  const text = new Date(day * secondsPerDay * 1000).toISOString().slice(0, -'00:00:00.000Z'.length)
  if (dayTexts.size >= keptDays) dayTexts.clear()
  dayTexts.set(day, text)
  return text
}

function timestampText({ seconds, nanos }: Timestamp): string {
  const total = Number(seconds)
  const day = Math.floor(total / secondsPerDay)
  const second = total - day * secondsPerDay
  const ms = String(Math.floor(nanos / 1e6)).padStart(3, '0')
  return `"${dayText(day)}${twoDigits[Math.floor(second / 3600)]}:${twoDigits[Math.floor(second / 60) % 60]}:${twoDigits[second % 60]}.${ms}Z"`
}

function durationText({ seconds, nanos }: Duration): string {
  const sign = seconds < 0n || nanos < 0 ? '-' : ''
  const whole = seconds < 0n ? -seconds : seconds
  const fraction = Math.abs(nanos).toString().padStart(9, '0')
  if (nanos === 0) return `"${sign}${whole}s"`
  return `"${sign}${whole}.${fraction.endsWith('000000') ? fraction.slice(0, 3) : fraction.endsWith('000') ? fraction.slice(0, 6) : fraction}s"`
}
