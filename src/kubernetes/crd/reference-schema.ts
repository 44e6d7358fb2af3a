import { builtInRoles } from '../../base/roles.ts'
import { RoleBindingSchema } from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { ReferenceRow } from '../object-kinds.ts'
import { constraintsOf, rulesOf } from './constraints.ts'
import { oneOfRule, withConstraints, type StructuralSchema } from './structural-schema.ts'

/** The schema of an object's name, as Kubernetes defines it. */
export const objectName: StructuralSchema = {
  type: 'string',
  maxLength: 253,
  pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$',
}

/** The schema of a namespace's name. */
export const namespaceName: StructuralSchema = { type: 'string', maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }

const uidRules = rulesOf(RoleBindingSchema.field.identityUid)
if (uidRules === undefined) throw new Error('the proto field of uids has no rules')

/** The schema of a record's uid. */
export const uid: StructuralSchema = withConstraints({ type: 'string' }, ...constraintsOf(uidRules))

const builtIn: StructuralSchema = {
  description: 'Name of a built-in role.',
  type: 'string',
  enum: builtInRoles.map(({ name }) => name),
}

const meanings = {
  parentRef: 'Group of the record. It cannot be changed.',
  identityRef: 'Identity that gets the role. It cannot be changed.',
  roleRef: 'Role to grant. It cannot be changed.',
} as const satisfies Record<ReferenceRow['field'], string>

/** Returns the schema of a reference to another record: by exactly one field, which cannot change. */
export function referenceSchema({ field, kind }: ReferenceRow): StructuralSchema {
  const properties = {
    name: { description: `Name of a Platform${kind} in the same namespace.`, ...objectName },
    uid: { description: `Uid of a ${kind.toLowerCase()}, from an object or from the API.`, ...uid },
    ...(kind === 'Role' && { builtIn }),
  }
  return {
    description: meanings[field],
    type: 'object',
    properties,
    'x-kubernetes-validations': [oneOfRule(Object.keys(properties), true), { rule: 'self == oldSelf', message: `${field} never changes` }],
  }
}

/**
 * Returns the schema of the maximum role that a grant lets objects confer. It has no reference by object name, because a grant is not in a
 * namespace.
 */
export function roleLimitSchema(description: string): StructuralSchema {
  const properties = { uid: { description: 'Uid of a role.', ...uid }, builtIn }
  return { description, type: 'object', properties, 'x-kubernetes-validations': [oneOfRule(Object.keys(properties), true)] }
}
