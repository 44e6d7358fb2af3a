import { describe, expect, test } from 'vitest'
import { orderOf } from '../../../src/cache/lists/order.ts'
import { naiveList, type NaiveQuery, type NaiveTerm } from '../../conformance/model/naive-list.ts'
import { listed, ListWorld, names, putIdentities, queryOf, uidsOf } from './list-world.ts'
import { newUid, one, picker } from '../records.ts'

describe('listRows for callers who see several groups', () => {
  test('a caller who sees a thousand groups gets every page in any order, in bounded time', async () => {
    const world = new ListWorld(picker(7))
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
    const visibility = { everywhere: false, groups: groups.sort(), roots: false }
    for (const kind of ['Group', 'Identity']) {
      for (const field of ['name', 'createMs', 'updateMs', 'uid'] as const) {
        const naive: NaiveQuery = { kind, uidp: {}, filters: [], order: [{ field, descending: true }], visibility }
        const expected = naiveList(world.records.values(), naive)
        const result = await listed(world, queryOf(naive, { skip: 300, limit: 100 }))
        expect(result.total).toBe(1000)
        expect(uidsOf(result)).toEqual(expected.slice(300, 400).map((record) => record.uid))
      }
    }
  })

  test('lists that arrive during the build of the view of all their groups do not restart it', async () => {
    const world = new ListWorld(picker(13))
    const root = world.addGroup()
    const groups = Array.from({ length: 60 }, () => newUid(world.pick, root.uid)).sort()
    for (const parent of groups) putIdentities(world, parent, 40)
    const visibility = { everywhere: false, groups, roots: false }
    const query = queryOf({ kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], visibility }, { skip: 0, limit: 50 })
    const { views } = world.tables.table('Identity')
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
  ])('groups with 5 and with $many rows get one view on the second list, unless it would copy 10,000 rows: $isKept', async ({ many, isKept }) => {
    const world = new ListWorld(picker(17))
    const root = world.addGroup()
    const groups = Array.from({ length: 20 }, () => newUid(world.pick, root.uid)).sort()
    for (const [at, parent] of groups.entries()) putIdentities(world, parent, at % 4 === 0 ? many : 5)
    const visibility = { everywhere: false, groups, roots: false }
    const naive: NaiveQuery = { kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], visibility }
    const query = queryOf(naive, { skip: 30, limit: 50 })
    const expected = naiveList(world.records.values(), naive).slice(30, 80)
    const { views } = world.tables.table('Identity')
    const [uid = ''] = groups
    const together = { place: 'below', uid, uids: groups, filters: [] } as const
    for (let times = 0; times < 50; times++) {
      if (times < 2) expect(views.kept(together, query.order), 'it comes with the second list').toBeUndefined()
      expect(uidsOf(await listed(world, query))).toEqual(expected.map((record) => record.uid))
      // Work in slices gets its turns.
      await new Promise(setImmediate)
    }
    expect(views.kept(together, query.order) !== undefined).toBe(isKept)
  })

  test('the first list of a caller with more large groups than views allowed waits for one view of all groups', async () => {
    const world = new ListWorld(picker(23))
    const root = world.addGroup()
    const groups = Array.from({ length: 140 }, () => newUid(world.pick, root.uid)).sort()
    for (const parent of groups) putIdentities(world, parent, 100)
    const visibility = { everywhere: false, groups, roots: false }
    const naive: NaiveQuery = { kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], visibility }
    const query = queryOf(naive, { skip: 30, limit: 50 })
    const expected = naiveList(world.records.values(), naive).slice(30, 80)
    expect(uidsOf(await listed(world, query))).toEqual(expected.map((record) => record.uid))
    const [uid = ''] = groups
    const { views } = world.tables.table('Identity')
    expect(views.kept({ place: 'below', uid, uids: groups, filters: [] }, query.order)?.tree.size).toBe(14_000)
    expect(views.kept({ place: 'below', uid, filters: [] }, query.order), 'none of them has a view of its own').toBeUndefined()
  })

  test('of 70 concurrent callers, those without a ready view sort rows: none evicts the views of others', async () => {
    const world = new ListWorld(picker(29))
    const root = world.addGroup()
    const groups = Array.from({ length: 200 }, () => newUid(world.pick, root.uid))
    for (const parent of groups) putIdentities(world, parent, 70)
    const { views } = world.tables.table('Identity')
    const made = views.view.bind(views)
    let asked = 0
    Object.assign(views, {
      view: (...call: Parameters<typeof made>) => {
        asked += 1
        return made(...call)
      },
    })
    const queries = Array.from({ length: 70 }, (_, at): NaiveQuery => {
      const visibility = { everywhere: false, groups: groups.slice(0, 130 + at).sort(), roots: false }
      return { kind: 'Identity', uidp: {}, filters: [], order: [{ field: 'createMs', descending: false }], visibility }
    })
    const pages = await Promise.all(queries.map((naive) => listed(world, queryOf(naive, { skip: 0, limit: 20 }))))
    for (const [at, naive] of queries.entries()) {
      const expected = naiveList(world.records.values(), naive)
      expect(pages[at]?.total).toBe(expected.length)
      expect(uidsOf(pages[at] ?? { records: [], total: 0 })).toEqual(expected.slice(0, 20).map((record) => record.uid))
    }
    expect(asked).toBe(64)
  })

  test('views of all kinds that fill at the same time take turns', async () => {
    const world = new ListWorld(picker(31))
    const root = world.addGroup()
    const groups = Array.from({ length: 12 }, () => newUid(world.pick, root.uid))
    for (const parent of groups) {
      putIdentities(world, parent, 2_100)
      for (let count = 0; count < 2_100; count++)
        world.put({ kind: 'Group', uid: newUid(world.pick, parent), name: 'alpha', createMs: count, updateMs: 2, filters: {} })
    }
    const order = orderOf([{ field: 'createMs', descending: false }])
    let ready = 0
    const views = ['Identity', 'Group'].flatMap((kind) =>
      groups.map(async (uid) => {
        await world.tables.table(kind).views.view({ place: 'below', uid, filters: [] }, order)
        ready += 1
      }),
    )
    for (let before = 0; before < views.length; before = ready) {
      await new Promise(setImmediate)
      expect(ready - before).toBeLessThanOrEqual(1)
    }
    await Promise.all(views)
  })

  test('many concurrent lists over many large groups all finish', async () => {
    const world = new ListWorld(picker(11))
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
        visibility: { everywhere: false, groups: groups.slice(at, at + (at < 2 ? 135 : 100)).sort(), roots: false },
      }
    })
    const results = await Promise.all(queries.map((naive) => listed(world, queryOf(naive, { skip: 0, limit: 200 }))))
    for (const [at, naive] of queries.entries()) {
      const expected = naiveList(world.records.values(), naive)
      expect(results[at]?.total).toBe(expected.length)
      expect(results[at]?.records.map((record) => record.uid)).toEqual(expected.slice(0, 200).map((record) => record.uid))
    }
  })
})
