import { isUid, rootOf, rootParent } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { parseManagedBy } from '../../engine/ownership.ts'
import { recordKinds, rowOf, type RecordKind } from '../object-kinds.ts'
import type { World } from '../world.ts'
import { mirrorName } from './mirror-object.ts'

/** The kinds of record that are mirrored; groups come first. */
export const mirroredKinds: readonly RecordKind[] = recordKinds.filter((kind) => rowOf(kind).mirrored)

function isChosenRoot(tables: RecordTables, root: string, chosen: readonly string[]): boolean {
  if (chosen.length === 0 || chosen.includes(root)) return true
  const name = tables.get('Group', root)?.message.name
  return name !== undefined && chosen.includes(name)
}

/** Returns true if the record needs a mirror: its organisation is mirrored, and no object of this cluster owns it. */
export function isShown(world: World, record: CachedRecord): boolean {
  if (parseManagedBy(record.managedBy)?.clusterId === world.cluster.id) return false
  const { tables } = world.services.cache
  return isUid(record.uid) && isChosenRoot(tables, rootOf(record.uid), world.mirror.rootGroups)
}

/** The mirrored records by the names of their mirrors, up to the configured limit. */
export class MirroredRecords {
  readonly #world: World
  readonly #uids = new Map<RecordKind, Map<string, string>>()
  #left = 0

  constructor(world: World) {
    this.#world = world
  }

  /** Number of records without a mirror at the last reload, because the limit was reached. */
  get left(): number {
    return this.#left
  }

  /** The number of mirrored records. */
  get size(): number {
    let size = 0
    for (const names of this.#uids.values()) size += names.size
    return size
  }

  /** Reads all records again from the current snapshot. */
  reload(): void {
    this.#uids.clear()
    this.#left = 0
    const { tables } = this.#world.services.cache
    for (const kind of mirroredKinds) {
      const table = tables.table(kind)
      for (const record of table.byUid.items(0, table.size)) if (!this.#add(kind, record)) this.#left += 1
    }
  }

  /** Applies the change of a record. Returns the name of its mirror. */
  change(kind: RecordKind, old: CachedRecord | undefined, record: CachedRecord | undefined): string {
    const uid = (record ?? old)?.uid ?? ''
    const name = mirrorName(rowOf(kind), uid)
    if (record !== undefined && this.uidOf(kind, name) === undefined) this.#add(kind, record)
    else if (record === undefined || !isShown(this.#world, record)) this.#uids.get(kind)?.delete(name)
    return name
  }

  /** Returns the uid of the record that the mirror with this name shows. */
  uidOf(kind: RecordKind, name: string): string | undefined {
    return this.#uids.get(kind)?.get(name)
  }

  /** Yields the names of all mirrors that should exist. */
  *names(): Generator<{ kind: RecordKind; name: string }> {
    for (const [kind, names] of this.#uids) for (const name of names.keys()) yield { kind, name }
  }

  /** Returns false if the record needs a mirror but the limit is reached. */
  #add(kind: RecordKind, record: CachedRecord): boolean {
    if (!isShown(this.#world, record)) return true
    if (this.size >= this.#world.mirror.limit) return false
    const names = this.#uids.get(kind) ?? new Map<string, string>()
    names.set(mirrorName(rowOf(kind), record.uid), record.uid)
    this.#uids.set(kind, names)
    return true
  }
}

/** Returns true for a record whose change may affect whether others are mirrored, such as the name of an organisation. */
export function decidesOthers(kind: string, record: CachedRecord | undefined): boolean {
  return kind === 'Group' && record?.parent === rootParent
}
