import type { DescField, DescMessage } from '@bufbuild/protobuf'
import { rootParent } from '../uid.ts'
import { fieldAccess } from './field-behavior.ts'
import type { MethodRow } from './method.ts'
import { resources } from './schema.ts'

/** Stands for every kind. Methods whose scope field is called `resource` accept records of any kind. */
export const anyKind = 'Resource'

/** The field with the uid of the record that a request is about. */
export interface SubjectField {
  /** Proto names of the fields that lead to the uid, from the request message down. */
  readonly path: readonly string[]
  /** The kind that the record must have: the method's own kind, the parent's kind for a create, or `anyKind`. */
  readonly kind: string
}

/** Fields whose names state the kind of the record. */
const kindsByField: Readonly<Record<string, string>> = { group: 'Group', repo_id: 'Repo' }

/** Returns the field with the uid of the record that the method's requests are about; undefined if there is none. */
export function subjectFieldOf(method: MethodRow): SubjectField | undefined {
  // Roles can be read without a scope, because built-in ones belong to no group (docs/spec/iam.md#built-in-roles).
  const path = method.scopePath.length > 0 ? method.scopePath : method.verb === 'get' ? ['uid'] : []
  const field = path.at(-1)
  if (field === undefined) return undefined
  const own = method.kind ?? (field === 'resource' ? anyKind : 'Group')
  const isParent = field === 'parent' || (field === 'parent_id' && method.rpc === 'Create')
  return { path, kind: kindsByField[field] ?? (isParent ? (parentsOf(own)[0] ?? 'Group') : own) }
}

/** Returns the kinds of which a record of this kind can be a child. */
function parentsOf(kind: string): string[] {
  return (resources.get(kind)?.parents ?? []).filter((parent) => parent !== rootParent)
}

/** The kinds whose records have paths, because their names are unique under one parent (docs/spec/resources.md#paths). */
export const kindsWithPaths: readonly string[] = ['Group', 'Repo', 'Role', 'IdentityProvider']

/** The start of a path that a request has in place of a uid. No uid and no name contains a colon. */
export const pathPrefix = 'path:'

/** True if `text` is a path in place of a uid, whether or not it leads to a record. */
export function isPath(text: string): boolean {
  return text.startsWith(pathPrefix)
}

/** A field of a request that takes uids, and therefore paths. */
export interface UidField {
  /** Names of the members, from the request message down. A member may be a list. */
  readonly members: readonly string[]
  /** Proto name of the field in errors, relative to the resource. */
  readonly name: string
  /** The kinds of records to which a path in this field may lead. Empty if these records have no paths. */
  readonly kinds: readonly string[]
  /** True for the field with the uid of the record that the request is about. */
  readonly isSubject: boolean
}

/** The kinds of records that fields name in addition to the subject of the request, by message and field. */
const references: Readonly<Record<string, string>> = {
  'iam.v2.CreateGroupRequest.parent': 'Group',
  'iam.v2.JoinGroupRequest.uid': 'Group',
  'iam.v2.CreateRoleBindingRequest.parent': 'Group',
  'iam.v2.RoleBinding.identity_uid': 'Identity',
  'iam.v2.RoleBinding.role_uid': 'Role',
  'iam.v2.BatchCreateRoleBindingsRequest.role_uid': 'Role',
  'iam.v2.ListRoleBindingsRequest.identity': 'Identity',
  'iam.v2.ListRoleBindingsRequest.group': 'Group',
  'iam.v2.ListRoleBindingsRequest.role': 'Role',
  'iam.v2.GroupInvite.role_uid': 'Role',
  'iam.v2.IdentityProvider.default_role': 'Role',
  'iam.v2.ExternalGroupRoleMapping.role_uid': 'Role',
  'iam.v2.ExternalGroupRoleMapping.scope': 'Group',
  'iam.v2.ListExternalGroupRoleMappingsRequest.identity_provider_uid': 'IdentityProvider',
  'iam.v2.BatchDeleteExternalGroupRoleMappingsRequest.names': 'ExternalGroupRoleMapping',
  'iam.v2.ExplainRequest.identity': 'Identity',
  'iam.v2.TestCapabilitiesRequest.resource': anyKind,
  'audit.v2.ListAuditEventsRequest.actor': 'Identity',
  'audit.v2.ListAuditEventsRequest.resource': anyKind,
  'registry.v2.EndMirrorRequest.mirror_uid': 'Repo',
  'registry.v2.PullPolicy.Exception.repo_uid': 'Repo',
  'registry.v2.DryRunPullPolicyRequest.replaces': 'PullPolicy',
}

/** The references that are the subject of their request, although its method has no scope. */
const subjects: ReadonlySet<string> = new Set(['iam.v2.CreateGroupRequest.parent', 'iam.v2.JoinGroupRequest.uid'])

/** The name of a field as in `references`. */
function fullName({ parent, name }: DescField): string {
  return `${parent.typeName.replace(/^taproot\./, '')}.${name}`
}

/** Returns the kinds of records whose paths stand for the uid of a record of this kind. A record that has the uid of its parent has the parent's path. */
function pathKindsOf(kind: string): readonly string[] {
  if (kind === anyKind) return kindsWithPaths
  const row = resources.get(kind)
  const named = row?.singleton === true || row?.embedded === true ? row.parents : [kind]
  return kindsWithPaths.filter((one) => named.includes(one))
}

/** Returns the kinds that records of this kind can lie below, at any depth. */
function kindsAbove(kind: string, seen = new Set<string>()): ReadonlySet<string> {
  for (const parent of parentsOf(kind)) if (!seen.has(parent)) kindsAbove(parent, seen.add(parent))
  return seen
}

/** Returns the kinds of records that the fields of a list's filter by place name, by the proto name of the field. */
function filterKinds(kind: string | undefined): Readonly<Record<string, readonly string[]>> {
  const among = (kinds: Iterable<string>): readonly string[] => (kind === undefined ? kindsWithPaths : kindsWithPaths.filter((one) => new Set(kinds).has(one)))
  return {
    ancestors_of: kindsWithPaths,
    descendants_of: among(kindsAbove(kind ?? anyKind)),
    children_of: among(parentsOf(kind ?? anyKind)),
    ids: pathKindsOf(kind ?? anyKind),
  }
}

/** Returns the kinds of records to which a path in this field may lead. Undefined for fields that name no record, or only the subject of a request. */
export function referenceKinds(field: DescField): readonly string[] | undefined {
  const kind = references[fullName(field)]
  return kind === undefined ? undefined : pathKindsOf(kind)
}

function kindsOf(method: MethodRow, field: DescField): readonly string[] | undefined {
  return field.parent.typeName === 'taproot.common.v2.UIDPFilter' ? filterKinds(method.kind)[field.name] : referenceKinds(field)
}

function* fieldsBelow(method: MethodRow, desc: DescMessage, above: readonly DescField[]): Generator<UidField> {
  const subject = subjectFieldOf(method)
  for (const field of desc.fields) {
    const fields = [...above, field]
    const isSubject = subject !== undefined && subject.path.join('.') === fields.map(({ name }) => name).join('.')
    const kinds = isSubject ? pathKindsOf(subject.kind) : kindsOf(method, field)
    if (kinds !== undefined) {
      // An error names the fields of a resource without the field that contains the resource.
      const named = above[0]?.message !== undefined && above[0].message.name === method.kind ? fields.slice(1) : fields
      yield {
        members: fields.map(({ localName }) => localName),
        name: named.map(({ name }) => name).join('.'),
        kinds,
        isSubject: isSubject || subjects.has(fullName(field)),
      }
    }
    const inner = field.fieldKind === 'map' ? undefined : field.message
    const isWritable = !fieldAccess(field).outputOnly && field.oneof === undefined
    if (inner !== undefined && isWritable && inner.file.proto.package.startsWith('taproot.') && !fields.slice(0, -1).some(({ message }) => message === inner))
      yield* fieldsBelow(method, inner, fields)
  }
}

const known = new WeakMap<MethodRow, readonly UidField[]>()

/** Returns the fields of the method's requests that take uids. Empty for methods of version 1, whose requests have no paths. */
export function uidFieldsOf(method: MethodRow): readonly UidField[] {
  let fields = known.get(method)
  if (fields === undefined) {
    fields = method.service.includes('.v2.') ? [...fieldsBelow(method, method.input, [])] : []
    known.set(method, fields)
  }
  return fields
}
