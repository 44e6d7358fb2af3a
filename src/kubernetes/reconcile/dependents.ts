import { isUid } from '../../base/uid.ts'
import { rowOf, type RecordKind } from '../object-kinds.ts'
import type { KubeObject } from '../kube-api.ts'
import { asPlatformObject } from '../platform-object.ts'
import { keyText, type ObjectKey } from '../object-key.ts'

/** Which objects wait for, or follow, another one or a record: their specs name it. Kept in step with the caches by `change`. */
export class Dependents {
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
