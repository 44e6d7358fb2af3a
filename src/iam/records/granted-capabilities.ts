import { assertCanGrant } from '../../authz/grant-check.ts'
import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { parentOf, type Uid } from '../../base/uid.ts'
import type { ExternalGroupRoleMapping } from '../../gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { recordKey } from '../../store/keys.ts'
import { isBuiltInRole } from '../../engine/organisation-owners.ts'
import type { Extra, Planning } from '../../engine/kind.ts'
import { bindableBy, bindableRole, noSuchRole } from './role-bindings.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/** The mapping in a record of kind ExternalGroupRoleMapping. */
export function mappingOf(record: CachedRecord): ExternalGroupRoleMapping {
  return messageOf(record, 'ExternalGroupRoleMapping')
}

/** A role to confer, and the group in which it will apply. */
export interface Conferral {
  readonly role: string
  /** The group where the role applies, and everything below it. */
  readonly at: string
  /** Name of the request field with the role, for errors. */
  readonly field: string
}

/**
 * Throws code 3 if the role cannot be conferred on the group. The error is the same if the role does not exist, is not visible, or cannot
 * be used there. Throws code 7 if the caller lacks one of its capabilities there (docs/spec/iam.md#no-escalation). Returns the guard that
 * the role still exists.
 */
export function assertCanConfer(planning: Planning, { role, at, field }: Conferral): Extra {
  const record = bindableBy(planning, role, at)
  if (record === undefined) throw DomainError.invalid(field, noSuchRole)
  assertCanGrant(planning.permissions, at, roleCapabilities(record))
  return isBuiltInRole(role) ? {} : { guards: [{ kind: 'exists', key: recordKey('Role', record.uid) }] }
}

/**
 * Returns the capabilities of a role at a group. Empty if the role was deleted (docs/spec/identities.md#default-roles) or cannot be bound
 * there.
 */
function grantedBy(tables: RecordTables, role: string, at: string): CapabilitySet {
  const record = bindableRole(tables, role, at)
  return record === undefined ? emptySet : roleCapabilities(record)
}

/**
 * Throws code 7 if the caller lacks a capability that sign-ins with the provider confer. These come from its default role in the
 * provider's group, and from each mapped role at its scope. Otherwise, a caller who changes the sign-in could sign in as any person of the
 * provider (docs/spec/iam.md#no-escalation).
 */
export function assertHoldsWhatProviderConfers(planning: Planning, provider: { readonly uid: Uid; readonly defaultRole: string }): void {
  const { tables } = planning
  const seen = new Set<string>()
  const check = (role: string, at: string): void => {
    if (seen.has(`${role} ${at}`)) return
    seen.add(`${role} ${at}`)
    assertCanGrant(planning.permissions, at, grantedBy(tables, role, at))
  }
  check(provider.defaultRole, parentOf(provider.uid))
  for (const record of tables.table('ExternalGroupRoleMapping').matching('parent', provider.uid)) {
    const { roleUid, scope } = mappingOf(record)
    check(roleUid, scope)
  }
}
