import { fromBinary, ScalarType, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { requestBounds } from '../../base/bounded-json.ts'
import { DomainError } from '../../base/errors.ts'

/** Shorter messages can't hold more values than the bounds allow. */
const minBytes = 2 * requestBounds.maxValues

const fieldsByNumber = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>()

function fieldNumbered(desc: DescMessage, number: number): DescField | undefined {
  let fields = fieldsByNumber.get(desc)
  if (fields === undefined) {
    fields = new Map(desc.fields.map((field) => [field.number, field]))
    fieldsByNumber.set(desc, fields)
  }
  return fields.get(number)
}

/** True for a list of numbers: they may be packed into one field, a byte each. */
function isPackable(field: DescField): boolean {
  return field.fieldKind === 'list' && field.listKind !== 'message' && field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES
}

/** How many values the bytes hold, at most; stops to count beyond the bound. Throws where the bytes are no message. */
function countValues(desc: DescMessage, bytes: Uint8Array, depth: number): number {
  if (depth > requestBounds.maxDepth) return Infinity
  const reader = new BinaryReader(bytes)
  let values = 0
  while (reader.pos < reader.len && values <= requestBounds.maxValues) {
    const [number, wireType] = reader.tag()
    const field = fieldNumbered(desc, number)
    values += 1
    if (wireType !== WireType.LengthDelimited) {
      reader.skip(wireType, number)
      continue
    }
    const inner = reader.bytes()
    if (field?.message !== undefined && field.fieldKind !== 'map') values += countValues(field.message, inner, depth + 1)
    else if (field !== undefined && isPackable(field)) values += inner.length
  }
  return values
}

/** Decodes a message whose bounds, those of JSON, are checked before. Throws code 3 on `body`. */
export function decodeBounded(desc: DescMessage, bytes: Uint8Array): Message {
  try {
    if (bytes.length <= minBytes || countValues(desc, bytes, 0) <= requestBounds.maxValues) return fromBinary(desc, bytes)
  } catch (error) {
    throw DomainError.invalid('body', `is not a valid ${desc.typeName}`, { cause: error })
  }
  throw DomainError.invalid('body', `must not hold more than ${requestBounds.maxValues} values, nor nest deeper than ${requestBounds.maxDepth} levels`)
}
