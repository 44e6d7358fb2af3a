import { decide, everywhere, visibilityOf, type EffectivePermissions } from '../../authz/effective-permissions.ts'
import { isSuspended } from '../../authz/access.ts'
import { emptySet, setOf, union, type CapabilitySet } from '../../base/capability.ts'
import type { Uid } from '../../base/uid.ts'
import { isPublicRepo } from '../records/repo-rules.ts'
import type { RepoTarget } from '../records/repo-paths.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { capabilitiesOfAction, type RegistryAction } from '../gate.ts'

const needed: Readonly<Record<RegistryAction, CapabilitySet>> = {
  pull: setOf(capabilitiesOfAction.pull),
  push: setOf(capabilitiesOfAction.push),
  delete: setOf(capabilitiesOfAction.delete),
}
/** Capabilities needed at a repo to pull from it. */
export const pullCapabilities = needed.pull
const neededToCreate = union(needed.push, setOf(['repo.create']))
const neededToCreateGroups = union(neededToCreate, setOf(['groups.create']))

function neededFor(target: RepoTarget, action: RegistryAction): CapabilitySet {
  if (target.kind === 'repo' || action !== 'push') return needed[action]
  return target.groups.length > 0 ? neededToCreateGroups : neededToCreate
}

/**
 * Returns the topmost groups where these permissions allow the actions in each repo, in uid order; `everywhere` for the whole platform. Suspended organisations are
 * left out.
 */
export function placesWith(tables: RecordTables, permissions: EffectivePermissions, actions: readonly RegistryAction[]): readonly (Uid | typeof everywhere)[] {
  const { everywhere: isEverywhere, groups } = visibilityOf(permissions, actions.map((action) => needed[action]).reduce(union, emptySet))
  return isEverywhere ? [everywhere] : groups.filter((group) => permissions.operator || !isSuspended(tables, group))
}

/** Returns the object at which rights are checked: the repo, or the group in which a push would create it. */
export function placeOf(target: RepoTarget): Uid {
  return target.kind === 'repo' ? target.uid : target.parent
}

/**
 * Returns whether these permissions allow the action. If the repo does not exist, `push` also needs the permissions to create it and the
 * groups on its path.
 */
export function holds(tables: RecordTables, permissions: EffectivePermissions, { target, action }: { target: RepoTarget; action: RegistryAction }): boolean {
  const place = placeOf(target)
  return decide(permissions, place, neededFor(target, action)).kind === 'allowed' && (permissions.operator || !isSuspended(tables, place))
}

/** Returns whether anyone may pull from the target, because it is a repo of the public organisation. */
export function isPublic(tables: RecordTables, publicOrganization: string | undefined, target: RepoTarget): boolean {
  return target.kind === 'repo' && isPublicRepo(tables, publicOrganization, target.uid)
}
