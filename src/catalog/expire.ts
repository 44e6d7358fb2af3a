import { fromBinary } from '@bufbuild/protobuf'
import { expireBatch } from '../engine/jobs/batch.ts'
import { expireIdempotencyKeys } from '../engine/jobs/idempotency.ts'
import { OutboxExpirer, type OutboxRetention } from '../engine/jobs/outbox.ts'
import { eventLifeMs } from '../engine/log/outbox-keys.ts'
import { oneByOne } from '../engine/jobs/one-by-one.ts'
import { uploadLifeMs, uploadPrefix } from '../engine/quota/content.ts'
import { RefreshFamilySchema } from '../gen/taproot/store/v1/people_pb.ts'
import { expireFirstSignIns, accessRequestPrefix, accessWindowMs, pendingLoginEndMs, pendingLoginPrefix, refreshPrefix } from '../iam/index.ts'
import { expireTagHistory, type HistoryRetention } from '../registry/index.ts'
import { entriesOf } from '../store/pages.ts'
import type { Store, Entry } from '../store/store.ts'

/** Entries that contain their own expiry. */
interface Expiring {
  readonly prefix: string
  /** Milliseconds since 1970. */
  endMs(entry: Entry): number
}

const sorts = {
  /** Requests for access, which block further requests. */
  accessRequests: { prefix: accessRequestPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + accessWindowMs },
  /** Families of refresh tokens. */
  refreshTokens: { prefix: refreshPrefix, endMs: ({ value }) => Number(fromBinary(RefreshFamilySchema, value).expireTimeMs) },
  /** Sign-ins of devices and of headless clients. */
  pendingLogins: { prefix: pendingLoginPrefix, endMs: pendingLoginEndMs },
  /** Unfinished uploads, which then no longer count as open. */
  openUploads: { prefix: uploadPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + uploadLifeMs },
} as const satisfies Readonly<Record<string, Expiring>>

/** The name of an expiring sort. */
type ExpiringSort = keyof typeof sorts

/** The names of all expiring sorts. */
const expiringSorts = Object.keys(sorts) as ExpiringSort[] // The keys of the table.

/**
 * Removes expired entries of one sort. Returns their number. An unreadable entry stays and does not stop the others; its error is thrown at the end. Rejects
 * with StoreError, or the signal's reason.
 */
async function expireEntries(store: Store, sort: ExpiringSort, { nowMs, signal }: { nowMs: number; signal: AbortSignal }): Promise<number> {
  const { prefix, endMs }: Expiring = sorts[sort]
  let removed = 0
  const removeOld = async (old: readonly Entry[]): Promise<void> => {
    if (old.length === 0) return
    // Guarded, because an entry may be renewed at the same time. Such entries are left for the next run.
    const guards = old.map(({ key, revision }) => ({ kind: 'unchanged', key, revision }) as const)
    const outcome = await store.transact({ guards, writes: old.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (outcome.committed) removed += old.length
  }
  let old: Entry[] = []
  const look = async (entry: Entry): Promise<void> => {
    if (endMs(entry) > nowMs) return
    if (old.push(entry) < expireBatch) return
    const full = old
    old = []
    await removeOld(full)
  }
  try {
    await oneByOne(entriesOf(store, { prefix }, signal), look, { signal })
  } finally {
    await removeOld(old)
  }
  return removed
}

/** The sorts of expired data: events by age and size, idempotency keys, expiring entries, first sign-ins by deleted providers, tag moves. */
export const expiredSorts = ['outboxOld', 'outboxOverSize', 'idempotency', ...expiringSorts, 'firstSignIns', 'tagHistory'] as const

/** One sort of expired data. */
export type ExpiredSort = (typeof expiredSorts)[number]

/** The number of removed entries of each sort. */
export type ExpireCounts = Readonly<Record<ExpiredSort, number>>

/** 72 hours, 256 MiB per root group (docs/spec/events.md#retention). */
export const outboxRetention: OutboxRetention = { lifeMs: eventLifeMs, bytesPerRoot: 256 * 1024 * 1024 }

/** Removes expired entries from `x/`. One runs per leadership; concurrent runs do no harm. */
export class Expirer {
  readonly #store: Store
  readonly #outbox: OutboxExpirer
  readonly #history: HistoryRetention

  constructor(store: Store, retention: { readonly outbox?: OutboxRetention; readonly history?: HistoryRetention } = {}) {
    this.#store = store
    this.#outbox = new OutboxExpirer(store, retention.outbox ?? outboxRetention)
    this.#history = retention.history ?? {}
  }

  /**
   * Trims everything. Returns the number of entries of each sort. A failure of one sort does not stop the others. Rejects with the first failure, StoreError or
   * the signal's reason. Completed work is kept.
   */
  async expire(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#expire(expiredSorts, nowMs, signal)
  }

  /** Removes only entries that are too old, which needs no count of the rest. */
  async expireOld(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#expire(
      expiredSorts.filter((sort) => sort !== 'outboxOverSize'),
      nowMs,
      signal,
    )
  }

  async #expire(sorts: readonly ExpiredSort[], nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    const counts = Object.fromEntries(expiredSorts.map((sort) => [sort, 0])) as Record<ExpiredSort, number> // All sorts are present.
    const work = async (sort: ExpiredSort): Promise<void> => void (counts[sort] = await this.#expireSort(sort, nowMs, signal))
    await oneByOne(sorts, work, { signal })
    return counts
  }

  async #expireSort(sort: ExpiredSort, nowMs: number, signal: AbortSignal): Promise<number> {
    switch (sort) {
      case 'outboxOld':
        return this.#outbox.expireOld(nowMs, signal)
      case 'outboxOverSize':
        return this.#outbox.expireOverSize(nowMs, signal)
      case 'idempotency':
        return expireIdempotencyKeys(this.#store, nowMs, signal)
      case 'firstSignIns':
        return expireFirstSignIns(this.#store, signal)
      case 'tagHistory':
        return expireTagHistory(this.#store, { ...this.#history, nowMs }, signal)
      default:
        return expireEntries(this.#store, sort, { nowMs, signal })
    }
  }
}
