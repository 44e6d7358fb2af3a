import type { KubeObject, ObjectRef } from '../kube-api.ts'

/** Objects, indexed by namespace and name. */
export class ObjectCache {
  readonly #namespaces = new Map<string, Map<string, KubeObject>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  get({ namespace = '', name }: ObjectRef): KubeObject | undefined {
    return this.#namespaces.get(namespace)?.get(name)
  }

  /** All objects. */
  *values(): Generator<KubeObject, void> {
    for (const objects of this.#namespaces.values()) yield* objects.values()
  }

  /** The objects of one namespace. */
  byNamespace(namespace: string): Iterable<KubeObject> {
    return this.#namespaces.get(namespace)?.values() ?? []
  }

  /** Adds an object. Replaces one with the same namespace and name. */
  put(object: KubeObject): void {
    const { namespace = '', name } = object.metadata
    const objects = this.#namespaces.get(namespace) ?? new Map<string, KubeObject>()
    this.#namespaces.set(namespace, objects)
    if (!objects.has(name)) this.#size++
    objects.set(name, object)
  }

  /** Removes the object with this namespace and name. */
  remove({ namespace = '', name }: ObjectRef): void {
    const objects = this.#namespaces.get(namespace)
    if (objects?.delete(name) !== true) return
    this.#size--
    if (objects.size === 0) this.#namespaces.delete(namespace)
  }
}
