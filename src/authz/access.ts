import { decide, visibilityOf, type Decision, type EffectivePermissions } from './effective-permissions.ts'
import { bindingGrant, grantsOf } from './grants-index.ts'
import { containsAll, isEmpty, setOf, type CapabilitySet } from '../base/capability.ts'
import { isWithin, lineage, type Uid, rootOf } from '../base/uid.ts'
import { isVisible, type Visibility } from '../cache/lists/places.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { parentFilter } from '../cache/table.ts'
import { OrgStatus } from '../gen/taproot/iam/v2/groups_pb.ts'

/** True if the organisation of `uid` is suspended, which means closed to its members (docs/spec/iam.md#suspended-organisations). */
export function isSuspended(tables: Pick<RecordTables, 'get'>, uid: Uid): boolean {
  const root = tables.get('Group', rootOf(uid))?.message
  return root?.status === OrgStatus.SUSPENDED
}

const listsBindings = setOf(['role_bindings.list'])

/** Decides which role bindings a caller may see: those that ListRoleBindings returns to the caller (docs/spec/conventions.md#list-reach). */
export class BindingSight {
  readonly #visibility: Visibility

  constructor(permissions: EffectivePermissions) {
    this.#visibility = visibilityOf(permissions, listsBindings)
  }

  /** True if the caller may list this role binding. */
  shows(binding: CachedRecord): boolean {
    return isVisible(this.#visibility, {}, binding.uid)
  }

  /**
   * True if the caller may list at least one of the identity's role bindings in the organisation `root`. It costs time for each of these bindings, or for each
   * group in which the caller may list bindings, whichever are fewer.
   */
  showsOneOf(tables: RecordTables, identity: string, root: Uid): boolean {
    const { everywhere, groups } = this.#visibility
    const table = tables.table('RoleBinding')
    const bindings = table.matching('identity', identity, root)
    if (everywhere) return bindings.size > 0
    if (bindings.size > groups.length) return groups.some((group) => isWithin(group, root) && table.matching('identity', identity, group).size > 0)
    return [...bindings].some((binding) => this.shows(binding))
  }

  /**
   * Returns the groups at and above `resource`, nearest first. `open` are those in which the caller may list role bindings, `withheld` the others. A group is
   * listed whether or not it has bindings.
   */
  split(resource: Uid): { readonly open: readonly Uid[]; readonly withheld: readonly Uid[] } {
    const { everywhere, groups } = this.#visibility
    const open: Uid[] = []
    const withheld: Uid[] = []
    for (const place of lineage(resource)) (everywhere || groups.some((group) => isWithin(place, group)) ? open : withheld).push(place)
    return { open, withheld }
  }
}

/**
 * Returns the role bindings in `groups` that grant their identities any capability; with `wanted`, only those that grant all of it. The order is undefined.
 * The cost grows with the number of bindings in these groups.
 */
export function accessThrough(tables: RecordTables, groups: readonly Uid[], wanted?: CapabilitySet): CachedRecord[] {
  const bindings = tables.table('RoleBinding')
  const found: CachedRecord[] = []
  for (const group of groups) {
    for (const record of bindings.matching(parentFilter, group)) {
      const { capabilities } = bindingGrant(tables, record)
      if (!isEmpty(capabilities) && (wanted === undefined || containsAll(capabilities, wanted))) found.push(record)
    }
  }
  return found
}

/**
 * The effect of a role binding on an identity's access to a resource:
 * - `grants`: it grants the capabilities in question
 * - `lacks_capability`: its role does not contain all of them
 * - `role_missing`: its role no longer exists
 * - `confined`: it is outside the group to which the identity is limited
 */
export type Effect = 'grants' | 'lacks_capability' | 'role_missing' | 'confined'

/** A role binding of the identity, on the resource or on a group above it, with its effect. */
export interface Link {
  readonly record: CachedRecord
  readonly effect: Effect
}

/** Whether an identity holds a capability at a resource, and which role bindings are the reason. */
export interface Explanation {
  /** The decision that a method with this required capability makes for a token of the identity without restrictions or additional roles. */
  readonly decision: Decision
  readonly suspended: boolean
  readonly registered: boolean
  /**
   * All role bindings of the identity on the resource and above. Those that grant the capability come first. Within both parts, the nearest group comes first,
   * then the lower uid.
   */
  readonly chain: readonly Link[]
}

function effectOf(tables: RecordTables, record: CachedRecord, wanted: CapabilitySet): Effect {
  const { standing, capabilities } = bindingGrant(tables, record)
  if (standing !== 'counts') return standing
  return containsAll(capabilities, wanted) ? 'grants' : 'lacks_capability'
}

function comesBefore(one: Link, other: Link): number {
  const byEffect = Number(other.effect === 'grants') - Number(one.effect === 'grants')
  // Of two groups above one resource, the one with the longer uid is nearer.
  return byEffect || other.record.parent.length - one.record.parent.length || (one.record.uid < other.record.uid ? -1 : 1)
}

/**
 * Explains what `identity` may do at `resource` as of `tables` (docs/spec/iam.md#explain-and-access). The answer is about the identity, not about a token. A
 * restricted token may do less. A token from a sign-in that grants roles may do more. An operator by configuration may do everything.
 */
export function explain(tables: RecordTables, question: { identity: Uid; resource: Uid; capability: CapabilitySet }): Explanation {
  const { identity, resource, capability } = question
  const above = [...tables.table('RoleBinding').matching('identity', identity)].filter((record) => isWithin(resource, record.parent))
  return {
    decision: decide({ operator: false, grants: grantsOf(tables, identity) }, resource, capability),
    suspended: isSuspended(tables, resource),
    registered: tables.get('Identity', identity) !== undefined,
    chain: above.map((record) => ({ record, effect: effectOf(tables, record, capability) })).sort(comesBefore),
  }
}
