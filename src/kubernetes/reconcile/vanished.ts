import type { Informer } from '../runtime/informer.ts'
import { recordKinds, type RecordKind, keyOfObject } from '../object-kinds.ts'
import { asPlatformObject, finalizer, type PlatformObject } from '../platform-object.ts'
import type { KubeObject } from '../kube-api.ts'

/** How many are kept: a standby does nothing about them, and what the leader has dealt with is no more news for it. */
const keptAtMost = 1_000

/** True for an object that was held and that nobody had asked to delete, as far as its watch told. */
function wasHeld({ metadata }: KubeObject): boolean {
  return metadata.deletionTimestamp === undefined && metadata.finalizers?.includes(finalizer) === true
}

/**
 * Objects that a watch told to be gone although they were held, by their keys, until they are forgotten or others of their names come. The API server removes an object for good where a
 * finalizer is put on it in the very moment in which it is deleted (kubernetes/kubernetes#77988): nothing of it is left then that says what becomes of its record. Those that are merely missing
 * from a list are not meant: that may be a backup that was restored.
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

  /** The object as it last was. */
  get(key: string): PlatformObject | undefined {
    return this.#objects.get(key)
  }

  /** Keeps its new status, which nobody else can be told. Of no effect where it is forgotten. */
  note(kind: RecordKind, object: PlatformObject): void {
    const key = keyOfObject(kind, object)
    if (this.#objects.get(key)?.metadata.uid === object.metadata.uid) this.#objects.set(key, object)
  }

  keys(): Iterable<string> {
    return this.#objects.keys()
  }

  /** To be called once its record is dealt with. Of no effect where another has gone under that name since. */
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
