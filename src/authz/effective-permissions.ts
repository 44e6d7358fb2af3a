import { containsAll, emptySet, intersect, isEmpty, missing, union, type CapabilitySet } from '../base/capability.ts'
import type { TokenRestrictions } from '../auth/access-tokens/token-restrictions.ts'
import { isWithin, lineage, trustedUid, type Uid } from '../base/uid.ts'
import type { Visibility } from '../cache/lists/places.ts'

/** The group of a grant that applies to the whole platform. */
export const everywhere = ''

/** Capabilities that are held at a group and at everything below it. */
export interface Grant {
  readonly group: Uid | typeof everywhere
  readonly capabilities: CapabilitySet
}

/** All capabilities that a caller has, and where. Every function below decides from this data alone. */
export interface EffectivePermissions {
  /** True if the caller is exempt from the rules that protect organisations from mistakes (last owner, verified names). */
  readonly operator: boolean
  readonly grants: readonly Grant[]
}

function covers(grant: Grant, uid: string): boolean {
  return grant.group === everywhere || isWithin(uid, grant.group)
}

/** Maximum number of grants that are searched one by one, which is cheaper than an index for so few. */
const fewGrants = 16

/** An index of a list of grants. It is built once per list, because a list never changes. */
interface Indexed {
  /** One grant per group, in uid order, with all capabilities that are held at that group, including those granted above it. */
  readonly held: readonly Grant[]
  readonly heldAt: ReadonlyMap<string, CapabilitySet>
  readonly visible: WeakMap<CapabilitySet, Visibility>
}

const indexes = new WeakMap<readonly Grant[], Indexed>()

/** Returns the index of the caller's grants. Building it costs O(n log n), or O(n) if the grants are already in uid order, as those from the store nearly are. */
function indexOf({ grants }: EffectivePermissions): Indexed {
  let indexed = indexes.get(grants)
  if (indexed === undefined) {
    const held = heldByGroup(grants)
    indexed = { held, heldAt: new Map(held.map(({ group, capabilities }) => [group, capabilities])), visible: new WeakMap() }
    indexes.set(grants, indexed)
  }
  return indexed
}

/** Returns the capabilities held at `uid`; undefined if there is no grant at it or above it. */
function heldAt(permissions: EffectivePermissions, uid: string): CapabilitySet | undefined {
  if (permissions.grants.length > fewGrants) {
    const at = indexOf(permissions).heldAt
    for (const place of lineage(trustedUid(uid))) {
      const held = at.get(place)
      if (held !== undefined) return held
    }
    return at.get(everywhere)
  }
  let held: CapabilitySet | undefined
  for (const grant of permissions.grants) if (covers(grant, uid)) held = held === undefined ? grant.capabilities : union(held, grant.capabilities)
  return held
}

/** Returns all capabilities that the caller holds at `uid`: those granted at it and above it. */
export function capabilitiesAt(permissions: EffectivePermissions, uid: string): CapabilitySet {
  return heldAt(permissions, uid) ?? emptySet
}

/**
 * What a caller may do at a uid:
 * - `allowed`: the caller holds every capability needed there
 * - `hidden`: the caller holds nothing there. The answer must be the same as for a resource that does not exist
 * - `denied`: the caller holds some capabilities there, but not those in `missing`
 */
export type Decision = { readonly kind: 'allowed' } | { readonly kind: 'hidden' } | { readonly kind: 'denied'; readonly missing: readonly string[] }

/** Decides whether the caller holds the `needed` capabilities at a uid (docs/spec/conventions.md#order-of-checks). */
export function decide(permissions: EffectivePermissions, uid: string, needed: CapabilitySet): Decision {
  const held = heldAt(permissions, uid)
  if (held === undefined) return { kind: 'hidden' }
  return containsAll(held, needed) ? { kind: 'allowed' } : { kind: 'denied', missing: missing(held, needed) }
}

function compareGroups(one: Grant, other: Grant): number {
  return one.group === other.group ? 0 : one.group < other.group ? -1 : 1
}

function heldByGroup(grants: readonly Grant[]): readonly Grant[] {
  const held: Grant[] = []
  /** The grants of the groups above the current one, topmost first. In uid order, everything below a group follows it. */
  const above: Grant[] = []
  for (const { group, capabilities } of [...grants].sort(compareGroups)) {
    let nearest = above.at(-1)
    while (nearest !== undefined && !covers(nearest, group)) {
      above.pop()
      nearest = above.at(-1)
    }
    const here = { group, capabilities: nearest === undefined ? capabilities : union(nearest.capabilities, capabilities) }
    if (nearest?.group === group) {
      above.pop()
      held.pop()
    }
    above.push(here)
    held.push(here)
  }
  return held
}

/** True if the caller holds all `needed` capabilities in at least one group. */
export function holdsAnywhere(permissions: EffectivePermissions, needed: CapabilitySet): boolean {
  const held = permissions.grants.length > fewGrants ? indexOf(permissions).held : heldByGroup(permissions.grants)
  return held.some(({ capabilities }) => containsAll(capabilities, needed))
}

/**
 * Returns the topmost groups at which the caller holds all `needed` capabilities, in uid order: a list shows records there and below
 * (docs/spec/conventions.md#list-reach). Returns the same object for the same grants and `needed`, if there are many grants.
 */
export function visibilityOf(permissions: EffectivePermissions, needed: CapabilitySet): Visibility {
  if (permissions.grants.length <= fewGrants) return topmostOf(heldByGroup(permissions.grants), needed)
  const { held, visible } = indexOf(permissions)
  let visibility = visible.get(needed)
  if (visibility === undefined) {
    visibility = topmostOf(held, needed)
    visible.set(needed, visibility)
  }
  return visibility
}

function topmostOf(held: readonly Grant[], needed: CapabilitySet): Visibility {
  const topmost: Uid[] = []
  for (const { group, capabilities } of held) {
    if (!containsAll(capabilities, needed)) continue
    if (group === everywhere) return { everywhere: true, groups: [], roots: true }
    const last = topmost.at(-1)
    if (last === undefined || !isWithin(group, last)) topmost.push(group)
  }
  return { everywhere: false, groups: topmost, roots: false }
}

/** Merges grants on the same group into one. Omits empty grants. */
export function mergeGrants(grants: readonly Grant[]): Grant[] {
  const merged = new GrantMap()
  for (const { group, capabilities } of grants) merged.add(group, capabilities)
  return merged.grants()
}

/** Collects grants and merges those on the same group. */
export class GrantMap {
  readonly #byGroup = new Map<Grant['group'], CapabilitySet>()

  add(group: Grant['group'], capabilities: CapabilitySet): void {
    const held = this.#byGroup.get(group)
    // Most groups occur once. Then they share the capability set of the role.
    if (held === undefined || held === capabilities) this.#byGroup.set(group, capabilities)
    else this.#byGroup.set(group, union(held, capabilities))
  }

  /** Returns the grants that are not empty, in the order in which their groups were added. */
  grants(): Grant[] {
    const grants: Grant[] = []
    for (const [group, capabilities] of this.#byGroup) if (!isEmpty(capabilities)) grants.push({ group, capabilities })
    return grants
  }
}

/**
 * Returns the capabilities granted at `group` or above it, as a grant on `group`. Stops at the nearest requested group above: what is granted there and higher
 * is part of that group's own grant (docs/spec/tokens.md#narrowing).
 */
function placedAt(granted: ReadonlyMap<string, CapabilitySet>, group: Uid, scopes: ReadonlySet<string>): Grant {
  let capabilities = emptySet
  for (const place of [...lineage(group), everywhere]) {
    if (place !== group && scopes.has(place)) break
    capabilities = union(capabilities, granted.get(place) ?? emptySet)
  }
  return { group, capabilities }
}

/** Limits grants to the requested groups: returns one grant for each of them (see `placedAt`). */
function placedIn(grants: readonly Grant[], groups: readonly Uid[]): readonly Grant[] {
  const places = new Set<string>([...groups.flatMap((group) => [...lineage(group)]), everywhere])
  const granted = new Map(mergeGrants(grants.filter(({ group }) => places.has(group))).map(({ group, capabilities }) => [group, capabilities]))
  const scopes = new Set<string>(groups)
  return groups.map((group) => placedAt(granted, group, scopes))
}

/** Limits each grant to `capabilities`. Many grants share few capability sets, so each set is intersected once. */
function cutTo(grants: readonly Grant[], capabilities: CapabilitySet): readonly Grant[] {
  const cuts = new Map<CapabilitySet, CapabilitySet>()
  return grants.map(({ group, capabilities: held }) => {
    const cut = cuts.get(held) ?? intersect(held, capabilities)
    cuts.set(held, cut)
    return { group, capabilities: cut }
  })
}

/** Returns the grants on these groups or below them. Grants above are omitted, because these groups are not trusted to decide about them. */
function grantedWithin(grants: readonly Grant[], groups: readonly Uid[]): Grant[] {
  const known = new Set<string>(groups)
  return grants.filter(({ group }) => group !== everywhere && lineage(group).some((place) => known.has(place)))
}

/**
 * Applies the restrictions of a token to permissions (docs/spec/tokens.md#narrowing). For each requested group, it keeps the grants made there or above it. Of
 * those grants it keeps only the requested capabilities. Restrictions never extend `permissions`. `session` holds the grants of the token's session roles.
 * These are not limited to the groups that trust the person, because the author of the mapping held those roles at their groups.
 */
export function restrict(permissions: EffectivePermissions, restrictions: TokenRestrictions, session: readonly Grant[] = []): EffectivePermissions {
  const { scopes, capabilities, trustedGroups } = restrictions
  if (scopes === undefined && capabilities === undefined && trustedGroups === undefined && session.length === 0) return permissions
  const known = trustedGroups === undefined ? permissions.grants : grantedWithin(permissions.grants, trustedGroups)
  const all = session.length === 0 ? known : [...known, ...session]
  const at = scopes === undefined ? all : placedIn(all, scopes)
  return { operator: false, grants: mergeGrants(capabilities === undefined ? at : cutTo(at, capabilities)) }
}
