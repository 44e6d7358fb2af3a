import { rootOf, type Uid } from '../base/uid.ts'
import { OrgStatus, type Group } from '../gen/taproot/iam/v2/groups_pb.ts'
import type { Snapshot } from '../cache/snapshot.ts'

/** True where the organisation is closed to its members (docs/spec/iam.md#suspended-organisations). */
export function isSuspended(snapshot: Snapshot, uid: Uid): boolean {
  // A row of kind Group holds a Group.
  const root = snapshot.get('Group', rootOf(uid))?.message as unknown as Group | undefined
  return root?.status === OrgStatus.SUSPENDED
}
