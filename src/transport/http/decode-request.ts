import { ScalarType, create, fromJson } from '@bufbuild/protobuf'
import type { DescField, DescMessage, JsonObject, Message } from '@bufbuild/protobuf'
import { isFieldError, protoSnakeCase } from '@bufbuild/protobuf/reflect'
import { FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { DomainError, maxViolations } from '../../base/errors.ts'
import type { FieldViolation } from '../../base/errors.ts'
import type { DecodedCall } from '../calls/call.ts'
import { fieldOfKey, isJsonObject, shapeJson } from './json-shape.ts'
import type { Shaped } from './json-shape.ts'
import { readQuery } from './query.ts'
import type { TemplateVariable } from './template.ts'

/** The parts of an HTTP request from which its message is built. */
export interface RequestParts {
  readonly input: DescMessage
  readonly verb: string
  /** The part of the message that the body fills: '' (none), '*' (the whole message) or the proto name of a field. */
  readonly bodyField: string
  readonly query: URLSearchParams
  /** The JSON object in the body; undefined if the route has no body. */
  readonly body: JsonObject | undefined
  readonly variables: readonly (TemplateVariable & { readonly value: string })[]
  /** True if unknown fields are ignored instead of refused. */
  readonly lenient: boolean
}

/** Keys that the body of a PATCH may always contain, and that are not fields to change (docs/spec/conventions.md#update-masks). */
const neverMasked: ReadonlySet<string> = new Set(['uid', 'etag'])

/**
 * Builds the request message from the query, the body and the path variables. Each overrides the ones before. Throws code 3 with all faults. `present` is set
 * for a PATCH whose query has no mask.
 */
export function decodeRequest(parts: RequestParts): DecodedCall {
  return byTexts(parts) ?? byJson(parts)
}

/** Maximum number of query parameters of a request that is read in the short way. */
const fewParameters = 4

/** Builds the message of a request that has only texts in its path and query, as most reads do; undefined for any other request. */
function byTexts({ input, body, query, variables }: RequestParts): DecodedCall | undefined {
  if (body !== undefined || query.size > fewParameters) return undefined
  const texts = variables.map(({ path, value }) => [path.length === 1 ? (path[0] ?? '') : '', value] as const)
  const message = create(input)
  // The path has the last word.
  for (const [name, value] of [...query, ...texts]) {
    const field = fieldOfKey(input, name)
    if (field?.scalar !== ScalarType.STRING || field.fieldKind !== 'scalar' || field.oneof !== undefined) return undefined
    // A message of type `input` has the members that `input` lists. An empty text counts as absent.
    const members = message as unknown as Record<string, unknown>
    if (value !== '') members[field.localName] = value
  }
  return { message }
}

function byJson(parts: RequestParts): DecodedCall {
  const maskPaths = readMask(parts.query)
  const derivesMask = parts.verb === 'PATCH' && maskPaths === undefined
  const query = readQuery(parts.input, parts.query, parts)
  const body = shapeBody(parts, maskPaths)
  const violations = [...readValidateOnly(parts.query).violations, ...query.violations, ...(body?.violations ?? [])].slice(0, maxViolations)
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  const json = { ...query.json, ...bodyFields(parts, body) }
  for (const { path, value } of parts.variables) setVariable(parts.input, json, { path, value })
  const maskField = parts.input.fields.find((field) => field.message?.typeName === FieldMaskSchema.typeName)
  if (maskField !== undefined && maskPaths !== undefined) delete json[maskField.jsonName]
  const message = toMessage(parts.input, json)
  if (maskField !== undefined && maskPaths !== undefined) setMask(message, maskField, maskPaths)
  return derivesMask && body !== undefined ? { message, present: body.present.filter((path) => !neverMasked.has(path)) } : { message }
}

/** Reads the query parameter `validateOnly` or `validate_only`. A value other than true, false, 1, 0 or empty is a violation, and counts as true. */
export function readValidateOnly(query: URLSearchParams): { readonly value: boolean; readonly violations: readonly FieldViolation[] } {
  const text = query.get('validateOnly') ?? query.get('validate_only') ?? ''
  if (text === '' || text === 'false' || text === '0') return { value: false, violations: [] }
  const isTrue = text === 'true' || text === '1'
  return { value: true, violations: isTrue ? [] : [{ field: 'validateOnly', description: 'must be true or false' }] }
}

/** Returns the paths of the query's field mask in proto names; undefined without a mask. */
function readMask(query: URLSearchParams): string[] | undefined {
  const text = [...query.getAll('updateMask'), ...query.getAll('update_mask')].join(',')
  const paths = text.split(',').map((path) => path.trim())
  const given = paths.filter((path) => path !== '')
  return given.length === 0 ? undefined : [...new Set(given.map(snakePath))]
}

function snakePath(path: string): string {
  return path.includes('_') ? path : path.split('.').map(protoSnakeCase).join('.')
}

/**
 * Checks the body and normalises its keys. If the query has a mask, ignores all fields that the mask does not contain, even unknown ones
 * (docs/spec/conventions.md#update-masks).
 */
function shapeBody(parts: RequestParts, maskPaths: readonly string[] | undefined): Shaped | undefined {
  if (parts.body === undefined) return undefined
  const isMasked = maskPaths !== undefined && !maskPaths.includes('*')
  const elsewhere = parts.bodyField === '*' ? [] : parts.input.fields.filter(({ name }) => name !== parts.bodyField).map(({ jsonName }) => jsonName)
  return shapeJson(bodyMessage(parts), parts.body, { strict: !parts.lenient && !isMasked, elsewhere })
}

function bodyMessage(parts: RequestParts): DescMessage {
  if (parts.bodyField === '*') return parts.input
  const desc = fieldOfKey(parts.input, parts.bodyField)?.message
  if (desc === undefined) throw new TypeError(`${parts.input.typeName} has no message field ${parts.bodyField}`)
  return desc
}

function bodyFields(parts: RequestParts, body: Shaped | undefined): JsonObject {
  if (body === undefined) return {}
  const field = parts.bodyField === '*' ? undefined : fieldOfKey(parts.input, parts.bodyField)
  return field === undefined ? body.json : { [field.jsonName]: body.json }
}

function setVariable(input: DescMessage, json: JsonObject, variable: { readonly path: readonly string[]; readonly value: string }): void {
  let at = json
  let desc: DescMessage | undefined = input
  variable.path.forEach((name, index) => {
    const field: DescField | undefined = desc === undefined ? undefined : fieldOfKey(desc, name)
    if (field === undefined) throw new TypeError(`${input.typeName} has no field ${variable.path.join('.')}`)
    if (index === variable.path.length - 1) {
      at[field.jsonName] = variable.value
      return
    }
    const next = at[field.jsonName]
    const object = isJsonObject(next) ? next : {}
    at[field.jsonName] = object
    at = object
    desc = field.message
  })
}

function toMessage(input: DescMessage, json: JsonObject): Message {
  try {
    return fromJson(input, json)
  } catch (error) {
    // protobuf-es should be able to read every value that json-shape.ts accepts. If it cannot, its error may name the field.
    const cause: unknown = error instanceof Error ? error.cause : undefined
    throw DomainError.invalid(isFieldError(cause) ? cause.field().name : 'body', 'is not valid', { cause: error })
  }
}

function setMask(message: Message, field: DescField, paths: string[]): void {
  // The message of the request has its mask field under the member's local name.
  const fields = message as unknown as Record<string, unknown>
  fields[field.localName] = create(FieldMaskSchema, { paths })
}
