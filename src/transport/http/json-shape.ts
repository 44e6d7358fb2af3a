import { ScalarType, fromJson } from '@bufbuild/protobuf'
import type { DescEnum, DescField, DescMessage, JsonObject, JsonValue } from '@bufbuild/protobuf'
import { base64Decode } from '@bufbuild/protobuf/wire'
import { capabilityByName } from '../../base/capability.ts'
import { maxViolations, type FieldViolation } from '../../base/errors.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { knownInstead, nearestName } from '../../base/nearest-name.ts'
import { lengthViolation } from '../../base/schema/list-limit.ts'
import { CapabilitySchema } from '../../gen/taproot/common/v2/capability_pb.ts'

/** How to check a JSON body. */
export interface ShapeOptions {
  /** True if unknown keys are refused. Otherwise they are dropped. */
  readonly strict: boolean
  /** JSON names of fields that the path or the query contains instead of the body. The error for an unknown key may suggest one of them. */
  readonly elsewhere?: readonly string[]
}

/** A JSON object with its keys in the spelling that protobuf-es reads, and the faults of the original object. */
export interface Shaped {
  readonly json: JsonObject
  readonly violations: readonly FieldViolation[]
  /** Paths (proto names) of the keys that were present, down to the innermost ones. Maps, lists and well-known types count as a whole. */
  readonly present: readonly string[]
}

/** True for message types whose JSON form is not an object with their fields, such as Timestamp. */
export function isLeafMessage(desc: DescMessage): boolean {
  return desc.file.proto.package === 'google.protobuf'
}

/** Returns the field with this name in either spelling, `page_size` or `pageSize`. */
export function fieldOfKey(desc: DescMessage, key: string): DescField | undefined {
  let fields = fieldsByKey.get(desc)
  if (fields === undefined) {
    fields = new Map(desc.fields.flatMap((field) => [field.name, field.jsonName, field.localName].map((name) => [name, field] as const)))
    fieldsByKey.set(desc, fields)
  }
  return fields.get(key)
}

const fieldsByKey = new WeakMap<DescMessage, Map<string, DescField>>()

/**
 * Checks a JSON object against a message type and normalises the spelling of its keys. Returns the first 20 faults with their paths in proto names, and then
 * stops. Drops nulls, which mean "not set", and values with a fault.
 */
export function shapeJson(desc: DescMessage, value: JsonObject, options: ShapeOptions): Shaped {
  const shaping = new Shaping(options)
  const json = shaping.object(desc, value, '')
  return { json, violations: shaping.violations, present: shaping.present }
}

/** Checks the JSON value of a single field, such as a query parameter. Returns the value with normalised keys, or a description of its fault. */
export function shapeValue(field: DescField, value: JsonValue): { readonly json: JsonValue } | { readonly error: string } {
  const shaping = new Shaping({ strict: false })
  const json = shaping.singular(field, value, field.name)
  const violation = shaping.violations[0]
  return violation === undefined && json !== undefined ? { json } : { error: violation?.description ?? 'is not valid' }
}

class Shaping {
  readonly violations: FieldViolation[] = []
  readonly present: string[] = []
  readonly #options: ShapeOptions

  constructor(options: ShapeOptions) {
    this.#options = options
  }

  object(desc: DescMessage, value: JsonObject, prefix: string): JsonObject {
    const out: JsonObject = {}
    const oneofs = new Map<string, string>()
    for (const [key, item] of Object.entries(value)) {
      if (this.#isFull) break
      if (key === '__proto__') {
        this.#refuse(`${prefix}${key}`, 'is not allowed')
        continue
      }
      const field = fieldOfKey(desc, key)
      const path = `${prefix}${field?.name ?? key.slice(0, 100)}`
      if (field === undefined) {
        this.#unknown(desc, key, prefix)
        continue
      }
      this.#note(field, item, path)
      if (item === null && field.message?.typeName !== 'google.protobuf.Value') continue
      const clash = Object.hasOwn(out, field.jsonName) ? 'occurs twice' : oneofClash(field, oneofs)
      if (clash !== undefined) {
        this.#refuse(path, clash)
        continue
      }
      const shaped = fieldAccess(field).outputOnly ? this.#ignorable(field, item, path) : this.#field(field, item, path)
      if (shaped !== undefined) out[field.jsonName] = shaped
    }
    return out
  }

  singular(field: DescField, value: JsonValue, path: string): JsonValue | undefined {
    if (field.message !== undefined) return this.#message(field.message, value, path)
    if (field.enum !== undefined) return this.#enum(field.enum, value, path)
    const error = scalarError(field.scalar ?? ScalarType.STRING, value)
    return error === undefined ? value : this.#refuse(path, error)
  }

  #unknown(desc: DescMessage, key: string, prefix: string): void {
    const { strict, elsewhere } = this.#options
    if (strict) this.#refuse(`${prefix}${key.slice(0, 100)}`, unknownKey(desc, key, prefix === '' ? elsewhere : []))
  }

  get #isFull(): boolean {
    return this.violations.length >= maxViolations
  }

  #note(field: DescField, value: JsonValue, path: string): void {
    const nested = field.fieldKind === 'message' && !isLeafMessage(field.message) && isJsonObject(value) && Object.keys(value).length > 0
    if (!nested) this.present.push(path)
  }

  #field(field: DescField, value: JsonValue, path: string): JsonValue | undefined {
    if (field.fieldKind === 'list') return this.#list(field, value, path)
    if (field.fieldKind === 'map') return this.#map(field, value, path)
    return this.singular(field, value, path)
  }

  /**
   * Reads a client's value of an output-only field. The server ignores such values, so faults in them are not reported
   * (docs/spec/resources.md#output-only-fields).
   */
  #ignorable(field: DescField, value: JsonValue, path: string): JsonValue | undefined {
    const violationsBefore = this.violations.length
    const shaped = this.#field(field, value, path)
    if (this.violations.length === violationsBefore) return shaped
    this.violations.length = violationsBefore
    return undefined
  }

  #list(field: DescField, value: JsonValue, path: string): JsonValue | undefined {
    if (!Array.isArray(value)) return this.#refuse(path, 'must be a list')
    const excess = lengthViolation(field, value.length, path)
    if (excess !== undefined) return this.#refuse(excess.field, excess.description)
    const noted = this.present.length
    const items: JsonValue[] = []
    for (const [index, item] of value.entries()) {
      if (this.#isFull) break
      const shaped = this.singular(field, item, `${path}[${index}]`)
      if (shaped !== undefined) items.push(shaped)
    }
    this.present.length = noted
    return items
  }

  #map(field: DescField & { fieldKind: 'map' }, value: JsonValue, path: string): JsonValue | undefined {
    if (!isJsonObject(value)) return this.#refuse(path, 'must be an object')
    const pairs = Object.entries(value)
    const excess = lengthViolation(field, pairs.length, path)
    if (excess !== undefined) return this.#refuse(excess.field, excess.description)
    const noted = this.present.length
    const out: JsonObject = {}
    for (const [key, item] of pairs) {
      if (this.#isFull) break
      const error = key === '__proto__' ? 'has a key that is not allowed' : mapKeyError(field.mapKey, key)
      const shaped = error === undefined ? this.singular(field, item, `${path}[${JSON.stringify(key.slice(0, 100))}]`) : this.#refuse(path, error)
      if (shaped !== undefined) out[key] = shaped
    }
    this.present.length = noted
    return out
  }

  #message(desc: DescMessage, value: JsonValue, path: string): JsonValue | undefined {
    if (isLeafMessage(desc)) return this.#leaf(desc, value, path)
    return isJsonObject(value) ? this.object(desc, value, `${path}.`) : this.#refuse(path, 'must be an object')
  }

  #leaf(desc: DescMessage, value: JsonValue, path: string): JsonValue | undefined {
    try {
      fromJson(desc, value)
      return value
    } catch {
      // The table's sentence describes the valid form. protobuf-es would describe the fault in its own terms.
      return this.#refuse(path, leafSentences[desc.typeName] ?? 'has the wrong form')
    }
  }

  #enum(desc: DescEnum, value: JsonValue, path: string): JsonValue | undefined {
    if (typeof value === 'number' && Number.isInteger(value) && Math.abs(value) < 2 ** 31) return value
    if (typeof value === 'string') {
      if (desc.values.some(({ name }) => name === value)) return value
      // Clients may also write dotted names for capabilities (docs/spec/resources.md#json-form).
      const alias = desc.typeName === CapabilitySchema.typeName ? capabilityByName(value) : undefined
      if (alias !== undefined) return alias.number
    }
    const names = desc.values.map(({ name }) => name)
    return this.#refuse(path, names.length <= 10 ? `must be one of ${names.join(', ')}` : `must be the name of a ${desc.name}, such as ${names[1] ?? ''}`)
  }

  #refuse(field: string, description: string): undefined {
    this.violations.push({ field, description })
  }
}

/** Returns the description of a fault: a key that is not the name of a field. */
function unknownKey(desc: DescMessage, key: string, elsewhere: readonly string[] = []): string {
  const writable = desc.fields.filter((field) => !fieldAccess(field).outputOnly).map(({ jsonName }) => jsonName)
  const nearest = nearestName(key.slice(0, 100), [...writable, ...elsewhere])
  if (nearest !== undefined && elsewhere.includes(nearest)) return `is not a field of the body: \`${nearest}\` is given in the path or the query`
  return `is not a field of ${desc.name}${knownInstead(key.slice(0, 100), writable)}`
}

/** Returns the description of a fault: a second member of a oneof is set. `taken` stores the first one. Undefined if there is no fault. */
function oneofClash(field: DescField, taken: Map<string, string>): string | undefined {
  if (field.oneof === undefined) return undefined
  const other = taken.get(field.oneof.name)
  taken.set(field.oneof.name, other ?? field.name)
  return other === undefined || other === field.name ? undefined : `can't be given together with \`${other}\``
}

/** True if the JSON value is an object, not a list or null. */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const leafSentences: Readonly<Record<string, string>> = {
  'google.protobuf.Timestamp': 'must be a time such as 2026-01-31T09:30:00.000Z',
  'google.protobuf.Duration': 'must be a number of seconds such as 3600s',
  'google.protobuf.FieldMask': 'must be a comma-separated list of field names',
  'google.protobuf.Struct': 'must be an object',
}

const int32Range = { min: -(2n ** 31n), max: 2n ** 31n - 1n }
const uint32Range = { min: 0n, max: 2n ** 32n - 1n }
const int64Range = { min: -(2n ** 63n), max: 2n ** 63n - 1n }
const uint64Range = { min: 0n, max: 2n ** 64n - 1n }

const integerRanges: Readonly<Partial<Record<ScalarType, { readonly min: bigint; readonly max: bigint }>>> = {
  [ScalarType.INT32]: int32Range,
  [ScalarType.SINT32]: int32Range,
  [ScalarType.SFIXED32]: int32Range,
  [ScalarType.UINT32]: uint32Range,
  [ScalarType.FIXED32]: uint32Range,
  [ScalarType.INT64]: int64Range,
  [ScalarType.SINT64]: int64Range,
  [ScalarType.SFIXED64]: int64Range,
  [ScalarType.UINT64]: uint64Range,
  [ScalarType.FIXED64]: uint64Range,
}

function scalarError(scalar: ScalarType, value: JsonValue): string | undefined {
  const range = integerRanges[scalar]
  if (range !== undefined) return integerError(range, value)
  switch (scalar) {
    case ScalarType.STRING:
      return typeof value === 'string' && value.isWellFormed() ? undefined : 'must be a string'
    case ScalarType.BOOL:
      return typeof value === 'boolean' ? undefined : 'must be true or false'
    case ScalarType.BYTES:
      return typeof value === 'string' && isBase64(value) ? undefined : 'must be base64'
    default:
      return isFloat(value) ? undefined : 'must be a number'
  }
}

/** True for base64 in either alphabet, with or without padding. protobuf-es accepts the same texts. */
function isBase64(text: string): boolean {
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(text)) return false
  try {
    base64Decode(text)
    return true
  } catch {
    return false
  }
}

function integerError(range: { readonly min: bigint; readonly max: bigint }, value: JsonValue): string | undefined {
  if (typeof value !== 'number' && typeof value !== 'string') return 'must be a whole number'
  if (typeof value === 'number' ? !Number.isSafeInteger(value) : !/^-?\d{1,20}$/.test(value)) return 'must be a whole number'
  const whole = BigInt(value)
  return whole >= range.min && whole <= range.max ? undefined : `must be between ${range.min} and ${range.max}`
}

function isFloat(value: JsonValue): boolean {
  return typeof value === 'number' ? Number.isFinite(value) : typeof value === 'string' && /^(?:NaN|-?Infinity|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$/.test(value)
}

function mapKeyError(scalar: ScalarType, key: string): string | undefined {
  if (scalar === ScalarType.STRING) return key.isWellFormed() ? undefined : 'has a key that is not text'
  if (scalar === ScalarType.BOOL) return key === 'true' || key === 'false' ? undefined : 'must have the keys true and false'
  return scalarError(scalar, key) === undefined ? undefined : 'must have whole numbers as keys'
}
