import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, inject, onTestFinished, test } from 'vitest'
import { kinds } from '../../src/domains/kinds.ts'
import { loadTables } from '../../src/cache/load.ts'
import type { RecordTables } from '../../src/cache/record-tables.ts'
import { ownersKey, recordKey, cascadeKey } from '../../src/store/keys.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { StoreError, type Change, type RangeQuery, type Store, type Write } from '../../src/store/store.ts'
import { commit, put, silentLog } from '../store/store-harness.ts'
import { changeOf, emptyTables, newUid, one, picker, type Plain } from './records.ts'

let directory: string
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'taproot-load-'))
})
afterEach(() => rm(directory, { recursive: true, force: true }))

function open(): Store {
  const store = createSqliteStore({ path: join(directory, 'store.db'), log: silentLog })
  onTestFinished(() => store.close())
  return store
}

/** A tree of every kind below some roots. */
function records(seed: number, roots: number, count: number): Plain[] {
  const pick = picker(seed)
  const groups = Array.from({ length: roots }, () => newUid(pick))
  const identities: string[] = []
  const made = groups.map((uid): Plain => ({ kind: 'Group', uid, name: `root ${uid}`, createMs: 1, updateMs: 1, filters: {} }))
  while (made.length < count) {
    const above = one(pick, groups)
    const uid = newUid(pick, above)
    const times = { createMs: pick(1000), updateMs: pick(1000) }
    const turn = pick(4)
    if (turn === 0 && above.length < 150) {
      groups.push(uid)
      made.push({ kind: 'Group', uid, name: `team ${pick(50)}`, ...times, filters: {} })
    } else if (turn < 2 || identities.length === 0) {
      identities.push(uid)
      made.push({ kind: 'Identity', uid, name: `robot ${pick(50)}`, ...times, filters: { relationship_type: String(1 + pick(2)) } })
    } else made.push({ kind: 'RoleBinding', uid, name: '', ...times, filters: { identity: one(pick, identities), role: one(pick, groups) } })
  }
  return made
}

async function fill(store: Store, changes: readonly Change[]): Promise<void> {
  const writes = changes.map(({ key, value }): Write => put(key, value))
  for (let at = 0; at < writes.length; at += 100) await commit(store, ...writes.slice(at, at + 100))
}

async function load(store: Store, tables: RecordTables): Promise<number> {
  const names = [...kinds.keys()]
  return (await loadTables(tables, { store, kinds: names, log: silentLog, signal: AbortSignal.timeout(30_000), progress() {} })).records
}

/** Returns the results of all queries of the tables. */
function contents(tables: RecordTables, made: readonly Plain[]): unknown {
  return [...tables.kinds()].map((table) => ({
    kind: table.index.kind,
    rows: table.byUid
      .items(0, table.size)
      .map((record) => [record.uid, record.parent, record.name, record.createMs, record.updateMs, record.filterValues, record.etag, record.message]),
    values: made.map((plain) => {
      const asked = [['parent', plain.uid], ['name', plain.name], ...Object.entries(plain.filters)] as const
      return asked.map(([filter, value]) => [...table.matching(filter, value ?? '')].map((record) => record.uid))
    }),
  }))
}

describe('loadSnapshot', () => {
  test.each([
    [1, 4_000],
    [40, 4_000],
    [3, 20],
    [0, 0],
  ])('loadSnapshot of %i roots and %i records gives the same result as applying records one by one', async (roots, count) => {
    const made = records(roots, roots, count)
    const pick = picker(inject('propertySeed') ?? count)
    const store = open()
    await fill(
      store,
      made.map((plain) => changeOf(plain)).toSorted(() => 0.5 - pick(2)),
    )
    const loaded = emptyTables()
    expect(await load(store, loaded)).toBe(count)
    const applied = emptyTables()
    applied.apply(made.map((plain) => changeOf(plain)))
    expect(contents(loaded, made.slice(0, 200))).toEqual(contents(applied, made.slice(0, 200)))
    // Later changes find consistent tables.
    const changed = made.filter((_, at) => at % 3 === 0).map((plain, at) => changeOf({ ...plain, name: `new ${at}`, createMs: at }, 9))
    for (const tables of [loaded, applied]) tables.apply(changed)
    expect(contents(loaded, made.slice(0, 200))).toEqual(contents(applied, made.slice(0, 200)))
  })

  test('loadSnapshot skips dependents of a removed record, unreadable records, and keys that only guard transactions', async () => {
    const [root, team, robot] = [newUid(picker(1)), newUid(picker(2), newUid(picker(1))), newUid(picker(3), newUid(picker(1)))]
    const binding = newUid(picker(4), team)
    const store = open()
    const plain = { createMs: 1, updateMs: 1 }
    const filters = { identity: robot, role: 'b'.repeat(40) }
    await fill(store, [
      changeOf({ kind: 'Group', uid: root, name: 'root', ...plain, filters: {} }),
      changeOf({ kind: 'RoleBinding', uid: binding, name: '', ...plain, filters }),
    ])
    await commit(
      store,
      put(cascadeKey(robot), 'Identity'),
      put(recordKey('Group', team), Buffer.from([0xff])),
      put(ownersKey(root), 'x'),
      put('i/name/Group/:root', root),
    )
    await commit(store, put(`r/Unheard/${root}`, 'x'), put('meta/keys/1', 'k'))
    const errors: string[] = []
    const tables = emptyTables({ onUnreadable: ({ key }) => errors.push(key) })
    await load(store, tables)
    expect(errors).toEqual([recordKey('Group', team)])
    expect([...tables.table('Group').records()].map(({ uid }) => uid)).toEqual([root])
    expect(tables.table('RoleBinding').size).toBe(0)
    expect(tables.cascades()).toEqual([{ uid: robot, kind: 'Identity' }])
    expect([ownersKey(root), 'meta/keys/1', 'i/name/Group/:root'].map((key) => tables.entry(key) !== undefined)).toEqual([true, true, false])
  })

  test('loadSnapshot retries a page if the store fails now and then, and ends if the store stays unavailable', async () => {
    const store = open()
    const made = records(7, 30, 4_000)
    await fill(
      store,
      made.map((plain) => changeOf(plain)),
    )
    let calls = 0
    let healthyCalls = Infinity
    const flaky: Store = Object.assign(Object.create(store) as Store, {
      range: (query: RangeQuery, signal: AbortSignal) => {
        calls += 1
        return calls % 4 === 0 || calls > healthyCalls ? Promise.reject(new StoreError('unavailable', 'no answer')) : store.range(query, signal)
      },
    })
    const loaded = emptyTables()
    expect(await load(flaky, loaded)).toBe(4_000)
    expect(calls).toBeGreaterThan(8)
    healthyCalls = calls + 3
    await expect(load(flaky, emptyTables())).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('loadSnapshot reads everything at one revision, a few ranges at a time, and in pages of limited size', async () => {
    const store = open()
    const made = records(5, 30, 3_000).map((plain) => ({ ...plain, description: 'x'.repeat(2_000) }))
    await fill(
      store,
      made.map((plain) => changeOf(plain)),
    )
    let running = 0
    let most = 0
    const revisions = new Set<number | undefined>()
    const bytes: number[] = []
    const watched: Store = Object.assign(Object.create(store) as Store, {
      range: async (query: RangeQuery, signal: AbortSignal) => {
        most = Math.max(most, ++running)
        if (bytes.length > 0) revisions.add(query.revision)
        await new Promise(setImmediate)
        const page = await store.range(query, signal)
        running -= 1
        bytes.push(page.entries.reduce((sum, { value }) => sum + value.length, 0))
        return page
      },
    })
    expect(await load(watched, emptyTables())).toBe(3_000)
    expect(revisions.size).toBe(1)
    expect(revisions).not.toContain(undefined)
    expect(most).toBeGreaterThan(1)
    expect(most).toBeLessThanOrEqual(6)
    expect(Math.max(...bytes)).toBeLessThan(2_000_000)
  })

  test('loadSnapshot fails with the error of the store, and sends no further request', async () => {
    const store = open()
    await fill(
      store,
      records(6, 20, 2_000).map((plain) => changeOf(plain)),
    )
    let asked = 0
    const failing: Store = Object.assign(Object.create(store) as Store, {
      range: (query: RangeQuery, signal: AbortSignal) => {
        signal.throwIfAborted()
        asked += 1
        return asked === 8 ? store.range({ ...query, limit: 10 }, AbortSignal.abort(new Error('cut'))) : store.range(query, signal)
      },
    })
    await expect(load(failing, emptyTables())).rejects.toThrow('cut')
    const then = asked
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(asked).toBe(then)
  })
})
