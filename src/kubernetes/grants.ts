import { roleCapabilities } from '../authz/grants-index.ts'
import { capabilitiesAt, everywhere, type Grant, type EffectivePermissions } from '../authz/effective-permissions.ts'
import { containsAll, emptySet, missing, type CapabilitySet } from '../base/capability.ts'
import { builtInRoles } from '../base/roles.ts'
import { isUid, isWithin, rootParent } from '../base/uid.ts'
import type { Snapshot } from '../cache/snapshot.ts'
import type { GrantSpec } from './platform-object.ts'

/** A namespace, as far as grants look at it. */
export interface NamespaceFacts {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

/** What a namespace may do with records of one kind at one place of the tree: all that its grants say of it together. */
export interface Authority {
  /** False where no grant speaks of this namespace, kind and place. */
  readonly granted: boolean
  readonly adoption: boolean
  /** What becomes of records when the namespace goes: they are kept where any grant says so. */
  readonly onNamespaceDelete: 'Orphan' | 'Delete'
  /** What may be given to others, and where. */
  readonly reach: EffectivePermissions
}

const nobody: EffectivePermissions = { operator: false, grants: [] }

/** What a namespace may do to which no grant applies. */
export const noAuthority: Authority = { granted: false, adoption: false, onNamespaceDelete: 'Orphan', reach: nobody }

/** True where the grant is for this namespace. */
export function selects({ namespaceSelector: { matchNames, matchLabels } }: GrantSpec, namespace: NamespaceFacts): boolean {
  if (matchNames !== undefined && !matchNames.includes(namespace.name)) return false
  return Object.entries(matchLabels ?? {}).every(([label, value]) => namespace.labels[label] === value)
}

function covers({ groupUid }: GrantSpec, place: string): boolean {
  return groupUid === rootParent || (isUid(groupUid) && isWithin(place, groupUid))
}

/** The capabilities of the role that bounds a grant, as the role is now; none where there is no such role. */
function boundOf(snapshot: Snapshot, { maxRole }: GrantSpec): CapabilitySet {
  if (maxRole?.builtIn !== undefined) return builtInRoles.find(({ name }) => name === maxRole.builtIn)?.capabilities ?? emptySet
  const role = maxRole?.uid === undefined ? undefined : snapshot.get('Role', maxRole.uid)
  return role === undefined ? emptySet : roleCapabilities(role)
}

/**
 * What objects of kind `objectKind` in `namespace` may do at `place` (a group's uid, or `/`), as of `snapshot` and the grants as they are now. Grants add up; each counts
 * only for the kinds and below the group that it names.
 */
export function authorityOf(
  grants: Iterable<GrantSpec>,
  asked: { readonly namespace: NamespaceFacts; readonly objectKind: string; readonly place: string },
  snapshot: Snapshot,
): Authority {
  const applying = [...grants].filter((grant) => grant.allowedKinds.includes(asked.objectKind) && selects(grant, asked.namespace) && covers(grant, asked.place))
  if (applying.length === 0) return noAuthority
  const held = applying.map((grant): Grant => ({
    // Checked by `covers`: a uid, or everywhere.
    group: grant.groupUid === rootParent ? everywhere : (grant.groupUid as Grant['group']),
    capabilities: boundOf(snapshot, grant),
  }))
  return {
    granted: true,
    adoption: applying.some(({ allowAdoption }) => allowAdoption === true),
    onNamespaceDelete: applying.every(({ onNamespaceDelete }) => onNamespaceDelete === 'Delete') ? 'Delete' : 'Orphan',
    reach: { operator: false, grants: held },
  }
}

/** The capabilities of `needed` that may not be given at `place`; empty where all may. */
export function exceeding({ reach }: Authority, place: string, needed: CapabilitySet): readonly string[] {
  const held = capabilitiesAt(reach, place)
  return containsAll(held, needed) ? [] : missing(held, needed)
}
