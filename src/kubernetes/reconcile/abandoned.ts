import { DomainError } from '../../base/errors.ts'
import { randomHex } from '../../base/runtime.ts'
import { deleteManaged } from '../../catalog/managed-records.ts'
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
import { conditionStatusOf, verdicts } from './condition-status.ts'

/**
 * The objects of this cluster that own a record and are not there, as keys of the queue name them: somebody took the finalizer off, or a backup of either side was restored. Such a record
 * is left as it is, for its object may come again; but bindings stay within the grants (`removeExcess`). Those of `kinds` and `namespace` alone where they are given. As of caches and snapshot, so a moment after a change it may be wrong.
 */
export function* abandonedOwners(
  world: World,
  { kinds = recordKinds, namespace }: { kinds?: readonly RecordKind[]; namespace?: string } = {},
): Generator<string> {
  const { snapshot } = world.services.replica
  for (const kind of kinds) {
    const prefix = `${managedPrefix}${kind}/`
    const within = namespace === undefined ? '' : `${world.cluster.id}/${namespace}/`
    for (const key of snapshot.keysUnder(`${prefix}${within}`)) {
      const owner = parseManagedBy(key.slice(prefix.length))
      if (owner?.clusterId === world.cluster.id && world.objects[kind].get(owner) === undefined) yield keyText({ kind, ...owner })
    }
  }
}

/** What a binding without an object gives that its namespace may not, as of the caches and the snapshot now. */
function excessOf(world: World, namespace: string, binding: CachedRecord): readonly string[] {
  const authority = authorityAt(world, { row: rowOf('RoleBinding'), object: { metadata: { namespace } } }, binding.parent)
  return exceedingAt({ place: binding.parent, authority }, givenNow(world.services.replica.snapshot, binding))
}

/**
 * Deletes the record that the object `key`, which is not there, owns, where it is a binding that gives more than the grants of its namespace: else who may take a finalizer off would keep what a
 * grant takes away. Resolves with undefined where nothing is to be done. Rejects with StoreError or DomainError where the store gave no answer or a race was lost.
 */
export async function removeExcess(
  world: World,
  key: ObjectKey,
  { leads, signal }: { leads: () => boolean; signal: AbortSignal },
): Promise<Applied | undefined> {
  const { kind, namespace, name } = key
  if (kind !== 'RoleBinding') return undefined
  const { services, cluster } = world
  const { snapshot } = services.replica
  const managedBy = managedByText({ clusterId: cluster.id, namespace, name })
  const binding = snapshot.get(kind, ownedUid(snapshot, kind, managedBy) ?? '')
  const excess = binding === undefined ? [] : excessOf(world, namespace, binding)
  if (binding === undefined || excess.length === 0) return undefined
  services.replica.assertLive()
  const { uid } = binding
  const told = { cluster, kind, step: 'delete', managedBy, uid } as const
  const caller = {
    managedBy,
    identity: clusterIdentity(cluster),
    reach: () => authorityAt(world, { row: rowOf(kind), object: { metadata: { namespace } } }, binding.parent).reach,
    authorize() {
      if (!leads()) throw new Error('the leadership was lost before the record was written')
      if (excessOf(world, namespace, binding).length === 0) throw new DomainError(10, 'the grants allow this binding again')
    },
    requestId: `kube-${randomHex(services.random, 8)}`,
    signal,
  }
  try {
    await deleteManaged(services, caller, { kind, uid })
    auditRecord(world.auditLog, told)
    return { conditionStatus: verdicts.exceedsGrant(excess), written: true }
  } catch (error) {
    const refused = error instanceof DomainError ? conditionStatusOf(error, true) : undefined
    if (!(error instanceof DomainError) || refused === undefined) throw error
    auditRecord(world.auditLog, { ...told, error })
    return { conditionStatus: refused, written: false }
  }
}
