import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet, setOf, type CapabilitySet } from '../../base/capability.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { capabilitiesFor } from '../../events/index.ts'
import type { Subscription } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import { exceeding, type Authority } from '../grants.ts'

/** Returns the capabilities of a role; empty if there is none. */
export function givenBy(role: CachedRecord | undefined): CapabilitySet {
  return role === undefined ? emptySet : roleCapabilities(role)
}

/** Returns the capabilities that the namespace of a subscription needs: those to list the records that its events concern. */
export function shownBy(subscription: Pick<Subscription, 'types' | 'includePulls'>): CapabilitySet {
  return setOf(capabilitiesFor(subscription))
}

/** Returns the capabilities that a stored role binding confers or that a stored subscription needs, even if its object has changed since. */
export function givenNow(tables: RecordTables, record: CachedRecord): CapabilitySet {
  if (record.kind === 'Subscription') return shownBy(messageOf(record, 'Subscription'))
  return givenBy(tables.get('Role', tables.table('RoleBinding').valueOf(record, 'role') ?? ''))
}

/**
 * Returns the capabilities that the namespace may not grant at `place`, the group of the record. Empty if the namespace has no grant
 * there, which other code handles.
 */
export function exceedingAt({ place, authority }: { place: string; authority: Authority }, grantedCapabilities: CapabilitySet): readonly string[] {
  return authority.granted ? exceeding(authority, place, grantedCapabilities) : []
}
