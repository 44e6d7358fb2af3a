import type { Narrowing, SessionRole } from '../core/narrowing.ts'
import { allCapabilities, emptySet, fromEnumNumbers, type CapabilitySet } from '../core/capability.ts'
import { isWithin, parentOf, rootParent, trustedUid, type Uid } from '../core/uid.ts'
import type { Replica } from '../snapshot/replica.ts'
import type { Row } from '../snapshot/row.ts'
import type { Snapshot } from '../snapshot/snapshot.ts'
import { everywhere, mergeGrants, narrow, type Grant, type Reach } from './reach.ts'
import type { Role } from '../gen/taproot/iam/v2/roles_pb.ts'

/** Whose reach is asked for. */
export interface Subject {
  readonly identity: Uid
  readonly operator: boolean
  readonly narrowing: Narrowing
}

const ofRole = new WeakMap<Row, CapabilitySet>()

/** What a role grants; capability numbers that are no longer known grant nothing. */
export function roleCapabilities(role: Row): CapabilitySet {
  let set = ofRole.get(role)
  if (set === undefined) {
    // A row of kind Role holds a Role.
    set = fromEnumNumbers((role.message as unknown as Role).capabilities)
    ofRole.set(role, set)
  }
  return set
}

/**
 * Whether a binding counts:
 * - `counts`: it gives its identity what its role grants
 * - `confined`: it lies outside of the group that its identity was made under, which reaches only that and what is below (spec 5.5)
 * - `role_missing`: its role is gone
 */
type Standing = 'counts' | 'confined' | 'role_missing'

/** What one binding gives its identity as of `snapshot`, at its group and below; nothing where it does not count. */
export function bindingGrant(snapshot: Snapshot, row: Row): { readonly standing: Standing; readonly group: Uid; readonly capabilities: CapabilitySet } {
  const bindings = snapshot.table('RoleBinding')
  const group = trustedUid(row.parent)
  const home = parentOf(trustedUid(bindings.valueOf(row, 'identity') ?? ''))
  if (home !== rootParent && !isWithin(group, home)) return { standing: 'confined', group, capabilities: emptySet }
  const role = snapshot.get('Role', bindings.valueOf(row, 'role') ?? '')
  if (role === undefined) return { standing: 'role_missing', group, capabilities: emptySet }
  return { standing: 'counts', group, capabilities: roleCapabilities(role) }
}

/** What one identity is granted as of `snapshot`: the roles bound to it, each at its group. */
export function grantsOf(snapshot: Snapshot, identity: Uid): Grant[] {
  return mergeGrants([...snapshot.table('RoleBinding').matching('identity', identity)].map((row) => bindingGrant(snapshot, row)))
}

/** What the roles of a session grant as of `snapshot`: the roles as they are now, none where a role is gone. */
export function sessionGrants(snapshot: Snapshot, roles: readonly SessionRole[]): Grant[] {
  return roles.flatMap(({ group, role }) => {
    const row = snapshot.get('Role', role)
    return row === undefined ? [] : [{ group, capabilities: roleCapabilities(row) }]
  })
}

const operatorGrants: readonly Grant[] = [{ group: everywhere, capabilities: allCapabilities }]

/** The grants of every identity that asked lately, kept until a binding or role of theirs changes. */
export class GrantsIndex {
  readonly #replica: Replica
  readonly #known = new Map<string, readonly Grant[]>()

  constructor(replica: Replica) {
    this.#replica = replica
    replica.onReset(() => this.#known.clear())
    replica.onRow((kind, old, row) => {
      if (kind === 'Role') this.#known.clear()
      if (kind !== 'RoleBinding') return
      for (const changed of [old, row]) {
        if (changed !== undefined) this.#known.delete(replica.snapshot.table(kind).valueOf(changed, 'identity') ?? '')
      }
    })
  }

  /** All that `subject` may do as of the current snapshot, cut by what its token was narrowed to. */
  reachOf(subject: Subject): Reach {
    if (subject.operator) return narrow({ operator: true, grants: operatorGrants }, subject.narrowing)
    let grants = this.#known.get(subject.identity)
    if (grants === undefined) {
      if (this.#known.size >= 100_000) this.#known.clear()
      grants = grantsOf(this.#replica.snapshot, subject.identity)
      this.#known.set(subject.identity, grants)
    }
    const { roles } = subject.narrowing
    const session = roles === undefined ? [] : sessionGrants(this.#replica.snapshot, roles)
    return narrow({ operator: false, grants }, subject.narrowing, session)
  }
}
