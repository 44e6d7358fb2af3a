import { DomainError } from '../../base/errors.ts'
import { scimError } from './scim-error.ts'
import { enterpriseAttributes, enterpriseUrn, isUrn, topAttributes, userUrn, type ScimAttribute, type ScimAttributes } from './scim-schema.ts'

/** A value of an attribute. */
export type ScimValue = string | boolean | ScimObject | readonly ScimValue[]

/** Values by attribute name. Only this code creates such objects, never a request, so they have only names of the schema. */
export interface ScimObject {
  readonly [name: string]: ScimValue
}

/** Maximum size of a request body (docs/spec/scim.md#scim-users), in bytes. */
export const maxUserBytes = 256 * 1024
/** Maximum size of a user as JSON, in bytes. Directories usually send a few KiB. */
const maxStoredBytes = 32 * 1024
/** Maximum number of values of an attribute. */
export const maxValues = 100
const maxTextLength = 4096

/** True for a JSON object. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function readText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw scimError('invalidValue', `${path} must be a string`)
  if (value.length > maxTextLength) throw scimError('invalidValue', `${path} must not be longer than ${maxTextLength} characters`)
  if (!value.isWellFormed()) throw scimError('invalidValue', `${path} must be well-formed Unicode`)
  return value
}

/** Reads a boolean. Microsoft Entra ID sends booleans as strings. */
function readFlag(value: unknown, path: string): boolean {
  if (typeof value === 'boolean') return value
  const word = typeof value === 'string' ? value.toLowerCase() : ''
  if (word !== 'true' && word !== 'false') throw scimError('invalidValue', `${path} must be true or false`)
  return word === 'true'
}

/** Reads one value of the attribute. Undefined for null, or an object without a known value. Throws `invalidValue`. */
function readOne(attribute: ScimAttribute, value: unknown, path: string): ScimValue | undefined {
  if (value === null || value === undefined) return undefined
  if (attribute.type === 'boolean') return readFlag(value, path)
  if (attribute.subAttributes === undefined) return readText(value, path)
  // Entra sends a manager as a string with the value.
  const object = typeof value === 'string' && attribute.subAttributes.has('value') ? { value } : value
  if (!isObject(object)) throw scimError('invalidValue', `${path} must be an object`)
  const read = readMembers(attribute.subAttributes, object, `${path}.`)
  return Object.keys(read).length === 0 ? undefined : read
}

/** Throws `invalidValue` if more than one value is primary (RFC 7643 2.4). */
export function assertOnePrimary(values: readonly ScimValue[], path: string): void {
  if (values.filter((value) => isObject(value) && value['primary'] === true).length > 1)
    throw scimError('invalidValue', `${path} must have one primary value at most`)
}

/** Reads the value of an attribute in a request. Undefined for no value (RFC 7643 2.5). Throws `invalidValue`. */
export function readValue(attribute: ScimAttribute, value: unknown, path = attribute.name): ScimValue | undefined {
  if (!attribute.multiValued) return readOne(attribute, value, path)
  if (value === null || value === undefined) return undefined
  const items: readonly unknown[] = Array.isArray(value) ? value : [value]
  if (items.length > maxValues) throw scimError('invalidValue', `${path} must not have more than ${maxValues} values`)
  const read = items.map((item) => readOne(attribute, item, path)).filter((item) => item !== undefined)
  assertOnePrimary(read, path)
  return read.length === 0 ? undefined : read
}

/** Returns the members that are in the schema and that clients may write. Others are ignored (RFC 7644 3.3). */
function readMembers(attributes: ScimAttributes, object: Readonly<Record<string, unknown>>, prefix: string): ScimObject {
  const read: Record<string, ScimValue> = {}
  for (const [name, value] of Object.entries(object)) {
    const attribute = attributes.get(name.toLowerCase())
    if (attribute === undefined || attribute.mutability === 'readOnly') continue
    const found = readValue(attribute, value, `${prefix}${attribute.name}`)
    if (found === undefined) delete read[attribute.name]
    else read[attribute.name] = found
  }
  return read
}

/** Returns the values of the enterprise extension. Undefined if there are none. */
function readEnterprise(value: unknown): ScimObject | undefined {
  if (value === null || value === undefined) return undefined
  if (!isObject(value)) throw scimError('invalidValue', `${enterpriseUrn} must be an object`)
  const read = readMembers(enterpriseAttributes, value, `${enterpriseUrn}:`)
  return Object.keys(read).length === 0 ? undefined : read
}

/**
 * Throws `invalidValue` for attributes with a URN, which would otherwise be ignored. Only the extension is written under its URN (RFC 7643
 * 3.3).
 */
function assertPlace(name: string): void {
  const urn = [userUrn, `${enterpriseUrn}:`].find((start) => name.toLowerCase().startsWith(start.toLowerCase()))
  if (urn !== undefined)
    throw scimError('invalidValue', `${name.slice(0, 100)}: write user attributes without a URN, and attributes of ${enterpriseUrn} as its members`)
}

/** Reads the user in a request (RFC 7644 3.3, 3.5.1). Throws `invalidValue`. */
export function readUser(body: Readonly<Record<string, unknown>>): ScimObject {
  for (const name of Object.keys(body)) assertPlace(name)
  const read = readMembers(topAttributes, body, '')
  const extension = Object.entries(body).find(([name]) => isUrn(name, enterpriseUrn))
  const enterprise = readEnterprise(extension?.[1])
  return enterprise === undefined ? read : { ...read, [enterpriseUrn]: enterprise }
}

const maxNameLength = 255

function shortText(user: ScimObject, name: string): string {
  const value = user[name] ?? ''
  if (typeof value !== 'string') throw new TypeError(`${name} must be a string`)
  if (value.length > maxNameLength) throw scimError('invalidValue', `${name} must not be longer than ${maxNameLength} characters`)
  return value
}

/** A user's search keys and its JSON. */
export interface ScimUserFacts {
  /** `userName` in the form for comparisons. */
  readonly userName: string
  readonly externalId: string
  /** False only if the request sets it to false. */
  readonly active: boolean
  readonly attributes: string
}

/** Returns `userName` in the form for comparisons, which ignores letter case. */
export function comparedName(userName: string): string {
  return userName.normalize('NFC').toLowerCase()
}

/** Returns the facts of a user. Throws `invalidValue`, and code 3 with HTTP 413 for a user that is too large. */
export function factsOfUser(user: ScimObject): ScimUserFacts {
  const userName = comparedName(shortText(user, 'userName'))
  if (userName.trim() === '') throw scimError('invalidValue', 'userName is required')
  const attributes = JSON.stringify(user)
  if (Buffer.byteLength(attributes) > maxStoredBytes) throw new DomainError(3, `a user must not be larger than ${maxStoredBytes} bytes`, { httpStatus: 413 })
  return { userName, externalId: shortText(user, 'externalId'), active: user['active'] === true, attributes }
}
