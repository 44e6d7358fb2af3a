import { emptySet, fromEnumNumbers, type CapabilitySet } from '../../core/capability.ts'
import { DomainError } from '../../core/errors.ts'
import { isUid, isWithin, rootParent, type Uid } from '../../core/uid.ts'
import { roleCapabilities } from '../../authz/grants-index.ts'
import { RoleSchema } from '../../gen/taproot/iam/v2/roles_pb.ts'
import { managedByText } from '../../resources/ownership.ts'
import { isMessage } from '@bufbuild/protobuf'
import type { Row } from '../../snapshot/row.ts'
import type { Snapshot } from '../../snapshot/snapshot.ts'
import { exceeding } from '../grants.ts'
import type { ObjectKind } from '../object-kinds.ts'
import { uidAnnotation, type PlatformObject } from '../platform-object.ts'
import { objectTypes } from '../port/object-types.ts'
import type { World } from '../world.ts'
import { authorityAt } from './authority.ts'
import { desiredOf, type Desired } from './desired.ts'
import type { Facts, RecordFacts, ResolvedReferences, Surroundings } from './facts.ts'
import { ownedUid, resolveReferences } from './references.ts'
import { olderRival } from './rivals.ts'

/** One object, and the kind that it is of. */
interface Source {
  readonly row: ObjectKind
  readonly object: PlatformObject
}

function factsOf(row: Row): RecordFacts {
  // Rows are kept under uids, and their parents are uids or the root.
  return { uid: row.uid, parent: row.parent, managedBy: row.managedBy, etag: row.etag }
}

function desiredFor(world: World, { row, object }: Source, references: ResolvedReferences): Facts['desired'] {
  const held = references.found ? { identity_uid: references.identity, role_uid: references.role } : {}
  const set = Object.fromEntries(Object.entries(held).filter((pair): pair is [string, Uid] => pair[1] !== undefined))
  try {
    return desiredOf(row, object, { issuer: world.cluster.issuer, held: set })
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    return { invalid: error.message }
  }
}

/** The role that a binding gives, or would give; nothing is told of one that can't be bound there. */
function roleGiven(snapshot: Snapshot, own: Row | undefined, references: ResolvedReferences): Row | undefined {
  if (own !== undefined) return snapshot.get('Role', snapshot.table('RoleBinding').valueOf(own, 'role') ?? '')
  const role = references.found ? snapshot.get('Role', references.role ?? '') : undefined
  const isBindable = role !== undefined && references.found && (role.parent === rootParent || isWithin(references.parent, role.parent))
  return isBindable ? role : undefined
}

/** What the record lets somebody do as it is, or else would let them do. */
function conferredBy(
  snapshot: Snapshot,
  own: Row | undefined,
  at: { row: ObjectKind; references: ResolvedReferences; desired: Facts['desired'] },
): CapabilitySet {
  const { row, references, desired } = at
  if (row.record === 'RoleBinding') {
    const role = roleGiven(snapshot, own, references)
    return role === undefined ? emptySet : roleCapabilities(role)
  }
  if ('invalid' in desired || !isMessage(desired.record, RoleSchema)) return emptySet
  return fromEnumNumbers(desired.record.capabilities)
}

/** The record that stands where the object's would: of the same name, or for a binding of the same identity and role. */
function namesakeOf(
  snapshot: Snapshot,
  row: ObjectKind,
  { parent, desired, references }: { parent: string; desired: Desired; references: ResolvedReferences },
): Row | undefined {
  const table = snapshot.table(row.record)
  if (references.found && references.identity !== undefined)
    return [...table.matching('identity', references.identity)].find((other) => other.parent === parent && table.valueOf(other, 'role') === references.role)
  const { name } = desired.record as { name?: string }
  if (name === undefined || name === '') return undefined
  if (row.record === 'Group' || row.record === 'Repo') return table.child(parent, name)
  const same = [...table.matching('name', name)].filter((other) => other.parent === parent)
  // Identities may share names: then none is meant.
  return same.length === 1 ? same[0] : undefined
}

/** Whether what the object is in goes too, as the API server says now: never from a cache, since records are deleted by it. */
async function surroundingsOf(world: World, row: ObjectKind, { object, signal }: { object: PlatformObject; signal: AbortSignal }): Promise<Surroundings> {
  const crdName = `${row.type.plural}.${row.type.group}`
  const [namespace, crd] = await Promise.all([
    world.api.get(objectTypes.namespace, { name: object.metadata.namespace }, signal),
    world.api.get(objectTypes.crd, { name: crdName }, signal),
  ])
  const goes = (found: typeof namespace): boolean => found?.metadata.deletionTimestamp !== undefined || found === undefined
  return { namespaceGoes: goes(namespace), crdGoes: goes(crd) }
}

/** The record that the object's annotation names, where it lies in `place`: what lies elsewhere is none of its business. */
function carriedBy(snapshot: Snapshot, { row, object }: Source, place: string): Facts['carried'] {
  const uid = object.metadata.annotations?.[uidAnnotation]
  if (uid === undefined) return undefined
  const found = isUid(uid) ? snapshot.get(row.record, uid) : undefined
  return { uid, record: found?.parent === place ? factsOf(found) : undefined }
}

/** The record that the object would have to share its name with, or could take over. */
function takenBy(
  snapshot: Snapshot,
  { row, object }: Source,
  at: { parent: string; desired: Facts['desired']; references: ResolvedReferences },
): RecordFacts | undefined {
  if ('invalid' in at.desired) return undefined
  // Identities may have the same name: only who asks for it means another one.
  if (row.record === 'Identity' && object.spec.adoptionPolicy !== 'ByName') return undefined
  const found = namesakeOf(snapshot, row, { ...at, desired: at.desired })
  return found === undefined ? undefined : factsOf(found)
}

/** What of `conferred` the namespace may not give at `place`, where the record is or would be; nothing where it has no grant there, which is another matter. */
function exceedingAt({ world, source }: { world: World; source: Source }, place: string, conferred: CapabilitySet): readonly string[] {
  const authority = authorityAt(world, source, place)
  return authority.granted ? exceeding(authority, place, conferred) : []
}

/** Where the object's record is, or is to be. */
function placeOf({ object }: Source, own: Row | undefined, references: ResolvedReferences): string {
  if (object.metadata.deletionTimestamp !== undefined) return own?.parent ?? '/'
  return references.found ? references.parent : '/'
}

/** Collects all that decides about one object: from caches and the snapshot, of which both sides tell every change. Rejects with KubeError, or StoreError where an object is being deleted and the store does not answer. */
export async function gather(world: World, source: Source, signal: AbortSignal): Promise<Facts> {
  const { row, object } = source
  const { namespace, name, deletionTimestamp } = object.metadata
  const managedBy = managedByText({ clusterId: world.cluster.id, namespace, name })
  const surroundings = deletionTimestamp === undefined ? undefined : await surroundingsOf(world, row, { object, signal })
  // An object is let go once and for all: another controller's last write, which has not come by the watch yet, must not be missed.
  if (deletionTimestamp !== undefined) await world.services.replica.barrier(signal)
  // After all that is awaited: all of it is one commit's state.
  const { snapshot } = world.services.replica
  const own = snapshot.get(row.record, ownedUid(snapshot, row.record, managedBy) ?? '')
  const references = resolveReferences(snapshot, world.cluster, source)
  const place = placeOf(source, own, references)
  const authority = authorityAt(world, source, place)
  const desired = desiredFor(world, source, references)
  const carried = carriedBy(snapshot, source, place)
  const namesake = own === undefined && authority.granted ? takenBy(snapshot, source, { parent: place, desired, references }) : undefined
  const isFirst = own === undefined && authority.granted && !('invalid' in desired) && namesake === undefined && carried === undefined
  return {
    object,
    managedBy,
    own: own === undefined ? undefined : factsOf(own),
    carried,
    // Whether a group is there is not told to who may not use it.
    references: authority.granted ? assertThere(snapshot, references, object) : references,
    authority,
    exceeding: exceedingAt({ world, source }, own?.parent ?? place, conferredBy(snapshot, own, { row, references, desired })),
    namesake,
    rival: isFirst ? olderRival(world, source, references) : undefined,
    desired,
    surroundings,
  }
}

/** References as they are, or the group that is named by its uid and is not there. */
function assertThere(snapshot: Snapshot, references: ResolvedReferences, object: PlatformObject): ResolvedReferences {
  if (!references.found || references.parent === '/' || snapshot.get('Group', references.parent) !== undefined) return references
  return { found: false, field: 'parentRef', meant: `the record ${object.spec.parentRef?.uid ?? references.parent}` }
}
