import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { parentOf, type Uid } from '../../base/uid.ts'
import type { ExternalGroupRoleMapping } from '../../gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { recordKey } from '../../store/keys.ts'
import { assertCanGrant, isBuiltInRole } from '../../engine/grant-rules.ts'
import type { Extra, Planning } from '../../engine/kind.ts'
import { bindableBy, bindableRole, noSuchRole } from './role-bindings.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/** The mapping in a record of kind ExternalGroupRoleMapping. */
export function mappingOf(record: CachedRecord): ExternalGroupRoleMapping {
  // The table of a kind holds that kind's messages.
  return messageOf(record, 'ExternalGroupRoleMapping')
}

/** A role to confer, and where. */
export interface Conferral {
  readonly role: string
  /** The group where the role applies, with everything below. */
  readonly at: string
  /** Field with the role, for errors. */
  readonly field: string
}

/**
 * Throws code 3 if the role cannot be conferred there. A role that is missing, not visible or not usable there gets the same error. Throws code 7 if the caller
 * does not hold its capabilities (docs/spec/iam.md#no-escalation). Returns the guard that the role exists.
 */
export function assertCanConfer(planning: Planning, { role, at, field }: Conferral): Extra {
  const record = bindableBy(planning, role, at)
  if (record === undefined) throw DomainError.invalid(field, noSuchRole)
  assertCanGrant(planning, at, roleCapabilities(record))
  return isBuiltInRole(role) ? {} : { guards: [{ kind: 'exists', key: recordKey('Role', record.uid) }] }
}

/** Returns the capabilities of a referenced role. Empty if it was deleted (docs/spec/identities.md#default-roles) or cannot be bound there. */
function grantedBy(tables: RecordTables, role: string, at: string): CapabilitySet {
  const record = bindableRole(tables, role, at)
  return record === undefined ? emptySet : roleCapabilities(record)
}

/**
 * Checks that the caller holds what the provider confers: its default role in the group of the provider, and each mapped role at its scope. A caller who changes
 * the sign-in could otherwise sign in as any of its people (docs/spec/iam.md#no-escalation). Throws code 7.
 */
export function assertHoldsWhatProviderConfers(planning: Planning, provider: { readonly uid: Uid; readonly defaultRole: string }): void {
  const { tables } = planning
  const seen = new Set<string>()
  const check = (role: string, at: string): void => {
    if (seen.has(`${role} ${at}`)) return
    seen.add(`${role} ${at}`)
    assertCanGrant(planning, at, grantedBy(tables, role, at))
  }
  check(provider.defaultRole, parentOf(provider.uid))
  for (const record of tables.table('ExternalGroupRoleMapping').matching('parent', provider.uid)) {
    const { roleUid, scope } = mappingOf(record)
    check(roleUid, scope)
  }
}
