import { isDeepStrictEqual } from 'node:util'
import { rowOf, type RecordKind, keyOfObject, keyText, parseKey } from '../object-kinds.ts'
import type { KubeObject, ObjectRef } from '../kube-api.ts'
import { isMirror, type PlatformStatus } from '../platform-object.ts'
import type { World } from '../world.ts'
import type { WorkResult } from '../runtime/work-queue.ts'
import { readLiveStatus } from '../reconcile/live-status.ts'
import { ownsRecord } from '../reconcile/references.ts'
import { decidedOf, mirrorOf, mirrorStatus, type MirrorObject } from './mirror-object.ts'
import { decidesOthers, MirroredRecords, mirroredKinds } from './mirrored-records.ts'

/** Mirrors records that the API owns as read-only objects (docs/spec/kubernetes.md#mirror-objects). */
export interface Mirror {
  /** Makes one mirror match its record: creates, updates or deletes it. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each object that may need work, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /** Returns the keys of all mirrors that exist or should exist, after reading all records again. */
  keys(): Iterable<string>
}

function hasAll(actual: Readonly<Record<string, string>> | undefined, wanted: Readonly<Record<string, string>>): boolean {
  return Object.entries(wanted).every(([key, value]) => actual?.[key] === value)
}

function isAsWanted(cached: KubeObject, wanted: MirrorObject): boolean {
  const { labels, annotations } = cached.metadata
  return hasAll(labels, wanted.labels) && hasAll(annotations, wanted.annotations) && isDeepStrictEqual(decidedOf(cached.spec), wanted.spec)
}

/** The kind and name of a mirror, and the state to work on. */
interface ObjectPlace {
  readonly world: World
  readonly kind: RecordKind
  readonly ref: Required<ObjectRef>
  readonly signal: AbortSignal
}

/** Writes the whole object. Fields that others added to its spec are removed. */
async function write({ world, kind, ref, signal }: ObjectPlace, wanted: MirrorObject, cached: KubeObject | undefined): Promise<KubeObject> {
  const { type } = rowOf(kind)
  const { labels, annotations, spec } = wanted
  if (cached === undefined) return world.api.create(type, { metadata: { ...ref, labels, annotations }, spec }, signal)
  const { metadata } = cached
  const merged = { ...metadata, labels: { ...metadata.labels, ...labels }, annotations: { ...metadata.annotations, ...annotations } }
  return world.api.replace(type, { ...cached, metadata: merged, spec }, signal)
}

async function remove({ world, kind, ref, signal }: ObjectPlace, cached: KubeObject): Promise<void> {
  await world.api.delete(rowOf(kind).type, ref, { uid: cached.metadata.uid }, signal)
}

async function show(place: ObjectPlace, uid: string, cached: KubeObject | undefined): Promise<void> {
  const { world, kind, ref, signal } = place
  const record = world.services.cache.tables.get(kind, uid)
  if (record === undefined) return
  const row = rowOf(kind)
  const wanted = mirrorOf(row, record)
  const object = cached !== undefined && isAsWanted(cached, wanted) ? cached : await write(place, wanted, cached)
  world.objects[kind].observe(object)
  // a cast: the CRD defines this status
  const before = object.status as PlatformStatus | undefined
  const live = await readLiveStatus(world.services, { kind, uid: record.uid }, signal)
  const status = mirrorStatus(record, { generation: object.metadata.generation ?? 0, before, live })
  if (!isDeepStrictEqual(before, status))
    world.objects[kind].observe(await world.api.apply(row.type, { metadata: ref, status }, { subresource: 'status' }, signal))
}

/**
 * Creates the mirror. The caches must be synced. Calls `onLeft` with the number of records that have no mirror because the limit is
 * reached.
 */
export function createMirror(world: World, onLeft: (left: number) => void): Mirror {
  const rows = new MirroredRecords(world)
  const { namespace } = world.mirror
  function* keys(): Generator<string> {
    rows.reload()
    onLeft(rows.left)
    if (rows.left > 0) world.services.log.warn('records are not mirrored: there are more than kubernetes.mirror.limit', { left: rows.left })
    for (const { kind, name } of rows.names()) yield keyText({ kind, namespace, name })
    for (const kind of mirroredKinds) {
      for (const object of world.objects[kind].byNamespace(namespace)) if (isMirror(object)) yield keyOfObject(kind, object)
    }
  }
  return {
    keys,
    watch: (add) => watchMirror(world, rows, { add, keys }),
    async reconcile(key, signal) {
      const { kind, name } = parseKey(key)
      const place: ObjectPlace = { world, kind, ref: { namespace, name }, signal }
      const cached = world.objects[kind].get(place.ref)
      // If a user's object has this name, the object takes precedence and is not changed. This also applies if it has a record and a
      // mirror's label, or if it is gone but its record remains.
      if (cached !== undefined && !isMirror(cached)) return undefined
      if (ownsRecord(world.services.cache.tables, world.cluster, { kind, namespace, name })) return undefined
      const uid = rows.uidOf(kind, name)
      if (uid !== undefined) await show(place, uid, cached?.metadata.deletionTimestamp === undefined ? cached : undefined)
      else if (cached !== undefined) await remove(place, cached)
      const { refreshMs } = rowOf(kind)
      return uid === undefined || refreshMs === undefined ? undefined : { againAfterMs: refreshMs }
    },
  }
}

/** Callbacks of a watch. */
interface MirrorLog {
  readonly add: (key: string) => void
  readonly keys: () => Iterable<string>
}

function watchMirror(world: World, rows: MirroredRecords, { add, keys }: MirrorLog): () => void {
  const { cache } = world.services
  const { namespace } = world.mirror
  const addAll = (): void => {
    for (const key of keys()) add(key)
  }
  const stops = mirroredKinds.map((kind) =>
    world.objects[kind].onChange((before, after) => {
      const object = after ?? before
      if (object?.metadata.namespace === namespace) add(keyOfObject(kind, object))
    }),
  )
  stops.push(cache.onReset(addAll))
  stops.push(
    cache.onRecord((kind, old, record) => {
      const mirrored = mirroredKinds.find((other) => other === kind)
      if (mirrored === undefined) return
      add(keyText({ kind: mirrored, namespace, name: rows.change(mirrored, old, record) }))
      if (decidesOthers(kind, old) && decidesOthers(kind, record) && world.mirror.rootGroups.length > 0) addAll()
    }),
  )
  return () => {
    for (const stop of stops) stop()
  }
}
