import { decide } from '../../authz/effective-permissions.ts'
import { emptySet } from '../../base/capability.ts'
import type { Uid } from '../../base/uid.ts'
import { parseManagedBy } from '../../engine/ownership.ts'
import { blockersOfGroup } from '../../iam/index.ts'
import type { Row } from '../../cache/records/cached-record.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import type { Authority } from '../grants.ts'
import type { RecordKind } from '../object-kinds.ts'
import { firstOf } from './condition-status.ts'

function recordsInTheWay(snapshot: Snapshot, kind: RecordKind, uid: Uid): Iterable<Row> {
  if (kind === 'Group') return blockersOfGroup(snapshot, uid)
  return kind === 'Role' ? snapshot.table('RoleBinding').matching('role', uid) : []
}

function textOf({ kind, name, uid, managedBy }: Row): string {
  const owner = parseManagedBy(managedBy)
  const whose = owner === undefined ? uid : `of the object ${owner.namespace}/${owner.name}`
  return name === '' ? `${kind} ${whose}` : `${kind} "${name}" (${whose})`
}

/** Names the first records that keep a record from being deleted: those alone that the namespace's grants reach. Empty where there are none. */
export function blockersOf(snapshot: Snapshot, { kind, uid, authority }: { kind: RecordKind; uid: Uid; authority: Authority }): string {
  const seen = [...recordsInTheWay(snapshot, kind, uid)].filter((row) => decide(authority.reach, row.uid, emptySet).kind !== 'hidden')
  return firstOf(seen, textOf)
}
