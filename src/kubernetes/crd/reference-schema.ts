import { builtInRoles } from '../../base/roles.ts'
import { RoleBindingSchema } from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { ReferenceRow } from '../object-kinds.ts'
import { constraintsOf, rulesOf } from './constraints.ts'
import { oneOfRule, withConstraints, type StructuralSchema } from './structural-schema.ts'

/** The name of an object, as Kubernetes has them. */
export const objectName: StructuralSchema = {
  type: 'string',
  maxLength: 253,
  pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$',
}

/** The name of a namespace. */
export const namespaceName: StructuralSchema = { type: 'string', maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }

const uidRules = rulesOf(RoleBindingSchema.field.identityUid)
if (uidRules === undefined) throw new Error('schema: uids have no rules')

/** The uid of a record. */
export const uid: StructuralSchema = withConstraints({ type: 'string' }, ...constraintsOf(uidRules))

const builtIn: StructuralSchema = {
  description: "A role of the platform's own.",
  type: 'string',
  enum: builtInRoles.map(({ name }) => name),
}

const meanings = {
  parentRef: 'The group that it lies in. Never changes.',
  identityRef: 'The identity that gets the role. Never changes.',
  roleRef: 'The role that it gets. Never changes.',
} as const satisfies Record<ReferenceRow['field'], string>

/** A reference to another record: exactly one way of naming it, which never changes. */
export function referenceSchema({ field, kind }: ReferenceRow): StructuralSchema {
  const properties = {
    name: { description: `The Platform${kind} of this name in the same namespace.`, ...objectName },
    uid: { description: `The uid of a ${kind.toLowerCase()}, wherever it comes from.`, ...uid },
    ...(kind === 'Role' && { builtIn }),
  }
  return {
    description: meanings[field],
    type: 'object',
    properties,
    'x-kubernetes-validations': [oneOfRule(Object.keys(properties), true), { rule: 'self == oldSelf', message: `${field} never changes` }],
  }
}

/** The highest role that a grant lets objects give: not by name, for a grant is in no namespace. */
export function roleLimitSchema(description: string): StructuralSchema {
  const properties = { uid: { description: 'The uid of a role.', ...uid }, builtIn }
  return { description, type: 'object', properties, 'x-kubernetes-validations': [oneOfRule(Object.keys(properties), true)] }
}
