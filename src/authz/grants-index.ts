import type { TokenRestrictions, SessionRole } from '../auth/access-tokens/token-restrictions.ts'
import { allCapabilities, emptySet, fromEnumNumbers, type CapabilitySet } from '../base/capability.ts'
import { isWithin, parentOf, rootParent, trustedUid, type Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { CooperativeTask, CooperativeScheduler } from '../cache/cooperative-task.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { capabilitiesAt, everywhere, GrantMap, restrict, type Grant, type EffectivePermissions } from './effective-permissions.ts'
import { messageOf } from '../cache/records/record-types.ts'

/** The caller whose permissions are computed. */
export interface Subject {
  readonly identity: Uid
  readonly operator: boolean
  readonly restrictions: TokenRestrictions
}

const ofRole = new WeakMap<CachedRecord, CapabilitySet>()

/** Returns the capabilities that a role grants. Capability numbers that this version does not know grant nothing. */
export function roleCapabilities(role: CachedRecord): CapabilitySet {
  let set = ofRole.get(role)
  if (set === undefined) {
    set = fromEnumNumbers(messageOf(role, 'Role').capabilities)
    ofRole.set(role, set)
  }
  return set
}

/**
 * Whether a role binding has an effect:
 * - `counts`: it grants its identity the capabilities of its role
 * - `confined`: it does not. Its group is outside the group in which the identity was created, and the identity can only have access in that group and below
 *   (docs/spec/iam.md#reach)
 * - `role_missing`: it does not. Its role no longer exists
 */
type BindingState = 'counts' | 'confined' | 'role_missing'

/** Returns the capabilities that a role binding grants its identity as of `tables`, at its group and below. Empty if it has no effect. */
export function bindingGrant(
  tables: RecordTables,
  record: CachedRecord,
): { readonly standing: BindingState; readonly group: Uid; readonly capabilities: CapabilitySet } {
  const bindings = tables.table('RoleBinding')
  const group = trustedUid(record.parent)
  const home = parentOf(trustedUid(bindings.valueOf(record, 'identity') ?? ''))
  if (home !== rootParent && !isWithin(group, home)) return { standing: 'confined', group, capabilities: emptySet }
  const role = tables.get('Role', bindings.valueOf(record, 'role') ?? '')
  if (role === undefined) return { standing: 'role_missing', group, capabilities: emptySet }
  return { standing: 'counts', group, capabilities: roleCapabilities(role) }
}

/**
 * The roles bound to an identity, by uid: the role's record, and the capabilities that it grants. A role that no longer exists has no record and grants
 * nothing.
 */
type BoundRoles = Map<string, { readonly record: CachedRecord | undefined; readonly capabilities: CapabilitySet }>

function boundRole(tables: RecordTables, roles: BoundRoles, uid: string): CapabilitySet {
  let role = roles.get(uid)
  if (role === undefined) {
    const record = tables.get('Role', uid)
    role = { record, capabilities: record === undefined ? emptySet : roleCapabilities(record) }
    roles.set(uid, role)
  }
  return role.capabilities
}

const recordsPerCheck = 256

/**
 * Returns the grants of all role bindings of an identity, in steps between which other work can run. Each role is read once, because many bindings share few
 * roles.
 */
function* grantsThrough(tables: RecordTables, identity: Uid, roles: BoundRoles): Generator<void, Grant[]> {
  const bindings = tables.table('RoleBinding')
  const home = parentOf(identity)
  const merged = new GrantMap()
  for (const [at, record] of [...bindings.matching('identity', identity)].entries()) {
    if (at % recordsPerCheck === recordsPerCheck - 1) yield
    const group = trustedUid(record.parent)
    if (home !== rootParent && !isWithin(group, home)) continue
    merged.add(group, boundRole(tables, roles, bindings.valueOf(record, 'role') ?? ''))
  }
  return merged.grants()
}

function allOf<T>(steps: Generator<void, T>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** Returns the grants of an identity as of `tables`, one per group in which roles are bound to it. */
export function grantsOf(tables: RecordTables, identity: Uid): Grant[] {
  return allOf(grantsThrough(tables, identity, new Map()))
}

/** Returns the grants of a session's roles as of `tables`. A role that no longer exists grants nothing. */
export function sessionGrants(tables: RecordTables, roles: readonly SessionRole[]): Grant[] {
  return roles.flatMap(({ group, role }) => {
    const record = tables.get('Role', role)
    return record === undefined ? [] : [{ group, capabilities: roleCapabilities(record) }]
  })
}

/** True if permissions with these restrictions are computed once and cached. Those with session roles are not cached. */
function isKept({ scopes, capabilities, trustedGroups, roles }: TokenRestrictions): boolean {
  return roles === undefined && (scopes !== undefined || capabilities !== undefined || trustedGroups !== undefined)
}

const operatorGrants: readonly Grant[] = [{ group: everywhere, capabilities: allCapabilities }]

/** The cached permissions of an identity. */
interface CachedPermissions {
  readonly permissions: EffectivePermissions
  readonly roles: BoundRoles
  /** The permissions under the restrictions of the identity's tokens. Restrictions with session roles are not included. */
  readonly restricted: WeakMap<TokenRestrictions, EffectivePermissions>
  /** The number of role changes in the whole store up to which this entry is known to be current. */
  roleChanges: number
}

/** Maximum number of role bindings of an identity whose grants are computed without a pause. For more, they are computed in slices. */
const manyBindings = 1_000
/** Maximum number of attempts to compute grants in slices. A new attempt is needed if they change meanwhile. */
const maxPasses = 10
const maxCached = 100_000
/** Maximum number of cached grants of all identities together. */
const maxGrants = 2_000_000

/** Caches the grants of identities, each until one of its role bindings or roles changes. */
export class GrantsIndex {
  readonly #cache: RecordCache
  readonly #cached = new Map<string, CachedPermissions>()
  readonly #scheduler = new CooperativeScheduler()
  readonly #preparing = new Map<string, Promise<void>>()
  /** The number of changes of role bindings for each identity whose grants are being computed. */
  readonly #changes = new Map<string, number>()
  #grants = 0
  #roleChanges = 0
  #resets = 0

  constructor(cache: RecordCache) {
    this.#cache = cache
    cache.onReset(() => {
      this.#resets += 1
      this.#clear()
    })
    // Permissions end with the commit that hides the records, not when the records are removed later.
    cache.onHide((kind, records) => {
      if (kind === 'RoleBinding') for (const record of records) this.#forget(record)
    })
    cache.onRecord((kind, old, record) => {
      if (kind === 'Role') this.#roleChanges += 1
      if (kind !== 'RoleBinding') return
      for (const changed of [old, record]) if (changed !== undefined) this.#forget(changed)
    })
  }

  #forget(binding: CachedRecord): void {
    const identity = this.#cache.tables.table('RoleBinding').valueOf(binding, 'identity') ?? ''
    const changes = this.#changes.get(identity)
    if (changes !== undefined) this.#changes.set(identity, changes + 1)
    const cached = this.#cached.get(identity)
    if (cached === undefined) return
    this.#cached.delete(identity)
    this.#grants -= cached.permissions.grants.length
  }

  #clear(): void {
    this.#cached.clear()
    this.#grants = 0
  }

  /** Returns the permissions of the identity as of the current snapshot, without any token restrictions. The same object until they change. */
  of(identity: Uid): EffectivePermissions {
    return this.#of(identity).permissions
  }

  #of(identity: Uid): CachedPermissions {
    const cached = this.#cached.get(identity)
    if (cached !== undefined && this.#isCurrent(cached)) return cached
    const roles: BoundRoles = new Map()
    return this.#keep(identity, allOf(grantsThrough(this.#cache.tables, identity, roles)), roles)
  }

  /**
   * Resolves when the identity's grants, and their restricted form, are cached, so that reading them does not block the event loop. Computes them in slices if
   * the identity has many bindings. Returns undefined if there is nothing to wait for. Calling it is optional.
   */
  prepare(identity: Uid, restrictions: TokenRestrictions): Promise<void> | undefined {
    const cached = this.#cached.get(identity)
    const isCached = cached !== undefined && this.#isCurrent(cached)
    if (isCached && (cached.permissions.grants.length <= manyBindings || !isKept(restrictions) || cached.restricted.has(restrictions))) return undefined
    if (!isCached && this.#bindingsOf(identity) <= manyBindings) return undefined
    const ready = isCached ? Promise.resolve() : this.#prepareAll(identity)
    return isKept(restrictions) ? ready.then(() => this.#prepareRestricted(identity, restrictions)) : ready
  }

  /** Like `prepare`, for several identities that may have many role bindings in total. */
  prepareAmong(identities: readonly Uid[]): Promise<void> | undefined {
    const cold = [...new Set(identities)].filter((identity) => {
      const cached = this.#cached.get(identity)
      return cached === undefined || !this.#isCurrent(cached)
    })
    const bindings = cold.reduce((sum, identity) => sum + this.#bindingsOf(identity), 0)
    return bindings <= manyBindings ? undefined : Promise.all(cold.map((identity) => this.#prepareAll(identity))).then(() => undefined)
  }

  #bindingsOf(identity: Uid): number {
    return this.#cache.tables.table('RoleBinding').matching('identity', identity).size
  }

  async #prepareRestricted(identity: Uid, restrictions: TokenRestrictions): Promise<void> {
    const task = new CooperativeTask(this.#scheduler)
    await task.pause()
    const permissions = this.permissionsOf({ identity, operator: false, restrictions })
    await task.pause()
    capabilitiesAt(permissions, identity)
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
    const task = new CooperativeTask(this.#scheduler)
    this.#changes.set(identity, 0)
    for (let pass = 1; pass <= maxPasses; pass++) {
      await task.pause()
      const version = this.#versionOf(identity)
      const roles: BoundRoles = new Map()
      const steps = grantsThrough(this.#cache.tables, identity, roles)
      let step = steps.next()
      for (; step.done !== true && version === this.#versionOf(identity); step = steps.next()) if (task.shouldYield) await task.pause()
      if (step.done !== true || version !== this.#versionOf(identity)) continue
      const { permissions } = this.#keep(identity, step.value, roles)
      await task.pause()
      // The first call builds the index of the grants, which is then cached.
      capabilitiesAt(permissions, identity)
      return
    }
  }

  /** Returns a text that changes whenever the identity's grants may have changed. */
  #versionOf(identity: Uid): string {
    return `${this.#changes.get(identity) ?? 0} ${this.#roleChanges} ${this.#resets}`
  }

  #keep(identity: Uid, grants: Grant[], roles: BoundRoles): CachedPermissions {
    const cached = this.#cached.get(identity)
    if (cached !== undefined) this.#grants -= cached.permissions.grants.length
    if (this.#cached.size >= maxCached || this.#grants >= maxGrants) this.#clear()
    const found: CachedPermissions = { permissions: { operator: false, grants }, roles, restricted: new WeakMap(), roleChanges: this.#roleChanges }
    this.#cached.set(identity, found)
    this.#grants += grants.length
    return found
  }

  /** True if the cached grants are still valid. The identity's roles are only compared after some role in the store has changed. */
  #isCurrent(cached: CachedPermissions): boolean {
    if (cached.roleChanges === this.#roleChanges) return true
    const { tables } = this.#cache
    for (const [uid, { record }] of cached.roles) if (tables.get('Role', uid) !== record) return false
    cached.roleChanges = this.#roleChanges
    return true
  }

  /** Returns all permissions of `subject` as of the current snapshot, limited by the restrictions of its token. */
  permissionsOf(subject: Subject): EffectivePermissions {
    if (subject.operator) return restrict({ operator: true, grants: operatorGrants }, subject.restrictions)
    const { permissions, restricted } = this.#of(subject.identity)
    const { restrictions } = subject
    if (restrictions.roles !== undefined) return restrict(permissions, restrictions, sessionGrants(this.#cache.tables, restrictions.roles))
    let found = restricted.get(restrictions)
    if (found === undefined) {
      found = restrict(permissions, restrictions)
      restricted.set(restrictions, found)
    }
    return found
  }
}
