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

/** A role that is to be conferred on somebody, and where. */
export interface Conferral {
  readonly role: string
  /** Where the role will count, and below. */
  readonly at: string
  /** The field that names the role, for errors. */
  readonly field: string
}

/**
 * Throws code 3 where the role cannot be conferred there: it is missing, out of the caller's reach or out of place, which all look the same; code 7 where the caller does
 * not hold what it grants (docs/spec/iam.md#no-escalation). Returns the guard that it is there.
 */
export function assertCanConfer(planning: Planning, { role, at, field }: Conferral): Extra {
  const record = bindableBy(planning, role, at)
  if (record === undefined) throw DomainError.invalid(field, noSuchRole)
  assertCanGrant(planning, at, roleCapabilities(record))
  return isBuiltInRole(role) ? {} : { guards: [{ kind: 'exists', key: recordKey('Role', record.uid) }] }
}

/** What a role grants that something names: nothing once it is deleted (docs/spec/identities.md#default-roles), or where it could not be bound. */
function grantedBy(tables: RecordTables, role: string, at: string): CapabilitySet {
  const record = bindableRole(tables, role, at)
  return record === undefined ? emptySet : roleCapabilities(record)
}

/**
 * Who changes how people sign in through a provider can sign in as anyone it knows: so they must hold its default role where the provider lies, and every role of its
 * mappings at their scope (docs/spec/iam.md#no-escalation). Throws code 7.
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
