import { ScalarType, type DescField, type DescMessage, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { maxViolations, type FieldViolation } from '../../base/errors.ts'
import { knownInstead } from '../../base/nearest-name.ts'
import { UIDPFilterSchema } from '../../gen/taproot/common/v2/uidp_filter_pb.ts'
import { fieldOfKey, isJsonObject, isLeafMessage, shapeValue } from './json-shape.ts'

/**
 * Misnamed parameters that are refused, with the name to use, by request message. Ignoring such a parameter would return more than
 * the client asked for.
 */
const misnamed: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // RFC 8693 uses the name `audience`. Without `aud`, the token would be for the API.
  'taproot.oidc.v1.ExchangeRequest': { audience: 'aud', audiences: 'aud', resource: 'aud' },
}

/** Returns a violation that names the right parameter if `key` is a known wrong name; undefined otherwise. */
function misnamedField(desc: DescMessage, key: string): FieldViolation | undefined {
  const names = misnamed[desc.typeName] ?? {}
  const right = Object.hasOwn(names, key) ? names[key] : undefined
  return right === undefined ? undefined : { field: key, description: `is not a parameter: use ${right}` }
}

/** The fields of a request message that its query string contains. */
export interface QueryFields {
  /** Values of the fields in protobuf's JSON form. */
  readonly json: JsonObject
  readonly violations: readonly FieldViolation[]
}

/** How to read a query string. */
export interface QueryOptions {
  /** The part of the message that the body fills: '' (none), '*' (the whole message) or the proto name of a field. */
  readonly bodyField: string
  /**
   * True if unknown parameters are ignored, and empty ones of `uidp`. Otherwise they are violations, because ignoring them could return more records than the
   * client wants.
   */
  readonly lenient: boolean
}

/**
 * Reads query parameters into the fields of a request message. Names are in snake_case or lowerCamel, with dots for nested fields; repeated parameters form a
 * list. Violations use the caller's spelling. Ignores a field mask. An empty value counts as absent. If a parameter for a single value is repeated, the last
 * value is used.
 */
export function readQuery(desc: DescMessage, query: URLSearchParams, { bodyField, lenient }: QueryOptions): QueryFields {
  const json: JsonObject = {}
  const violations: FieldViolation[] = []
  // A description takes a comparison with all parameters: it is made for what is refused only.
  const refuse = (field: string, describe: () => string): void => {
    if (!lenient) violations.push({ field, description: describe() })
  }
  for (const [key, text] of query) {
    if (violations.length >= maxViolations) break
    const found = bodyField === '*' ? undefined : resolve(desc, key.split('.'))
    const first = found?.path[0]
    if (found === undefined || first === undefined || first.name === bodyField) {
      const misnamed = misnamedField(desc, key)
      if (misnamed !== undefined) violations.push(misnamed)
      else if (!ownParameters.has(key) && !isMask(fieldOfKey(desc, key))) refuse(key.slice(0, 100), () => unknownParameter(desc, key, bodyField))
    } else if (text === '') {
      if (first.message === UIDPFilterSchema) refuse(key, () => 'must not be empty: omit it, or set it to a uid')
    } else if (!isMask(first)) {
      const value = parseText(found.field, text)
      if ('error' in value) violations.push({ field: key, description: value.error })
      else assign(json, found.path, value.json)
    }
  }
  return { json, violations }
}

/** Query parameters that every method accepts. */
const ownParameters: ReadonlySet<string> = new Set(['validateOnly', 'validate_only'])

function isMask(field: DescField | undefined): boolean {
  return field?.message === FieldMaskSchema
}

function unknownParameter(desc: DescMessage, key: string, bodyField: string): string {
  const body = bodyField === '*' ? desc : fieldOfKey(desc, bodyField)?.message
  if (body !== undefined && resolve(body, key.split('.')) !== undefined) return 'is a field of the body, not a query parameter'
  const parameters = bodyField === '*' ? [] : desc.fields.filter(({ name }) => name !== bodyField).flatMap((field) => parameterNames(field))
  return `is not a query parameter of this method${knownInstead(key.slice(0, 100), [...parameters, 'validateOnly'])}`
}

/** Returns the names that the query parameter of a field can have. */
function parameterNames(field: DescField): string[] {
  if (field.fieldKind !== 'message' || isLeafMessage(field.message)) return [field.jsonName]
  return field.message.fields.map(({ jsonName }) => `${field.jsonName}.${jsonName}`)
}

/** Sets a value at a path. Creates the objects on the path that are missing. Values of a list field are appended. */
function assign(json: JsonObject, path: readonly DescField[], value: JsonValue): void {
  let at = json
  for (const field of path.slice(0, -1)) {
    const next = at[field.jsonName]
    const object = isJsonObject(next) ? next : {}
    at[field.jsonName] = object
    at = object
  }
  const leaf = path.at(-1)
  if (leaf === undefined) return
  const earlier = at[leaf.jsonName]
  if (leaf.fieldKind !== 'list') at[leaf.jsonName] = value
  else if (Array.isArray(earlier)) earlier.push(value)
  else at[leaf.jsonName] = [value]
}

function resolve(desc: DescMessage, segments: readonly string[]): { readonly path: readonly DescField[]; readonly field: DescField } | undefined {
  const path: DescField[] = []
  let at: DescMessage | undefined = desc
  for (const segment of segments) {
    const field: DescField | undefined = at === undefined ? undefined : fieldOfKey(at, segment)
    if (field === undefined) return undefined
    path.push(field)
    at = field.fieldKind === 'message' && !isLeafMessage(field.message) ? field.message : undefined
  }
  const field = path.at(-1)
  const isValue = field !== undefined && field.fieldKind !== 'map' && (field.message === undefined || isLeafMessage(field.message) || isImageRefs(field))
  return isValue ? { path, field } : undefined
}

type Parsed = { readonly json: JsonValue } | { readonly error: string }

const booleans: Readonly<Record<string, boolean>> = { true: true, false: false, '1': true, '0': false }

function parseText(field: DescField, text: string): Parsed {
  if (isImageRefs(field)) return { json: imageRef(text) }
  if (field.scalar === ScalarType.BOOL) {
    const value = Object.hasOwn(booleans, text) ? booleans[text] : undefined
    return value === undefined ? { error: 'must be true or false' } : { json: value }
  }
  if (field.enum !== undefined && /^-?\d{1,10}$/.test(text)) return shapeValue(field, Number(text))
  return shapeValue(field, text)
}

/** True for the only list of messages that a query can contain: `imageRefs=<repo>[:<tag>[,<tag>]]`. */
function isImageRefs(field: DescField): boolean {
  return field.fieldKind === 'list' && field.message?.name === 'ImageRef'
}

function imageRef(text: string): JsonObject {
  const colon = text.indexOf(':')
  if (colon < 0) return { repo: text }
  const tags = text.slice(colon + 1).split(',')
  return { repo: text.slice(0, colon), tags: tags.filter((tag) => tag !== '') }
}
