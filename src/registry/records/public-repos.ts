import { isSuspended } from '../../authz/suspended.ts'
import { rootOf, rootParent, type Uid } from '../../base/uid.ts'
import type { Snapshot } from '../../cache/snapshot.ts'

/** Whether anybody may pull from the repo: it is one of the public organisation, which `publicOrganization` names. */
export function isPublicRepo(snapshot: Snapshot, publicOrganization: string | undefined, repo: Uid): boolean {
  if (publicOrganization === undefined) return false
  const root = snapshot.table('Group').child(rootParent, publicOrganization)
  return root !== undefined && rootOf(repo) === root.uid && !isSuspended(snapshot, root.uid)
}
