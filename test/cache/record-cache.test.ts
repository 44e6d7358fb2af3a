import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Etcd3 } from 'etcd3'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { builtInRoleRecords } from '../../src/iam/records/roles.ts'
import { kinds } from '../../src/domains/kinds.ts'
import { RecordCache } from '../../src/cache/record-cache.ts'
import { cascadeKey } from '../../src/store/keys.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { Revision, Store, Write } from '../../src/store/store.ts'
import { shareEtcd, type EtcdSpace } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { startTcpProxy, type TcpProxy } from '../support/parts/tcp-proxy.ts'
import { commit, failureOf, put, silentLog, soon, until } from '../store/store-harness.ts'
import { changeOf, newUid, one, picker, removalOf, type Plain } from './records.ts'

const pick = picker(42)
const root = newUid(pick)

function recordCacheOf(store: Store, options: { barrierTimeoutMs?: number } = {}): RecordCache {
  const cache = new RecordCache({ store, kinds: [...kinds.values()].map((kind) => kind.index), builtIns: builtInRoleRecords, log: silentLog, ...options })
  onTestFinished(() => cache.close())
  return cache
}

function writeOf({ key, value }: { key: string; value: Uint8Array | undefined }): Write {
  return value === undefined ? { kind: 'delete', key } : { kind: 'put', key, value }
}

const group = (uid: string, name: string, updateMs = 1): Plain => ({ kind: 'Group', uid, name, createMs: 1, updateMs, filters: {} })
const putGroup = (uid: string, name: string): Write => writeOf(changeOf(group(uid, name)))

/** The names of all groups that the replica holds, by uid. */
function groupsIn(cache: RecordCache): Record<string, string> {
  return Object.fromEntries([...cache.tables.table('Group').records()].map((record) => [record.uid, record.name]))
}

/** Writes random groups, changes and removals, and keeps the array of what should be there. */
class Writer {
  readonly expected: Record<string, string> = {}
  readonly store: Store

  constructor(store: Store) {
    this.store = store
  }

  async write(count: number): Promise<Revision> {
    let last: Revision | undefined
    for (let at = 0; at < count; at++) {
      const uids = Object.keys(this.expected)
      const uid = uids.length > 0 && pick(2) === 0 ? one(pick, uids) : newUid(pick, root)
      if (uid in this.expected && pick(2) === 0) {
        last = await commit(this.store, writeOf(removalOf({ kind: 'Group', uid })))
        delete this.expected[uid]
      } else {
        const name = `name ${pick(1000)}`
        last = await commit(this.store, putGroup(uid, name))
        this.expected[uid] = name
      }
    }
    if (last === undefined) throw new Error('nothing was written')
    return last
  }
}

describe('the record cache on sqlite', () => {
  let directory: string
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-replica-'))
  })
  afterEach(() => rm(directory, { recursive: true, force: true }))

  function open(historyBytes?: number): Store {
    const store = createSqliteStore({ path: join(directory, 'store.db'), log: silentLog, ...(historyBytes === undefined ? {} : { historyBytes }) })
    onTestFinished(() => store.close())
    return store
  }

  test('the record cache on sqlite loads the existing records over several pages, and holds every acknowledged commit after a barrier', async () => {
    const store = open()
    const many = Array.from({ length: 6000 }, (_, at) => putGroup(newUid(pick, root), `group ${at}`))
    for (let at = 0; at < many.length; at += 100) await commit(store, ...many.slice(at, at + 100))
    const cache = recordCacheOf(store)
    expect(cache.state).toEqual({ kind: 'loading', records: 0 })
    expect(await failureOf(cache.barrier(soon()))).toBe('unavailable')
    await cache.start(soon())
    expect(cache.state).toEqual({ kind: 'live' })
    expect(cache.tables.table('Group').size).toBe(6000)
    expect(cache.tables.table('Role').size).toBe(builtInRoleRecords.length)
    const writer = new Writer(store)
    for (let round = 0; round < 100; round++) {
      await writer.write(1 + pick(3))
      await Promise.all([cache.barrier(soon()), cache.barrier(soon()), cache.barrier(soon())])
      expect(groupsIn(cache)).toMatchObject(writer.expected)
      expect(cache.tables.table('Group').size).toBe(6000 + Object.keys(writer.expected).length)
    }
  })

  test('listeners receive changed rows, deletion marks, keys, and reloads', async () => {
    const store = open()
    const cache = recordCacheOf(store)
    const heard: string[] = []
    cache.onRecord((kind, old, record) => heard.push(`${kind} ${old?.name ?? '-'} ${record?.name ?? '-'}`))
    cache.onKey((key) => heard.push(key))
    cache.onReset(() => heard.push('reset'))
    await cache.start(soon())
    heard.length = 0
    await commit(store, putGroup(root, 'one'))
    await commit(store, putGroup(root, 'two'), put('meta/keys/1', 'k'), put('i/name/Group/:two', root))
    await commit(store, writeOf(removalOf({ kind: 'Group', uid: root })), put(cascadeKey(root), 'Group'))
    await cache.barrier(soon())
    expect(heard.sort()).toEqual(['Group - one', 'Group one two', 'Group two -', 'meta/keys/1', cascadeKey(root)].sort())
  })

  test('a watch that fell behind the kept history reloads, including marks and removals that it missed', async () => {
    const store = open(1)
    const binding: Plain = {
      kind: 'RoleBinding',
      uid: newUid(pick, root),
      name: '',
      createMs: 1,
      updateMs: 1,
      filters: { identity: newUid(pick, root), role: 'b'.repeat(40) },
    }
    const gone = newUid(pick, root)
    await commit(store, putGroup(root, 'root'), putGroup(gone, 'gone'), writeOf(changeOf(binding)))
    const cache = recordCacheOf(store)
    let resets = 0
    cache.onReset(() => (resets += 1))
    await cache.start(soon())
    expect(cache.tables.get('RoleBinding', binding.uid)).toBeDefined()
    for (let round = 0; round < 5; round++) {
      const before = resets
      const uid = newUid(pick, root)
      // Committed in one turn: the watch sees only the newest state.
      await Promise.all([
        commit(store, writeOf(removalOf({ kind: 'Group', uid: gone }))),
        commit(store, put(cascadeKey(newUid(pick, root)), 'Identity'), put(cascadeKey(binding.filters['identity'] as typeof root), 'Identity')),
        ...Array.from({ length: 20 }, (_, at) => commit(store, putGroup(uid, `round ${round} ${at}`))),
      ])
      await until(() => cache.state.kind === 'live' && resets > before)
      await cache.barrier(soon())
      expect(cache.tables.get('Group', uid)?.name).toBe(`round ${round} 19`)
      expect(cache.tables.get('Group', gone)).toBeUndefined()
      expect(cache.tables.get('RoleBinding', binding.uid)).toBeUndefined()
      expect(cache.tables.table('Role').size).toBe(builtInRoleRecords.length)
    }
  })

  test('after close no read is answered, and waiting reads end', async () => {
    const store = open()
    const cache = recordCacheOf(store)
    await cache.start(soon())
    const waiting = failureOf(cache.reached((cache.revision + 1000) as Revision, soon()))
    await cache.close()
    expect(await waiting).toBe('closed')
    expect(await failureOf(cache.barrier(soon()))).toBe('unavailable')
    expect(cache.state).toEqual({ kind: 'closed' })
  })

  test('a wait for a commit ends when its signal aborts, or at its time limit', async () => {
    const store = open()
    const cache = recordCacheOf(store, { barrierTimeoutMs: 50 })
    await cache.start(soon())
    const later = (cache.revision + 1000) as Revision
    expect(await failureOf(cache.reached(later, soon()))).toBe('unavailable')
    const caller = new AbortController()
    const waiting = cache.reached(later, caller.signal)
    caller.abort(new Error('the caller left'))
    await expect(waiting).rejects.toThrow('the caller left')
    await cache.barrier(soon())
  })
})

describeWithPart('etcd', 'the record cache on etcd behind a failing network', () => {
  let etcd: EtcdSpace
  let admin: Etcd3
  let proxy: TcpProxy
  let writer: Writer
  let cache: RecordCache

  beforeAll(async () => {
    etcd = await shareEtcd()
    admin = new Etcd3({ hosts: [...etcd.endpoints] })
  })
  afterAll(() => admin.close())
  beforeEach(async () => {
    proxy = await startTcpProxy(etcd.port)
    const { prefix } = await shareEtcd()
    const open = (endpoint: string): Store => createEtcdStore({ endpoints: [endpoint], prefix: `${prefix}/`, log: silentLog, requestTimeoutMs: 2000 })
    const near = open(etcd.endpoints[0] ?? '')
    const far = open(`http://127.0.0.1:${proxy.port}`)
    writer = new Writer(near)
    await writer.write(20)
    cache = new RecordCache({
      store: far,
      kinds: [...kinds.values()].map((kind) => kind.index),
      builtIns: builtInRoleRecords,
      log: silentLog,
      barrierTimeoutMs: 2000,
    })
    await cache.start(soon())
    onTestFinished(async () => {
      await cache.close()
      await Promise.all([near.close(), far.close()])
      await proxy.close()
    })
  })

  /** Waits until reads succeed again, and expects that no successful read is stale. */
  async function healed(): Promise<void> {
    const expected = { ...writer.expected }
    await until(async () => {
      try {
        await cache.barrier(soon())
      } catch {
        return false
      }
      expect(groupsIn(cache)).toEqual(expected)
      return true
    })
    expect(cache.state).toEqual({ kind: 'live' })
  }

  test.each(['cut', 'stall'] as const)(
    'during a %s reads fail with unavailable while others write, and recover by themselves with the right content',
    async (fault) => {
      for (let round = 0; round < 2; round++) {
        proxy[fault]()
        await writer.write(15)
        expect(await failureOf(cache.barrier(soon()))).toBe('unavailable')
        await until(() => cache.state.kind === 'broken')
        // Reads with a staleness limit must not use a cache that is known to be behind.
        expect(() => cache.assertLive()).toThrow()
        await writer.write(5)
        expect(await failureOf(cache.barrier(soon()))).toBe('unavailable')
        proxy.resume()
        await healed()
        await writer.write(5)
        await cache.barrier(soon())
        expect(groupsIn(cache)).toEqual(writer.expected)
      }
    },
  )

  test('the cache reloads everything after a compaction during an outage', async () => {
    let resets = 0
    cache.onReset(() => (resets += 1))
    proxy.cut()
    await until(() => cache.state.kind === 'broken')
    const revision = await writer.write(30)
    await admin.kv.compact({ revision: String(revision), physical: true })
    await writer.write(3)
    expect(await failureOf(cache.barrier(soon()))).toBe('unavailable')
    proxy.resume()
    await healed()
    expect(resets).toBe(1)
    await writer.write(3)
    await cache.barrier(soon())
    expect(groupsIn(cache)).toEqual(writer.expected)
  })

  test('an interrupted load is repeated until it succeeds', async () => {
    proxy.cut()
    const store = createEtcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`], prefix: '/unused/', log: silentLog, requestTimeoutMs: 500 })
    onTestFinished(() => store.close())
    const late = recordCacheOf(store)
    const starting = late.start(soon())
    await writer.write(2)
    proxy.resume()
    await starting
    expect(late.state).toEqual({ kind: 'live' })
  })

  test('a connection that breaks again and again never causes a stale read', async () => {
    let good = 0
    for (let round = 0; round < 12; round++) {
      if (round % 4 === 2) await healed()
      if (round % 4 === 0) {
        proxy.cut()
        proxy.resume()
      }
      await writer.write(2)
      const expected = { ...writer.expected }
      try {
        await cache.barrier(soon())
        expect(groupsIn(cache)).toEqual(expected)
        good += 1
      } catch (error) {
        expect(error).toMatchObject({ kind: 'unavailable' })
      }
    }
    await healed()
    expect(good).toBeGreaterThan(0)
  })
})
