import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { orderOf, type Order } from '../../src/cache/lists/order.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { KindTable } from '../../src/cache/table.ts'
import type { ViewScope } from '../../src/cache/lists/view.ts'
import { inScope } from '../../src/cache/lists/views.ts'
import { memoryInUse } from '../support/parts/memory-in-use.ts'
import { indexOf, newUid, one, picker, recordOf, type Pick, type Plain } from './records.ts'

const names = ['alpha', 'beta', 'gamma']
const orders: readonly Order[] = [
  orderOf([{ field: 'name', descending: false }]),
  orderOf([{ field: 'createMs', descending: true }]),
  orderOf([
    { field: 'updateMs', descending: false },
    { field: 'uid', descending: true },
  ]),
]

/** A table of identities in a small tree, and the array that it must equal. */
class Tabled {
  readonly table = new KindTable(indexOf('Identity'))
  readonly records = new Map<string, CachedRecord>()
  readonly groups: string[] = []
  readonly pick: Pick

  constructor(pick: Pick, groups: number) {
    this.pick = pick
    this.groups.push(newUid(pick))
    while (this.groups.length < groups) this.groups.push(newUid(pick, one(pick, this.groups.slice(0, 8))))
  }

  put(uid: string, revision = 1): void {
    const { pick } = this
    const plain: Plain = {
      kind: 'Identity',
      uid,
      name: one(pick, names),
      createMs: pick(50),
      updateMs: pick(1000),
      filters: { relationship_type: String(1 + pick(2)) },
    }
    const record = recordOf(plain, revision)
    expect(this.table.put(record)).toBe(this.records.get(uid))
    this.records.set(uid, record)
  }

  add(): void {
    this.put(newUid(this.pick, one(this.pick, this.groups)))
  }

  change(): void {
    const { pick } = this
    const turn = pick(3)
    if (turn === 0 || this.records.size === 0) return this.add()
    const uid = one(pick, [...this.records.keys()])
    if (turn === 1) return this.put(uid, 1 + pick(9))
    expect(this.table.remove(uid)).toBe(this.records.get(uid))
    this.records.delete(uid)
  }

  /** Returns the rows that a full search finds, in order. */
  naive(scope: ViewScope, order: Order): string[] {
    const { place, uid, uids = [uid], filters } = scope
    const lies = (record: CachedRecord): boolean => {
      if (place === 'child') return record.uid.slice(0, record.uid.lastIndexOf('/')) === uid
      return place === 'all' || uids.some((above) => (place === 'within' && record.uid === above) || record.uid.startsWith(`${above}/`))
    }
    const fits = (record: CachedRecord): boolean =>
      filters.every(
        ([filter, value]) =>
          (filter === 'name' ? record.name : { '1': 'claimMatch', '2': 'staticKeys' }[value]) === (filter === 'name' ? value : caseOf(record)),
      )
    return [...this.records.values()]
      .filter((record) => lies(record) && fits(record))
      .sort(order.compare)
      .map((record) => record.uid)
  }

  scope(): ViewScope {
    const { pick } = this
    const place = one(pick, ['all', 'within', 'below', 'child'] as const)
    const filters: (readonly [string, string])[] = []
    if (pick(3) === 0) filters.push(['name', one(pick, names)])
    if (pick(3) === 0) filters.push(['relationship_type', String(1 + pick(2))])
    const uid = place === 'all' ? '' : one(pick, this.groups)
    return (place === 'within' || place === 'below') && pick(2) === 0 ? this.together({ place, uid, filters }) : { place, uid, filters }
  }

  /** Returns the scope extended by some other groups. */
  together({ place, uid, filters }: ViewScope): ViewScope {
    const uids = [uid]
    for (const other of this.groups) {
      if (this.pick(2) === 0 && uids.every((one) => !`${other}/`.startsWith(`${one}/`) && !`${one}/`.startsWith(`${other}/`))) uids.push(other)
    }
    uids.sort()
    return { place, uid: uids[0] ?? uid, uids, filters }
  }
}

function caseOf(record: CachedRecord): string | undefined {
  // A row of kind Identity holds an Identity.
  return (record.message as unknown as { relationship: { case?: string } }).relationship.case
}

const uidsOf = (records: Iterable<CachedRecord>): string[] => [...records].map((record) => record.uid)

describe('KindTable', () => {
  test('finds the same as an array by uid, by filter and by place, after any changes', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const tabled = new Tabled(picker(seed), 12)
        const { table, records, pick } = tabled
        for (let count = 0; count < 120; count++) {
          tabled.change()
          if (count % 4 > 0) continue
          expect(table.size).toBe(records.size)
          const all = [...records.values()]
          const name = one(pick, names)
          expect(new Set(table.matching('name', name))).toEqual(new Set(all.filter((record) => record.name === name)))
          const group = one(pick, tabled.groups)
          expect(new Set(table.matching('parent', group))).toEqual(new Set(all.filter((record) => record.parent === group)))
          expect(table.matching('no such filter', 'x').size).toBe(0)
          const { from, to } = table.rangeWithin(trustedUid(group), false)
          expect(uidsOf(table.byUid.items(from, to))).toEqual(uidsOf(all.filter((record) => record.uid.startsWith(`${group}/`))).sort())
          const uid = all.length === 0 ? group : one(pick, all).uid
          expect(table.get(uid)).toBe(records.get(uid))
        }
      }),
      { numRuns: 60 },
    )
  })

  test('does not treat a uid as inside another one that its text continues', () => {
    const tabled = new Tabled(picker(1), 1)
    const group = tabled.groups[0] ?? ''
    const child = `${group}/${'0'.repeat(16)}`
    for (const uid of [child, `${group}/${'f'.repeat(16)}`, `${child}/${'a'.repeat(16)}`]) tabled.put(uid)
    const within = (uid: string, inclusive: boolean): number => {
      const { from, to } = tabled.table.rangeWithin(trustedUid(uid), inclusive)
      return to - from
    }
    expect([within(group, false), within(child, false), within(child, true), within(`${group}/${'f'.repeat(16)}`, true)]).toEqual([3, 1, 2, 1])
  })
})

describe('a view', () => {
  test('a view holds what a full search finds, whenever it was created, and stays current', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const tabled = new Tabled(picker(seed), 10)
        for (let count = 0; count < 150; count++) tabled.add()
        const scopes = Array.from({ length: 8 }, () => tabled.scope())
        for (let round = 0; round < 30; round++) {
          const scope = one(tabled.pick, scopes)
          const order = one(tabled.pick, orders)
          const { tree, state } = await tabled.table.views.view(scope, order)
          expect(state).toBe('ready')
          expect(uidsOf(tree.items(0, tree.size))).toEqual(tabled.naive(scope, order))
          for (let changes = tabled.pick(5); changes > 0; changes--) tabled.change()
        }
      }),
      { numRuns: 40 },
    )
  })

  test('a view over many rows is filled between other work and misses no change in between', async () => {
    const tabled = new Tabled(picker(20_260_101), 30)
    for (let count = 0; count < 9000; count++) tabled.add()
    const wanted = orders.flatMap((order): [ViewScope, Order][] => [
      [{ place: 'all', uid: '', filters: [] }, order],
      [{ place: 'below', uid: tabled.groups[0] ?? '', filters: [['name', 'beta']] }, order],
      [{ place: 'all', uid: '', filters: [['relationship_type', '1']] }, order],
    ])
    let filling = wanted.length
    let turns = 0
    const views = wanted.map(([scope, order]) => tabled.table.views.view(scope, order).finally(() => (filling -= 1)))
    // A second request during the fill gets the same view.
    const again = wanted.map(([scope, order]) => tabled.table.views.view(scope, order))
    while (filling > 0) {
      for (let changes = 0; changes < 40; changes++) tabled.change()
      turns += 1
      await new Promise(setImmediate)
    }
    expect(turns, 'other work ran in between').toBeGreaterThan(2)
    for (const [at, [scope, order]] of wanted.entries()) {
      const view = await views[at]
      expect(await again[at]).toBe(view)
      expect(uidsOf(view?.tree.items(0, view.tree.size) ?? [])).toEqual(tabled.naive(scope, order))
    }
  })

  test('a view beyond 512 is dropped if least recently used, marked as dropped, and created again on request', async () => {
    const tabled = new Tabled(picker(5), 40)
    for (let count = 0; count < 300; count++) tabled.add()
    const order = orders[0] ?? orderOf([])
    const scopeOf = (at: number): ViewScope => ({ place: 'all', uid: '', filters: [['name', `never ${at}`]] })
    const used: ViewScope = { place: 'all', uid: '', filters: [] }
    const first = await tabled.table.views.view(used, order)
    const early = await tabled.table.views.view(scopeOf(0), order)
    for (let at = 1; at < 700; at++) {
      await tabled.table.views.view(scopeOf(at), order)
      if (at % 100 === 0) expect(await tabled.table.views.view(used, order), 'the one in use stays').toBe(first)
    }
    expect(early.state).toBe('dropped')
    expect(first.state).toBe('ready')
    const refilled = await tabled.table.views.view(scopeOf(0), order)
    expect(refilled).not.toBe(early)
    tabled.change()
    expect(uidsOf(first.tree.items(0, first.tree.size))).toEqual(tabled.naive(used, order))
  })

  test('a view of one organisation is never dropped for the many views of another', async () => {
    const tabled = new Tabled(picker(6), 40)
    for (let count = 0; count < 300; count++) tabled.add()
    const order = orders[0] ?? orderOf([])
    const { views } = tabled.table
    const [hostile = ''] = tabled.groups
    const mine: ViewScope = { place: 'within', uid: newUid(tabled.pick), filters: [] }
    const kept = await views.view(mine, order)
    for (let at = 0; at < 700; at++) await views.view({ place: 'within', uid: hostile, filters: [['name', `never ${at}`]] }, order)
    expect(kept.state).toBe('ready')
    expect(await views.view(mine, order)).toBe(kept)
  })

  test('a view of the latest 64 lists is kept sorted from the second request on, through any changes', () => {
    const tabled = new Tabled(picker(11), 200)
    for (let count = 0; count < 600; count++) tabled.add()
    const { views } = tabled.table
    const order = orders[0] ?? orderOf([])
    const scopes = Array.from({ length: 80 }, (_, at) => tabled.together({ place: 'within', uid: tabled.groups[at] ?? '', filters: [['name', 'beta']] }))
    for (const scope of scopes) {
      views.offer(scope, order)
      expect(views.kept(scope, order), 'offered once').toBeUndefined()
    }
    const trees = scopes.map((scope) => {
      views.offer(scope, order)
      return views.kept(scope, order)
    })
    for (let count = 0; count < 200; count++) tabled.change()
    for (const [at, scope] of scopes.entries()) {
      const kept = trees[at]
      expect(views.kept(scope, order)).toBe(at < 16 ? undefined : kept)
      if (at >= 16) expect(uidsOf(kept?.tree.items(0, kept.tree.size) ?? [])).toEqual(tabled.naive(scope, order))
      else expect(kept?.state).toBe('dropped')
    }
    for (let at = 0; at < 600; at++) views.offer({ place: 'within', uid: '', uids: [], filters: [['name', `never ${at}`]] }, order)
    const [forgotten = tabled.scope()] = scopes
    views.offer(forgotten, order)
    expect(views.kept(forgotten, order), 'offered again after many others').toBeUndefined()
  })

  test('a view is not dropped for others while it is being filled: 64 are filled at a time', async () => {
    const tabled = new Tabled(picker(19), 80)
    for (let count = 0; count < 6000; count++) tabled.add()
    const { views } = tabled.table
    const order = orders[0] ?? orderOf([])
    const [root = ''] = tabled.groups
    const scopeOf = (at: number, filters: ViewScope['filters'] = []): ViewScope => ({ place: 'within', uid: root, uids: [root, `z${at}`], filters })
    const filling = Array.from({ length: 63 }, (_, at) => views.view(scopeOf(at), order))
    const small = await views.view(scopeOf(0, [['name', 'never']]), order)
    expect(small.state).toBe('ready')
    expect(views.takes(scopeOf(63), order)).toBe(true)
    filling.push(views.view(scopeOf(63), order))
    expect(small.state, 'no reader waits for it').toBe('dropped')
    expect(views.takes(scopeOf(63), order), 'it is being filled').toBe(true)
    expect(views.takes(scopeOf(64), order)).toBe(false)
    for (let times = 0; times < 2; times++) views.offer(scopeOf(64), order)
    expect(views.takes(scopeOf(64), order), 'offered in vain').toBe(false)
    for (const view of await Promise.all(filling)) expect(view.state).toBe('ready')
    expect(views.takes(scopeOf(64), order)).toBe(true)
    expect((await views.view(scopeOf(64), order)).state).toBe('ready')
  })

  test('a view of a scope that was used once takes almost no memory, however many places it has', async () => {
    const { table, pick } = new Tabled(picker(17), 1)
    const root = newUid(pick)
    const uids = Array.from({ length: 4000 }, () => newUid(pick, root)).sort()
    const before = (await memoryInUse()).heap
    for (let at = 0; at < 300; at++) table.views.offer({ place: 'below', uid: uids[0] ?? '', uids, filters: [['name', String(at)]] }, orders[0] ?? orderOf([]))
    expect((await memoryInUse()).heap - before).toBeLessThan(4 * 1024 * 1024)
    expect(uids).toHaveLength(4000)
  })

  test('a view agrees with a full search by inScope for every place and filter', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const tabled = new Tabled(picker(seed), 10)
        for (let count = 0; count < 60; count++) tabled.add()
        const scope = tabled.scope()
        const inside = [...tabled.records.values()].filter((record) => inScope(tabled.table, scope, record)).map((record) => record.uid)
        expect(inside.sort()).toEqual(tabled.naive(scope, orderOf([])))
      }),
    )
  })
})
