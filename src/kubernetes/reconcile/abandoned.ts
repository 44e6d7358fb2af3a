import { DomainError } from '../../base/errors.ts'
import { randomHex } from '../../base/runtime.ts'
import { deleteManaged, pauseManaged } from '../../domains/managed-records.ts'
import { managedByText, parseManagedBy } from '../../engine/ownership.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { managedPrefix } from '../../store/keys.ts'
import { recordKinds, rowOf, type RecordKind, keyText, type ObjectKey } from '../object-kinds.ts'
import { clusterIdentity, type World } from '../world.ts'
import type { Applied } from './apply.ts'
import { auditRecord } from './audit.ts'
import { authorityAt } from './authority.ts'
import { exceedingAt, givenNow } from './excess.ts'
import { ownedUid } from './references.ts'
import { conditionStatusOf, excessReason, verdicts } from './condition-status.ts'

/**
 * Yields the queue keys of objects of this cluster that own a record but are missing. Either a user removed the finalizer, or a backup was
 * restored. Their records stay, because the object may return, but must stay within the grants (`removeExcess`). Limited to `kinds` and
 * `namespace` if given. Reads caches and the snapshot, so the result may be outdated for a moment after a change.
 */
export function* abandonedOwners(
  world: World,
  { kinds = recordKinds, namespace }: { kinds?: readonly RecordKind[]; namespace?: string } = {},
): Generator<string> {
  const { tables } = world.services.cache
  for (const kind of kinds) {
    const prefix = `${managedPrefix}${kind}/`
    const within = namespace === undefined ? '' : `${world.cluster.id}/${namespace}/`
    for (const key of tables.keysUnder(`${prefix}${within}`)) {
      const owner = parseManagedBy(key.slice(prefix.length))
      if (owner?.clusterId === world.cluster.id && world.objects[kind].get(owner) === undefined) yield keyText({ kind, ...owner })
    }
  }
}

/**
 * Returns the capabilities that a record without an object confers or shows beyond its namespace's rights, from the current caches and
 * snapshot.
 */
function excessOf(world: World, { kind, namespace }: ObjectKey, record: CachedRecord): readonly string[] {
  const authority = authorityAt(world, { row: rowOf(kind), object: { metadata: { namespace } } }, record.parent)
  return exceedingAt({ place: record.parent, authority }, givenNow(world.services.cache.tables, record))
}

/**
 * Handles the record of a missing object whose grants do not allow it: deletes a role binding, or pauses a subscription. Otherwise a user
 * could keep it by removing the object's finalizer. Resolves with undefined if there is nothing to do. Rejects with StoreError or
 * DomainError if the store does not answer, or if another change came first.
 */
export async function removeExcess(
  world: World,
  key: ObjectKey,
  { leads, signal }: { leads: () => boolean; signal: AbortSignal },
): Promise<Applied | undefined> {
  const { kind, namespace, name } = key
  const { onExcess } = rowOf(kind)
  if (onExcess === 'keep') return undefined
  const { services, cluster } = world
  const { tables } = services.cache
  const managedBy = managedByText({ clusterId: cluster.id, namespace, name })
  const record = tables.get(kind, ownedUid(tables, kind, managedBy) ?? '')
  const excess = record === undefined ? [] : excessOf(world, key, record)
  if (record === undefined || excess.length === 0) return undefined
  services.cache.assertLive()
  const { uid, parent } = record
  const auditFields = { cluster, kind, step: onExcess, managedBy, uid } as const
  const caller = {
    managedBy,
    identity: clusterIdentity(cluster),
    permissions: () => authorityAt(world, { row: rowOf(kind), object: { metadata: { namespace } } }, parent).permissions,
    authorize() {
      if (!leads()) throw new Error('the leadership was lost before the record was written')
      if (excessOf(world, key, record).length === 0) throw new DomainError(10, 'the grants of the namespace now allow this record')
    },
    requestId: `kube-${randomHex(services.random, 8)}`,
    signal,
  }
  try {
    const written = onExcess === 'pause' ? await pauseManaged(services, caller, { uid, reason: excessReason(excess) }) : true
    if (onExcess === 'delete') await deleteManaged(services, caller, { kind, uid })
    if (written) auditRecord(world.auditLog, auditFields)
    return { conditionStatus: verdicts.exceedsGrant(excess), written }
  } catch (error) {
    const refused = error instanceof DomainError ? conditionStatusOf(error, true) : undefined
    if (!(error instanceof DomainError) || refused === undefined) throw error
    auditRecord(world.auditLog, { ...auditFields, error })
    return { conditionStatus: refused, written: false }
  }
}
