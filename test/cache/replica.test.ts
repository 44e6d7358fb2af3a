import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Etcd3 } from 'etcd3'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { builtInRoleRows } from '../../src/iam/records/roles.ts'
import { kinds } from '../../src/catalog/kinds.ts'
import { RecordCache } from '../../src/cache/record-cache.ts'
import { sweepKey } from '../../src/store/keys.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { Revision, Store, Write } from '../../src/store/store.ts'
import { shareEtcd, type EtcdSpace } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { startTcpProxy, type TcpProxy } from '../support/parts/tcp-proxy.ts'
import { commit, failureOf, put, silentLog, soon, until } from '../store/store-harness.ts'
import { changeOf, newUid, one, picker, removalOf, type Plain } from './rows.ts'

const pick = picker(42)
const root = newUid(pick)

function replicaOf(store: Store, options: { barrierTimeoutMs?: number } = {}): RecordCache {
  const replica = new RecordCache({ store, kinds: [...kinds.values()].map((kind) => kind.index), builtIns: builtInRoleRows, log: silentLog, ...options })
  onTestFinished(() => replica.close())
  return replica
}

function writeOf({ key, value }: { key: string; value: Uint8Array | undefined }): Write {
  return value === undefined ? { kind: 'delete', key } : { kind: 'put', key, value }
}

const group = (uid: string, name: string, updateMs = 1): Plain => ({ kind: 'Group', uid, name, createMs: 1, updateMs, filters: {} })
const putGroup = (uid: string, name: string): Write => writeOf(changeOf(group(uid, name)))

/** The names of all groups that the replica holds, by uid. */
function groupsIn(replica: RecordCache): Record<string, string> {
  return Object.fromEntries([...replica.snapshot.table('Group').rows()].map((row) => [row.uid, row.name]))
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

describe('Replica on sqlite', () => {
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

  test('loads what is there, over several pages, and then holds every acknowledged commit after a barrier', { timeout: 30_000 }, async () => {
    const store = open()
    const many = Array.from({ length: 6000 }, (_, at) => putGroup(newUid(pick, root), `group ${at}`))
    for (let at = 0; at < many.length; at += 100) await commit(store, ...many.slice(at, at + 100))
    const replica = replicaOf(store)
    expect(replica.state).toEqual({ kind: 'loading', records: 0 })
    expect(await failureOf(replica.barrier(soon()))).toBe('unavailable')
    await replica.start(soon())
    expect(replica.state).toEqual({ kind: 'live' })
    expect(replica.snapshot.table('Group').size).toBe(6000)
    expect(replica.snapshot.table('Role').size).toBe(builtInRoleRows.length)
    const writer = new Writer(store)
    for (let round = 0; round < 100; round++) {
      await writer.write(1 + pick(3))
      await Promise.all([replica.barrier(soon()), replica.barrier(soon()), replica.barrier(soon())])
      expect(groupsIn(replica)).toMatchObject(writer.expected)
      expect(replica.snapshot.table('Group').size).toBe(6000 + Object.keys(writer.expected).length)
    }
  })

  test('listeners hear of rows, of marks and keys, and of reloads', async () => {
    const store = open()
    const replica = replicaOf(store)
    const heard: string[] = []
    replica.onRow((kind, old, row) => heard.push(`${kind} ${old?.name ?? '-'} ${row?.name ?? '-'}`))
    replica.onKey((key) => heard.push(key))
    replica.onReset(() => heard.push('reset'))
    await replica.start(soon())
    heard.length = 0
    await commit(store, putGroup(root, 'one'))
    await commit(store, putGroup(root, 'two'), put('meta/keys/1', 'k'), put('i/name/Group/:two', root))
    await commit(store, writeOf(removalOf({ kind: 'Group', uid: root })), put(sweepKey(root), 'Group'))
    await replica.barrier(soon())
    expect(heard.sort()).toEqual(['Group - one', 'Group one two', 'Group two -', 'meta/keys/1', sweepKey(root)].sort())
  })

  test('a watch that fell behind what the store remembers reloads: marks and removals that it never saw count too', { timeout: 30_000 }, async () => {
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
    const replica = replicaOf(store)
    let resets = 0
    replica.onReset(() => (resets += 1))
    await replica.start(soon())
    expect(replica.snapshot.get('RoleBinding', binding.uid)).toBeDefined()
    for (let round = 0; round < 5; round++) {
      const before = resets
      const uid = newUid(pick, root)
      // Committed in one turn: only the newest is remembered when the watch looks.
      await Promise.all([
        commit(store, writeOf(removalOf({ kind: 'Group', uid: gone }))),
        commit(store, put(sweepKey(newUid(pick, root)), 'Identity'), put(sweepKey(binding.filters['identity'] as typeof root), 'Identity')),
        ...Array.from({ length: 20 }, (_, at) => commit(store, putGroup(uid, `round ${round} ${at}`))),
      ])
      await until(() => replica.state.kind === 'live' && resets > before)
      await replica.barrier(soon())
      expect(replica.snapshot.get('Group', uid)?.name).toBe(`round ${round} 19`)
      expect(replica.snapshot.get('Group', gone)).toBeUndefined()
      expect(replica.snapshot.get('RoleBinding', binding.uid)).toBeUndefined()
      expect(replica.snapshot.table('Role').size).toBe(builtInRoleRows.length)
    }
  })

  test('after close nothing is answered, and what waits ends', async () => {
    const store = open()
    const replica = replicaOf(store)
    await replica.start(soon())
    const waiting = failureOf(replica.reached((replica.revision + 1000) as Revision, soon()))
    await replica.close()
    expect(await waiting).toBe('closed')
    expect(await failureOf(replica.barrier(soon()))).toBe('unavailable')
    expect(replica.state).toEqual({ kind: 'closed' })
  })

  test('who waits for a commit ends by their own signal, or when it is late', async () => {
    const store = open()
    const replica = replicaOf(store, { barrierTimeoutMs: 50 })
    await replica.start(soon())
    const later = (replica.revision + 1000) as Revision
    expect(await failureOf(replica.reached(later, soon()))).toBe('unavailable')
    const caller = new AbortController()
    const waiting = replica.reached(later, caller.signal)
    caller.abort(new Error('the caller left'))
    await expect(waiting).rejects.toThrow('the caller left')
    await replica.barrier(soon())
  })
})

describeWithPart('etcd', 'Replica on etcd behind a failing network', () => {
  let etcd: EtcdSpace
  let admin: Etcd3
  let proxy: TcpProxy
  let writer: Writer
  let replica: RecordCache

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
    replica = new RecordCache({
      store: far,
      kinds: [...kinds.values()].map((kind) => kind.index),
      builtIns: builtInRoleRows,
      log: silentLog,
      barrierTimeoutMs: 2000,
    })
    await replica.start(soon())
    onTestFinished(async () => {
      await replica.close()
      await Promise.all([near.close(), far.close()])
      await proxy.close()
    })
  })

  /** Waits until reads succeed again, and expects of every one that does that it is not stale. */
  async function healed(): Promise<void> {
    const expected = { ...writer.expected }
    await until(async () => {
      try {
        await replica.barrier(soon())
      } catch {
        return false
      }
      expect(groupsIn(replica)).toEqual(expected)
      return true
    })
    expect(replica.state).toEqual({ kind: 'live' })
  }

  test.each(['cut', 'stall'] as const)(
    'during a %s reads fail with unavailable while others write, and afterwards heal by themselves to the right content',
    { timeout: 60_000 },
    async (fault) => {
      for (let round = 0; round < 2; round++) {
        proxy[fault]()
        await writer.write(15)
        expect(await failureOf(replica.barrier(soon()))).toBe('unavailable')
        await until(() => replica.state.kind === 'broken')
        // Bounded reads must not be served from what is known to be behind.
        expect(() => replica.assertLive()).toThrow()
        await writer.write(5)
        expect(await failureOf(replica.barrier(soon()))).toBe('unavailable')
        proxy.resume()
        await healed()
        await writer.write(5)
        await replica.barrier(soon())
        expect(groupsIn(replica)).toEqual(writer.expected)
      }
    },
  )

  test('what was compacted away during a cut is loaded anew', { timeout: 60_000 }, async () => {
    let resets = 0
    replica.onReset(() => (resets += 1))
    proxy.cut()
    await until(() => replica.state.kind === 'broken')
    const revision = await writer.write(30)
    await admin.kv.compact({ revision: String(revision), physical: true })
    await writer.write(3)
    expect(await failureOf(replica.barrier(soon()))).toBe('unavailable')
    proxy.resume()
    await healed()
    expect(resets).toBe(1)
    await writer.write(3)
    await replica.barrier(soon())
    expect(groupsIn(replica)).toEqual(writer.expected)
  })

  test('a load that is cut off in the middle is tried again until it succeeds', { timeout: 60_000 }, async () => {
    proxy.cut()
    const store = createEtcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`], prefix: '/unused/', log: silentLog, requestTimeoutMs: 500 })
    onTestFinished(() => store.close())
    const late = replicaOf(store)
    const starting = late.start(soon())
    await writer.write(2)
    proxy.resume()
    await starting
    expect(late.state).toEqual({ kind: 'live' })
  })

  test('a connection that breaks again and again never lets a stale read through', { timeout: 60_000 }, async () => {
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
        await replica.barrier(soon())
        expect(groupsIn(replica)).toEqual(expected)
        good += 1
      } catch (error) {
        expect(error).toMatchObject({ kind: 'unavailable' })
      }
    }
    await healed()
    expect(good).toBeGreaterThan(0)
  })
})
