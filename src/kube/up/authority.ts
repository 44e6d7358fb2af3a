import { authorityOf, type Authority } from '../grants.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { GrantSpec, PlatformObject } from '../platform-object.ts'
import type { World } from '../world.ts'

/** What this object's namespace may do with records of its kind at `place`, as of the caches and the snapshot now. */
export function authorityAt(world: World, { row, object }: { row: ObjectKind; object: PlatformObject }, place: string): Authority {
  const { namespace } = object.metadata
  const labels = world.namespaces.get({ name: namespace })?.metadata.labels ?? {}
  // The API server has checked grants against their CRD.
  const specs = [...world.grants.list()].filter(({ metadata }) => metadata.deletionTimestamp === undefined).map(({ spec }) => spec as GrantSpec)
  return authorityOf(specs, { namespace: { name: namespace, labels }, objectKind: row.type.kind, place }, world.services.replica.snapshot)
}
