import { roleCapabilities } from '../authz/grants-index.ts'
import { capabilitiesAt, everywhere, type Grant, type EffectivePermissions } from '../authz/effective-permissions.ts'
import { containsAll, emptySet, missing, type CapabilitySet } from '../base/capability.ts'
import { builtInRoles } from '../base/roles.ts'
import { isUid, isWithin, rootParent } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import type { GrantSpec } from './platform-object.ts'

/** The facts about a namespace that grants depend on. */
export interface NamespaceFacts {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

/** The rights of a namespace over records of one kind at one place of the tree, from all its grants together. */
export interface Authority {
  /** False if no grant covers this namespace, kind and place. */
  readonly granted: boolean
  readonly adoption: boolean
  /** What happens to records when the namespace is deleted. They are kept if any grant says `Orphan`. */
  readonly onNamespaceDelete: 'Orphan' | 'Delete'
  /** The capabilities that the namespace may grant, and the groups where it may. */
  readonly permissions: EffectivePermissions
}

const noPermissions: EffectivePermissions = { operator: false, grants: [] }

/** The authority of a namespace without any grant. */
export const noAuthority: Authority = { granted: false, adoption: false, onNamespaceDelete: 'Orphan', permissions: noPermissions }

/** Returns true if the grant selects this namespace. */
export function selects({ namespaceSelector: { matchNames, matchLabels } }: GrantSpec, namespace: NamespaceFacts): boolean {
  if (matchNames !== undefined && !matchNames.includes(namespace.name)) return false
  return Object.entries(matchLabels ?? {}).every(([label, value]) => namespace.labels[label] === value)
}

function covers({ groupUid }: GrantSpec, place: string): boolean {
  return groupUid === rootParent || (isUid(groupUid) && isWithin(place, groupUid))
}

/** Returns the current capabilities of the maximum role of a grant; empty if the role does not exist. */
function boundOf(tables: RecordTables, { maxRole }: GrantSpec): CapabilitySet {
  if (maxRole?.builtIn !== undefined) return builtInRoles.find(({ name }) => name === maxRole.builtIn)?.capabilities ?? emptySet
  const role = maxRole?.uid === undefined ? undefined : tables.get('Role', maxRole.uid)
  return role === undefined ? emptySet : roleCapabilities(role)
}

/**
 * Returns the authority over objects of kind `objectKind` in `namespace`, at `place` (a group's uid, or `/`). It is computed from `tables`
 * and the current grants, which add up. Each grant counts only for its own kinds, and at or below its group.
 */
export function authorityOf(
  grants: Iterable<GrantSpec>,
  asked: { readonly namespace: NamespaceFacts; readonly objectKind: string; readonly place: string },
  tables: RecordTables,
): Authority {
  const applying = [...grants].filter((grant) => grant.allowedKinds.includes(asked.objectKind) && selects(grant, asked.namespace) && covers(grant, asked.place))
  if (applying.length === 0) return noAuthority
  const held = applying.map((grant): Grant => ({
    // a cast: `covers` has checked that this is a uid or `/`
    group: grant.groupUid === rootParent ? everywhere : (grant.groupUid as Grant['group']),
    capabilities: boundOf(tables, grant),
  }))
  return {
    granted: true,
    adoption: applying.some(({ allowAdoption }) => allowAdoption === true),
    onNamespaceDelete: applying.every(({ onNamespaceDelete }) => onNamespaceDelete === 'Delete') ? 'Delete' : 'Orphan',
    permissions: { operator: false, grants: held },
  }
}

/** Returns the capabilities in `needed` that the namespace may not grant at `place`; empty if it may grant all. */
export function exceeding({ permissions }: Authority, place: string, needed: CapabilitySet): readonly string[] {
  const held = capabilitiesAt(permissions, place)
  return containsAll(held, needed) ? [] : missing(held, needed)
}
