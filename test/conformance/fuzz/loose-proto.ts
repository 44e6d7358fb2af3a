import { fromJson, ScalarType, toBinary, type DescField, type DescMessage, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { isJsonObject } from '../../../src/transport/http/json-shape.ts'
import { registry } from '../../../src/base/schema/schema.ts'

/** Encodes a request as protobuf. A value of the wrong type is written under the field's number in a wire type that fits the value. */
export function looseProto(desc: DescMessage, request: JsonObject): Buffer {
  const writer = new BinaryWriter()
  for (const [key, value] of Object.entries(request)) {
    const field = desc.fields.find(({ jsonName, name }) => jsonName === key || name === key)
    // A key without a field becomes an unknown field.
    if (field === undefined) writeAny(writer, 5000 + key.length, value)
    else writeField(writer, field, value)
  }
  return Buffer.from(writer.finish())
}

function writeField(writer: BinaryWriter, field: DescField, value: JsonValue): void {
  if (value === null) return
  if (field.fieldKind === 'list' && Array.isArray(value)) value.forEach((item) => writeOne(writer, field, item))
  else if (field.fieldKind === 'map' && isJsonObject(value)) Object.entries(value).forEach((entry) => writeEntry(writer, field, entry))
  else writeOne(writer, field, value)
}

/** Writes an entry of a map: key 1, value 2. */
function writeEntry(writer: BinaryWriter, field: DescField & { fieldKind: 'map' }, [key, value]: [string, JsonValue]): void {
  writer.tag(field.number, WireType.LengthDelimited).fork()
  writer.tag(1, WireType.LengthDelimited).string(key.toWellFormed())
  if (field.message !== undefined && isJsonObject(value)) writer.tag(2, WireType.LengthDelimited).bytes(looseProto(field.message, value))
  else writeAny(writer, 2, value)
  writer.join()
}

function writeOne(writer: BinaryWriter, field: DescField, value: JsonValue): void {
  const { message, number } = field
  const exact = message === undefined ? scalarJson(field, value) : messageBytes(message, value)
  if (exact !== undefined) writer.raw(tagged(number, exact))
  else writeAny(writer, number, value)
}

/** Returns the bytes of a message, or of a well-known type that accepts the value. */
function messageBytes(message: DescMessage, value: JsonValue): Buffer | undefined {
  if (message.file.proto.package !== 'google.protobuf') return isJsonObject(value) ? looseProto(message, value) : undefined
  try {
    return Buffer.from(toBinary(message, fromJson(message, value, { registry })))
  } catch {
    // A value of another type is written as it is.
    return undefined
  }
}

function tagged(number: number, bytes: Buffer): Uint8Array {
  return new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(bytes).finish()
}

/** Returns the bytes of a text or bytes field. */
function scalarJson(field: DescField, value: JsonValue): Buffer | undefined {
  if (typeof value !== 'string') return undefined
  if (field.scalar === ScalarType.BYTES) return Buffer.from(value, 'base64')
  return field.scalar === ScalarType.STRING ? Buffer.from(value, 'utf8') : undefined
}

function writeAny(writer: BinaryWriter, number: number, value: JsonValue): void {
  if (value === null) return
  if (typeof value === 'boolean') writer.tag(number, WireType.Varint).bool(value)
  else if (typeof value === 'number' && Number.isSafeInteger(value)) writer.tag(number, WireType.Varint).int64(value)
  else if (typeof value === 'number') writer.tag(number, WireType.Bit64).double(value)
  else if (typeof value === 'string') writer.tag(number, WireType.LengthDelimited).bytes(Buffer.from(value, 'utf8'))
  else if (Array.isArray(value)) value.forEach((item) => writeAny(writer, number, item))
  else {
    writer.tag(number, WireType.LengthDelimited).fork()
    Object.values(value).forEach((inner, index) => writeAny(writer, index + 1, inner ?? null))
    writer.join()
  }
}
