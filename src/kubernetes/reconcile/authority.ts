import { authorityOf, type Authority } from '../grants.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { World } from '../world.ts'

/** What this object's namespace may do with records of its kind at `place`, as of the caches and the snapshot now. The object need not be there. */
export function authorityAt(
  world: World,
  { row, object }: { row: ObjectKind; object: { readonly metadata: { readonly namespace: string } } },
  place: string,
): Authority {
  const { namespace: name } = object.metadata
  const { labels, grants } = world.grantsByNamespace.of(name)
  return authorityOf(grants, { namespace: { name, labels }, objectKind: row.type.kind, place }, world.services.cache.tables)
}
