import { ScalarType } from '@bufbuild/protobuf'
import type { DescField, DescMessage, JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { FieldViolation } from '../../core/errors.ts'
import { misnamedField } from './misnamed-fields.ts'
import { fieldOfKey, isJsonObject, isLeafMessage, shapeValue } from './json-shape.ts'

/** What a query string says of a request. */
export interface QueryFields {
  /** Field values in protobuf's JSON form. */
  readonly json: JsonObject
  readonly violations: readonly FieldViolation[]
}

/**
 * Reads query parameters into fields of a request: names in snake_case or lowerCamel, dotted where nested, repeated keys for lists.
 * Unknown keys and those of the field that the body fills are ignored, and an empty value counts as absent (docs/spec/conventions.md#query-parameters); of a repeated single value the last one counts.
 */
export function readQuery(desc: DescMessage, query: URLSearchParams, bodyField: string): QueryFields {
  const json: JsonObject = {}
  const violations: FieldViolation[] = []
  for (const [key, text] of query) {
    const wrong = misnamedField(desc, key)
    if (wrong !== undefined) violations.push(wrong)
    const found = text === '' ? undefined : resolve(desc, key.split('.'))
    if (found === undefined || found.path[0]?.name === bodyField) continue
    const { path, field } = found
    const value = parseText(field, text)
    if ('fault' in value) violations.push({ field: path.map(({ name }) => name).join('.'), description: value.fault })
    else assign(json, path, value.json)
  }
  return { json, violations }
}

/** Sets a value below nested objects, making those that are missing; a list field collects. */
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

type Parsed = { readonly json: JsonValue } | { readonly fault: string }

const booleans: Readonly<Record<string, boolean>> = { true: true, false: false, '1': true, '0': false }

function parseText(field: DescField, text: string): Parsed {
  if (isImageRefs(field)) return { json: imageRef(text) }
  if (field.scalar === ScalarType.BOOL) {
    const value = Object.hasOwn(booleans, text) ? booleans[text] : undefined
    return value === undefined ? { fault: 'must be true or false' } : { json: value }
  }
  if (field.enum !== undefined && /^-?\d{1,10}$/.test(text)) return shapeValue(field, Number(text))
  return shapeValue(field, text)
}

/** The one repeated message that a query can carry: `imageRefs=<repo>[:<tag>[,<tag>]]`. */
function isImageRefs(field: DescField): boolean {
  return field.fieldKind === 'list' && field.message?.name === 'ImageRef'
}

function imageRef(text: string): JsonObject {
  const colon = text.indexOf(':')
  if (colon < 0) return { repo: text }
  const tags = text.slice(colon + 1).split(',')
  return { repo: text.slice(0, colon), tags: tags.filter((tag) => tag !== '') }
}
