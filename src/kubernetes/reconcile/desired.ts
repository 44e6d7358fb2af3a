import { create, fromJson, type DescField, type DescMessage, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { errorMessage } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { registry, resources } from '../../base/schema/schema.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { PlatformObject } from '../platform-object.ts'

/** The record that an object requests, with only the fields that the object sets. */
export interface Desired {
  readonly record: Resource
  /** The fields (proto names) that the object sets. Other fields stay as they are, but those that it set earlier are reset. */
  readonly paths: readonly string[]
}

/** A kind of record, and the fields (proto names) that a document about it cannot set. */
export interface RecordRow {
  readonly record: string
  readonly withheld: readonly string[]
}

/** Name and fields of a record, as an object has them. */
export type RecordSpec = Pick<PlatformObject, 'spec'> & { readonly metadata: Pick<PlatformObject['metadata'], 'name' | 'namespace'> }

/** Reference to a service account in the spec of an identity. It replaces the claim match for its tokens. */
interface ServiceAccountRef {
  readonly name: string
  readonly namespace?: string
}

/** Fields of every resource that a spec cannot set. */
const common: ReadonlySet<string> = new Set(['uid', 'etag', 'managed_by', 'create_time', 'update_time'])

/** Returns the fields of a record that an object's spec may contain under the same name. The CRD has the same fields. */
export function specFields(row: RecordRow): readonly DescField[] {
  const desc = messageOf(row)
  return desc.fields.filter((field) => !common.has(field.name) && !row.withheld.includes(field.name) && !fieldAccess(field).outputOnly)
}

/** Returns the message type of a kind's records. */
export function messageOf(row: Pick<RecordRow, 'record'>): DescMessage {
  const resource = resources.get(row.record)
  if (resource === undefined) throw new TypeError(`there is no resource of kind ${row.record}`)
  return resource.desc
}

/** Returns the claim match for the tokens that the cluster issues to pods of a service account. */
function serviceAccountMatch({ name, namespace }: ServiceAccountRef, ownNamespace: string, issuer: string): JsonObject {
  return { issuer, subject: `system:serviceaccount:${namespace ?? ownNamespace}:${name}` }
}

/** Returns the spec as JSON of a record: shorthands are expanded, references and policies are left out. */
function jsonOf(row: RecordRow, object: RecordSpec, options: { readonly issuer: string }): JsonObject {
  const { spec, metadata } = object
  // a cast: the API server has removed unknown fields, so all of it is JSON of known fields
  const given = spec as Readonly<Record<string, JsonValue | undefined>>
  const fields = specFields(row)
  const json: Record<string, JsonValue> = {}
  for (const { jsonName } of fields) {
    const value = given[jsonName]
    if (value !== undefined) json[jsonName] = value
  }
  if (fields.some(({ name }) => name === 'name')) json['name'] ??= metadata.name
  const account = spec['serviceAccountRef'] as ServiceAccountRef | undefined
  if (account !== undefined) json['claimMatch'] = serviceAccountMatch(account, metadata.namespace, options.issuer)
  return json
}

/** Returns the fields, as spelled in a spec, that are set in `record` but not in the object that wants `desired`. */
export function extraFields(row: ObjectKind, { record, desired }: { readonly record: Resource; readonly desired: Desired }): readonly string[] {
  const reflected = reflect(messageOf(row), record)
  return specFields(row)
    .filter((field) => reflected.isSet(field) && !desired.paths.includes(field.name))
    .map(({ jsonName }) => jsonName)
}

/**
 * Returns the record that `object` requests. `held` are the uids of its references, by the field (proto name) for them. Throws DomainError
 * code 3 if the spec is not valid JSON of such a record.
 */
export function desiredOf(row: RecordRow, object: RecordSpec, options: { readonly issuer: string; readonly held: Readonly<Record<string, string>> }): Desired {
  const desc = messageOf(row)
  const json = jsonOf(row, object, options)
  try {
    const parsed = fromJson(desc, json, { registry })
    const uids = desc.fields.flatMap(({ name, localName }) => (options.held[name] === undefined ? [] : [[localName, options.held[name]] as const]))
    const named = desc.fields.filter(({ jsonName, name }) => json[jsonName] !== undefined || options.held[name] !== undefined)
    return { record: create(desc, { ...parsed, ...Object.fromEntries(uids) }) as Resource, paths: named.map(({ name }) => name) }
  } catch (error) {
    throw DomainError.invalid('spec', errorMessage(error), { cause: error })
  }
}
