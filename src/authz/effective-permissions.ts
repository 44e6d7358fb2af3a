import { containsAll, emptySet, intersect, isEmpty, missing, union, type CapabilitySet } from '../base/capability.ts'
import type { TokenRestrictions } from '../auth/tokens/token-restrictions.ts'
import { isWithin, lineage, trustedUid, type Uid } from '../base/uid.ts'
import type { Visibility } from '../cache/lists/places.ts'

/** Everywhere: the group of a grant that no group bounds. */
export const everywhere = ''

/** Capabilities at a group and all below it. */
export interface Grant {
  readonly group: Uid | typeof everywhere
  readonly capabilities: CapabilitySet
}

/** All that a caller may do, and where. Pure data: every decision below is a function of it. */
export interface EffectivePermissions {
  /** Exempt from the rules that protect organisations from themselves (last owner, verified names). */
  readonly operator: boolean
  readonly grants: readonly Grant[]
}

function covers(grant: Grant, uid: string): boolean {
  return grant.group === everywhere || isWithin(uid, grant.group)
}

/** Up to this many grants are looked at one by one, which is cheaper than to index them. */
const fewGrants = 16

/** What is made of a list of grants once: a list never changes. */
interface Indexed {
  /** Each group of the grants once, in uid order, with all that is held there. */
  readonly held: readonly Grant[]
  readonly heldAt: ReadonlyMap<string, CapabilitySet>
  readonly visible: WeakMap<CapabilitySet, Visibility>
}

const indexes = new WeakMap<readonly Grant[], Indexed>()

/** Cost: O(n log n) at first, O(n) for grants in uid order, as those of the store nearly are. */
function indexOf({ grants }: EffectivePermissions): Indexed {
  let indexed = indexes.get(grants)
  if (indexed === undefined) {
    const held = heldByGroup(grants)
    indexed = { held, heldAt: new Map(held.map(({ group, capabilities }) => [group, capabilities])), visible: new WeakMap() }
    indexes.set(grants, indexed)
  }
  return indexed
}

/** What is held at `uid`; undefined without any grant there or above. Cost: that of few grants, or of the depth. */
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

/** All that the caller holds at `uid`: what was granted there and above. */
export function capabilitiesAt(permissions: EffectivePermissions, uid: string): CapabilitySet {
  return heldAt(permissions, uid) ?? emptySet
}

/**
 * What a caller may do at a uid:
 * - `allowed`: holds every capability needed there
 * - `hidden`: has no reach there at all; must look the same as missing
 * - `denied`: has some reach there, but lacks `missing`
 */
export type Decision = { readonly kind: 'allowed' } | { readonly kind: 'hidden' } | { readonly kind: 'denied'; readonly missing: readonly string[] }

/** Decides about one uid (docs/spec/conventions.md#order-of-checks). */
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
  /** What is held at the groups above, topmost first: in uid order all below a group follows it. */
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

/** True where the caller holds all of `needed` in at least one group. */
export function holdsAnywhere(permissions: EffectivePermissions, needed: CapabilitySet): boolean {
  const held = permissions.grants.length > fewGrants ? indexOf(permissions).held : heldByGroup(permissions.grants)
  return held.some(({ capabilities }) => containsAll(capabilities, needed))
}

/** Where a list may look: the topmost groups at which the caller holds all of `needed` (docs/spec/conventions.md#list-reach), in uid order. The same object for the same many grants and `needed`. */
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

/** Grants on one group merged into one, empty ones left out. */
export function mergeGrants(grants: readonly Grant[]): Grant[] {
  const merged = new GrantMap()
  for (const { group, capabilities } of grants) merged.add(group, capabilities)
  return merged.grants()
}

/** Collects grants, merging those on one group. */
export class GrantMap {
  readonly #byGroup = new Map<Grant['group'], CapabilitySet>()

  add(group: Grant['group'], capabilities: CapabilitySet): void {
    const held = this.#byGroup.get(group)
    // Most groups come once: their set is shared with all others of the role.
    if (held === undefined || held === capabilities) this.#byGroup.set(group, capabilities)
    else this.#byGroup.set(group, union(held, capabilities))
  }

  /** Those that grant something, in the order in which their groups came. */
  grants(): Grant[] {
    const grants: Grant[] = []
    for (const [group, capabilities] of this.#byGroup) if (!isEmpty(capabilities)) grants.push({ group, capabilities })
    return grants
  }
}

/** What was granted at `group` or above it, without what counts at a requested group above it already (docs/spec/tokens.md#narrowing). */
function placedAt(granted: ReadonlyMap<string, CapabilitySet>, group: Uid, scopes: ReadonlySet<string>): Grant {
  let capabilities = emptySet
  for (const place of [...lineage(group), everywhere]) {
    if (place !== group && scopes.has(place)) break
    capabilities = union(capabilities, granted.get(place) ?? emptySet)
  }
  return { group, capabilities }
}

/** `placedAt` for all requested groups. */
function placedIn(grants: readonly Grant[], groups: readonly Uid[]): readonly Grant[] {
  const places = new Set<string>([...groups.flatMap((group) => [...lineage(group)]), everywhere])
  const granted = new Map(mergeGrants(grants.filter(({ group }) => places.has(group))).map(({ group, capabilities }) => [group, capabilities]))
  const scopes = new Set<string>(groups)
  return groups.map((group) => placedAt(granted, group, scopes))
}

/** The grants with nothing but `capabilities`. Most of many grants share one set: each is cut once. */
function cutTo(grants: readonly Grant[], capabilities: CapabilitySet): readonly Grant[] {
  const cuts = new Map<CapabilitySet, CapabilitySet>()
  return grants.map(({ group, capabilities: held }) => {
    const cut = cuts.get(held) ?? intersect(held, capabilities)
    cuts.set(held, cut)
    return { group, capabilities: cut }
  })
}

/** Returns the grants at the groups or below them. Grants above them are outside the groups' trust. */
function grantedWithin(grants: readonly Grant[], groups: readonly Uid[]): Grant[] {
  const known = new Set<string>(groups)
  return grants.filter(({ group }) => group !== everywhere && lineage(group).some((place) => known.has(place)))
}

/**
 * Restricts the permissions to what an exchange requested (docs/spec/tokens.md#narrowing). For each requested group, it keeps grants made there or above it.
 * Of those grants it keeps only the requested capabilities. The restrictions never widen `permissions`. `session` holds the grants of the restrictions' roles.
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
