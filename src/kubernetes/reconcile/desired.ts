import { create, fromJson, type DescField, type DescMessage, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { errorMessage } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { registry, resources } from '../../base/schema/schema.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { PlatformObject } from '../platform-object.ts'

/** What an object wants its record to be: only the fields that it names. */
export interface Desired {
  readonly record: Resource
  /** The fields (proto names) that the object sets. Others are left as they are, except those that it set earlier: they are reset. */
  readonly paths: readonly string[]
}

/** Stands in the spec of an identity for the claim match of a service account's tokens. */
interface ServiceAccountRef {
  readonly name: string
  readonly namespace?: string
}

/** Fields of every resource that are not its own to say. */
const common: ReadonlySet<string> = new Set(['uid', 'etag', 'managed_by', 'create_time', 'update_time'])

/** The fields of a record that an object's spec may hold under the same name. The schema of the CRD is made of the same ones. */
export function specFields(row: ObjectKind): readonly DescField[] {
  const desc = messageOf(row)
  return desc.fields.filter((field) => !common.has(field.name) && !row.withheld.includes(field.name) && !fieldAccess(field).outputOnly)
}

/** The message of a kind's records. */
export function messageOf(row: Pick<ObjectKind, 'record'>): DescMessage {
  const resource = resources.get(row.record)
  if (resource === undefined) throw new TypeError(`no resource ${row.record}`)
  return resource.desc
}

/** The claim match of the tokens that the cluster gives to the pods of a service account. */
function serviceAccountMatch({ name, namespace }: ServiceAccountRef, ownNamespace: string, issuer: string): JsonObject {
  return { issuer, subject: `system:serviceaccount:${namespace ?? ownNamespace}:${name}` }
}

/** The spec as the JSON of a record: shorthands spelled out, references and policies left out. */
function jsonOf(row: ObjectKind, object: PlatformObject, options: { readonly issuer: string }): JsonObject {
  const { spec, metadata } = object
  // The API server has pruned what the CRD does not name, so all of it is JSON of known fields.
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

/** The fields (as a spec spells them) that `record` has and an object that wants `desired` does not name. */
export function extraFields(row: ObjectKind, { record, desired }: { readonly record: Resource; readonly desired: Desired }): readonly string[] {
  const reflected = reflect(messageOf(row), record)
  return specFields(row)
    .filter((field) => reflected.isSet(field) && !desired.paths.includes(field.name))
    .map(({ jsonName }) => jsonName)
}

/**
 * What `object` wants. `held` are the uids that its references stand for, by the field (proto name) that holds them. Throws DomainError code 3 where the spec is no JSON of
 * such a record.
 */
export function desiredOf(
  row: ObjectKind,
  object: PlatformObject,
  options: { readonly issuer: string; readonly held: Readonly<Record<string, string>> },
): Desired {
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
