import { objectKinds, recordKinds, type ObjectKind, type RecordKind } from '../object-kinds.ts'
import { asPlatformObject, type PlatformObject } from '../platform-object.ts'
import type { KubeObject } from '../kube-api.ts'
import type { Informer } from '../runtime/informer.ts'

/** Returns the part of a spec that must be unique in its group, such as the record's name; undefined if the kind has none. */
function claimOf(row: ObjectKind, { spec, metadata }: PlatformObject): string | undefined {
  if (row.record === 'Identity' || row.record === 'Subscription') return undefined
  if (row.record !== 'RoleBinding') return String(spec['name'] ?? metadata.name)
  const { identityRef, roleRef } = spec
  const scope = identityRef?.name === undefined && roleRef?.name === undefined ? '' : metadata.namespace
  return [scope, identityRef?.name, identityRef?.uid, roleRef?.name, roleRef?.uid, roleRef?.builtIn].join(' ')
}

/** Index of cached objects by their claim, the unique part of their spec. Finds conflicting objects without a scan. */
export class ObjectClaims {
  readonly #claimants = new Map<string, Map<string, PlatformObject>>()

  constructor(objects: Readonly<Record<RecordKind, Informer>>) {
    for (const kind of recordKinds) {
      for (const object of objects[kind].list()) this.#add(kind, object)
      objects[kind].onChange((before, after) => {
        if (before !== undefined) this.#remove(kind, before)
        if (after !== undefined) this.#add(kind, after)
      })
    }
  }

  /** Returns the objects of this kind with the same claim as `object`, including itself. Returns none if it has no claim. */
  like(row: ObjectKind, object: PlatformObject): Iterable<PlatformObject> {
    const key = keyOf(row, object)
    return key === undefined ? [] : (this.#claimants.get(key)?.values() ?? [])
  }

  #add(kind: RecordKind, cached: KubeObject): void {
    const object = asPlatformObject(cached)
    const key = keyOf(objectKinds[kind], object)
    if (key === undefined) return
    const claimants = this.#claimants.get(key) ?? new Map<string, PlatformObject>()
    this.#claimants.set(key, claimants.set(nameOf(object), object))
  }

  #remove(kind: RecordKind, cached: KubeObject): void {
    const object = asPlatformObject(cached)
    const key = keyOf(objectKinds[kind], object)
    if (key === undefined) return
    const claimants = this.#claimants.get(key)
    claimants?.delete(nameOf(object))
    if (claimants?.size === 0) this.#claimants.delete(key)
  }
}

function keyOf(row: ObjectKind, object: PlatformObject): string | undefined {
  const claim = claimOf(row, object)
  return claim === undefined ? undefined : `${row.record} ${claim}`
}

function nameOf({ metadata }: PlatformObject): string {
  return `${metadata.namespace}/${metadata.name}`
}
