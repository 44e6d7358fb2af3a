import { parentOf, trustedUid } from '../../core/uid.ts'
import { parseManagedBy } from '../../resources/ownership.ts'
import type { Row } from '../../snapshot/row.ts'
import type { RecordKind } from '../object-kinds.ts'
import type { KubeObject } from '../port/kube-api.ts'
import type { WorkResult } from '../runtime/work-queue.ts'
import { asPlatformObject, isMirror, keyText, parseKey, recordKinds, rowOf, type World } from '../world.ts'
import { applyPlan, type Applied } from './apply.ts'
import { Dependents } from './dependents.ts'
import { gather } from './gather.ts'
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

/** Builds the reconciler of a world whose caches are synced. */
export function createReconciler(world: World, observer: ReconcileObserver): Reconciler {
  const dependents = new Dependents()
  function* keys(): Generator<string> {
    for (const kind of recordKinds) for (const object of world.objects[kind].list()) yield keyOf(kind, object)
  }
  return {
    keys,
    watch: (add) => watchWorld(world, dependents, { add, keys }),
    async reconcile(key, signal) {
      const { kind, namespace, name } = parseKey(key)
      const cached = world.objects[kind].get({ namespace, name })
      if (cached === undefined || isMirror(world, cached)) return undefined
      const row = rowOf(kind)
      const facts = await gather(world, { row, object: asPlatformObject(cached) }, signal)
      const applied = await applyPlan({ world, row, facts, signal }, planObject(facts))
      observer.reconciled(kind, applied)
      return applied.verdict?.also.includes('Reconciling') === true ? { againAfterMs } : undefined
    },
  }
}

function keyOf(kind: RecordKind, { metadata }: KubeObject): string {
  return keyText({ kind, namespace: metadata.namespace ?? '', name: metadata.name })
}

/** What a watch calls. */
interface Told {
  readonly add: (key: string) => void
  readonly keys: () => Iterable<string>
}

/** Both sides tell what changed; who is touched by it is looked at again. */
function watchWorld(world: World, dependents: Dependents, told: Told): () => void {
  const { replica } = world.services
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
  stops.push(replica.onRow((kind, old, row) => addTouched(world, { dependents, add: told.add }, { kind, old, row })))
  return () => {
    for (const stop of stops) stop()
  }
}

/** A namespace's labels may have changed, which grants look at. */
function addNamespace(world: World, { add }: Told, namespace: KubeObject | undefined): void {
  if (namespace === undefined) return
  for (const kind of recordKinds) for (const object of world.objects[kind].byNamespace(namespace.metadata.name)) add(keyOf(kind, object))
}

/** Tells the objects that a changed record means something to: its owner, before and now; the owner of what it lies in; who names it; whose binding gives it. */
function addTouched(
  world: World,
  { dependents, add }: { dependents: Dependents; add: (key: string) => void },
  { kind, old, row }: { kind: string; old: Row | undefined; row: Row | undefined },
): void {
  const record = recordKinds.find((other) => other === kind)
  const uid = (row ?? old)?.uid
  if (record === undefined || uid === undefined) return
  const addOwner = (owned: RecordKind, managedBy: string | undefined): void => {
    const owner = managedBy === undefined ? undefined : parseManagedBy(managedBy)
    if (owner === undefined || owner.clusterId !== world.cluster.id) return
    add(keyText({ kind: owned, ...owner }))
    // Objects name it whose record came or went.
    if (old === undefined || row === undefined) for (const key of dependents.ofObject({ kind: owned, ...owner })) add(key)
  }
  for (const managedBy of new Set([old?.managedBy, row?.managedBy])) addOwner(record, managedBy)
  if (old === undefined || row === undefined) for (const key of dependents.ofRecord(uid)) add(key)
  const { snapshot } = world.services.replica
  if (row === undefined) addOwner('Group', snapshot.get('Group', parentOf(trustedUid(uid)))?.managedBy)
  if (record === 'Role') {
    for (const binding of snapshot.table('RoleBinding').matching('role', uid)) addOwner('RoleBinding', binding.managedBy)
  }
}
