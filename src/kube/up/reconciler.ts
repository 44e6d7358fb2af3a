import { parentOf, trustedUid } from '../../core/uid.ts'
import { parseManagedBy } from '../../resources/ownership.ts'
import type { Row } from '../../snapshot/row.ts'
import type { RecordKind } from '../object-kinds.ts'
import { finalizer, originLabel, type GrantSpec } from '../platform-object.ts'
import type { KubeObject } from '../port/kube-api.ts'
import type { WorkResult } from '../runtime/work-queue.ts'
import { asPlatformObject, keyText, parseKey, recordKinds, rowOf, type ObjectKey, type World } from '../world.ts'
import { applyPlan, type Applied } from './apply.ts'
import { Dependents } from './dependents.ts'
import type { Facts } from './facts.ts'
import { gather } from './gather.ts'
import { Obstacles } from './obstacles.ts'
import { planObject } from './plan.ts'

/** How soon what waits for something is looked at again, in milliseconds, should nothing tell of it before. */
const againAfterMs = 30_000

/** Told how objects were dealt with, for the metrics. */
export interface ReconcileObserver {
  reconciled(kind: RecordKind, applied: Applied): void
}

/** Brings records to what objects say (ADR 0016): its work is on one object, its watch tells which. */
export interface Reconciler {
  /** Deals with one object. Rejects where it is to be done again later. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each object that something happened to, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /** The keys of all objects. */
  keys(): Iterable<string>
}

/** True for an object that shows a record, also one that was left where no mirrors are kept any more. One that holds our finalizer is let go all the same. */
function saysNothing({ metadata }: KubeObject): boolean {
  const isHeld = metadata.deletionTimestamp !== undefined && metadata.finalizers?.includes(finalizer) === true
  return metadata.labels?.[originLabel] === 'api' && !isHeld
}

/** Builds the reconciler of a world whose caches are synced. */
export function createReconciler(world: World, observer: ReconcileObserver): Reconciler {
  const links = { dependents: new Dependents(), obstacles: new Obstacles() }
  function* keys(): Generator<string> {
    for (const kind of recordKinds) for (const object of world.objects[kind].list()) yield keyOf(kind, object)
  }
  return {
    keys,
    watch: (add) => watchWorld(world, links, { add, keys }),
    async reconcile(key, signal) {
      const { kind, namespace, name } = parseKey(key)
      const cached = world.objects[kind].get({ namespace, name })
      links.obstacles.set(key, undefined)
      if (cached === undefined || saysNothing(cached)) return undefined
      const row = rowOf(kind)
      const facts = await gather(world, { row, object: asPlatformObject(cached) }, signal)
      const applied = await applyPlan({ world, row, facts, signal }, planObject(facts))
      observer.reconciled(kind, applied)
      const { also = [] } = applied.verdict ?? {}
      const obstacle = also.includes('InConflict') ? obstacleOf(facts) : undefined
      links.obstacles.set(key, obstacle)
      const isBlind = also.includes('InConflict') && obstacle === undefined
      return isBlind || also.includes('Reconciling') ? { againAfterMs } : undefined
    },
  }
}

/** The record that an object in conflict is in conflict with. */
function obstacleOf({ own, carried, namesake }: Facts): string | undefined {
  return own === undefined ? (carried?.record ?? namesake)?.uid : undefined
}

function keyOf(kind: RecordKind, { metadata }: KubeObject): string {
  return keyText({ kind, namespace: metadata.namespace ?? '', name: metadata.name })
}

/** Whom an event means something to beside the object or record that it is of. */
interface Links {
  readonly dependents: Dependents
  readonly obstacles: Obstacles
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
      if (object !== undefined) told.add(keyOf(kind, object))
    })
  })
  stops.push(world.grants.onChange(addAll))
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
  for (const kind of recordKinds) for (const object of world.objects[kind].byNamespace(namespace.metadata.name)) add(keyOf(kind, object))
}

/** A record as it was and as it is: one of them may be missing. */
interface RecordChange {
  readonly record: RecordKind
  readonly uid: string
  readonly old: Row | undefined
  readonly row: Row | undefined
}

/** Tells the objects that a changed record means something to. */
function addTouched(
  world: World,
  { add, keys, ...links }: Links & Told,
  { kind, old, row }: { kind: string; old: Row | undefined; row: Row | undefined },
): void {
  const record = recordKinds.find((other) => other === kind)
  const uid = (row ?? old)?.uid
  if (record === undefined || uid === undefined) return
  for (const key of touchedBy(world, links, { record, uid, old, row })) add(key)
  if (record === 'Role' && boundsGrants(world, uid)) for (const key of keys()) add(key)
}

/** Its owner, before and now; who names either, where that is another record now, or a role that gives something else; whose way it is in; the owner of what it lay in. */
function* touchedBy(world: World, { dependents, obstacles }: Links, { record, uid, old, row }: RecordChange): Generator<string> {
  const owners = [old, row].flatMap((was) => ownerOf(world, record, was) ?? [])
  for (const owner of owners) {
    yield keyText(owner)
    if (record === 'Role' || old?.managedBy !== row?.managedBy) yield* dependents.ofObject(owner)
  }
  const comesOrGoes = old === undefined || row === undefined
  if (record === 'Role' || comesOrGoes) yield* dependents.ofRecord(uid)
  yield* obstacles.of(uid)
  const lay = row === undefined ? world.services.replica.snapshot.get('Group', parentOf(trustedUid(uid))) : undefined
  const parent = ownerOf(world, 'Group', lay)
  if (parent !== undefined) yield keyText(parent)
}

/** The object of this cluster that owns the record. */
function ownerOf(world: World, kind: RecordKind, row: Row | undefined): ObjectKey | undefined {
  const owner = row === undefined ? undefined : parseManagedBy(row.managedBy)
  return owner?.clusterId === world.cluster.id ? { kind, namespace: owner.namespace, name: owner.name } : undefined
}

function boundsGrants({ grants }: World, role: string): boolean {
  // The API server has checked grants against their CRD.
  return [...grants.list()].some(({ spec }) => (spec as GrantSpec).maxRole?.uid === role)
}
