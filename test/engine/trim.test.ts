import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { digestOf, type Digest } from '../../src/base/digest.ts'
import { IdempotencyRecordSchema, OutboxEventSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { RefreshFamilySchema } from '../../src/gen/taproot/store/v1/people_pb.ts'
import { accessRequestPrefix } from '../../src/iam/records/group-verbs.ts'
import { idempotencyHour, idempotencyHourPrefix, idempotencyKey } from '../../src/engine/idempotency.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { appendHistory, readHead, readHistory } from '../../src/registry/tags/tag-history.ts'
import type { HistoryRetention } from '../../src/registry/tags/expire-history.ts'
import { firstSignInPrefix } from '../../src/iam/records/people.ts'
import { pendingLoginPrefix } from '../../src/iam/signin/pending-logins.ts'
import { refreshPrefix } from '../../src/iam/signin/refresh-tokens.ts'
import { uploadPrefix } from '../../src/engine/quota/content.ts'
import { outboxKey, outboxPrefix, outboxTimeMs } from '../../src/engine/log/outbox-keys.ts'
import { Expirer, expiredSorts, type ExpireCounts } from '../../src/domains/expire.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { recordKey } from '../../src/store/keys.ts'
import type { RangeQuery, Store, Transaction, Write } from '../../src/store/store.ts'
import { shareEtcd } from '../support/parts/etcd.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { bytes, commit, put, silentLog, soon } from '../store/store-harness.ts'

const hourMs = 3_600_000
const mibi = 1024 * 1024
const nowMs = Date.UTC(2026, 5, 15, 12, 34, 56)
const retention = { lifeMs: 72 * hourMs, bytesPerRoot: 2 * mibi }

async function openStore(kind: 'sqlite' | 'etcd'): Promise<Store> {
  if (kind === 'etcd') {
    const { endpoints, prefix } = await shareEtcd()
    const store = createEtcdStore({ endpoints, prefix: `${prefix}/`, log: silentLog })
    onTestFinished(() => store.close())
    return store
  }
  const directory = await mkdtemp(join(tmpdir(), 'taproot-trim-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const store = createSqliteStore({ path: join(directory, 'store.db'), log: silentLog })
  onTestFinished(() => store.close())
  return store
}

/** Returns the store, and records every transaction and range. */
function noting(store: Store): { store: Store; ranges: RangeQuery[]; transactions: Transaction[] } {
  const ranges: RangeQuery[] = []
  const transactions: Transaction[] = []
  return {
    ranges,
    transactions,
    store: {
      get: (key, signal) => store.get(key, signal),
      range: (query, signal) => (ranges.push(query), store.range(query, signal)),
      transact: (transaction, signal) => (transactions.push(transaction), store.transact(transaction, signal)),
      fence: (signal) => store.fence(signal),
      watch: (prefixes, after, signal) => store.watch(prefixes, after, signal),
      revision: (signal) => store.revision(signal),
      elect: (name, signal) => store.elect(name, signal),
      close: () => store.close(),
    },
  }
}

const root = (name: string): string => name.repeat(40)

function event(timeMs: number, group: string, size = 100): Write {
  const value = toBinary(OutboxEventSchema, create(OutboxEventSchema, { group, timeMs: BigInt(timeMs), body: new Uint8Array(size) }))
  return { kind: 'put', key: outboxKey(timeMs, randomBytes(16).toString('hex')), value }
}

/** Returns the keys of a create with an Idempotency-Key. */
function remembered(timeMs: number, hash: string): Write[] {
  const value = toBinary(IdempotencyRecordSchema, create(IdempotencyRecordSchema, { uid: hash, timeMs: BigInt(timeMs) }))
  return [
    { kind: 'put', key: idempotencyKey(hash), value },
    { kind: 'put', key: `${idempotencyHourPrefix}${idempotencyHour(timeMs)}/${hash}`, value: new Uint8Array() },
  ]
}

async function commitAll(store: Store, writes: readonly Write[], perTransaction = 120): Promise<void> {
  for (let at = 0; at < writes.length; at += perTransaction) await commit(store, ...writes.slice(at, at + perTransaction))
}

async function keysOf(store: Store, prefix: string): Promise<string[]> {
  return (await store.range({ prefix, limit: 100_000 }, soon())).entries.map(({ key }) => key)
}

const none = Object.fromEntries(expiredSorts.map((sort) => [sort, 0])) as ExpireCounts // a cast: each sort is there

describeOnStores('the removal of old entries', (kind) => {
  let store: Store
  beforeEach(async () => {
    store = await openStore(kind)
  })

  test('events are removed after 72 hours, 100 at a time, without reading a page twice or younger events', async () => {
    const old = Array.from({ length: 350 }, (_, index) => event(nowMs - 72 * hourMs - 1 - index * 1000, root('a')))
    const young = Array.from({ length: 150 }, (_, index) => event(nowMs - 72 * hourMs + index * 1000, root('a')))
    await commitAll(store, [...young, ...old])
    const noted = noting(store)
    const expirer = new Expirer(noted.store, { outbox: retention })
    expect(await expirer.expireOld(nowMs, soon())).toEqual({ ...none, outboxOld: 350 })
    expect(await keysOf(store, outboxPrefix)).toEqual(young.map(({ key }) => key).sort())
    expect(noted.transactions.map(({ writes }) => writes.length)).toEqual([100, 100, 100, 50])
    const pages = noted.ranges.filter(({ prefix }) => prefix === outboxPrefix)
    expect(pages).toHaveLength(4)
    expect(new Set(pages.map(({ after }) => after)).size).toBe(4)
    expect(await expirer.expire(nowMs, soon())).toEqual(none)
    expect(await expirer.expire(nowMs + 1000, soon())).toEqual({ ...none, outboxOld: 1 })
    expect(await expirer.expire(nowMs + 73 * hourMs, soon())).toEqual({ ...none, outboxOld: 149 })
    expect(await keysOf(store, outboxPrefix)).toEqual([])
  })

  test('an unreadable entry does not stop the removal of other entries', async () => {
    const family = toBinary(RefreshFamilySchema, create(RefreshFamilySchema, { expireTimeMs: BigInt(nowMs - 1) }))
    const expired = [`${refreshPrefix}a`, `${refreshPrefix}z`, `${uploadPrefix}${root('a')}/old`]
    await commit(store, put(`${refreshPrefix}damaged`, Buffer.from([255])), ...expired.map((key, at) => put(key, at < 2 ? family : '0')))
    await commit(store, event(nowMs - 73 * hourMs, root('a')))
    await expect(new Expirer(store, { outbox: retention }).expire(nowMs, soon())).rejects.toThrow()
    expect(await keysOf(store, refreshPrefix)).toEqual([`${refreshPrefix}damaged`])
    expect(await keysOf(store, uploadPrefix)).toEqual([])
    expect(await keysOf(store, outboxPrefix)).toEqual([])
  })

  test('a root group over its size limit loses its oldest events, other groups lose none; each event is read once', async () => {
    const every = 60_000
    const large = Array.from({ length: 60 }, (_, index) => event(nowMs - 10 * hourMs + index * every, `${root('a')}/0123456789abcdef`, 50_000))
    const other = Array.from({ length: 30 }, (_, index) => event(nowMs - 11 * hourMs + index * every, root('b'), 50_000))
    const platformEvent = event(nowMs - 11 * hourMs, '')
    await commitAll(store, [...large, ...other, platformEvent], 20)
    const noted = noting(store)
    const expirer = new Expirer(noted.store, { outbox: retention })
    const { outboxOverSize } = await expirer.expire(nowMs, soon())
    const kept = large.slice(outboxOverSize).map(({ key }) => key)
    expect(await keysOf(store, outboxPrefix)).toEqual([...other.map(({ key }) => key), platformEvent.key, ...kept].sort())
    // As many as fit, not fewer.
    expect(kept).toHaveLength(Math.floor(retention.bytesPerRoot / 50_300))

    noted.ranges.length = 0
    const more = Array.from({ length: 5 }, (_, index) => event(nowMs + index, root('a'), 50_000))
    await commitAll(store, more)
    expect(await expirer.expire(nowMs + 2 * every, soon())).toEqual({ ...none, outboxOverSize: 5 })
    expect(await keysOf(store, outboxPrefix)).toEqual(
      [...other.map(({ key }) => key), platformEvent.key, ...kept.slice(5), ...more.map(({ key }) => key)].sort(),
    )
    const [, counting] = noted.ranges.filter(({ prefix }) => prefix === outboxPrefix)
    expect(counting?.after).toBe(kept.at(-1))
    expect(await expirer.expire(nowMs + 2 * every, soon())).toEqual(none)
  })

  test('entries that another leader removed are no longer counted', async () => {
    const expirer = new Expirer(store, { outbox: retention })
    const first = Array.from({ length: 30 }, (_, index) => event(nowMs + index, root('a'), 50_000))
    await commitAll(store, first, 20)
    expect(await expirer.expire(nowMs + hourMs, soon())).toEqual(none)
    await new Expirer(store, { outbox: retention }).expire(nowMs + 74 * hourMs, soon())
    expect(await keysOf(store, outboxPrefix)).toEqual([])
    const second = Array.from({ length: 30 }, (_, index) => event(nowMs + 74 * hourMs + index, root('a'), 50_000))
    await commitAll(store, second, 20)
    expect(await expirer.expire(nowMs + 75 * hourMs, soon())).toEqual(none)
  })

  test('idempotency keys are removed an hour after their day, 50 at a time, without reading each', async () => {
    const old = Array.from({ length: 130 }, (_, index) =>
      randomBytes(32)
        .toString('hex')
        .replace(/^.../, String(100 + index)),
    )
    const young = randomBytes(32).toString('hex')
    for (const hash of old) await commit(store, ...remembered(nowMs - 27 * hourMs, hash))
    await commit(store, ...remembered(nowMs - 24 * hourMs, young))
    const noted = noting(store)
    expect(await new Expirer(noted.store, { outbox: retention }).expire(nowMs, soon())).toEqual({ ...none, idempotency: 130 })
    expect(noted.transactions.map(({ writes }) => writes.length)).toEqual([100, 100, 60])
    expect(await keysOf(store, 'x/idem/')).toEqual(remembered(nowMs - 24 * hourMs, young).map(({ key }) => key))
    expect(await new Expirer(store, { outbox: retention }).expire(nowMs + 2 * hourMs, soon())).toEqual({ ...none, idempotency: 1 })
    expect(await keysOf(store, 'x/')).toEqual([])
  })

  test('an idempotency key with two old uses is removed with both time entries', async () => {
    const [again, other] = ['bb'.repeat(32), 'cc'.repeat(32)]
    await commit(store, ...remembered(nowMs - 200 * hourMs, again))
    await commit(store, ...remembered(nowMs - 150 * hourMs, other))
    await commit(store, ...remembered(nowMs - 100 * hourMs, again))
    await commit(store, ...remembered(nowMs - 60 * hourMs, again))
    expect(await new Expirer(store, { outbox: retention }).expire(nowMs, soon())).toEqual({ ...none, idempotency: 4 })
    expect(await keysOf(store, 'x/idem/')).toEqual([])
  })

  test('an idempotency key that was used again stays for its later use; others of its batch are removed', async () => {
    const again = 'bb'.repeat(32)
    for (const hash of ['aa'.repeat(32), again, 'cc'.repeat(32)]) await commit(store, ...remembered(nowMs - 27 * hourMs, hash))
    await commit(store, ...remembered(nowMs - 2 * hourMs, again))
    expect(await new Expirer(store, { outbox: retention }).expire(nowMs, soon())).toEqual({ ...none, idempotency: 3 })
    expect(await keysOf(store, 'x/idem/')).toEqual(remembered(nowMs - 2 * hourMs, again).map(({ key }) => key))
    const entry = await store.get(idempotencyKey(again), soon())
    expect(Number(fromBinary(IdempotencyRecordSchema, entry?.value ?? new Uint8Array()).timeMs)).toBe(nowMs - 2 * hourMs)
  })

  test('expired sign-ins of devices are removed', async () => {
    const login = (expireMs: number, name: string): Write => ({ kind: 'put', key: `${pendingLoginPrefix}${name}`, value: bytes(JSON.stringify({ expireMs })) })
    await commitAll(store, [login(nowMs - 1, 'device/a'), login(nowMs, 'user-code/b'), login(nowMs + 1, 'headless/c')])
    expect(await new Expirer(store).expire(nowMs, soon())).toEqual({ ...none, pendingLogins: 2 })
    expect(await keysOf(store, 'x/')).toEqual([`${pendingLoginPrefix}headless/c`])
  })

  test('first sign-ins through a deleted provider are removed, a page at a time, and no others', async () => {
    const providers = ['0', '1', '2'].map((digit) => `${root('a')}/${digit.repeat(16)}`)
    const [gone = '', stays = '', alsoGone = ''] = providers
    const signIns = (provider: string, count: number): Write[] =>
      Array.from({ length: count }, (_, at) => ({ kind: 'put', key: `${firstSignInPrefix}${provider}/${String(at).padStart(40, '0')}`, value: bytes('1') }))
    await commitAll(store, [
      ...signIns(gone, 250),
      ...signIns(stays, 3),
      ...signIns(alsoGone, 1),
      { kind: 'put', key: recordKey('IdentityProvider', trustedUid(stays)), value: bytes('') },
    ])
    expect(await new Expirer(store).expire(nowMs, soon())).toEqual({ ...none, firstSignIns: 251 })
    expect(await keysOf(store, firstSignInPrefix)).toEqual(signIns(stays, 3).map(({ key }) => key))
  })

  test('requests for access are removed when a new request is allowed', async () => {
    const request = (timeMs: number, name: string): Write => ({ kind: 'put', key: `${accessRequestPrefix}${name}`, value: bytes(String(timeMs)) })
    await commit(store, request(nowMs - 24 * hourMs, 'a/old'), request(nowMs - 24 * hourMs + 1, 'a/young'), request(nowMs - 90 * hourMs, 'b/old'))
    expect(await new Expirer(store, { outbox: retention }).expire(nowMs, soon())).toEqual({ ...none, accessRequests: 2 })
    expect(await keysOf(store, 'x/')).toEqual([`${accessRequestPrefix}a/young`])
  })

  describe('the history of a tag', () => {
    const tag = { repo: `${root('a')}/${'1'.repeat(16)}`, name: 'latest' }
    const digest = (seed: number): Digest => digestOf(Buffer.from(String(seed)))
    /** One move an hour, the last at `nowMs`; 0 is a deletion. */
    const moves = async (...digests: readonly number[]): Promise<void> => {
      await commit(store, { kind: 'put', key: recordKey('Repo', trustedUid(tag.repo)), value: bytes('a repo') })
      for (const [index, seed] of digests.entries()) {
        const changes = new ChangeSet()
        const atMs = nowMs - (digests.length - 1 - index) * hourMs
        appendHistory(changes, tag, { digest: seed === 0 ? '' : digest(seed), nowMs: atMs, notBeforeMs: 0, after: await readHead(store, tag, soon()) })
        await store.transact(changes, soon())
      }
    }
    const kept = async (): Promise<Digest[] | undefined> =>
      (await readHistory({ store }, { ...tag, limit: 1000 }, soon()))?.records.map((record) => record.digest)
    const expired = async (history: HistoryRetention): Promise<number> => (await new Expirer(store, { history }).expire(nowMs, soon())).tagHistory

    test('the history of a tag is kept completely without a configured limit', async () => {
      await moves(1, 2, 3)
      expect(await expired({})).toBe(0)
      expect(await kept()).toEqual([1, 2, 3].map(digest))
    })

    test.each<[string, HistoryRetention, number[]]>([
      ['loses moves that are too old', { maxAgeMs: 2 * hourMs }, [3, 4, 5]],
      ['keeps the digest at the start of the age limit, however old', { maxAgeMs: 1.5 * hourMs }, [3, 4, 5]],
      ['loses moves beyond the maximum number', { maxMoves: 2 }, [4, 5]],
      ['obeys both limits together', { maxAgeMs: 3 * hourMs, maxMoves: 3 }, [3, 4, 5]],
      ['keeps the current digest, however old', { maxAgeMs: -hourMs }, [5]],
      ['keeps the current digest, whatever the maximum number', { maxMoves: 0 }, [5]],
    ])('%s', async (_title, history, expected) => {
      await moves(1, 2, 3, 4, 5)
      expect(await expired(history)).toBe(5 - expected.length)
      expect(await kept()).toEqual(expected.map(digest))
      expect(await expired(history)).toBe(0)
    })

    test('the history of a tag counts a deletion as a move, and is removed long after the tag was deleted', async () => {
      await moves(1, 2, 0)
      expect(await expired({ maxMoves: 2 })).toBe(1)
      expect(await kept()).toEqual([digest(2)])
      expect(await expired({ maxAgeMs: -1 })).toBe(2)
      expect(await kept()).toBeUndefined()
      expect(await keysOf(store, 'x/')).toEqual([])
    })

    test('the history of a tag is removed with a deleted repo, and kept for an existing one', async () => {
      await moves(1, 2)
      expect(await expired({ maxAgeMs: -1 })).toBe(1)
      expect(await kept()).toEqual([digest(2)])
      await commit(store, { kind: 'delete', key: recordKey('Repo', trustedUid(tag.repo)) })
      expect(await expired({ maxAgeMs: -1 })).toBe(1)
      expect(await keysOf(store, 'x/')).toEqual([])
    })

    test('the history of a tag is removed in pages if it is long', async () => {
      await moves(...Array.from({ length: 250 }, (_, index) => index + 1))
      expect(await expired({ maxMoves: 10 })).toBe(240)
      expect(await kept()).toHaveLength(10)
    })
  })

  test('an interrupted removal continues the next time', async () => {
    await commitAll(
      store,
      Array.from({ length: 350 }, (_, index) => event(nowMs - 80 * hourMs - index, root('a'))),
    )
    const stop = new AbortController()
    const noted = noting(store)
    const interrupted: Store = {
      ...noted.store,
      transact: async (transaction, signal) => {
        if (noted.transactions.length === 2) stop.abort(new Error('enough'))
        return await noted.store.transact(transaction, signal)
      },
    }
    const expirer = new Expirer(interrupted, { outbox: retention })
    await expect(expirer.expire(nowMs, stop.signal)).rejects.toThrow('enough')
    expect(await keysOf(store, outboxPrefix)).toHaveLength(150)
    expect(await new Expirer(store, { outbox: retention }).expire(nowMs, soon())).toEqual({ ...none, outboxOld: 150 })
  })

  test('the time of an event is part of its key', () => {
    expect(outboxTimeMs(outboxKey(nowMs, 'ab'))).toBe(nowMs)
    expect(outboxKey(nowMs, 'ff') < outboxKey(nowMs + 1, '')).toBe(true)
  })
})
