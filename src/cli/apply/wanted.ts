import { nearestName } from '../../base/nearest-name.ts'
import { builtInRoles } from '../../base/roles.ts'
import { isUid } from '../../base/uid.ts'
import { objectKinds, type ObjectKind } from '../../kubernetes/object-kinds.ts'
import { apiGroup, apiVersion, objectTypes } from '../../kubernetes/object-types.ts'
import { uidAnnotation } from '../../kubernetes/platform-object.ts'
import { specFields, type RecordRow, type RecordSpec } from '../../kubernetes/reconcile/desired.ts'
import { ClientError, isJson, textOf, type Json } from '../client/client-error.ts'
import { findKind } from '../client/kinds.ts'
import type { FieldFlag } from '../write/field-flags.ts'
import { writableKinds, type WritableKind } from '../write/writable-kinds.ts'
import { splitPath } from '../write/write.ts'
import type { InputDocument } from './documents.ts'

/** A record that a document refers to. */
export interface RecordReference {
  readonly kind: string
  /** What the document says, and in which field, for messages. */
  readonly text: string
  readonly field: string
  /** Known for a uid and for a built-in role. */
  readonly uid?: string
  /** A path of names, which may be that of a record of the server. */
  readonly path?: string
  /** The key of another document. */
  readonly key?: string
}

/** A record that a document describes. */
export interface WantedRecord {
  readonly place: string
  readonly writable: WritableKind
  readonly row: RecordRow
  /** Fields of the record, as a Kubernetes object has them. */
  readonly spec: RecordSpec
  /** The name of the record; undefined if its kind has no names. */
  readonly name: string | undefined
  /** The uid of the record, if the document has one. The record then exists. */
  readonly uid: string | undefined
  /** The group of the record; undefined for a root. */
  readonly parent: RecordReference | undefined
  /** Other records that its fields name, by the field (proto name). */
  readonly references: Readonly<Record<string, RecordReference>>
  /** Whether deliveries of a subscription are paused; undefined if the document does not say so. */
  readonly suspend: boolean | undefined
  /** The key under which other documents refer to an object; undefined for a document with a path. */
  readonly key: string | undefined
}

/** Kinds without names whose records can be recognised by other fields. */
export const recognised: ReadonlySet<string> = new Set(['RoleBinding', 'Subscription'])

/** Members of a document that are not fields of its record. */
const ownMembers = ['kind', 'path', 'uid', 'suspend']

/** Fields of a spec that concern the object in its cluster only. */
const objectFields: ReadonlySet<string> = new Set(['deletionPolicy', 'adoptionPolicy'])

/** Returns what a document describes; undefined if it describes an object that only a cluster has. Throws ClientError with the field that is wrong. */
export function wantedOf(document: InputDocument, issuer: string | undefined): WantedRecord | undefined {
  const { value } = document
  if (value['apiVersion'] === undefined) return fromRecord(document)
  if (typeof value['apiVersion'] !== 'string') throw new ClientError('apiVersion: must be text')
  const [group = '', version] = value['apiVersion'].split('/')
  if (group !== apiGroup || value['kind'] === objectTypes.grant.kind) return undefined
  if (version !== apiVersion) throw new ClientError(`apiVersion: this command reads ${apiGroup}/${apiVersion}`)
  return fromObject(document, issuer)
}

/** Returns the key of a record with a path. */
export function keyOfPath(kind: string, path: string): string {
  return `${kind} ${path}`
}

function keyOfObject(kind: string, namespace: string, name: string): string {
  return `${kind} object ${namespace}/${name}`
}

function fromRecord({ place, value }: InputDocument): WantedRecord {
  const { kind: kindName, path: pathText, uid, suspend, ...fields } = value
  const writable = appliedKind(textOf(kindName))
  const { kind } = writable.kind
  // Before the path, which may be what is misspelt.
  const { row, references, spec } = splitFields(writable, fields)
  const path = textOf(pathText)
  if (path === '') throw new ClientError('path: is required, as text such as acme/web')
  if (uid !== undefined && !isUid(textOf(uid))) throw new ClientError('uid: is not a uid')
  if (suspend !== undefined && (kind !== 'Subscription' || typeof suspend !== 'boolean'))
    throw new ClientError('suspend: is true or false, and only subscriptions have it')
  const { parent, name } = writable.isNamedByPath ? splitPath(writable.kind, path) : { parent: path, name: undefined }
  return {
    place,
    writable,
    row,
    spec: { metadata: { name: name ?? '', namespace: '' }, spec },
    name,
    uid: uid === undefined ? undefined : textOf(uid),
    parent: parent === undefined ? undefined : pathReference('Group', parent, 'path'),
    references,
    suspend,
    key: undefined,
  }
}

/** Separates the fields that name other records from those that the record has. */
function splitFields({ kind: { kind }, create }: WritableKind, fields: Json): Pick<WantedRecord, 'row' | 'references'> & { readonly spec: Json } {
  const flags = (create?.flags ?? []).filter(({ reference }) => reference !== undefined)
  const references: Record<string, RecordReference> = {}
  const spec: Record<string, unknown> = { ...fields }
  const settable = specFields({ record: kind, withheld: [] }).flatMap(({ jsonName }) => (jsonName === 'name' ? [] : [jsonName]))
  assertKnown(Object.keys(spec), [...settable, ...flags.map(shortName), ...ownMembers], '')
  for (const flag of flags) {
    const { field, reference = '' } = flag
    for (const key of [field.jsonName, shortName(flag)]) {
      if (spec[key] === undefined) continue
      if (references[field.name] !== undefined) throw new ClientError(`${key}: is given twice, also as ${field.jsonName}`)
      references[field.name] = pathReference(reference, spec[key], key)
      delete spec[key]
    }
    if (kind === 'RoleBinding' && references[field.name] === undefined) throw new ClientError(`${shortName(flag)}: is required`)
  }
  const row = { record: kind, withheld: flags.map(({ field }) => field.name) }
  return { row, references, spec }
}

/** Returns the name of a reference in a document: `identity` for `identityUid`, as the options of `create` are named. */
function shortName({ field }: FieldFlag): string {
  return field.jsonName.replace(/Uid$/, '')
}

function appliedKind(name: string): WritableKind {
  if (name === '') throw new ClientError('kind: is required, as text such as group')
  const kind = findKind(name, 'taproot')
  const writable = writableKinds().find((one) => one.kind === kind)
  if (writable?.create === undefined || writable.update === undefined || !(writable.isNamedByPath || recognised.has(kind.kind)))
    throw new ClientError(`kind: ${kind.words} cannot be applied`)
  return writable
}

function pathReference(kind: string, value: unknown, field: string): RecordReference {
  const text = textOf(value)
  if (text === '') throw new ClientError(`${field}: needs the path or uid of a ${kind.toLowerCase()}`)
  return { kind, text, field, ...(isUid(text) ? { uid: text } : { path: text, key: keyOfPath(kind, text) }) }
}

function fromObject({ place, value }: InputDocument, issuer: string | undefined): WantedRecord {
  const { apiVersion: _version, kind: kindName, metadata, spec, status: _status, ...others } = value
  const row: ObjectKind | undefined = Object.values(objectKinds).find(({ type }) => type.kind === kindName)
  if (row === undefined) throw new ClientError(`kind: there is no ${textOf(kindName)} in ${apiGroup}/${apiVersion}`)
  assertKnown(Object.keys(others), ['metadata', 'spec'], '')
  if (!isJson(metadata) || textOf(metadata['name']) === '') throw new ClientError('metadata.name: is required')
  if (!isJson(spec)) throw new ClientError('spec: is required')
  const object = { namespace: textOf(metadata['namespace']) || 'default', name: textOf(metadata['name']) }
  const own = ownFieldsOf(row)
  assertKnown(Object.keys(spec), [...specFields(row).map(({ jsonName }) => jsonName), ...row.references.map(({ field }) => field), ...own], 'spec.')
  if (spec['serviceAccountRef'] !== undefined) assertAccount(spec['serviceAccountRef'], issuer)
  const writable = appliedKind(row.record)
  const given = row.references.flatMap(({ field, kind, holds, optional }) => {
    if (spec[field] === undefined && optional) return []
    return [[holds, objectReference(kind, spec[field], { field: `spec.${field}`, namespace: object.namespace })] as const]
  })
  const { parent, ...references } = Object.fromEntries<RecordReference>(given)
  const { [uidAnnotation]: uid } = isJson(metadata['annotations']) ? metadata['annotations'] : {}
  if (uid !== undefined && !isUid(textOf(uid))) throw new ClientError(`metadata.annotations["${uidAnnotation}"]: is not a uid`)
  const { suspend } = spec
  if (suspend !== undefined && typeof suspend !== 'boolean') throw new ClientError('spec.suspend: is true or false')
  return {
    place,
    writable,
    row,
    spec: { metadata: object, spec },
    name: writable.isNamedByPath ? textOf(spec['name']) || object.name : undefined,
    uid: uid === undefined ? undefined : textOf(uid),
    parent,
    references,
    suspend,
    key: keyOfObject(row.record, object.namespace, object.name),
  }
}

/** Returns the fields of a spec that are not in the record. */
function ownFieldsOf({ record }: ObjectKind): readonly string[] {
  if (record === 'Identity') return [...objectFields, 'serviceAccountRef']
  return record === 'Subscription' ? [...objectFields, 'suspend', 'secretName'] : [...objectFields]
}

function assertAccount(account: unknown, issuer: string | undefined): void {
  if (!isJson(account) || textOf(account['name']) === '') throw new ClientError('spec.serviceAccountRef.name: is required')
  if (issuer === undefined) throw new ClientError('spec.serviceAccountRef: needs --cluster-issuer, the issuer of the tokens of service accounts in the cluster')
}

function objectReference(kind: string, value: unknown, { field, namespace }: { readonly field: string; readonly namespace: string }): RecordReference {
  const entries = isJson(value) ? Object.entries(value) : []
  const [[way, given] = ['', undefined], ...others] = entries
  const text = textOf(given)
  if (others.length === 0 && text !== '') {
    if (way === 'name') return { kind, text, field, key: keyOfObject(kind, namespace, text) }
    if (way === 'uid' && isUid(text)) return { kind, text, field, uid: text }
    if (way === 'builtIn' && kind === 'Role') {
      const role = builtInRoles.find(({ name }) => name === text)
      if (role === undefined) throw new ClientError(`${field}.builtIn: there is no built-in role ${text}`)
      return { kind, text, field, uid: role.uid }
    }
  }
  throw new ClientError(`${field}: needs exactly one of name, uid${kind === 'Role' ? ', builtIn' : ''}`)
}

function assertKnown(given: readonly string[], known: readonly string[], prefix: string): void {
  const unknown = given.find((name) => !known.includes(name))
  if (unknown === undefined) return
  const near = nearestName(unknown, known)
  throw new ClientError(`${prefix}${unknown}: there is no such field that can be set${near === undefined ? '' : `: did you mean ${near}?`}`)
}
