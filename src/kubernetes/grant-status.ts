import { isDeepStrictEqual } from 'node:util'
import { builtInRoles } from '../base/roles.ts'
import { isBelow, rootParent } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { isSpecChange } from './reconcile/grants-by-namespace.ts'
import { selects } from './grants.ts'
import { recordKinds, rowOf } from './object-kinds.ts'
import { asPlatformObject, isMirror, type GrantCondition, type GrantSpec, type GrantStatus } from './platform-object.ts'
import { KubeError, type KubeObject } from './kube-api.ts'
import { objectTypes } from './object-types.ts'
import type { WorkResult } from './runtime/work-queue.ts'
import type { World } from './world.ts'

/** Maintains the status of grants. */
export interface GrantStatuses {
  /** Updates the status of one grant; `key` is `Grant//<name>`. Rejects if it must be retried. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each grant whose status may have changed, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /** Returns the keys of all grants. */
  keys(): Iterable<string>
}

/** Minimum time between two updates of one generation of a grant, in milliseconds. It limits recounts while many objects are created. */
const lookEveryMs = 500
/** Maximum number of namespaces that a status lists. */
const mostNames = 20

/** Returns the spec of a grant, which the API server has checked against its CRD. */
const specOf = ({ spec }: KubeObject): GrantSpec => spec as GrantSpec
const keyOf = (name: string): string => `Grant//${name}`

interface FoundGrantee {
  readonly name?: string
  /** The problem of the grant; undefined if there is none. */
  readonly problem?: { readonly reason: string; readonly message: string }
}

function nameIn(tables: RecordTables, kind: 'Group' | 'Role', uid: string): string | undefined {
  // a cast: records of both kinds have a name
  return (tables.get(kind, uid)?.message as { name?: string } | undefined)?.name
}

function groupOf(tables: RecordTables, { groupUid }: GrantSpec): FoundGrantee {
  if (groupUid === rootParent) return { name: rootParent }
  const name = nameIn(tables, 'Group', groupUid)
  return name === undefined ? { problem: { reason: 'GroupNotFound', message: `groupUid: there is no group ${groupUid}` } } : { name }
}

function roleOf(tables: RecordTables, { maxRole }: GrantSpec): FoundGrantee {
  if (maxRole?.builtIn !== undefined) return { name: maxRole.builtIn }
  if (maxRole?.uid === undefined) return {}
  const name = nameIn(tables, 'Role', maxRole.uid) ?? builtInRoles.find(({ uid }) => uid === maxRole.uid)?.name
  return name === undefined ? { problem: { reason: 'RoleNotFound', message: `maxRole: there is no role ${maxRole.uid}` } } : { name }
}

/** Returns the names of the namespaces that a grant selects, sorted. */
function namespacesOf(world: World, spec: GrantSpec): string[] {
  const all = [...world.namespaces.list()].map(({ metadata }) => ({ name: metadata.name, labels: metadata.labels ?? {} }))
  return all
    .filter((namespace) => selects(spec, namespace))
    .map(({ name }) => name)
    .sort()
}

/** Returns the number of objects in these namespaces whose record the grant covers. */
function usesOf(world: World, { allowedKinds, groupUid }: GrantSpec, namespaces: readonly string[]): number {
  let uses = 0
  for (const kind of recordKinds.filter((one) => allowedKinds.includes(rowOf(one).type.kind))) {
    for (const namespace of namespaces) {
      for (const object of world.objects[kind].byNamespace(namespace)) {
        const uid = asPlatformObject(object).status?.uid
        if (!isMirror(object) && uid !== undefined && (groupUid === rootParent || isBelow(uid, groupUid))) uses += 1
      }
    }
  }
  return uses
}

function statusOf(world: World, grant: KubeObject): GrantStatus {
  const { tables } = world.services.cache
  const spec = specOf(grant)
  const [group, role] = [groupOf(tables, spec), roleOf(tables, spec)]
  const namespaces = namespacesOf(world, spec)
  const problem = group.problem ?? role.problem
  const none = { reason: 'NoNamespace', message: 'the grant selects no existing namespace' }
  const good = namespaces.length === 0 ? none : { reason: 'Resolved', message: 'all names are resolved' }
  const observedGeneration = grant.metadata.generation ?? 0
  const before = (grant.status as GrantStatus | undefined)?.conditions
  const condition = (type: GrantCondition['type'], status: GrantCondition['status']): GrantCondition => {
    const known = before?.find((one) => one.type === type)
    const now = `${new Date(world.clock.now()).toISOString().slice(0, 19)}Z`
    const lastTransitionTime = known?.status === status ? known.lastTransitionTime : now
    return { type, status, ...(problem ?? good), observedGeneration, lastTransitionTime }
  }
  return {
    observedGeneration,
    resolved: { ...(group.name === undefined ? {} : { group: group.name }), ...(role.name === undefined ? {} : { maxRole: role.name }) },
    namespaces: namespaces.slice(0, mostNames),
    namespaceCount: namespaces.length,
    objectCount: usesOf(world, spec, namespaces),
    conditions: problem === undefined ? [condition('Ready', 'True')] : [condition('Ready', 'False'), condition('Stalled', 'True')],
  }
}

/** Creates the GrantStatuses. The caches must be synced. */
export function createGrantStatuses(world: World): GrantStatuses {
  const looked = new Map<string, { readonly generation: number | undefined; readonly atMs: number }>()
  return {
    *keys() {
      for (const { metadata } of world.grants.list()) yield keyOf(metadata.name)
    },
    watch: (add) => watchGrants(world, add),
    async reconcile(key, signal) {
      const name = key.split('/')[2] ?? ''
      const grant = world.grants.get({ name })
      if (grant === undefined || grant.metadata.deletionTimestamp !== undefined) return void looked.delete(name)
      const { generation } = grant.metadata
      const last = looked.get(name)
      const agoMs = world.clock.now() - (last?.atMs ?? 0)
      if (last !== undefined && last.generation === generation && agoMs >= 0 && agoMs < lookEveryMs) return { againAfterMs: lookEveryMs - agoMs }
      looked.set(name, { generation, atMs: world.clock.now() })
      const status = statusOf(world, grant)
      if (isDeepStrictEqual(grant.status, status)) return undefined
      try {
        world.grants.observe(await world.api.apply(objectTypes.grant, { metadata: { name }, status }, { subresource: 'status' }, signal))
      } catch (error) {
        // The grant is gone, or its CRD is of a version without a status.
        if (!(error instanceof KubeError) || error.reason !== 'not_found') throw error
      }
      return undefined
    },
  }
}

function watchGrants(world: World, add: (key: string) => void): () => void {
  const { cache } = world.services
  const addWhere = (isTouched: (spec: GrantSpec) => boolean): void => {
    for (const grant of world.grants.list()) if (isTouched(specOf(grant))) add(keyOf(grant.metadata.name))
  }
  const stops = [
    world.grants.onChange((before, after) => {
      const grant = after ?? before
      if (grant !== undefined && isSpecChange(before, after)) add(keyOf(grant.metadata.name))
    }),
    world.namespaces.onChange(() => addWhere(() => true)),
    ...recordKinds.map((kind) =>
      world.objects[kind].onChange((before, after) => {
        const [old, now] = [before, after].map((object) => object && asPlatformObject(object).status?.uid)
        const name = (after ?? before)?.metadata.namespace ?? ''
        const labels = world.namespaces.get({ name })?.metadata.labels ?? {}
        if (old !== now) addWhere((spec) => selects(spec, { name, labels }))
      }),
    ),
    cache.onReset(() => addWhere(() => true)),
    cache.onRecord((kind, old, record) => {
      const uid = (record ?? old)?.uid
      if (kind === 'Group' || kind === 'Role') addWhere(({ groupUid, maxRole }) => uid === groupUid || uid === maxRole?.uid)
    }),
  ]
  return () => {
    for (const stop of stops) stop()
  }
}
