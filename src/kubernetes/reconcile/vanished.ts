import type { Informer } from '../runtime/informer.ts'
import { recordKinds, type RecordKind, keyOfObject } from '../object-kinds.ts'
import { asPlatformObject, finalizer, type PlatformObject } from '../platform-object.ts'
import type { KubeObject } from '../kube-api.ts'

/** How many vanished objects are kept. A standby does not work on them, and the leader may have dealt with them already. */
const keptAtMost = 1_000

/** True for an object with our finalizer and, as far as its watch reported, without a request to delete it. */
function wasHeld({ metadata }: KubeObject): boolean {
  return metadata.deletionTimestamp === undefined && metadata.finalizers?.includes(finalizer) === true
}

/**
 * Objects with our finalizer that a watch reported as deleted, by key. Each is kept until it is forgotten or a new object has its name.
 *
 * The API server may remove an object for good if a finalizer is added while it is being deleted (kubernetes/kubernetes#77988). Then nothing else says what to
 * do with its record. Objects that are only missing from a list don't count: a backup may have been restored.
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

  /** Keeps its new status, which can't be written to a deleted object. No effect if the object was forgotten. */
  note(kind: RecordKind, object: PlatformObject): void {
    const key = keyOfObject(kind, object)
    if (this.#objects.get(key)?.metadata.uid === object.metadata.uid) this.#objects.set(key, object)
  }

  keys(): Iterable<string> {
    return this.#objects.keys()
  }

  /** Forgets an object after its record is dealt with. No effect if a later object of that name has vanished since. */
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
