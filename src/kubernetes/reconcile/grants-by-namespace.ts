import { selects } from '../grants.ts'
import type { GrantSpec } from '../platform-object.ts'
import type { KubeObject } from '../kube-api.ts'
import type { Informer } from '../runtime/informer.ts'

/** Returns false if only the status or other metadata changed, which does not affect records. */
export function isSpecChange(before: KubeObject | undefined, after: KubeObject | undefined): boolean {
  const [old, now] = [before?.metadata, after?.metadata]
  return old?.uid !== now?.uid || old?.generation !== now?.generation || old?.deletionTimestamp !== now?.deletionTimestamp
}

/** Index of the grants that select each namespace, from the current caches. */
export class GrantsByNamespace {
  readonly #grants: Informer
  readonly #namespaces: Informer
  readonly #found = new Map<string, readonly GrantSpec[]>()

  constructor(grants: Informer, namespaces: Informer) {
    this.#grants = grants
    this.#namespaces = namespaces
    grants.onChange((before, after) => {
      if (isSpecChange(before, after)) this.#found.clear()
    })
    namespaces.onChange((before, after) => {
      for (const namespace of [before, after]) if (namespace !== undefined) this.#found.delete(namespace.metadata.name)
    })
  }

  /** Returns the labels of a namespace and the grants that select it. For an unknown namespace, only grants that select without labels. */
  of(name: string): { readonly labels: Readonly<Record<string, string>>; readonly grants: readonly GrantSpec[] } {
    const labels = this.#namespaces.get({ name })?.metadata.labels ?? {}
    const known = this.#found.get(name)
    if (known !== undefined) return { labels, grants: known }
    const grants = [...this.#grants.list()]
      .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
      // a cast: the API server has checked grants against their CRD
      .map(({ spec }) => spec as GrantSpec)
      .filter((grant) => selects(grant, { name, labels }))
    // An unknown namespace is not cached, because no event would remove the entry.
    if (this.#namespaces.get({ name }) !== undefined) this.#found.set(name, grants)
    return { labels, grants }
  }
}
