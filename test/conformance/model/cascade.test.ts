import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { ChangeSet } from '../../../src/engine/change-set.ts'
import { kinds } from '../../../src/domains/kinds.ts'
import { StoreCascader } from '../../../src/engine/jobs/cascader.ts'
import { RecordCache } from '../../../src/cache/record-cache.ts'
import type { Resource, CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { cascadeKey } from '../../../src/store/keys.ts'
import { createSqliteStore } from '../../../src/store/sqlite/sqlite-store.ts'
import { StoreError, type Store, type Transaction } from '../../../src/store/store.ts'
import { withOwn } from '../../engine/quota-world.ts'
import { newUid, picker, recordOf, type Plain } from '../../cache/records.ts'
import { commit, put, silentLog, soon } from '../../store/store-harness.ts'
import { entriesOf, expectSoundStore } from './store-invariants.ts'

const facts = { etag: 'next', createMs: 1, updateMs: 3, managedBy: '' }

/** A store whose transactions wait, each until the test releases it. */
function held(store: Store): { store: Store; waiting: (() => void)[] } {
  const waiting: (() => void)[] = []
  const transact = async (transaction: Transaction, signal: AbortSignal): ReturnType<Store['transact']> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.push(resolve)
    await promise
    return store.transact(transaction, signal)
  }
  const slow: Store = {
    get: (key, signal) => store.get(key, signal),
    range: (query, signal) => store.range(query, signal),
    transact,
    fence: (signal) => store.fence(signal),
    watch: (prefixes, after, signal) => store.watch(prefixes, after, signal),
    revision: (signal) => store.revision(signal),
    elect: (name, signal) => store.elect(name, signal),
    close: () => store.close(),
  }
  return { store: slow, waiting }
}

describe('the sweep of dependents of a deleted record', () => {
  const pick = picker(3)
  const group = newUid(pick)
  const [one, two] = [newUid(pick, group), newUid(pick, group)]
  const role = newUid(pick, group)
  let directory: string
  let store: Store
  let cache: RecordCache

  /** Stores a record with all its keys. */
  async function create(plain: Plain): Promise<CachedRecord> {
    const changes = new ChangeSet()
    const kind = kinds.get(plain.kind)
    if (kind === undefined) throw new Error(plain.kind)
    const record = recordOf(plain).message
    changes.create(kind, { uid: trustedUid(plain.uid), record, facts: { etag: 'e', createMs: plain.createMs, updateMs: plain.updateMs, managedBy: '' } })
    const done = await store.transact(changes, soon())
    if (!done.committed) throw new Error('not created')
    await cache.reached(done.revision, soon())
    const cached = cache.tables.get(plain.kind, plain.uid)
    if (cached === undefined) throw new Error('not there')
    return cached
  }

  /** Removes an identity that has bindings, as DeleteIdentity does. */
  async function removeIdentity(uid: string): Promise<void> {
    const record = cache.tables.get('Identity', uid)
    const kind = kinds.get('Identity')
    if (record === undefined || kind === undefined) throw new Error('not there')
    const changes = new ChangeSet()
    changes.remove(kind, record)
    changes.write(put(cascadeKey(record.uid), 'Identity'))
    const done = await store.transact(changes, soon())
    if (!done.committed) throw new Error('not removed')
    await cache.reached(done.revision, soon())
  }

  const plain = (kind: string, uid: string, filters: Plain['filters'] = {}): Plain => ({
    kind,
    uid,
    name: kind.toLowerCase(),
    createMs: 1,
    updateMs: 2,
    filters,
  })

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-sweep-'))
    store = createSqliteStore({ path: join(directory, 'store.db'), log: silentLog })
    cache = new RecordCache({ store, kinds: [...kinds.values()].map((kind) => kind.index), builtIns: [], log: silentLog })
    await cache.start(soon())
    await create(plain('Group', group))
    await commit(store, put(`i/owners/${group}`))
    for (const uid of [one, two]) await create(plain('Identity', uid, { relationship_type: '1' }))
    await create(plain('Role', role))
  })
  afterEach(async () => {
    await cache.close()
    await store.close()
    await rm(directory, { recursive: true, force: true })
  })

  test('the sweep of dependents of a deleted record is not delayed by a deletion mark whose sweep fails', async () => {
    for (const identity of [one, two]) await removeIdentity(identity)
    const [first, second] = cache.tables.cascades().map(({ uid }) => cascadeKey(uid)) as [string, string] // of two identities
    const transact: Store['transact'] = async (transaction, signal) => {
      if (transaction.writes.some(({ key }) => key === first)) throw new StoreError('too_large', 'too large')
      return store.transact(transaction, signal)
    }
    const cascader = new StoreCascader({ store: withOwn(store, { transact }), cache, kinds, log: silentLog })
    await expect(cascader.finish(soon())).rejects.toMatchObject({ kind: 'too_large' })
    expect(await store.get(first, soon())).toBeDefined()
    expect(await store.get(second, soon())).toBeUndefined()
  })

  test('the sweep of dependents of a deleted record reads the state of all blocking guards of a mutation at once', async () => {
    await removeIdentity(one)
    const gate = Promise.withResolvers<void>()
    const asked: string[] = []
    const get: Store['get'] = async (key, signal) => {
      asked.push(key)
      await gate.promise
      return store.get(key, signal)
    }
    const cascader = new StoreCascader({ store: withOwn(store, { get }), cache, kinds, log: silentLog })
    const keys = Array.from({ length: 20 }, (_, at) => `name/Group/${group}/${at}`)
    const guards = keys.map((key) => ({ kind: 'absent', key }) as const)
    const blocking = cascader.finishBlocking(guards, soon())
    expect(asked).toEqual(keys)
    gate.resolve()
    expect(await blocking).toBe(false)
  })

  test('the sweep of dependents of a deleted record leaves no key of a binding that changes while its identity is marked for deletion', async () => {
    const kind = kinds.get('RoleBinding')
    if (kind === undefined) throw new Error('no kind')
    const record = await create(plain('RoleBinding', newUid(pick, group), { identity: one, role }))
    // Planned before the identity goes, committed after.
    const changes = new ChangeSet()
    const moved = structuredClone(record.message) as Resource & { identityUid: string }
    moved.identityUid = two
    changes.update(kind, { cached: record, record: moved, facts })
    await removeIdentity(one)
    expect(await store.transact(changes, soon())).toEqual({ committed: false })
    await new StoreCascader({ store, cache, kinds, log: silentLog }).finish(soon())
    await expectSoundStore(store)
  })

  test('the sweep of dependents of a deleted record changes nothing after another sweep overtook it, even if the uid is in use again', async () => {
    const person = newUid(pick)
    const place = plain('RoleBinding', newUid(pick, group), { identity: person, role })
    await create(plain('Identity', person, { relationship_type: '1' }))
    await create(place)
    await removeIdentity(person)
    const slow = held(store)
    const late = new StoreCascader({ store: slow.store, cache, kinds, log: silentLog }).finish(soon())
    while (slow.waiting.length === 0) await new Promise(setImmediate)
    await new StoreCascader({ store, cache, kinds, log: silentLog }).finish(soon())
    await expectSoundStore(store)
    // The person signs in again, and is bound to the same role at the same place.
    await create(plain('Identity', person, { relationship_type: '1' }))
    const again = await create({ ...place, uid: newUid(pick, group) })
    const before = (await entriesOf(store, '')).map((entry) => entry.key)
    let over = false
    const ended = late.finally(() => (over = true))
    while (!over) {
      for (const release of slow.waiting.splice(0)) release()
      await new Promise(setImmediate)
    }
    await ended
    expect((await entriesOf(store, '')).map((entry) => entry.key)).toEqual(before)
    expect(cache.tables.get('RoleBinding', again.uid)).toBeDefined()
    await expectSoundStore(store)
  })

  test('the sweep of dependents of a deleted record does not end a later sweep when it finishes late', async () => {
    const person = newUid(pick)
    const identity = plain('Identity', person, { relationship_type: '1' })
    await create(identity)
    await create(plain('RoleBinding', newUid(pick, group), { identity: person, role }))
    await removeIdentity(person)
    const slow = held(store)
    const late = new StoreCascader({ store: slow.store, cache, kinds, log: silentLog }).finish(soon())
    while (slow.waiting.length === 0) await new Promise(setImmediate)
    const cascader = new StoreCascader({ store, cache, kinds, log: silentLog })
    await cascader.finish(soon())
    await create(identity)
    const second = await create(plain('RoleBinding', newUid(pick, group), { identity: person, role }))
    await removeIdentity(person)
    let over = false
    const ended = late.finally(() => (over = true))
    while (!over) {
      for (const release of slow.waiting.splice(0)) release()
      await new Promise(setImmediate)
    }
    await ended
    // Until it is swept by its own mark the second binding stays hidden.
    expect(cache.tables.get('RoleBinding', second.uid)).toBeUndefined()
    await cascader.finish(soon())
    expect(cache.tables.cascades()).toEqual([])
    await expectSoundStore(store)
  })
})
