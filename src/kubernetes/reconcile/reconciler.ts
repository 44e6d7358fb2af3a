import { isUid, parentOf, trustedUid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { makesOwner, ownerBindings } from '../../engine/grant-rules.ts'
import { parseManagedBy } from '../../engine/ownership.ts'
import type { KubeObject } from '../kube-api.ts'
import { keyOfObject, keyText, parseKey, type ObjectKey, recordKinds, rowOf, type RecordKind } from '../object-kinds.ts'
import { asPlatformObject, finalizer, isMirror, type GrantSpec, type PlatformObject } from '../platform-object.ts'
import { abandonedOwners, removeExcess } from './abandoned.ts'
import { applyPlan, type Applied } from './apply.ts'
import type { ConditionStatus } from './condition-status.ts'
import type { ObjectFacts } from './facts.ts'
import { gather } from './gather.ts'
import { isSpecChange } from './grants-by-namespace.ts'
import { planObject } from './plan.ts'
import { ownsRecord } from './references.ts'
import type { WorkResult } from '../runtime/work-queue.ts'
import type { World } from '../world.ts'

/** Which objects wait for a record of somebody else's to go, or to be given up: it is where theirs would be. */
class DeletionBlockers {
  readonly #uidOf = new Map<string, string>()
  readonly #keysOf = new Map<string, Set<string>>()

  /** The record `uid` is in the way of the object `key`; nothing is where undefined. */
  set(key: string, uid: string | undefined): void {
    const before = this.#uidOf.get(key)
    if (before === uid) return
    if (before !== undefined) this.#forget(before, key)
    if (uid === undefined) {
      this.#uidOf.delete(key)
      return
    }
    this.#uidOf.set(key, uid)
    const keys = this.#keysOf.get(uid) ?? new Set<string>()
    this.#keysOf.set(uid, keys.add(key))
  }

  /** The keys of the objects that the record is in the way of. */
  of(uid: string): Iterable<string> {
    return this.#keysOf.get(uid) ?? []
  }

  #forget(uid: string, key: string): void {
    const keys = this.#keysOf.get(uid)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(uid)
  }
}

/** Which objects wait for, or follow, another one or a record: their specs name it. Kept in step with the caches by `change`. */
class DependentObjects {
  readonly #byTarget = new Map<string, Set<string>>()

  /** The object of `kind` was, and is now. */
  change(kind: RecordKind, before: KubeObject | undefined, after: KubeObject | undefined): void {
    for (const [object, add] of [
      [before, false],
      [after, true],
    ] as const) {
      if (object === undefined) continue
      const { key, targets } = targetsOf(kind, object)
      for (const target of targets) this.#set(target, key, add)
    }
  }

  #set(target: string, key: string, add: boolean): void {
    const keys = this.#byTarget.get(target) ?? new Set<string>()
    if (add) keys.add(key)
    else keys.delete(key)
    if (keys.size === 0) this.#byTarget.delete(target)
    else this.#byTarget.set(target, keys)
  }

  /** The keys of the objects that name this object. */
  ofObject(key: ObjectKey): Iterable<string> {
    return this.#byTarget.get(keyText(key)) ?? []
  }

  /** The keys of the objects that name this record by its uid. */
  ofRecord(uid: string): Iterable<string> {
    return this.#byTarget.get(uid) ?? []
  }
}

function targetsOf(kind: RecordKind, object: KubeObject): { key: string; targets: string[] } {
  const { metadata, spec } = asPlatformObject(object)
  const { namespace, name } = metadata
  const targets = rowOf(kind).references.flatMap(({ field, kind: meant }) => {
    const reference = spec[field]
    if (reference?.name !== undefined) return [keyText({ kind: meant, namespace, name: reference.name })]
    return reference?.uid !== undefined && isUid(reference.uid) ? [reference.uid] : []
  })
  return { key: keyText({ kind, namespace, name }), targets }
}

/** How soon what waits for something is looked at again, in milliseconds, should nothing tell of it before. */
const againAfterMs = 30_000

/** Told how objects were dealt with, for the metrics. */
export interface ReconcileObserver {
  /** Records whose object is not there, each time that all are looked at. */
  abandoned(count: number): void
  reconciled(kind: RecordKind, applied: Applied): void
}

/** Brings records to what objects say (ADR 0016): its work is on one object, its watch tells which. */
export interface Reconciler {
  /** Deals with one object. Rejects where it is to be done again later. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each object that something happened to, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /** The keys of all objects, of those that vanished, and of those that are not there but own a binding. Tells of records whose object is not there. */
  keys(): Iterable<string>
}

/** True for an object that nothing follows from. One that has a record is looked at whatever it shows: a label lets nothing out of its grants. One that is going and holds our finalizer is let go. */
function isIgnorable({ services, cluster }: World, key: ObjectKey, object: KubeObject): boolean {
  if (!isMirror(object)) return false
  const { deletionTimestamp, finalizers } = object.metadata
  const isHeld = deletionTimestamp !== undefined && finalizers?.includes(finalizer) === true
  return !isHeld && !ownsRecord(services.replica.snapshot, cluster, key)
}

function isInConflict(conditionStatus: ConditionStatus | undefined): boolean {
  return conditionStatus?.also.includes('InConflict') === true
}

/** Builds the reconciler of a world whose caches are synced. `leads` is asked right before each record is written. */
export function createReconciler(world: World, observer: ReconcileObserver, leads: () => boolean): Reconciler {
  const links = { dependents: new DependentObjects(), obstacles: new DeletionBlockers() }
  function* keys(): Generator<string> {
    for (const kind of recordKinds) for (const object of world.objects[kind].list()) yield keyOfObject(kind, object)
    yield* abandonedOwners(world, { kinds: ['RoleBinding'] })
    yield* world.vanished.keys()
  }
  return {
    keys() {
      tellAbandoned(world, observer)
      return keys()
    },
    watch: (add) => watchWorld(world, links, { add, keys }),
    async reconcile(key, signal) {
      const parsed = parseKey(key)
      const { kind } = parsed
      const vanished = world.vanished.get(key)
      const cached = world.objects[kind].get(parsed) ?? (vanished && asDeleted(world, vanished))
      links.obstacles.set(key, undefined)
      if (cached === undefined) {
        const removed = await removeExcess(world, parsed, { leads, signal })
        if (removed !== undefined) observer.reconciled(kind, removed)
        return undefined
      }
      if (isIgnorable(world, parsed, cached)) return undefined
      const row = rowOf(kind)
      const isGone = vanished !== undefined
      const facts = await gather(world, { row, object: asPlatformObject(cached) }, signal)
      const plan = planObject(facts)
      const obstacle = isInConflict(plan.conditionStatus) ? obstacleOf(facts) : undefined
      // Before anything is waited for: what clears the way meanwhile is told.
      links.obstacles.set(key, obstacle)
      const applied = await applyPlan({ world, row, facts, isGone, leads, signal }, plan)
      observer.reconciled(kind, applied)
      const { conditionStatus } = applied
      if (isGone && conditionStatus === undefined) world.vanished.forget(key, vanished)
      const isBlind = isInConflict(conditionStatus) && obstacle === undefined
      return isBlind || conditionStatus?.also.includes('Reconciling') === true ? { againAfterMs } : undefined
    },
  }
}

/** An object that is gone, as one that was told to go: what becomes of its record is what would have become of it then. */
function asDeleted({ clock }: World, object: PlatformObject): PlatformObject {
  return { ...object, metadata: { ...object.metadata, deletionTimestamp: new Date(clock.now()).toISOString() } }
}

/** How many objects a log line names. */
const namedAtOnce = 20

function tellAbandoned(world: World, observer: ReconcileObserver): void {
  const owners = [...abandonedOwners(world)]
  observer.abandoned(owners.length)
  if (owners.length > 0)
    world.services.log.warn('records whose Kubernetes object is not there', { count: owners.length, objects: owners.slice(0, namedAtOnce) })
}

/** The record that an object in conflict is in conflict with. */
function obstacleOf({ own, carried, existingByName }: ObjectFacts): string | undefined {
  return own === undefined ? (carried?.record ?? existingByName)?.uid : undefined
}

/** Whom an event means something to beside the object or record that it is of. */
interface Links {
  readonly dependents: DependentObjects
  readonly obstacles: DeletionBlockers
}

/** What a watch calls. */
interface Told {
  readonly add: (key: string) => void
  readonly keys: () => Iterable<string>
}

/** Both sides tell what changed; who is touched by it is looked at again. */
function watchWorld(world: World, links: Links, told: Told): () => void {
  const { replica } = world.services
  const { dependents } = links
  const addAll = (): void => {
    for (const key of told.keys()) told.add(key)
  }
  const stops = recordKinds.map((kind) => {
    for (const object of world.objects[kind].list()) dependents.change(kind, undefined, object)
    return world.objects[kind].onChange((before, after) => {
      dependents.change(kind, before, after)
      const object = after ?? before
      if (object !== undefined) told.add(keyOfObject(kind, object))
    })
  })
  stops.push(
    world.grants.onChange((before, after) => {
      if (isSpecChange(before, after)) addAll()
    }),
  )
  stops.push(world.namespaces.onChange((before, after) => addNamespace(world, told, after ?? before)))
  stops.push(replica.onReset(addAll))
  stops.push(replica.onRow((kind, old, row) => addTouched(world, { ...links, ...told }, { kind, old, row })))
  return () => {
    for (const stop of stops) stop()
  }
}

/** A namespace's labels may have changed, which grants look at. */
function addNamespace(world: World, { add }: Told, namespace: KubeObject | undefined): void {
  if (namespace === undefined) return
  const { name } = namespace.metadata
  for (const kind of recordKinds) for (const object of world.objects[kind].byNamespace(name)) add(keyOfObject(kind, object))
  for (const key of abandonedOwners(world, { kinds: ['RoleBinding'], namespace: name })) add(key)
}

/** A record as it was and as it is: one of them may be missing. */
interface RowChange {
  readonly record: RecordKind
  readonly uid: string
  readonly old: CachedRecord | undefined
  readonly row: CachedRecord | undefined
}

/** Tells the objects that a changed record means something to. */
function addTouched(
  world: World,
  { add, keys, ...links }: Links & Told,
  { kind, old, row }: { kind: string; old: CachedRecord | undefined; row: CachedRecord | undefined },
): void {
  const record = recordKinds.find((other) => other === kind)
  const uid = (row ?? old)?.uid
  if (record === undefined || uid === undefined) return
  for (const key of touchedBy(world, links, { record, uid, old, row })) add(key)
  if (record === 'Role' && boundsGrants(world, uid)) for (const key of keys()) add(key)
}

/** Its owner, before and now; who names either, where that is another record now, or a role that gives something else, or has a binding of it; whose way it is in; the other owners of an organisation that it makes somebody an owner of; the owner of what it lay in. */
function* touchedBy(world: World, { dependents, obstacles }: Links, { record, uid, old, row }: RowChange): Generator<string> {
  const owners = [old, row].flatMap((was) => ownerOf(world, record, was) ?? [])
  for (const owner of owners) {
    yield keyText(owner)
    if (record === 'Role' || old?.managedBy !== row?.managedBy) yield* dependents.ofObject(owner)
  }
  if (record === 'Role') yield* ownersOfBindings(world, uid)
  if (record === 'RoleBinding' && old === undefined && row !== undefined) yield* otherOwners(world, row)
  const comesOrGoes = old === undefined || row === undefined
  if (record === 'Role' || comesOrGoes) yield* dependents.ofRecord(uid)
  yield* obstacles.of(uid)
  const lay = row === undefined ? world.services.replica.snapshot.get('Group', parentOf(trustedUid(uid))) : undefined
  const parent = ownerOf(world, 'Group', lay)
  if (parent !== undefined) yield keyText(parent)
}

/** The objects of this cluster that own a binding of the role, also those that are not there. */
function* ownersOfBindings(world: World, role: string): Generator<string> {
  for (const binding of world.services.replica.snapshot.table('RoleBinding').matching('role', role)) {
    const owner = ownerOf(world, 'RoleBinding', binding)
    if (owner !== undefined) yield keyText(owner)
  }
}

/** The objects of this cluster that own a binding of another owner of the organisation: the last one had to stay (`LAST_OWNER`). */
function* otherOwners(world: World, binding: CachedRecord): Generator<string> {
  const { snapshot } = world.services.replica
  const { parent } = binding
  if (!isUid(parent) || !makesOwner(parent, snapshot.table('RoleBinding').valueOf(binding, 'role') ?? '')) return
  for (const other of ownerBindings(snapshot, parent)) {
    const owner = ownerOf(world, 'RoleBinding', other)
    if (owner !== undefined) yield keyText(owner)
  }
}

/** The object of this cluster that owns the record. */
function ownerOf(world: World, kind: RecordKind, row: CachedRecord | undefined): ObjectKey | undefined {
  const owner = row === undefined ? undefined : parseManagedBy(row.managedBy)
  return owner?.clusterId === world.cluster.id ? { kind, namespace: owner.namespace, name: owner.name } : undefined
}

function boundsGrants({ grants }: World, role: string): boolean {
  // The API server has checked grants against their CRD.
  return [...grants.list()].some(({ spec }) => (spec as GrantSpec).maxRole?.uid === role)
}
