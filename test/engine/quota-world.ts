import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { randomBytes } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll } from 'vitest'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { createRecordCache } from '../../src/server/engine.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import type { ChangeSet } from '../../src/engine/change-set.ts'
import { groupKind } from '../../src/iam/records/groups.ts'
import { storedKinds } from '../../src/domains/kinds.ts'
import { outboxKey } from '../../src/engine/log/outbox-keys.ts'
import { Quotas } from '../../src/engine/quota/quotas.ts'
import { apiOwnership, innerContext, type Caller, type Context, type Services } from '../../src/engine/services.ts'
import { StoreCascader } from '../../src/engine/jobs/cascader.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { StoreError, type Store } from '../../src/store/store.ts'
import { methodOf } from '../support/api-clients.ts'
import { silentLog } from '../store/store-harness.ts'
import { startEtcd, type EtcdCluster } from '../support/parts/etcd.ts'

/** Returns the store with a delayed watch, and with lost answers to transactions now and then. */
export function laggingStore(store: Store, lag: number, pick: (below: number) => number): Store {
  const watch: Store['watch'] = async function* (...call) {
    for await (const batch of store.watch(...call)) {
      for (let left = pick(lag + 1); left > 0; left--) await turn()
      yield batch
    }
    throw new StoreError('unavailable', 'the watch ended')
  }
  const transact: Store['transact'] = async (...call) => {
    const outcome = await store.transact(...call)
    if (pick(40) === 0) throw new StoreError('indeterminate', 'no answer')
    return outcome
  }
  return withOwn(store, { watch, transact })
}

/** Returns the store with some replaced methods. */
export function withOwn(store: Store, own: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, property) => {
      const value: unknown = Reflect.get(property in own ? own : target, property)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

/** One process on the store: its record cache, and the services of changes. */
export interface Process {
  readonly services: Services
  readonly context: Context
  close(): Promise<void>
}

/** Starts a process. `quotas.share` is in records. Close it. */
export async function startProcess(store: Store, quotas: { share: number; processes: number }): Promise<Process> {
  const cache = createRecordCache(store, silentLog)
  await cache.start(AbortSignal.timeout(60_000))
  const services = {
    store,
    cache,
    quotas: new Quotas({ store, cache, processes: quotas.processes, share: { records: quotas.share, bytes: 2 ** 20 } }),
    cascader: new StoreCascader({ store, cache, kinds: storedKinds, log: silentLog }),
    clock: { now: () => 1_800_000_000_000 },
    random: { bytes: (count: number) => randomBytes(count) },
    log: silentLog,
    settings: { ownIssuer: 'https://platform.example' },
  } as unknown as Services
  const caller = { identity: trustedUid('a'.repeat(40)), operator: true, actor: {}, permissions: () => ({ operator: true, grants: [] }) } as unknown as Caller
  const signal = AbortSignal.timeout(60_000)
  const context = innerContext({
    method: methodOf('SetGroupLimits'),
    requestId: 'test',
    signal,
    validateOnly: false,
    ownership: apiOwnership,
    authorize: () => undefined,
    caller,
  })
  return { services, context, close: () => cache.close() }
}

/** Adds a key to the changes that proves whether they were committed. */
export function proven(changes: ChangeSet): ChangeSet {
  const key = outboxKey(1_800_000_000_000, randomBytes(8).toString('hex'))
  changes.write({ kind: 'put', key, value: new Uint8Array() })
  changes.guard({ kind: 'absent', key })
  changes.proofKey = key
  return changes
}

/** The facts of a record's envelope, without its etag. */
export const facts = { createMs: 1, updateMs: 1, managedBy: '' }

/** Creates a group under `uid`. */
export function group(changes: ChangeSet, uid: Uid): void {
  const record = create(GroupSchema, { name: uid.slice(-16) }) as unknown as Resource
  changes.create(groupKind, { uid, record, facts: { ...facts, etag: randomBytes(8).toString('hex') } })
}

/**
 * Returns the stores of two processes for one suite: two connections to one etcd. The embedded store allows one process, so two caches on it represent two
 * processes.
 */
export function twoStores(kind: 'sqlite' | 'etcd'): () => readonly [Store, Store] {
  let etcd: EtcdCluster | undefined
  let directory: string
  let stores: readonly [Store, Store]
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-quotas-'))
    etcd = kind === 'etcd' ? await startEtcd() : undefined
    const open = (): Store =>
      etcd === undefined
        ? createSqliteStore({ path: join(directory, 'store.db'), log: silentLog })
        : createEtcdStore({ endpoints: etcd.endpoints, log: silentLog })
    const first = open()
    stores = [first, etcd === undefined ? first : open()]
  })
  afterAll(async () => {
    for (const store of new Set(stores)) await store.close()
    await etcd?.stop()
    await rm(directory, { recursive: true, force: true })
  })
  return () => stores
}
