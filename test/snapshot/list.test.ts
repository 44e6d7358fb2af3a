import fc from 'fast-check'
import { describe, expect, inject, test } from 'vitest'
import { listRows, type ListQuery, type ListResult } from '../../src/snapshot/list.ts'
import type { CursorKey } from '../../src/core/page-token.ts'
import { cursorKeyOf, orderOf, sortKeyOf, type Order, type SortKey } from '../../src/snapshot/order.ts'
import type { Snapshot } from '../../src/snapshot/snapshot.ts'
import { compareBy, naiveList, type NaiveQuery, type NaiveReach, type NaiveTerm, type NaiveUidp } from '../model/naive-list.ts'
import { changeOf, emptySnapshot, newUid, one, picker, removalOf, type Pick, type Plain } from './rows.ts'

const names = ['alpha', 'beta', 'gamma', 'delta', 'beta two']
const roles = ['a'.repeat(40), 'b'.repeat(40)]
const kinds = ['Group', 'Identity', 'RoleBinding'] as const

/** A snapshot and the array that it must look like. */
class World {
  readonly snapshot: Snapshot = emptySnapshot()
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
    this.snapshot.apply([changeOf(plain)])
  }

  remove(plain: Plain): void {
    this.records.delete(`${plain.kind} ${plain.uid}`)
    this.snapshot.apply([removalOf(plain)])
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

  #reach(): NaiveReach {
    const { pick } = this
    if (pick(3) === 0) return { everywhere: true, groups: [], roots: true }
    const groups = Array.from({ length: pick(5) }, () => this.anyGroup())
    // As authz gives them: none inside another.
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

  /** A list of any kind, or one that was asked for before. */
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
    return { kind, uidp: this.#uidp(kind), filters: this.#filters(kind), order, reach: this.#reach(), ...changedAfter }
  }
}

function queryOf(naive: NaiveQuery, page: { after?: SortKey; skip: number; limit: number }): ListQuery {
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = naive.uidp
  // The groups were made as uids.
  const visibility = naive.reach as ListQuery['visibility']
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

/** A page as of now. */
function listed(world: World, query: ListQuery): Promise<ListResult> {
  return listRows(
    () => ({ snapshot: world.snapshot, query }),
    (page) => page,
  )
}

const uidsOf = (result: ListResult): string[] => result.rows.map((row) => row.uid)

/** The place as a page token carries it: nothing but the fields of the order. */
function throughToken(order: Order, place: Plain): SortKey {
  // A plain record has all that a sort key has; its uid was made as one.
  const key = sortKeyOf(order, JSON.parse(JSON.stringify(cursorKeyOf(order, place as unknown as SortKey))) as CursorKey)
  if (key === undefined) throw new Error('a cursor does not fit its own order')
  return key
}

async function comparePages(world: World, naive = world.query()): Promise<void> {
  const { pick } = world
  const expected = naiveList(world.records.values(), naive)
  // A cursor is a place, not a record: it may be one that was never in this list, or is gone.
  const places = pick(4) === 0 ? [...world.records.values()] : expected
  const after = places.length > 0 && pick(2) === 0 ? { ...one(pick, places), ...(pick(4) === 0 ? { uid: newUid(pick) } : {}) } : undefined
  const rest = after === undefined ? expected : expected.filter((record) => compareBy(naive.order)(record, after) > 0)
  const skip = pick(3) === 0 ? pick(rest.length + 3) : 0
  const limit = 1 + pick(60)
  const cursor = after === undefined ? undefined : throughToken(orderOf(naive.order), after)
  const result = await listed(world, queryOf(naive, { skip, limit, ...(cursor === undefined ? {} : { after: cursor }) }))
  const context = JSON.stringify(naive)
  expect({ context, total: result.total, uids: uidsOf(result) }).toEqual({
    context,
    total: expected.length,
    uids: rest.slice(skip, skip + limit).map((record) => record.uid),
  })
}

function putIdentities(world: World, parent: string, count: number): void {
  for (let done = 0; done < count; done++) {
    const uid = newUid(world.pick, parent)
    world.put({ kind: 'Identity', uid, name: one(world.pick, names), createMs: world.pick(1000), updateMs: 2, filters: { relationship_type: '1' } })
  }
}

describe('listRows', () => {
  test.each([
    ['a small tree', 12, 40, 150],
    ['a tree whose places hold more than is sorted on the spot', 60, 900, 12],
  ])('any page of any list is the one of the filtered and sorted array, between changes: %s', { timeout: 60_000 }, async (_title, groups, leaves, numRuns) => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const world = new World(picker(seed))
        for (let count = 0; count < groups; count++) world.addGroup()
        for (let count = 0; count < leaves; count++) world.addLeaf()
        for (let count = 0; count < 40; count++) {
          await comparePages(world)
          for (let changes = world.pick(4); changes > 0; changes--) world.change()
        }
      }),
      { numRuns },
    )
  })

  test('while its views are filled in slices and changes arrive, a list is that of one commit not older than the call', { timeout: 60_000 }, async () => {
    const seed = inject('propertySeed') ?? Math.trunc(Date.now())
    const world = new World(picker(seed))
    for (let count = 0; count < 30; count++) world.addGroup()
    for (let count = 0; count < 9000; count++) world.addLeaf()
    for (let round = 0; round < 12; round++) {
      const base = world.query()
      const naive: NaiveQuery = {
        ...base,
        kind: one(world.pick, ['Identity', 'RoleBinding']),
        uidp: {},
        filters: [],
        order: [{ field: one(world.pick, ['createMs', 'updateMs']), descending: round % 2 === 0 }],
      }
      const expected: string[] = []
      const note = (): void =>
        void expected.push(
          JSON.stringify(
            naiveList(world.records.values(), naive)
              .slice(5, 45)
              .map((record) => record.uid),
          ),
        )
      note()
      let done = false
      const listing = listed(world, queryOf(naive, { skip: 5, limit: 40 })).finally(() => (done = true))
      for (let turn = 0; !done && turn < 400; turn++) {
        for (let count = 0; count < 3; count++) world.change()
        note()
        await new Promise(setImmediate)
      }
      expect(expected, `seed ${seed}`).toContain(JSON.stringify(uidsOf(await listing)))
      // And once nothing changes any more, it is the newest.
      expect(JSON.stringify(uidsOf(await listed(world, queryOf(naive, { skip: 5, limit: 40 })))), `seed ${seed}`).toBe(expected.at(-1))
    }
  })

  test('what changed lately is the filtered and sorted array, also where it is most of many records', async () => {
    const world = new World(picker(23))
    const made = Array.from({ length: 8 }, () => world.addGroup().uid).sort()
    const groups = made.filter((uid) => !made.some((other) => uid.startsWith(`${other}/`)))
    for (let count = 0; count < 6000; count++) world.addLeaf()
    for (let count = 0; count < 120; count++) {
      const everywhere = world.pick(2) === 0
      const reach = { everywhere, groups: everywhere ? [] : groups, roots: everywhere }
      const order = [{ field: one(world.pick, ['uid', 'name', 'createMs', 'updateMs'] as const), descending: world.pick(2) === 0 }]
      await comparePages(world, { kind: 'Identity', uidp: {}, filters: [], order, reach, changedAfterMs: 1999 + world.pick(30) })
      world.change()
    }
  })

  test('a caller who sees a thousand groups gets every page in any order, in bounded time', { timeout: 20_000 }, async () => {
    const world = new World(picker(7))
    const root = world.addGroup()
    const groups: string[] = []
    for (let count = 0; count < 1000; count++) {
      const uid = newUid(world.pick, root.uid)
      groups.push(uid)
      world.put({ kind: 'Group', uid, name: one(world.pick, names), createMs: count, updateMs: 5000 - count, filters: {} })
      world.put({
        kind: 'Identity',
        uid: newUid(world.pick, uid),
        name: one(world.pick, names),
        createMs: count,
        updateMs: 5000 - count,
        filters: { relationship_type: '1' },
      })
    }
    const reach = { everywhere: false, groups: groups.sort(), roots: false }
    for (const kind of ['Group', 'Identity']) {
      for (const field of ['name', 'createMs', 'updateMs', 'uid'] as const) {
        const naive: NaiveQuery = { kind, uidp: {}, filters: [], order: [{ field, descending: true }], reach }
        const expected = naiveList(world.records.values(), naive)
        const result = await listed(world, queryOf(naive, { skip: 300, limit: 100 }))
        expect(result.total).toBe(1000)
        expect(uidsOf(result)).toEqual(expected.slice(300, 400).map((record) => record.uid))
      }
    }
  })

  test('lists that come while the view of all their groups is filled do not begin it anew', async () => {
    const world = new World(picker(13))
    const root = world.addGroup()
    const groups = Array.from({ length: 60 }, () => newUid(world.pick, root.uid)).sort()
    for (const parent of groups) putIdentities(world, parent, 40)
    const reach = { everywhere: false, groups, roots: false }
    const query = queryOf({ kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], reach }, { skip: 0, limit: 50 })
    const { views } = world.snapshot.table('Identity')
    const [uid = ''] = groups
    const together = { place: 'below', uid, uids: groups, filters: [] } as const
    for (let times = 0; times < 2; times++) await listed(world, query)
    expect(views.kept(together, query.order), 'it is not complete at once').toBeUndefined()
    const begun = views.view(together, query.order)
    for (let times = 0; times < 4; times++) await listed(world, query)
    expect(views.kept(together, query.order), 'nothing but lists ran').toBeUndefined()
    const view = await begun
    expect(views.kept(together, query.order)).toBe(view)
  })

  test.each([
    { many: 200, isKept: true },
    { many: 2_500, isKept: false },
  ])('groups with 5 and with $many rows are one view when the list comes again, unless that repeats 10,000 rows: $isKept', async ({ many, isKept }) => {
    const world = new World(picker(17))
    const root = world.addGroup()
    const groups = Array.from({ length: 20 }, () => newUid(world.pick, root.uid)).sort()
    for (const [at, parent] of groups.entries()) putIdentities(world, parent, at % 4 === 0 ? many : 5)
    const reach = { everywhere: false, groups, roots: false }
    const naive: NaiveQuery = { kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], reach }
    const query = queryOf(naive, { skip: 30, limit: 50 })
    const expected = naiveList(world.records.values(), naive).slice(30, 80)
    const { views } = world.snapshot.table('Identity')
    const [uid = ''] = groups
    const together = { place: 'below', uid, uids: groups, filters: [] } as const
    for (let times = 0; times < 50; times++) {
      if (times < 2) expect(views.kept(together, query.order), 'it comes with the second list').toBeUndefined()
      expect(uidsOf(await listed(world, query))).toEqual(expected.map((record) => record.uid))
      // What is filled in slices has its turns.
      await new Promise(setImmediate)
    }
    expect(views.kept(together, query.order) !== undefined).toBe(isKept)
  })

  test('the first list of a caller who sees more large groups than get views of their own waits for one view of them all', async () => {
    const world = new World(picker(23))
    const root = world.addGroup()
    const groups = Array.from({ length: 140 }, () => newUid(world.pick, root.uid)).sort()
    for (const parent of groups) putIdentities(world, parent, 100)
    const reach = { everywhere: false, groups, roots: false }
    const naive: NaiveQuery = { kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], reach }
    const query = queryOf(naive, { skip: 30, limit: 50 })
    const expected = naiveList(world.records.values(), naive).slice(30, 80)
    expect(uidsOf(await listed(world, query))).toEqual(expected.map((record) => record.uid))
    const [uid = ''] = groups
    const { views } = world.snapshot.table('Identity')
    expect(views.kept({ place: 'below', uid, uids: groups, filters: [] }, query.order)?.tree.size).toBe(14_000)
    expect(views.kept({ place: 'below', uid, filters: [] }, query.order), 'none of them has a view of its own').toBeUndefined()
  })

  test('many lists at once over many large places all end', { timeout: 60_000 }, async () => {
    const world = new World(picker(11))
    const root = world.addGroup()
    const groups = Array.from({ length: 140 }, () => newUid(world.pick, root.uid))
    for (const uid of groups) {
      world.put({ kind: 'Group', uid, name: one(world.pick, names), createMs: 1, updateMs: 2, filters: {} })
      putIdentities(world, uid, 30)
    }
    const queries = Array.from({ length: 12 }, (_, at): NaiveQuery => {
      const order: NaiveTerm[] = [{ field: at % 2 === 0 ? 'createMs' : 'name', descending: at % 3 === 0 }]
      return {
        kind: 'Identity',
        uidp: {},
        filters: [],
        order,
        reach: { everywhere: false, groups: groups.slice(at, at + (at < 2 ? 135 : 100)).sort(), roots: false },
      }
    })
    const results = await Promise.all(queries.map((naive) => listed(world, queryOf(naive, { skip: 0, limit: 200 }))))
    for (const [at, naive] of queries.entries()) {
      const expected = naiveList(world.records.values(), naive)
      expect(results[at]?.total).toBe(expected.length)
      expect(results[at]?.rows.map((row) => row.uid)).toEqual(expected.slice(0, 200).map((record) => record.uid))
    }
  })
})
