import { isUid, parentOf, trustedUid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { makesOwner, ownerBindings } from '../../engine/organisation-owners.ts'
import { parseManagedBy } from '../../engine/ownership.ts'
import type { KubeObject } from '../kube-api.ts'
import { keyOfObject, keyText, limitedKinds, parseKey, type ObjectKey, recordKinds, rowOf, type ObjectKind, type RecordKind } from '../object-kinds.ts'
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

/** Index of objects that cannot have their record until another owner's record is deleted or released. */
class DeletionBlockers {
  readonly #uidOf = new Map<string, string>()
  readonly #keysOf = new Map<string, Set<string>>()

  /** Stores that the record `uid` blocks the object `key`; undefined removes the entry. */
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

  /** Returns the keys of the objects that this record blocks. */
  of(uid: string): Iterable<string> {
    return this.#keysOf.get(uid) ?? []
  }

  #forget(uid: string, key: string): void {
    const keys = this.#keysOf.get(uid)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(uid)
  }
}

/** Index of objects by the objects and records that their specs refer to. Call `change` for every change in the caches. */
class DependentObjects {
  readonly #byTarget = new Map<string, Set<string>>()

  /** Applies a change of an object of `kind`. */
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

  /** Returns the keys of the objects that refer to this object. */
  ofObject(key: ObjectKey): Iterable<string> {
    return this.#byTarget.get(keyText(key)) ?? []
  }

  /** Returns the keys of the objects that refer to this record by uid. */
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

/** Interval of retries for an object that waits, in milliseconds, unless an event comes earlier. */
const againAfterMs = 30_000

/** Receives measurements of the reconciler, for metrics. */
export interface ReconcileObserver {
  /** Reports the number of records whose object is missing, at each full resync. */
  abandoned(count: number): void
  reconciled(kind: RecordKind, applied: Applied): void
}

/** Makes records match their objects (ADR 0016), one object at a time. `watch` reports which objects need work. */
export interface Reconciler {
  /** Reconciles one object. Rejects if it must be retried. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each object that may need work, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /**
   * Returns the keys of all objects, of vanished objects, and of missing objects that own a limited record. Also reports the number of
   * records whose object is missing.
   */
  keys(): Iterable<string>
}

/**
 * Returns true for a mirror that needs no reconcile. A mirror that owns a record does, since its label must not exempt it from grants. So
 * does one that is being deleted and has the platform's finalizer.
 */
function isIgnorable({ services, cluster }: World, key: ObjectKey, object: KubeObject): boolean {
  if (!isMirror(object)) return false
  const { deletionTimestamp, finalizers } = object.metadata
  const isHeld = deletionTimestamp !== undefined && finalizers?.includes(finalizer) === true
  return !isHeld && !ownsRecord(services.cache.tables, cluster, key)
}

function isInConflict(conditionStatus: ConditionStatus | undefined): boolean {
  return conditionStatus?.also.includes('InConflict') === true
}

/** Creates the reconciler. The caches must be synced. It calls `leads` immediately before it writes a record. */
export function createReconciler(world: World, observer: ReconcileObserver, leads: () => boolean): Reconciler {
  const links = { dependents: new DependentObjects(), blockers: new DeletionBlockers() }
  function* keys(): Generator<string> {
    for (const kind of recordKinds) for (const object of world.objects[kind].list()) yield keyOfObject(kind, object)
    yield* abandonedOwners(world, { kinds: limitedKinds })
    yield* world.vanished.keys()
  }
  return {
    keys() {
      notifyAbandoned(world, observer)
      return keys()
    },
    watch: (add) => watchWorld(world, links, { add, keys }),
    async reconcile(key, signal) {
      const parsed = parseKey(key)
      const { kind } = parsed
      const vanished = world.vanished.get(key)
      const cached = world.objects[kind].get(parsed) ?? (vanished && asDeleted(world, vanished))
      links.blockers.set(key, undefined)
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
      const blocker = isInConflict(plan.conditionStatus) ? blockerOf(facts) : undefined
      // Set before the first await. Otherwise a concurrent removal of the blocking record would not trigger this object.
      links.blockers.set(key, blocker)
      const applied = await applyPlan({ world, row, facts, isGone, leads, signal }, plan)
      observer.reconciled(kind, applied)
      const { conditionStatus } = applied
      if (isGone && conditionStatus === undefined) world.vanished.forget(key, vanished)
      return conditionStatus && nextLook(row, facts, { conditionStatus, blocker })
    },
  }
}

/** Returns when to reconcile an object again if no event comes earlier. */
function nextLook(
  { refreshMs }: ObjectKind,
  { own }: ObjectFacts,
  { conditionStatus, blocker }: { conditionStatus: ConditionStatus; blocker: string | undefined },
): WorkResult | undefined {
  const isBlind = isInConflict(conditionStatus) && blocker === undefined
  if (isBlind || conditionStatus.also.includes('Reconciling')) return { againAfterMs }
  const hasRecord = own !== undefined || conditionStatus.ready === 'True'
  return refreshMs === undefined || !hasRecord ? undefined : { againAfterMs: refreshMs }
}

/** Returns a vanished object as if it were being deleted, so that its record is handled the same way. */
function asDeleted({ clock }: World, object: PlatformObject): PlatformObject {
  return { ...object, metadata: { ...object.metadata, deletionTimestamp: new Date(clock.now()).toISOString() } }
}

/** Maximum number of objects that a log line names. */
const namedAtOnce = 20

function notifyAbandoned(world: World, observer: ReconcileObserver): void {
  const owners = [...abandonedOwners(world)]
  observer.abandoned(owners.length)
  if (owners.length > 0) world.services.log.warn('records whose Kubernetes object is missing', { count: owners.length, objects: owners.slice(0, namedAtOnce) })
}

/** Returns the uid of the record that an object conflicts with. */
function blockerOf({ own, carried, existingByName }: ObjectFacts): string | undefined {
  return own === undefined ? (carried?.record ?? existingByName)?.uid : undefined
}

/** Indexes that find further objects affected by an event. */
interface Links {
  readonly dependents: DependentObjects
  readonly blockers: DeletionBlockers
}

/** Callbacks of a watch. */
interface WatchTarget {
  readonly add: (key: string) => void
  readonly keys: () => Iterable<string>
}

/** Watches objects and records, and adds the keys of all objects that a change affects. */
function watchWorld(world: World, links: Links, target: WatchTarget): () => void {
  const { cache } = world.services
  const { dependents } = links
  const addAll = (): void => {
    for (const key of target.keys()) target.add(key)
  }
  const stops = recordKinds.map((kind) => {
    for (const object of world.objects[kind].list()) dependents.change(kind, undefined, object)
    return world.objects[kind].onChange((before, after) => {
      dependents.change(kind, before, after)
      const object = after ?? before
      if (object !== undefined) target.add(keyOfObject(kind, object))
    })
  })
  stops.push(
    world.grants.onChange((before, after) => {
      if (isSpecChange(before, after)) addAll()
    }),
  )
  stops.push(world.namespaces.onChange((before, after) => addNamespace(world, target, after ?? before)))
  stops.push(cache.onReset(addAll))
  stops.push(cache.onRecord((kind, old, record) => addTouched(world, { ...links, ...target }, { kind, old, record })))
  return () => {
    for (const stop of stops) stop()
  }
}

/** Adds the objects of a namespace whose labels may have changed, since grants select namespaces by label. */
function addNamespace(world: World, { add }: WatchTarget, namespace: KubeObject | undefined): void {
  if (namespace === undefined) return
  const { name } = namespace.metadata
  for (const kind of recordKinds) for (const object of world.objects[kind].byNamespace(name)) add(keyOfObject(kind, object))
  for (const key of abandonedOwners(world, { kinds: limitedKinds, namespace: name })) add(key)
}

/** A record before and after a change; one of them may be missing. */
interface RecordUpdate {
  readonly record: RecordKind
  readonly uid: string
  readonly old: CachedRecord | undefined
  readonly cached: CachedRecord | undefined
}

/** Adds the keys of the objects that a changed record affects. */
function addTouched(
  world: World,
  { add, keys, ...links }: Links & WatchTarget,
  { kind, old, record: cached }: { kind: string; old: CachedRecord | undefined; record: CachedRecord | undefined },
): void {
  const record = recordKinds.find((other) => other === kind)
  const uid = (cached ?? old)?.uid
  if (record === undefined || uid === undefined) return
  for (const key of touchedBy(world, links, { record, uid, old, cached })) add(key)
  if (record === 'Role' && boundsGrants(world, uid)) for (const key of keys()) add(key)
}

/**
 * Yields the keys of the objects that a change of a record affects:
 * - its owner, before and after
 * - objects that refer to the owner or the record, if it is another record now or a role
 * - owners of role bindings with a changed role
 * - other owners of an organisation that gets a new owner
 * - objects that the record blocks
 * - the owner of the group that contained a deleted record
 */
function* touchedBy(world: World, { dependents, blockers }: Links, { record, uid, old, cached }: RecordUpdate): Generator<string> {
  const owners = [old, cached].flatMap((was) => ownerOf(world, record, was) ?? [])
  for (const owner of owners) {
    yield keyText(owner)
    if (record === 'Role' || old?.managedBy !== cached?.managedBy) yield* dependents.ofObject(owner)
  }
  if (record === 'Role') yield* ownersOfBindings(world, uid)
  if (record === 'RoleBinding' && old === undefined && cached !== undefined) yield* otherOwners(world, cached)
  const comesOrGoes = old === undefined || cached === undefined
  if (record === 'Role' || comesOrGoes) yield* dependents.ofRecord(uid)
  yield* blockers.of(uid)
  const lay = cached === undefined ? world.services.cache.tables.get('Group', parentOf(trustedUid(uid))) : undefined
  const parent = ownerOf(world, 'Group', lay)
  if (parent !== undefined) yield keyText(parent)
}

/** Yields the objects of this cluster that own a role binding with this role, including missing objects. */
function* ownersOfBindings(world: World, role: string): Generator<string> {
  for (const binding of world.services.cache.tables.table('RoleBinding').matching('role', role)) {
    const owner = ownerOf(world, 'RoleBinding', binding)
    if (owner !== undefined) yield keyText(owner)
  }
}

/**
 * Yields the objects of this cluster that own a role binding of another owner of the organisation. Until now, such a role binding may have
 * been kept as the last owner (`LAST_OWNER`).
 */
function* otherOwners(world: World, binding: CachedRecord): Generator<string> {
  const { tables } = world.services.cache
  const { parent } = binding
  if (!isUid(parent) || !makesOwner(parent, tables.table('RoleBinding').valueOf(binding, 'role') ?? '')) return
  for (const other of ownerBindings(tables, parent)) {
    const owner = ownerOf(world, 'RoleBinding', other)
    if (owner !== undefined) yield keyText(owner)
  }
}

/** Returns the object of this cluster that owns the record. */
function ownerOf(world: World, kind: RecordKind, record: CachedRecord | undefined): ObjectKey | undefined {
  const owner = record === undefined ? undefined : parseManagedBy(record.managedBy)
  return owner?.clusterId === world.cluster.id ? { kind, namespace: owner.namespace, name: owner.name } : undefined
}

function boundsGrants({ grants }: World, role: string): boolean {
  // a cast: the API server has checked grants against their CRD
  return [...grants.list()].some(({ spec }) => (spec as GrantSpec).maxRole?.uid === role)
}
