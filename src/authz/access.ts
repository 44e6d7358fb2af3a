import { decide, visibilityOf, type Decision, type EffectivePermissions } from './effective-permissions.ts'
import { bindingGrant, grantsOf } from './grants-index.ts'
import { containsAll, isEmpty, setOf, type CapabilitySet } from '../base/capability.ts'
import { isWithin, lineage, type Uid, rootOf } from '../base/uid.ts'
import { isVisible, type Visibility } from '../cache/lists/places.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { parentFilter } from '../cache/table.ts'
import { OrgStatus } from '../gen/taproot/iam/v2/groups_pb.ts'

/** True where the organisation is closed to its members (docs/spec/iam.md#suspended-organisations). */
export function isSuspended(tables: RecordTables, uid: Uid): boolean {
  const root = tables.get('Group', rootOf(uid))?.message
  return root?.status === OrgStatus.SUSPENDED
}

const listsBindings = setOf(['role_bindings.list'])

/** Which role bindings an asker is shown: those that ListRoleBindings shows (docs/spec/conventions.md#list-reach). */
export class BindingSight {
  readonly #visibility: Visibility

  constructor(permissions: EffectivePermissions) {
    this.#visibility = visibilityOf(permissions, listsBindings)
  }

  /** True where the asker may list this binding. */
  shows(binding: CachedRecord): boolean {
    return isVisible(this.#visibility, {}, binding.uid)
  }

  /** True if the asker may list one of the identity's bindings in the organisation `root`. Cost: proportional to its bindings there, or to the groups in which the asker may list bindings, whichever are fewer. */
  showsOneOf(tables: RecordTables, identity: string, root: Uid): boolean {
    const { everywhere, groups } = this.#visibility
    const table = tables.table('RoleBinding')
    const bindings = table.matching('identity', identity, root)
    if (everywhere) return bindings.size > 0
    if (bindings.size > groups.length) return groups.some((group) => isWithin(group, root) && table.matching('identity', identity, group).size > 0)
    return [...bindings].some((binding) => this.shows(binding))
  }

  /** The groups at and above `resource`, nearest first: those in which the asker may list bindings, and the others. Says nothing about what bindings there are. */
  split(resource: Uid): { readonly open: readonly Uid[]; readonly withheld: readonly Uid[] } {
    const { everywhere, groups } = this.#visibility
    const open: Uid[] = []
    const withheld: Uid[] = []
    for (const place of lineage(resource)) (everywhere || groups.some((group) => isWithin(place, group)) ? open : withheld).push(place)
    return { open, withheld }
  }
}

/**
 * The bindings in `groups` that give their identities something there, and where `wanted` is there all of it; in no order. Cost: proportional to the bindings in
 * these groups.
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

/** What a binding does for a question: see Link. */
export type Effect = 'grants' | 'lacks_capability' | 'role_missing' | 'confined'

/** A binding of the identity that is asked about, at the resource or above. */
export interface Link {
  readonly record: CachedRecord
  readonly effect: Effect
}

/** Whether an identity holds something at a resource, and through what. */
export interface Explanation {
  /** What every method that needs just this decides there, for a token that nothing restricts or adds to. */
  readonly decision: Decision
  readonly suspended: boolean
  readonly registered: boolean
  /** All bindings at the resource and above: those that grant it first, each part from the resource upwards, then by uid. */
  readonly chain: readonly Link[]
}

function effectOf(tables: RecordTables, record: CachedRecord, wanted: CapabilitySet): Effect {
  const { standing, capabilities } = bindingGrant(tables, record)
  if (standing !== 'counts') return standing
  return containsAll(capabilities, wanted) ? 'grants' : 'lacks_capability'
}

function comesBefore(one: Link, other: Link): number {
  const byEffect = Number(other.effect === 'grants') - Number(one.effect === 'grants')
  // Of two groups above one place the longer uid is the nearer.
  return byEffect || other.record.parent.length - one.record.parent.length || (one.record.uid < other.record.uid ? -1 : 1)
}

/**
 * Explains what `identity` may do at `resource` as of `tables` (docs/spec/iam.md#explain-and-access). The answer is about the identity, not a token.
 * A restricted token may do less. A token from a sign-in that grants roles may do more. An operator by configuration may do everything.
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
