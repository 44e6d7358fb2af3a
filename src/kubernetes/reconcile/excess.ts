import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet, type CapabilitySet } from '../../base/capability.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import { exceeding, type Authority } from '../grants.ts'

/** What a role lets somebody do; nothing where there is none. */
export function givenBy(role: CachedRecord | undefined): CapabilitySet {
  return role === undefined ? emptySet : roleCapabilities(role)
}

/** What a record of kind RoleBinding lets somebody do as it is, whatever its object says by now. */
export function givenNow(snapshot: Snapshot, binding: CachedRecord): CapabilitySet {
  return givenBy(snapshot.get('Role', snapshot.table('RoleBinding').valueOf(binding, 'role') ?? ''))
}

/** What of `conferred` may not be given at `place`, where the record is or would be; nothing where the namespace has no grant there, which is another matter. */
export function exceedingAt({ place, authority }: { place: string; authority: Authority }, grantedCapabilities: CapabilitySet): readonly string[] {
  return authority.granted ? exceeding(authority, place, grantedCapabilities) : []
}
