import { authorityOf, type Authority } from '../grants.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { World } from '../world.ts'

/**
 * Returns what the namespace of the object may do with records of its kind at `place`, from the current caches and snapshot. The object
 * itself need not exist.
 */
export function authorityAt(
  world: World,
  { row, object }: { row: ObjectKind; object: { readonly metadata: { readonly namespace: string } } },
  place: string,
): Authority {
  const { namespace: name } = object.metadata
  const { labels, grants } = world.grantsByNamespace.of(name)
  return authorityOf(grants, { namespace: { name, labels }, objectKind: row.type.kind, place }, world.services.cache.tables)
}
