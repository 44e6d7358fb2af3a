import type { ObjectKind } from '../object-kinds.ts'
import { isMirror, uidAnnotation, type PlatformObject } from '../platform-object.ts'
import type { World } from '../world.ts'
import { authorityAt } from './authority.ts'
import type { ResolvedReferences } from './facts.ts'
import { resolveReferences } from './references.ts'

/** Kubernetes tells times in whole seconds: of two of the same second one is taken, always the same. */
function isOlder(one: PlatformObject, other: PlatformObject): boolean {
  const [a, b] = [one.metadata.creationTimestamp ?? '', other.metadata.creationTimestamp ?? '']
  return a === b ? one.metadata.uid < other.metadata.uid : a < b
}

/** True where only a change of the object or its grants would make it have a record. */
function isRefused({ metadata, status }: PlatformObject): boolean {
  if (status?.observedGeneration !== metadata.generation) return false
  return status?.conditions?.some(({ type, status: is, reason }) => type === 'Stalled' && is === 'True' && reason !== 'InConflict') === true
}

/** The older object that asks for the same record as `object`, as `<namespace>/<name>`: it goes first. It is asked only before a record is made. */
export function olderRival(world: World, { row, object }: { row: ObjectKind; object: PlatformObject }, references: ResolvedReferences): string | undefined {
  if (!references.found) return undefined
  const { snapshot } = world.services.replica
  for (const other of world.claims.like(row, object)) {
    if (!isOlder(other, object) || isMirror(other)) continue
    const { deletionTimestamp, annotations, namespace, name } = other.metadata
    if (deletionTimestamp !== undefined || annotations?.[uidAnnotation] !== undefined || isRefused(other)) continue
    const theirs = resolveReferences(snapshot, world.cluster, { row, object: other })
    const asksForTheSame = theirs.found && theirs.parent === references.parent
    if (asksForTheSame && authorityAt(world, { row, object: other }, theirs.parent).granted) return `${namespace}/${name}`
  }
  return undefined
}
