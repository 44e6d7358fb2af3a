import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet, type CapabilitySet } from '../../base/capability.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { exceeding, type Authority } from '../grants.ts'

/** Returns the capabilities of a role; empty without a role. */
export function givenBy(role: CachedRecord | undefined): CapabilitySet {
  return role === undefined ? emptySet : roleCapabilities(role)
}

/** Returns the capabilities that a stored RoleBinding grants now, even if its object has changed since. */
export function givenNow(tables: RecordTables, binding: CachedRecord): CapabilitySet {
  return givenBy(tables.get('Role', tables.table('RoleBinding').valueOf(binding, 'role') ?? ''))
}

/** Returns the capabilities that may not be granted at `place`, the place of the record. Empty if the namespace has no grant there; other code handles that. */
export function exceedingAt({ place, authority }: { place: string; authority: Authority }, grantedCapabilities: CapabilitySet): readonly string[] {
  return authority.granted ? exceeding(authority, place, grantedCapabilities) : []
}
