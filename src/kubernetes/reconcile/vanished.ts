import type { Informer } from '../runtime/informer.ts'
import { recordKinds, type RecordKind, keyOfObject } from '../object-kinds.ts'
import { asPlatformObject, finalizer, type PlatformObject } from '../platform-object.ts'
import type { KubeObject } from '../kube-api.ts'

/** Maximum number of vanished objects to keep. A standby does not handle them, and the leader may have done so already. */
const keptAtMost = 1_000

/** Returns true if the last known state of the object has the platform's finalizer and no deletion timestamp. */
function wasHeld({ metadata }: KubeObject): boolean {
  return metadata.deletionTimestamp === undefined && metadata.finalizers?.includes(finalizer) === true
}

/**
 * Objects with the platform's finalizer that a watch reported as deleted, by key. Each is kept until it is handled, or a new object has
 * its name.
 *
 * The API server may remove an object for good if a finalizer is added during its deletion (kubernetes/kubernetes#77988). Then nothing
 * else shows what to do with its record. Objects that are only missing from a list are not included, since a backup may have been
 * restored.
 */
export class Vanished {
  readonly #objects = new Map<string, PlatformObject>()

  constructor(objects: Readonly<Record<RecordKind, Informer>>) {
    for (const kind of recordKinds)
      objects[kind].onChange((before, after, by) => {
        if (after !== undefined) this.#objects.delete(keyOfObject(kind, after))
        else if (before !== undefined && by === 'watch' && wasHeld(before)) this.#keep(keyOfObject(kind, before), asPlatformObject(before))
      })
  }

  /** Returns the last state of the object. */
  get(key: string): PlatformObject | undefined {
    return this.#objects.get(key)
  }

  /** Stores the object's new status, which cannot be written to a deleted object. Does nothing if the object was forgotten. */
  note(kind: RecordKind, object: PlatformObject): void {
    const key = keyOfObject(kind, object)
    if (this.#objects.get(key)?.metadata.uid === object.metadata.uid) this.#objects.set(key, object)
  }

  keys(): Iterable<string> {
    return this.#objects.keys()
  }

  /** Removes an object after its record is handled. Does nothing if a later object with that name has vanished since. */
  forget(key: string, { metadata }: PlatformObject): void {
    if (this.#objects.get(key)?.metadata.uid === metadata.uid) this.#objects.delete(key)
  }

  #keep(key: string, object: PlatformObject): void {
    this.#objects.set(key, object)
    if (this.#objects.size <= keptAtMost) return
    const [oldest = key] = this.#objects.keys()
    this.#objects.delete(oldest)
  }
}
