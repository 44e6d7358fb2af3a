import { listRecords, type ListQuery, type ListResult } from '../../../src/cache/lists/list.ts'
import { orderOf, type SortKey } from '../../../src/cache/lists/order.ts'
import type { RecordTables } from '../../../src/cache/record-tables.ts'
import type { NaiveQuery, NaiveVisibility, NaiveTerm, NaiveUidp } from '../../conformance/model/naive-list.ts'
import { changeOf, emptyTables, newUid, one, removalOf, type Pick, type Plain } from '../records.ts'

/** The names that records have. */
export const names = ['alpha', 'beta', 'gamma', 'delta', 'beta two']
const roles = ['a'.repeat(40), 'b'.repeat(40)]
const kinds = ['Group', 'Identity', 'RoleBinding'] as const

/** A snapshot and the array that it must equal. */
export class ListWorld {
  readonly tables: RecordTables = emptyTables()
  readonly records = new Map<string, Plain>()
  readonly pick: Pick
  #groups: string[] = []
  #identities: string[] = []
  #bindings: string[] = []
  readonly #asked: NaiveQuery[] = []

  constructor(pick: Pick) {
    this.pick = pick
  }

  put(plain: Plain): void {
    this.records.set(`${plain.kind} ${plain.uid}`, plain)
    this.tables.apply([changeOf(plain)])
  }

  remove(plain: Plain): void {
    this.records.delete(`${plain.kind} ${plain.uid}`)
    this.tables.apply([removalOf(plain)])
  }

  #fresh(kind: string, parent: string | undefined): Plain {
    const { pick } = this
    const identity = this.#identities.length > 0 ? one(pick, this.#identities) : 'c'.repeat(40)
    const filters =
      kind === 'RoleBinding' ? { identity, role: one(pick, roles), group: parent } : kind === 'Identity' ? { relationship_type: String(1 + pick(2)) } : {}
    const name = kind === 'RoleBinding' ? '' : one(pick, names)
    return { kind, uid: newUid(pick, parent), name, createMs: 1000 + pick(40), updateMs: 2000 + pick(40), filters }
  }

  addGroup(): Plain {
    const { pick } = this
    const shallow = this.#groups.filter((uid) => uid.split('/').length < 5)
    const parent = shallow.length > 0 && pick(12) > 0 ? one(pick, shallow) : undefined
    const plain = this.#fresh('Group', parent)
    this.#groups.push(plain.uid)
    this.put(plain)
    return plain
  }

  addLeaf(): Plain {
    const { pick } = this
    const kind = pick(2) === 0 ? 'Identity' : 'RoleBinding'
    const plain = this.#fresh(kind, one(pick, this.#groups))
    ;(kind === 'Identity' ? this.#identities : this.#bindings).push(plain.uid)
    this.put(plain)
    return plain
  }

  /** Changes or removes any record, or adds one. */
  change(): void {
    const { pick } = this
    const all = [...this.records.values()]
    const turn = pick(4)
    if (turn === 0 || all.length < 3) this.addLeaf()
    else if (turn === 1) this.addGroup()
    else {
      const plain = one(pick, all)
      if (turn === 2 && plain.kind !== 'Group') this.remove(plain)
      else this.put({ ...plain, name: plain.kind === 'RoleBinding' ? '' : one(pick, names), updateMs: plain.updateMs + 1 + pick(5) })
    }
  }

  anyGroup(): string {
    const { pick } = this
    return pick(15) === 0 ? newUid(pick) : one(pick, this.#groups)
  }

  #visibility(): NaiveVisibility {
    const { pick } = this
    if (pick(3) === 0) return { everywhere: true, groups: [], roots: true }
    const groups = Array.from({ length: pick(5) }, () => this.anyGroup())
    // As authz returns them: no group is inside another.
    const topmost = [...new Set(groups)].filter((group) => !groups.some((other) => group.startsWith(`${other}/`)))
    return { everywhere: false, groups: topmost.sort(), roots: false }
  }

  #uidp(kind: string): NaiveUidp {
    const { pick } = this
    const ofKind = [...this.records.values()].filter((record) => record.kind === kind)
    return {
      ...(pick(3) === 0 ? { descendantsOf: this.anyGroup() } : {}),
      ...(pick(4) === 0 ? { childrenOf: this.anyGroup() } : {}),
      ...(pick(6) === 0 ? { inRoot: true } : {}),
      ...(kind === 'Group' && pick(5) === 0 ? { ancestorsOf: pick(2) === 0 ? this.anyGroup() : `${this.anyGroup()}/${'0'.repeat(16)}` } : {}),
      ...(ofKind.length > 0 && pick(6) === 0 ? { ids: Array.from({ length: 1 + pick(5) }, () => one(pick, ofKind).uid) } : {}),
    }
  }

  #filters(kind: string): [string, string][] {
    const { pick } = this
    const filters: [string, string][] = []
    if (kind !== 'RoleBinding' && pick(4) === 0) filters.push(['name', one(pick, names)])
    if (kind === 'Identity' && pick(4) === 0) filters.push(['relationship_type', String(1 + pick(2))])
    if (kind !== 'RoleBinding') return filters
    if (pick(4) === 0) filters.push(['role', one(pick, roles)])
    if (pick(6) === 0) filters.push(['group', this.anyGroup()])
    if (pick(4) === 0 && this.#identities.length > 0) filters.push(['identity', one(pick, this.#identities)])
    return filters
  }

  /** Returns a list query of any kind, or a former one. */
  query(): NaiveQuery {
    const { pick } = this
    if (this.#asked.length > 0 && pick(3) === 0) return one(pick, this.#asked)
    const query = this.#newQuery()
    this.#asked.push(query)
    return query
  }

  #newQuery(): NaiveQuery {
    const { pick } = this
    const kind = one(pick, kinds)
    const fields: readonly NaiveTerm['field'][] = ['uid', 'name', 'createMs', 'updateMs']
    const order = Array.from({ length: pick(3) }, () => ({ field: one(pick, fields), descending: pick(2) === 0 }))
    const changedAfter = pick(4) === 0 ? { changedAfterMs: 1990 + pick(60) } : {}
    return { kind, uidp: this.#uidp(kind), filters: this.#filters(kind), order, visibility: this.#visibility(), ...changedAfter }
  }
}

/** Returns the list query for a naive query. */
export function queryOf(naive: NaiveQuery, page: { after?: SortKey; skip: number; limit: number }): ListQuery {
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = naive.uidp
  // The groups were created as uids.
  const visibility = naive.visibility as ListQuery['visibility']
  return {
    kind: naive.kind,
    uidp: { descendantsOf, childrenOf, ancestorsOf, inRoot, ids },
    filters: naive.filters,
    visibility,
    order: orderOf(naive.order),
    ...(naive.changedAfterMs === undefined ? {} : { changedAfterMs: naive.changedAfterMs }),
    ...page,
  }
}

/** Lists one page of the current state. */
export function listed(world: ListWorld, query: ListQuery): Promise<ListResult> {
  return listRecords(
    () => ({ tables: world.tables, query }),
    (page) => page,
  )
}

/** Returns the uids of a page, in its order. */
export const uidsOf = (result: ListResult): string[] => result.records.map((record) => record.uid)

/** Adds `count` identities below a group. */
export function putIdentities(world: ListWorld, parent: string, count: number): void {
  for (let done = 0; done < count; done++) {
    const uid = newUid(world.pick, parent)
    world.put({ kind: 'Identity', uid, name: one(world.pick, names), createMs: world.pick(1000), updateMs: 2, filters: { relationship_type: '1' } })
  }
}
