/** What the naive model knows of a record: all that lists filter and sort by. */
export interface NaiveRecord {
  readonly kind: string
  readonly uid: string
  readonly name: string
  readonly createMs: number
  readonly updateMs: number
  /** Exact filters beyond `name`. */
  readonly filters: Readonly<Record<string, string | undefined>>
}

/** The `uidp` filter; what is absent or empty is not set. */
export interface NaiveUidp {
  readonly descendantsOf?: string
  readonly childrenOf?: string
  readonly ancestorsOf?: string
  readonly inRoot?: boolean
  readonly ids?: readonly string[]
}

/** A sort key: one of the record's own fields. */
export interface NaiveTerm {
  readonly field: 'uid' | 'name' | 'createMs' | 'updateMs'
  readonly descending: boolean
}

/** Where the caller holds what the list needs: everywhere, or in these groups and below; `roots` also shows root-level records. */
export interface NaiveVisibility {
  readonly everywhere: boolean
  readonly groups: readonly string[]
  readonly roots: boolean
}

/** A list without its page. */
export interface NaiveQuery {
  readonly kind: string
  readonly uidp: NaiveUidp
  /** Exact filters, `name` among them. */
  readonly filters: readonly (readonly [string, string])[]
  readonly order: readonly NaiveTerm[]
  readonly visibility: NaiveVisibility
  /** Only what changed later, where it is set. */
  readonly changedAfterMs?: number
}

function parentOf(uid: string): string {
  const segments = uid.split('/').slice(0, -1)
  return segments.length === 0 ? '/' : segments.join('/')
}

/** True where `uid` is strictly below `ancestor`. */
export function isBelow(uid: string, ancestor: string): boolean {
  return ancestor !== '' && uid.startsWith(`${ancestor}/`)
}

function seen(visibility: NaiveVisibility, record: NaiveRecord): boolean {
  if (visibility.everywhere) return true
  if (visibility.roots && !record.uid.includes('/')) return true
  // A group is seen by who reaches it; anything else by who reaches the group that it lies in (docs/spec/conventions.md#list-reach).
  const place = record.kind === 'Group' ? record.uid : parentOf(record.uid)
  return visibility.groups.some((group) => place === group || isBelow(place, group))
}

function inUidp(uidp: NaiveUidp, record: NaiveRecord): boolean {
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = uidp
  if (descendantsOf !== '' && !isBelow(record.uid, descendantsOf)) return false
  if (childrenOf !== '' && parentOf(record.uid) !== childrenOf) return false
  if (ancestorsOf !== '' && !isBelow(ancestorsOf, record.uid)) return false
  if (inRoot && record.uid.includes('/')) return false
  return ids.length === 0 || ids.includes(record.uid)
}

/** Compares as the order says, ties by uid. */
export function compareBy(order: readonly NaiveTerm[]): (a: NaiveRecord, b: NaiveRecord) => number {
  return (a, b) => {
    for (const { field, descending } of [...order, { field: 'uid', descending: false } as const]) {
      if (a[field] !== b[field]) return a[field] < b[field] !== descending ? -1 : 1
      // Nothing that follows can tell apart what has one uid: a record and what it was at the last page.
      if (field === 'uid') return 0
    }
    return 0
  }
}

/** All pages of a list as one array: an array filtered and sorted (docs/spec/conventions.md#list-reach). */
export function naiveList(records: Iterable<NaiveRecord>, query: NaiveQuery): NaiveRecord[] {
  return [...records]
    .filter((record) => record.updateMs > (query.changedAfterMs ?? -Infinity))
    .filter((record) => record.kind === query.kind && seen(query.visibility, record) && inUidp(query.uidp, record))
    .filter((record) => query.filters.every(([filter, value]) => (filter === 'name' ? record.name : record.filters[filter]) === value))
    .sort(compareBy(query.order))
}
