import { isMessage } from '@bufbuild/protobuf'
import { emptySet, fromEnumNumbers, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isUid, trustedUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { managedByText } from '../../engine/ownership.ts'
import { SubscriptionSchema } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import { RoleSchema } from '../../gen/taproot/iam/v2/roles_pb.ts'
import { bindableBy, bindableRole, noSuchRole } from '../../iam/index.ts'
import type { ObjectKind } from '../object-kinds.ts'
import { objectTypes } from '../object-types.ts'
import { uidAnnotation, type PlatformObject, isMirror } from '../platform-object.ts'
import { authorityAt } from './authority.ts'
import { desiredOf, type Desired } from './desired.ts'
import { exceedingAt, givenBy, givenNow, shownBy } from './excess.ts'
import { recordFacts, type ObjectFacts, type RecordFacts, type ResolvedReferences, type DeletionContext } from './facts.ts'
import { ownedUid, resolveReferences } from './references.ts'
import type { World } from '../world.ts'

/**
 * Returns true if `one` was created before `other`. Kubernetes times are whole seconds, so two objects of the same second have a fixed
 * order.
 */
function isOlder(one: PlatformObject, other: PlatformObject): boolean {
  const [a, b] = [one.metadata.creationTimestamp ?? '', other.metadata.creationTimestamp ?? '']
  return a === b ? one.metadata.uid < other.metadata.uid : a < b
}

/** Returns true if the object was refused: only a change of the object or its grants can give it a record. */
function isRefused({ metadata, status }: PlatformObject): boolean {
  if (status?.observedGeneration !== metadata.generation) return false
  return status?.conditions?.some(({ type, status: is, reason }) => type === 'Stalled' && is === 'True' && reason !== 'InConflict') === true
}

/**
 * Returns the older object that requests the same record as `object`, as `<namespace>/<name>`. The older object takes precedence. Needed
 * only before a record is created.
 */
function olderConflictingObject(
  world: World,
  { row, object }: { row: ObjectKind; object: PlatformObject },
  references: ResolvedReferences,
): string | undefined {
  if (!references.found) return undefined
  const { tables } = world.services.cache
  for (const other of world.claims.like(row, object)) {
    if (!isOlder(other, object) || isMirror(other)) continue
    const { deletionTimestamp, annotations, namespace, name } = other.metadata
    if (deletionTimestamp !== undefined || annotations?.[uidAnnotation] !== undefined || isRefused(other)) continue
    const theirs = resolveReferences(tables, world.cluster, { row, object: other })
    const asksForTheSame = theirs.found && theirs.parent === references.parent
    if (asksForTheSame && authorityAt(world, { row, object: other }, theirs.parent).granted) return `${namespace}/${name}`
  }
  return undefined
}

/** An object and its kind. */
interface GatherSource {
  readonly row: ObjectKind
  readonly object: PlatformObject
}

function desiredFor(world: World, { row, object }: GatherSource, references: ResolvedReferences): ObjectFacts['desired'] {
  const held = references.found ? { identity_uid: references.identity, role_uid: references.role } : {}
  const set = Object.fromEntries(Object.entries(held).filter((pair): pair is [string, Uid] => pair[1] !== undefined))
  try {
    return desiredOf(row, object, { issuer: world.cluster.issuer, held: set })
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    return { invalid: error.message }
  }
}

/** The namespace's authority at the group of the role binding, and the object's current record. They decide which roles it can see. */
interface RoleSight {
  readonly authority: ObjectFacts['authority']
  readonly own: CachedRecord | undefined
}

/** Returns the role of a role binding. Undefined if it cannot be bound there, or if the grants do not let the namespace know about it. */
function roleOf(tables: RecordTables, references: ResolvedReferences, { authority, own }: RoleSight): CachedRecord | undefined {
  if (!references.found || references.role === undefined) return undefined
  const { role, parent } = references
  const isHeld = own?.kind === 'RoleBinding' && tables.table('RoleBinding').valueOf(own, 'role') === role
  return isHeld ? bindableRole(tables, role, parent) : bindableBy({ tables, permissions: authority.permissions }, role, parent)
}

/** Returns the capabilities that the record would confer, or show if it is a subscription. */
function grantedBy({ row }: GatherSource, role: CachedRecord | undefined, desired: ObjectFacts['desired']): CapabilitySet {
  if (row.record === 'RoleBinding') return givenBy(role)
  if ('invalid' in desired) return emptySet
  if (isMessage(desired.record, SubscriptionSchema)) return shownBy(desired.record)
  if (!isMessage(desired.record, RoleSchema)) return emptySet
  return fromEnumNumbers(desired.record.capabilities)
}

/** Returns the desired record, or why its role cannot be bound there. */
function wantedOf(
  world: World,
  source: GatherSource,
  { references, role }: { references: ResolvedReferences; role: CachedRecord | undefined },
): ObjectFacts['desired'] {
  if (source.row.record === 'RoleBinding' && references.found && role === undefined) return { invalid: DomainError.invalid('role_uid', noSuchRole).message }
  return desiredFor(world, source, references)
}

/** Returns the record that conflicts with the object's record: one with the same name, or a role binding of the same identity and role. */
function existingByNameOf(
  tables: RecordTables,
  row: ObjectKind,
  { parent, desired, references }: { parent: string; desired: Desired; references: ResolvedReferences },
): CachedRecord | undefined {
  const table = tables.table(row.record)
  if (references.found && references.identity !== undefined)
    return [...table.matching('identity', references.identity, trustedUid(parent))].find(
      (other) => other.parent === parent && table.valueOf(other, 'role') === references.role,
    )
  const { name } = desired.record as { name?: string }
  if (name === undefined || name === '') return undefined
  if (row.record === 'Group' || row.record === 'Repo') return table.child(parent, name)
  const same = [...table.matching('name', name)].filter((other) => other.parent === parent)
  // Several identities may share a name. Then the name identifies none of them.
  return same.length === 1 ? same[0] : undefined
}

/**
 * Reads whether the object's namespace or CRD is also being deleted. Always asks the API server, because the answer decides whether
 * records are deleted.
 */
async function surroundingsOf(world: World, row: ObjectKind, { object, signal }: { object: PlatformObject; signal: AbortSignal }): Promise<DeletionContext> {
  const crdName = `${row.type.plural}.${row.type.group}`
  const [namespace, crd] = await Promise.all([
    world.api.get(objectTypes.namespace, { name: object.metadata.namespace }, signal),
    world.api.get(objectTypes.crd, { name: crdName }, signal),
  ])
  const goes = (found: typeof namespace): boolean => found?.metadata.deletionTimestamp !== undefined || found === undefined
  return { namespaceGoes: goes(namespace), crdGoes: goes(crd) }
}

/** Returns the record that the object's annotation names, if it is in `place`. The object cannot refer to records elsewhere. */
function carriedBy(tables: RecordTables, { row, object }: GatherSource, place: string): ObjectFacts['carried'] {
  const uid = object.metadata.annotations?.[uidAnnotation]
  if (uid === undefined) return undefined
  const found = isUid(uid) ? tables.get(row.record, uid) : undefined
  return { uid, record: found?.parent === place ? recordFacts(found) : undefined }
}

/** Returns an existing record that has the object's name: it conflicts with the object, or the object may adopt it. */
function takenBy(
  tables: RecordTables,
  { row, object }: GatherSource,
  at: { parent: string; desired: ObjectFacts['desired']; references: ResolvedReferences },
): RecordFacts | undefined {
  if ('invalid' in at.desired) return undefined
  // Several identities may share a name. So an existing one matters only if the object requests adoption by name.
  if (row.record === 'Identity' && object.spec.adoptionPolicy !== 'ByName') return undefined
  const found = existingByNameOf(tables, row, { ...at, desired: at.desired })
  return found === undefined ? undefined : recordFacts(found)
}

/** Returns the group, current or future, of the object's record. */
function placeOf({ object }: GatherSource, own: CachedRecord | undefined, references: ResolvedReferences): string {
  if (object.metadata.deletionTimestamp !== undefined) return own?.parent ?? '/'
  return references.found ? references.parent : '/'
}

/**
 * Collects all facts about one object from the caches and the snapshot, which both report every change. Rejects with KubeError. If the
 * object is being deleted and the store does not answer, rejects with StoreError.
 */
export async function gather(world: World, source: GatherSource, signal: AbortSignal): Promise<ObjectFacts> {
  const { row, object } = source
  const { namespace, name, deletionTimestamp } = object.metadata
  const managedBy = managedByText({ clusterId: world.cluster.id, namespace, name })
  const surroundings = deletionTimestamp === undefined ? undefined : await surroundingsOf(world, row, { object, signal })
  // Releasing an object cannot be undone. So this waits for the last write of another controller, which the watch may not have delivered
  // yet.
  if (deletionTimestamp !== undefined) await world.services.cache.barrier(signal)
  // Read after the last await, so that all facts are of one commit.
  const { tables } = world.services.cache
  const own = tables.get(row.record, ownedUid(tables, row.record, managedBy) ?? '')
  const references = resolveReferences(tables, world.cluster, source)
  const place = placeOf(source, own, references)
  const authority = authorityAt(world, source, place)
  const within = own === undefined || own.parent === place ? { place, authority } : { place: own.parent, authority: authorityAt(world, source, own.parent) }
  const role = roleOf(tables, references, { authority, own })
  const desired = wantedOf(world, source, { references, role })
  const carried = carriedBy(tables, source, place)
  const isFree = own === undefined && authority.granted
  const existingByName = isFree ? takenBy(tables, source, { parent: place, desired, references }) : undefined
  const isFirst = isFree && !('invalid' in desired) && existingByName === undefined && carried === undefined
  return {
    object,
    managedBy,
    own: own && recordFacts(own),
    carried,
    references: assertThere(tables, { references, object, authority }),
    authority,
    exceeding: exceedingAt(within, grantedBy(source, role, desired)),
    exceedingNow: own === undefined || row.onExcess === 'keep' ? [] : exceedingAt(within, givenNow(tables, own)),
    onExcess: row.onExcess,
    existingByName,
    conflictingObject: isFirst ? olderConflictingObject(world, source, references) : undefined,
    desired,
    surroundings,
  }
}

/** Returns the references, or a missing group that is named by its uid. Callers without access do not learn whether the group exists. */
function assertThere(
  tables: RecordTables,
  { references, object, authority }: { references: ResolvedReferences; object: PlatformObject; authority: ObjectFacts['authority'] },
): ResolvedReferences {
  if (!authority.granted || !references.found || references.parent === '/' || tables.get('Group', references.parent) !== undefined) return references
  return { found: false, field: 'parentRef', meant: `the record ${object.spec.parentRef?.uid ?? references.parent}` }
}
