import fc from 'fast-check'
import { describe, expect, inject, test } from 'vitest'
import type { CursorKey } from '../../../src/base/page-token.ts'
import { cursorKeyOf, orderOf, sortKeyOf, type Order, type SortKey } from '../../../src/cache/lists/order.ts'
import { compareBy, naiveList, type NaiveQuery } from '../../conformance/model/naive-list.ts'
import { listed, ListWorld, queryOf, uidsOf } from './list-world.ts'
import { newUid, one, picker, type Plain } from '../records.ts'

/** Returns the position as a page token stores it: the fields of the order only. */
function throughToken(order: Order, place: Plain): SortKey {
  // A plain record has all fields of a sort key; its uid was created as a uid.
  const key = sortKeyOf(order, JSON.parse(JSON.stringify(cursorKeyOf(order, place as unknown as SortKey))) as CursorKey)
  if (key === undefined) throw new Error('a cursor does not fit its own order')
  return key
}

async function comparePages(world: ListWorld, naive = world.query()): Promise<void> {
  const { pick } = world
  const expected = naiveList(world.records.values(), naive)
  // A cursor is a position, not a record: its record may never have been in the list, or be removed.
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

describe('listRows', () => {
  test.each([
    ['a small tree', 12, 40, 150],
    ['a tree whose groups hold more rows than are sorted on the spot', 60, 900, 12],
  ])('any page of any list equals that of the filtered and sorted array, between changes: %s', async (_title, groups, leaves, numRuns) => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const world = new ListWorld(picker(seed))
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

  test('a list that runs while its views fill and changes arrive shows one commit, not older than the call', async () => {
    const seed = inject('propertySeed') ?? Math.trunc(Date.now())
    const world = new ListWorld(picker(seed))
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
      // After the last change, the list is that of the newest state.
      expect(JSON.stringify(uidsOf(await listed(world, queryOf(naive, { skip: 5, limit: 40 })))), `seed ${seed}`).toBe(expected.at(-1))
    }
  })

  test('after many changes a list equals the filtered and sorted array, even if most records changed', async () => {
    const world = new ListWorld(picker(23))
    const made = Array.from({ length: 8 }, () => world.addGroup().uid).sort()
    const groups = made.filter((uid) => !made.some((other) => uid.startsWith(`${other}/`)))
    for (let count = 0; count < 6000; count++) world.addLeaf()
    for (let count = 0; count < 120; count++) {
      const everywhere = world.pick(2) === 0
      const visibility = { everywhere, groups: everywhere ? [] : groups, roots: everywhere }
      const order = [{ field: one(world.pick, ['uid', 'name', 'createMs', 'updateMs'] as const), descending: world.pick(2) === 0 }]
      await comparePages(world, { kind: 'Identity', uidp: {}, filters: [], order, visibility, changedAfterMs: 1999 + world.pick(30) })
      world.change()
    }
  })
})
