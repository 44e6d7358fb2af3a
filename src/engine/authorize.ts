import type { DescMessage, Message } from '@bufbuild/protobuf'
import { decide, holdsAnywhere, type EffectivePermissions } from '../authz/effective-permissions.ts'
import { isSuspended } from '../authz/access.ts'
import { setOf, type CapabilitySet } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { errorDomainSuffix, resources } from '../base/schema/schema.ts'
import { anyKind, isPath, subjectFieldOf } from '../base/schema/uid-fields.ts'
import { isUid, rootOf, rootParent, type Uid } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { notFound } from './errors.ts'
import { isBuiltInRole } from './organisation-owners.ts'

/** The record that a request acts on: the one named by the request's scope field. */
interface Target {
  /** The kind that the record must have. It is the method's own kind, the parent's kind for a create, or any kind. */
  readonly kind: string
  readonly uid: string
  /** Name of the scope field, for error messages. */
  readonly field: string
}

/** How to find the target of a method's requests. It is computed once per method. */
interface TargetPlan extends Pick<Target, 'kind' | 'field'> {
  readonly needed: CapabilitySet
  /** The names of the members, from the request message down, that lead to the uid. */
  readonly members: readonly string[]
}

/** Converts a path of schema names to member names in messages of `desc`. Throws TypeError if a field does not exist. */
function membersOf(desc: DescMessage, [name, ...rest]: readonly string[]): string[] {
  const field = desc.fields.find((candidate) => candidate.name === name)
  if (field === undefined) throw new TypeError(`${desc.typeName} has no field ${name}`)
  return field.message === undefined || rest.length === 0 ? [field.localName] : [field.localName, ...membersOf(field.message, rest)]
}

function planTarget(method: MethodRow): TargetPlan | undefined {
  const subject = subjectFieldOf(method)
  if (subject === undefined) return undefined
  const { path, kind } = subject
  return { kind, field: path.at(-1) ?? '', needed: setOf(method.capabilities), members: membersOf(method.input, path) }
}

const plans = new WeakMap<MethodRow, { readonly target: TargetPlan | undefined }>()

function planOf(method: MethodRow): TargetPlan | undefined {
  let plan = plans.get(method)
  if (plan === undefined) {
    plan = { target: planTarget(method) }
    plans.set(method, plan)
  }
  return plan.target
}

/** Returns the text at the end of a path of members; empty if it is not set. */
function textAt(message: Message, members: readonly string[]): string {
  let value: unknown = message
  for (const member of members) value = (value as Readonly<Record<string, unknown>> | undefined)?.[member]
  return typeof value === 'string' ? value : ''
}

/** Throws code 7 if the organisation is suspended, which means closed to its members (docs/spec/iam.md#suspended-organisations). */
export function assertNotSuspended(tables: RecordTables, permissions: EffectivePermissions, uid: Uid): void {
  if (permissions.operator || !isSuspended(tables, uid)) return
  throw new DomainError(7, 'the organisation is suspended: ask an operator', {
    reason: 'ORGANIZATION_SUSPENDED',
    details: { metadata: { scope: rootOf(uid) } },
  })
}

/** Throws code 7 if only operators may call the method, and the caller is not an operator. */
function assertOperator(method: MethodRow, permissions: EffectivePermissions, scope: string): void {
  if (method.operators && !permissions.operator)
    throw new DomainError(7, 'permission denied: only operators can do this (setting bootstrap.operators)', { details: { metadata: { scope } } })
}

/** Checks access to a built-in role. Callers who may list roles in any group can read it. No caller can change it (docs/spec/iam.md#built-in-roles). */
function assertBuiltInRole(method: MethodRow, permissions: EffectivePermissions, uid: string): void {
  if (!holdsAnywhere(permissions, setOf(['roles.list']))) throw notFound('Role', uid, { concealed: true })
  if (method.mutation) throw DomainError.denied(method.capabilities, uid)
}

/** Returns code 5 for a target. The error is the same for a target that is missing, malformed or not visible to the caller. */
function noTarget({ kind, uid }: Target, options: { readonly concealed?: boolean } = {}): DomainError {
  return notFound(kind, uid, { ...options, ...(kind === anyKind ? { resourceType: `iam.${errorDomainSuffix}/${anyKind}` } : {}) })
}

/** True if a record of the target's kind has this uid. Kinds without a uid of their own do not count, and neither do those of which catalogues have records. */
function isThere(tables: RecordTables, { kind, uid }: Target): boolean {
  if (resources.get(kind)?.catalogue === true) return true
  if (kind !== anyKind) return !tables.hasKind(kind) || tables.get(kind, uid) !== undefined
  // Built-in roles are in no group, so no role can be bound to them.
  return !isBuiltInRole(uid) && [...resources].some(([one, { embedded }]) => !embedded && tables.get(one, uid) !== undefined)
}

/**
 * Returns those of the capabilities that the caller holds at a place: a method that needs one of them is allowed there. The result does not tell whether a
 * record has this uid. None if the organisation is suspended.
 */
export function heldAt(
  tables: RecordTables,
  permissions: EffectivePermissions,
  { resource, capabilities }: { readonly resource: Uid; readonly capabilities: readonly string[] },
): ReadonlySet<string> {
  if (isSuspended(tables, resource) && !permissions.operator) return new Set()
  return new Set(capabilities.filter((name) => decide(permissions, resource, setOf([name])).kind === 'allowed'))
}

/**
 * Checks whether the caller may make this call as of `tables` (docs/spec/conventions.md#order-of-checks). It throws, in this order:
 * - code 5 if the caller may not see the target
 * - code 7 if the caller lacks a capability
 * - code 5 if the target does not exist
 */
export function authorizeCall(tables: RecordTables, permissions: EffectivePermissions, call: { method: MethodRow; message: Message }): void {
  const { method, message } = call
  if (method.scope === 'public' || method.scope === 'external') return
  const plan = planOf(method)
  if (plan === undefined) {
    assertOperator(method, permissions, rootParent)
    return
  }
  const target: Target = { kind: plan.kind, uid: textAt(message, plan.members), field: plan.field }
  if (target.uid === '' && method.verb !== 'get') throw DomainError.invalid(target.field, 'is required')
  // A path to no record that the caller can see remains in the request. The audit trail counts that as a denial.
  if (!isUid(target.uid)) throw noTarget(target, { concealed: isPath(target.uid) })
  if (target.kind === 'Role' && isBuiltInRole(target.uid)) {
    assertBuiltInRole(method, permissions, target.uid)
    return
  }
  const decision = decide(permissions, target.uid, plan.needed)
  if (decision.kind === 'hidden') throw noTarget(target, { concealed: true })
  if (decision.kind === 'denied') throw DomainError.denied(decision.missing, target.uid)
  assertOperator(method, permissions, target.uid)
  assertNotSuspended(tables, permissions, target.uid)
  if (!isThere(tables, target)) throw noTarget(target)
}
