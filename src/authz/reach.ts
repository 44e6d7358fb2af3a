import { containsAll, emptySet, intersect, isEmpty, missing, union, type CapabilitySet } from '../core/capability.ts'
import type { Narrowing } from '../core/narrowing.ts'
import { isWithin, type Uid } from '../core/uid.ts'
import type { Visibility } from '../snapshot/list.ts'

/** Everywhere: the group of a grant that no group bounds. */
export const everywhere = ''

/** Capabilities at a group and all below it. */
export interface Grant {
  readonly group: Uid | typeof everywhere
  readonly capabilities: CapabilitySet
}

/** All that a caller may do, and where. Pure data: every decision below is a function of it. */
export interface Reach {
  /** Exempt from the rules that protect organisations from themselves (last owner, verified names). */
  readonly operator: boolean
  readonly grants: readonly Grant[]
}

function covers(grant: Grant, uid: string): boolean {
  return grant.group === everywhere || isWithin(uid, grant.group)
}

/** All that the caller holds at `uid`: what was granted there and above. */
export function capabilitiesAt(reach: Reach, uid: string): CapabilitySet {
  let held = emptySet
  for (const grant of reach.grants) if (covers(grant, uid)) held = union(held, grant.capabilities)
  return held
}

/**
 * What a caller may do at a uid:
 * - `allowed`: holds every capability needed there
 * - `hidden`: has no reach there at all; must look the same as missing
 * - `denied`: has some reach there, but lacks `missing`
 */
export type Decision = { readonly kind: 'allowed' } | { readonly kind: 'hidden' } | { readonly kind: 'denied'; readonly missing: readonly string[] }

/** Decides about one uid (spec 5.4, decisions "Order of checks"). */
export function decide(reach: Reach, uid: string, needed: CapabilitySet): Decision {
  let held: CapabilitySet | undefined
  for (const grant of reach.grants) {
    if (covers(grant, uid)) held = held === undefined ? grant.capabilities : union(held, grant.capabilities)
  }
  if (held === undefined) return { kind: 'hidden' }
  return containsAll(held, needed) ? { kind: 'allowed' } : { kind: 'denied', missing: missing(held, needed) }
}

/** True where the caller holds all of `needed` in at least one group. */
export function holdsAnywhere(reach: Reach, needed: CapabilitySet): boolean {
  return reach.grants.some((grant) => containsAll(capabilitiesAt(reach, grant.group), needed))
}

/** Where a list may look: the topmost groups at which the caller holds all of `needed` (rules 1.3). */
export function visibilityOf(reach: Reach, needed: CapabilitySet): Visibility {
  const groups: Uid[] = []
  for (const grant of reach.grants) {
    if (!containsAll(capabilitiesAt(reach, grant.group), needed)) continue
    if (grant.group === everywhere) return { everywhere: true, groups: [], roots: true }
    groups.push(grant.group)
  }
  // In uid order an ancestor comes before what is below it.
  groups.sort()
  const topmost: Uid[] = []
  for (const group of groups) {
    const last = topmost.at(-1)
    if (last === undefined || !isWithin(group, last)) topmost.push(group)
  }
  return { everywhere: false, groups: topmost, roots: false }
}

/** Grants on one group merged into one, empty ones left out. */
export function mergeGrants(grants: readonly Grant[]): Grant[] {
  const byGroup = new Map<Grant['group'], CapabilitySet>()
  for (const { group, capabilities } of grants) byGroup.set(group, union(byGroup.get(group) ?? emptySet, capabilities))
  return [...byGroup].filter(([, capabilities]) => !isEmpty(capabilities)).map(([group, capabilities]) => ({ group, capabilities }))
}

/** What was granted at `group` or above it, without what counts at a requested group above it already (rules 8). */
function placedAt(reach: Reach, group: Uid, scopes: readonly Uid[]): Grant {
  const above = scopes.filter((other) => other !== group && isWithin(group, other))
  const grants = reach.grants.filter((grant) => !above.some((other) => covers(grant, other)))
  return { group, capabilities: capabilitiesAt({ ...reach, grants }, group) }
}

/** What was granted at the groups or below them: what was granted above is not the groups' to vouch for. */
function grantedWithin(grants: readonly Grant[], groups: readonly Uid[]): Grant[] {
  return grants.filter((grant) => grant.group !== everywhere && groups.some((group) => isWithin(grant.group, group)))
}

/**
 * The reach cut to what an exchange asked for: at each requested group what was granted there or above it, and of that only the requested
 * capabilities (rules 8). It can never widen. `session` is what the narrowing's roles grant: not cut to the groups that vouch for the person, since who mapped
 * them held them where they are.
 */
export function narrow(reach: Reach, narrowing: Narrowing, session: readonly Grant[] = []): Reach {
  const { scopes, capabilities, knownIn } = narrowing
  if (scopes === undefined && capabilities === undefined && knownIn === undefined && session.length === 0) return reach
  const known = knownIn === undefined ? reach.grants : grantedWithin(reach.grants, knownIn)
  const rooted: Reach = { operator: false, grants: mergeGrants([...known, ...session]) }
  const placed: readonly Grant[] = scopes === undefined ? rooted.grants : scopes.map((group) => placedAt(rooted, group, scopes))
  const cut = capabilities === undefined ? placed : placed.map((grant) => ({ ...grant, capabilities: intersect(grant.capabilities, capabilities) }))
  return { operator: false, grants: mergeGrants(cut) }
}
