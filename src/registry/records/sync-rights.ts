import { timestampMs } from '@bufbuild/protobuf/wkt'
import { capabilitiesAt, decide } from '../../authz/effective-permissions.ts'
import { isSuspended } from '../../authz/access.ts'
import { containsAll, setOf } from '../../base/capability.ts'
import { isUid, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { SyncConfig } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { RenderFacts, Planning } from '../../engine/kind.ts'
import { isPublicRepo } from './repo-rules.ts'

/** Capabilities needed at the source repo of a sync: the right to pull from it. */
const neededAtSource = setOf(['repo.list', 'manifest.list', 'repo.blobs.get'])

function isPublic({ tables, settings }: RenderFacts, repo: Uid): boolean {
  return isPublicRepo(tables, settings.registry?.publicOrganization, repo)
}

/**
 * Returns true if an identity may pull from a repo now, by its own role bindings. Roles of a session do not count. The cost grows with the
 * depth of the repo.
 */
function holdsPull({ tables, grants, settings }: RenderFacts, identity: Uid, repo: Uid): boolean {
  if (settings.operators.has(identity)) return true
  if (isSuspended(tables, repo) || tables.get('Identity', identity) === undefined) return false
  const permissions = grants.permissionsOf({ identity, operator: false, restrictions: {} })
  return containsAll(capabilitiesAt(permissions, repo), neededAtSource)
}

/**
 * Returns true if the identity that created a sync may still pull from the source. A sync of a Kubernetes object has no identity: its
 * source must be in the object's organisation.
 */
function hasRight(facts: RenderFacts, { mirror, identity, source }: { mirror: Uid; identity: string; source: Uid }): boolean {
  if (isPublic(facts, source)) return true
  if (identity === '') return rootOf(source) === rootOf(mirror) && !isSuspended(facts.tables, source)
  return holdsPull(facts, trustedUid(identity), source)
}

/**
 * Returns whether the repo `mirror` currently shows the content of its source. The sync must not have expired, and the identity that
 * created it must be allowed to pull from the source.
 */
export function isInForce(facts: RenderFacts, mirror: Uid, { source, identityUid, expirationTime }: SyncConfig): boolean {
  if (!isUid(source) || (expirationTime !== undefined && facts.nowMs >= timestampMs(expirationTime))) return false
  return hasRight(facts, { mirror, identity: identityUid, source })
}

/** Returns the identity whose rights a new sync depends on; empty for a Kubernetes object. */
export function identityOfSync({ ownership, caller }: Planning): string {
  return ownership.kind === 'object' ? '' : caller.identity
}

/**
 * Returns whether the caller may set up a sync of `mirror` with `source`. Both the caller's token and the permissions that count for the sync later must allow
 * pulls from the source.
 */
export function maySync(planning: Planning, facts: RenderFacts, { mirror, source }: { mirror: Uid; source: Uid }): boolean {
  const { permissions, tables } = planning
  const isOpen = permissions.operator || !isSuspended(tables, source)
  const mayPull = isPublic(facts, source) || (isOpen && decide(permissions, source, neededAtSource).kind === 'allowed')
  return mayPull && hasRight(facts, { mirror, identity: identityOfSync(planning), source })
}
