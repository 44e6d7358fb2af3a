import type { TokenRestrictions, SessionRole } from '../auth/tokens/token-restrictions.ts'
import { allCapabilities, emptySet, fromEnumNumbers, type CapabilitySet } from '../base/capability.ts'
import { isWithin, parentOf, rootParent, trustedUid, type Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { Slices, Turns } from '../cache/slices.ts'
import type { Snapshot } from '../cache/snapshot.ts'
import { capabilitiesAt, everywhere, GrantMap, narrow, type Grant, type EffectivePermissions } from './effective-permissions.ts'
import type { Role } from '../gen/taproot/iam/v2/roles_pb.ts'

/** Whose reach is asked for. */
export interface Subject {
  readonly identity: Uid
  readonly operator: boolean
  readonly restrictions: TokenRestrictions
}

const ofRole = new WeakMap<CachedRecord, CapabilitySet>()

/** What a role grants; capability numbers that are no longer known grant nothing. */
export function roleCapabilities(role: CachedRecord): CapabilitySet {
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
 * - `confined`: it lies outside of the group that its identity was made under, which reaches only that and what is below (docs/spec/iam.md#reach)
 * - `role_missing`: its role is gone
 */
type BindingState = 'counts' | 'confined' | 'role_missing'

/** What one binding gives its identity as of `snapshot`, at its group and below; nothing where it does not count. */
export function bindingGrant(
  snapshot: Snapshot,
  row: CachedRecord,
): { readonly standing: BindingState; readonly group: Uid; readonly capabilities: CapabilitySet } {
  const bindings = snapshot.table('RoleBinding')
  const group = trustedUid(row.parent)
  const home = parentOf(trustedUid(bindings.valueOf(row, 'identity') ?? ''))
  if (home !== rootParent && !isWithin(group, home)) return { standing: 'confined', group, capabilities: emptySet }
  const role = snapshot.get('Role', bindings.valueOf(row, 'role') ?? '')
  if (role === undefined) return { standing: 'role_missing', group, capabilities: emptySet }
  return { standing: 'counts', group, capabilities: roleCapabilities(role) }
}

/** The roles that are bound to an identity: what each grants, nothing where it is gone; and the row that said so. */
type BoundRoles = Map<string, { readonly row: CachedRecord | undefined; readonly capabilities: CapabilitySet }>

function boundRole(snapshot: Snapshot, roles: BoundRoles, uid: string): CapabilitySet {
  let role = roles.get(uid)
  if (role === undefined) {
    const row = snapshot.get('Role', uid)
    role = { row, capabilities: row === undefined ? emptySet : roleCapabilities(row) }
    roles.set(uid, role)
  }
  return role.capabilities
}

const rowsPerLook = 256

/** As `bindingGrant` for all bindings of an identity, in steps. Each role is looked up once: most of many bindings have few roles. */
function* grantsThrough(snapshot: Snapshot, identity: Uid, roles: BoundRoles): Generator<void, Grant[]> {
  const bindings = snapshot.table('RoleBinding')
  const home = parentOf(identity)
  const merged = new GrantMap()
  for (const [at, row] of [...bindings.matching('identity', identity)].entries()) {
    if (at % rowsPerLook === rowsPerLook - 1) yield
    const group = trustedUid(row.parent)
    if (home !== rootParent && !isWithin(group, home)) continue
    merged.add(group, boundRole(snapshot, roles, bindings.valueOf(row, 'role') ?? ''))
  }
  return merged.grants()
}

function allOf<T>(steps: Generator<void, T>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** What one identity is granted as of `snapshot`: the roles bound to it, each at its group. */
export function grantsOf(snapshot: Snapshot, identity: Uid): Grant[] {
  return allOf(grantsThrough(snapshot, identity, new Map()))
}

/** What the roles of a session grant as of `snapshot`: the roles as they are now, none where a role is gone. */
export function sessionGrants(snapshot: Snapshot, roles: readonly SessionRole[]): Grant[] {
  return roles.flatMap(({ group, role }) => {
    const row = snapshot.get('Role', role)
    return row === undefined ? [] : [{ group, capabilities: roleCapabilities(row) }]
  })
}

/** Whether the narrowed reach is something to make, and kept: one with roles of its own is not. */
function isKept({ scopes, capabilities, knownIn, roles }: TokenRestrictions): boolean {
  return roles === undefined && (scopes !== undefined || capabilities !== undefined || knownIn !== undefined)
}

const operatorGrants: readonly Grant[] = [{ group: everywhere, capabilities: allCapabilities }]

/** What an identity may do, as it was found out. */
interface Known {
  readonly reach: EffectivePermissions
  readonly roles: BoundRoles
  /** By the narrowings of its tokens; none that has roles of its own. */
  readonly narrowed: WeakMap<TokenRestrictions, EffectivePermissions>
  /** The number of changes of roles after which its own were looked at. */
  roleChanges: number
}

/** The grants of an identity with more bindings than this are found out in slices. */
const manyBindings = 1_000
/** So often that begins again because they changed meanwhile. */
const maxPasses = 10
const maxKnown = 100_000
/** Of all identities together. */
const maxGrants = 2_000_000

/** The grants of every identity that asked lately, kept until a binding or role of theirs changes. */
export class GrantsIndex {
  readonly #replica: RecordCache
  readonly #known = new Map<string, Known>()
  readonly #turns = new Turns()
  readonly #preparing = new Map<string, Promise<void>>()
  /** Counts the changes of bindings of those whose grants are being found out. */
  readonly #changes = new Map<string, number>()
  #grants = 0
  #roleChanges = 0
  #resets = 0

  constructor(replica: RecordCache) {
    this.#replica = replica
    replica.onReset(() => {
      this.#resets += 1
      this.#clear()
    })
    // Rights end with the commit, and not when the rows have left their orders.
    replica.onHide((kind, rows) => {
      if (kind === 'RoleBinding') for (const row of rows) this.#forget(row)
    })
    replica.onRow((kind, old, row) => {
      if (kind === 'Role') this.#roleChanges += 1
      if (kind !== 'RoleBinding') return
      for (const changed of [old, row]) if (changed !== undefined) this.#forget(changed)
    })
  }

  #forget(binding: CachedRecord): void {
    const identity = this.#replica.snapshot.table('RoleBinding').valueOf(binding, 'identity') ?? ''
    const changes = this.#changes.get(identity)
    if (changes !== undefined) this.#changes.set(identity, changes + 1)
    const known = this.#known.get(identity)
    if (known === undefined) return
    this.#known.delete(identity)
    this.#grants -= known.reach.grants.length
  }

  #clear(): void {
    this.#known.clear()
    this.#grants = 0
  }

  /** What the identity is granted as of the current snapshot, for a token that nothing narrows. The same object until that changes. */
  of(identity: Uid): EffectivePermissions {
    return this.#of(identity).reach
  }

  #of(identity: Uid): Known {
    const known = this.#known.get(identity)
    if (known !== undefined && this.#isCurrent(known)) return known
    const roles: BoundRoles = new Map()
    return this.#keep(identity, allOf(grantsThrough(this.#replica.snapshot, identity, roles)), roles)
  }

  /**
   * Resolves when the identity's grants are cached, including their narrowed form, so that reading them does not block the event loop.
   * Computes them in slices if the identity has many bindings. Returns undefined if there is nothing to wait for. Calling it is optional.
   */
  prepare(identity: Uid, restrictions: TokenRestrictions): Promise<void> | undefined {
    const known = this.#known.get(identity)
    const isKnown = known !== undefined && this.#isCurrent(known)
    if (isKnown && (known.reach.grants.length <= manyBindings || !isKept(restrictions) || known.narrowed.has(restrictions))) return undefined
    if (!isKnown && this.#bindingsOf(identity) <= manyBindings) return undefined
    const ready = isKnown ? Promise.resolve() : this.#prepareAll(identity)
    return isKept(restrictions) ? ready.then(() => this.#prepareNarrowed(identity, restrictions)) : ready
  }

  /** As `prepare` for several identities, whose bindings may be many together. */
  prepareAmong(identities: readonly Uid[]): Promise<void> | undefined {
    const cold = [...new Set(identities)].filter((identity) => {
      const known = this.#known.get(identity)
      return known === undefined || !this.#isCurrent(known)
    })
    const bindings = cold.reduce((sum, identity) => sum + this.#bindingsOf(identity), 0)
    return bindings <= manyBindings ? undefined : Promise.all(cold.map((identity) => this.#prepareAll(identity))).then(() => undefined)
  }

  #bindingsOf(identity: Uid): number {
    return this.#replica.snapshot.table('RoleBinding').matching('identity', identity).size
  }

  async #prepareNarrowed(identity: Uid, restrictions: TokenRestrictions): Promise<void> {
    const slices = new Slices(this.#turns)
    await slices.pause()
    const reach = this.reachOf({ identity, operator: false, restrictions })
    await slices.pause()
    capabilitiesAt(reach, identity)
  }

  #prepareAll(identity: Uid): Promise<void> {
    let preparing = this.#preparing.get(identity)
    if (preparing === undefined) {
      preparing = this.#prepare(identity).finally(() => {
        this.#preparing.delete(identity)
        this.#changes.delete(identity)
      })
      this.#preparing.set(identity, preparing)
    }
    return preparing
  }

  async #prepare(identity: Uid): Promise<void> {
    const slices = new Slices(this.#turns)
    this.#changes.set(identity, 0)
    for (let pass = 1; pass <= maxPasses; pass++) {
      await slices.pause()
      const version = this.#versionOf(identity)
      const roles: BoundRoles = new Map()
      const steps = grantsThrough(this.#replica.snapshot, identity, roles)
      let step = steps.next()
      for (; step.done !== true && version === this.#versionOf(identity); step = steps.next()) if (slices.isOver) await slices.pause()
      if (step.done !== true || version !== this.#versionOf(identity)) continue
      const { reach } = this.#keep(identity, step.value, roles)
      await slices.pause()
      // Made with the first question, and kept.
      capabilitiesAt(reach, identity)
      return
    }
  }

  /** Another where something may have changed that the identity's grants are made of. */
  #versionOf(identity: Uid): string {
    return `${this.#changes.get(identity) ?? 0} ${this.#roleChanges} ${this.#resets}`
  }

  #keep(identity: Uid, grants: Grant[], roles: BoundRoles): Known {
    const known = this.#known.get(identity)
    if (known !== undefined) this.#grants -= known.reach.grants.length
    if (this.#known.size >= maxKnown || this.#grants >= maxGrants) this.#clear()
    const found: Known = { reach: { operator: false, grants }, roles, narrowed: new WeakMap(), roleChanges: this.#roleChanges }
    this.#known.set(identity, found)
    this.#grants += grants.length
    return found
  }

  /** Roles of others change, too: only where some did, those of the identity are looked at. */
  #isCurrent(known: Known): boolean {
    if (known.roleChanges === this.#roleChanges) return true
    const { snapshot } = this.#replica
    for (const [uid, { row }] of known.roles) if (snapshot.get('Role', uid) !== row) return false
    known.roleChanges = this.#roleChanges
    return true
  }

  /** All that `subject` may do as of the current snapshot, cut by what its token was narrowed to. */
  reachOf(subject: Subject): EffectivePermissions {
    if (subject.operator) return narrow({ operator: true, grants: operatorGrants }, subject.restrictions)
    const { reach, narrowed } = this.#of(subject.identity)
    const { restrictions } = subject
    if (restrictions.roles !== undefined) return narrow(reach, restrictions, sessionGrants(this.#replica.snapshot, restrictions.roles))
    let found = narrowed.get(restrictions)
    if (found === undefined) {
      found = narrow(reach, restrictions)
      narrowed.set(restrictions, found)
    }
    return found
  }
}
