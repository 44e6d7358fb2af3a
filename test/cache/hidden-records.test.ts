import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { orderOf } from '../../src/cache/lists/order.ts'
import { listRecords } from '../../src/cache/lists/list.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { CooperativeTask } from '../../src/cache/cooperative-task.ts'
import type { RecordTables } from '../../src/cache/record-tables.ts'
import { cascadeKey } from '../../src/store/keys.ts'
import { storeRevision, type Change, type Entry } from '../../src/store/store.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'
import { naiveList, type NaiveQuery, type NaiveTerm } from '../conformance/model/naive-list.ts'
import { queryOf } from './lists/list-world.ts'
import { bytesOf, changeOf, emptyTables, newUid, one, picker, removalOf, type Pick, type Plain } from './records.ts'

const revision = storeRevision(1)
const mark = (uid: string, kind: string): Change => ({ key: cascadeKey(trustedUid(uid)), value: Buffer.from(kind), revision })
const unmark = (uid: string): Change => ({ key: cascadeKey(trustedUid(uid)), value: undefined, revision })
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

const everywhere = { everywhere: true, groups: [], roots: true }
const roles = ['a'.repeat(40), 'b'.repeat(40)]

/** An organisation with identities that are bound at its groups. */
class BindingWorld {
  readonly notified = new Set<CachedRecord>()
  readonly hidden: CachedRecord[] = []
  readonly tables: RecordTables = emptyTables({
    listener: (kind, old, record) => {
      if (kind !== 'RoleBinding') return
      if (old !== undefined) this.notified.delete(old)
      if (record !== undefined) this.notified.add(record)
    },
    onHide: (_kind, records) => {
      this.hidden.push(...records)
    },
  })
  readonly records = new Map<string, Plain>()
  /** The stored records by uid, including dependents of a removed record until they are swept. */
  readonly stored = new Map<string, Plain>()
  readonly pick: Pick
  readonly root: string
  readonly groups: string[]
  readonly identities: string[]

  constructor(pick: Pick, sizes: { groups: number; identities: number }) {
    this.pick = pick
    this.root = newUid(pick)
    this.groups = Array.from({ length: sizes.groups }, () => newUid(pick, this.root))
    this.identities = Array.from({ length: sizes.identities }, () => newUid(pick, this.root))
  }

  put(plain: Plain): void {
    // A late dependent is hidden with the removed record, too.
    const isOrphan = this.tables.cascades().some(({ uid }) => Object.values(plain.filters).includes(uid))
    if (isOrphan) this.records.delete(plain.uid)
    else this.records.set(plain.uid, plain)
    this.stored.set(plain.uid, plain)
    this.tables.apply([changeOf(plain)])
  }

  delete(uids: readonly string[], ...more: Change[]): void {
    for (const uid of uids) this.stored.delete(uid)
    this.tables.apply([...uids.map((uid) => removalOf({ kind: 'RoleBinding', uid })), ...more])
  }

  /** Completes the sweep of a removed record like the leader: deletes its dependents, then its mark. */
  cascade(owner: string): void {
    const dependents = [...this.stored.values()].filter(({ filters }) => Object.values(filters).includes(owner))
    this.delete(
      dependents.map(({ uid }) => uid),
      unmark(owner),
    )
  }

  /** Returns tables that are loaded from the store in one step. */
  async reloaded(): Promise<RecordTables> {
    const tables = emptyTables()
    const task = new CooperativeTask()
    const changes = [...this.tables.cascades().map(({ uid, kind }) => mark(uid, kind)), ...[...this.stored.values()].map((plain) => changeOf(plain))]
    // Nothing of it is a removal.
    await tables.stage(changes as Entry[], task)
    await tables.settle(task)
    return tables
  }

  bind(identity: string, group = one(this.pick, this.groups)): void {
    const { pick } = this
    const filters = { identity, role: one(pick, roles), group }
    this.put({ kind: 'RoleBinding', uid: newUid(pick, group), name: '', createMs: 1000 + pick(500), updateMs: 2000 + pick(500), filters })
  }

  /** Removes `uid` and its dependents from the model, and writes the deletion mark. */
  remove(uid: string, kind: 'Identity' | 'Group'): void {
    for (const [key, { filters }] of this.records) if (filters[kind.toLowerCase()] === uid) this.records.delete(key)
    this.tables.apply([mark(uid, kind)])
  }

  /** True while hidden rows are still in some order. */
  get isBusy(): boolean {
    return this.hidden.some((record) => this.notified.has(record))
  }
}

function askedOf(world: BindingWorld): NaiveQuery {
  const { pick } = world
  const fields: readonly NaiveTerm['field'][] = ['uid', 'createMs', 'updateMs']
  const filters: [string, string][] = []
  if (pick(3) === 0) filters.push(['role', one(pick, roles)])
  if (pick(4) === 0) filters.push(['identity', one(pick, world.identities)])
  const places = [{}, { descendantsOf: world.root }, { descendantsOf: one(pick, world.groups) }, { childrenOf: one(pick, world.groups) }]
  const several = { everywhere: false, groups: [...new Set(Array.from({ length: 1 + pick(3) }, () => one(pick, world.groups)))].sort(), roots: false }
  return {
    kind: 'RoleBinding',
    uidp: one(pick, places),
    filters,
    order: pick(2) === 0 ? [] : [{ field: one(pick, fields), descending: pick(2) === 0 }],
    visibility: pick(3) === 0 ? several : everywhere,
    ...(pick(4) === 0 ? { changedAfterMs: 2000 + pick(500) } : {}),
  }
}

interface Counts {
  readonly records: number
  readonly bytes: number
}

function countsOf(tables: RecordTables, root: string): Counts {
  const usage = tables.usageOf(trustedUid(root))
  return { records: usage?.records.get('RoleBinding') ?? 0, bytes: usage?.bytes ?? 0 }
}

/** Returns the counts of the organisation according to the model. */
function modelCounts({ records }: BindingWorld): Counts {
  return { records: records.size, bytes: [...records.values()].reduce((sum, plain) => sum + bytesOf(plain).length, 0) }
}

/** Compares one page, and all queries of single rows, with the model. */
async function compare(world: BindingWorld): Promise<void> {
  const { pick, tables, records } = world
  const naive = askedOf(world)
  const place = pick(3) === 0 && records.size > 0 ? one(pick, [...records.values()]) : undefined
  const order = orderOf(naive.order)
  const skip = pick(2) === 0 ? pick(2_000) : 0
  let expected: Plain[] = []
  const page = await listRecords(
    () => ({ tables, query: queryOf(naive, { skip, limit: 50, ...(place === undefined ? {} : { after: place as never }) }) }),
    (result) => {
      expected = naiveList(records.values(), naive)
      return result
    },
  )
  const rest = place === undefined ? expected : expected.filter((record) => order.compare(record as never, place as never) > 0)
  expect({ naive, total: page.total, uids: page.records.map(({ uid }): string => uid) }).toEqual({
    naive,
    total: expected.length,
    uids: rest.slice(skip, skip + 50).map(({ uid }) => uid),
  })
  const table = tables.table('RoleBinding')
  expect(table.size).toBe(records.size)
  expect(countsOf(tables, world.root)).toEqual(modelCounts(world))
  const [identity, group, role] = [one(pick, world.identities), one(pick, world.groups), one(pick, roles)]
  for (const [filter, value] of Object.entries({ identity, group, role })) {
    const matches = table.matching(filter, value)
    const held = [...records.values()].filter((plain) => plain.filters[filter] === value).map(({ uid }) => uid)
    expect(matches.size).toBe(held.length)
    expect([...matches].map(({ uid }): string => uid)).toEqual(held.sort())
  }
}

/** Applies one random change. `removed` collects the uids that are reused. */
function change(world: BindingWorld, act: number, removed: string[]): void {
  const { pick, tables } = world
  const late = one(pick, [...world.hidden, undefined])
  if (act === 0) world.remove(one(pick, world.identities), 'Identity')
  else if (act === 1) world.remove(one(pick, world.groups), 'Group')
  else if (act === 2) world.bind(world.identities[4] ?? '')
  else if (act === 3 && late !== undefined && !removed.includes(late.uid)) world.delete([late.uid])
  else if (act === 4 && late !== undefined && !removed.includes(late.uid)) {
    // Another replica swept the record, and its uid was reused.
    removed.push(late.uid)
    const free = newUid(pick, world.root)
    world.put({ kind: 'RoleBinding', uid: late.uid, name: '', createMs: 5, updateMs: 6, filters: { identity: free, role: roles[0], group: late.parent } })
  } else if (act === 5) for (const { uid } of tables.cascades()) world.cascade(uid)
}

describe('rows that are deleted together with their parent record', () => {
  test('rows of a deleted parent disappear for all readers at once, and stay hidden during their removal in slices and other changes', async () => {
    let duringTask = 0
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const world = new BindingWorld(picker(seed), { groups: 12, identities: 5 })
        const { pick, tables } = world
        for (let count = 0; count < 3_000; count++) world.bind(one(pick, world.identities.slice(0, 4)))
        for (let count = 0; count < 6; count++) await compare(world)
        const removed: string[] = []
        for (let round = 0; round < 24; round++) {
          change(world, round < 3 ? round : pick(9), removed)
          if (world.isBusy) duringTask += 1
          await compare(world)
          if (round % 6 === 0) expect(countsOf(await world.reloaded(), world.root)).toEqual(modelCounts(world))
          if (pick(3) === 0) await turn()
        }
        while (world.isBusy) await turn()
        await compare(world)
        expect(new Set(world.notified)).toEqual(new Set(tables.table('RoleBinding').records()))
      }),
      { numRuns: 3 },
    )
    expect(duringTask, 'the slices are looked at').toBeGreaterThan(10)
  })

  test.each([1, 49, 50, 51, 52, 400])(
    'rows of %i records are not counted from the deletion mark of their parent on, through the sweep, and after a reload',
    async (count) => {
      const world = new BindingWorld(picker(count), { groups: 3, identities: 2 })
      const [gone = '', stays = ''] = world.identities
      for (let made = 0; made < count; made++) world.bind(gone)
      world.bind(stays)
      const expectOne = async (): Promise<void> => {
        const one = modelCounts(world)
        expect(one.records).toBe(1)
        expect(countsOf(world.tables, world.root)).toEqual(one)
        expect(countsOf(await world.reloaded(), world.root)).toEqual(one)
      }
      world.remove(gone, 'Identity')
      await expectOne()
      world.cascade(gone)
      await expectOne()
      while (world.isBusy) await turn()
      await expectOne()
    },
  )

  test.each(['Identity', 'Group'] as const)(
    'rows of a deleted parent block the event loop for less than 10 ms at a time with 20,000 of them: %s',
    async (kind) => {
      const world = new BindingWorld(picker(5), { groups: kind === 'Group' ? 1 : 400, identities: kind === 'Group' ? 5_000 : 1 })
      const { tables, pick } = world
      for (let count = 0; count < 20_000; count++) world.bind(one(pick, world.identities))
      const asked = (['createMs', 'updateMs'] as const).flatMap((field) =>
        [true, false].map((descending): NaiveQuery => ({ kind: 'RoleBinding', uidp: {}, filters: [], order: [{ field, descending }], visibility: everywhere })),
      )
      const total = async (naive: NaiveQuery): Promise<number> =>
        listRecords(
          () => ({ tables, query: queryOf(naive, { skip: 0, limit: 50 }) }),
          (page) => page.total,
        )
      for (const naive of asked) expect(await total(naive)).toBe(20_000)
      const turns: number[] = []
      const marked = mark((kind === 'Group' ? world.groups : world.identities)[0] ?? '', kind)
      let last = cpuTimeMs()
      world.tables.apply([marked])
      const listed = asked.map(total)
      do {
        turns.push(cpuTimeMs() - last)
        last = cpuTimeMs()
        await turn()
      } while (world.notified.size > 0)
      expect(await Promise.all(listed)).toEqual([0, 0, 0, 0])
      expect(Math.max(...turns)).toBeLessThan(10 * slowness())
    },
  )
})
