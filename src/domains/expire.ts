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

/** Entries in the store whose expiry time follows from their value. */
interface Expiring {
  readonly prefix: string
  /** Returns the expiry time of an entry, in milliseconds since 1970. */
  endMs(entry: Entry): number
}

const sorts = {
  /** Requests for access to a group. An open request blocks further ones. */
  accessRequests: { prefix: accessRequestPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + accessWindowMs },
  /** Families of refresh tokens: each consists of a token and its successors. */
  refreshTokens: { prefix: refreshPrefix, endMs: ({ value }) => Number(fromBinary(RefreshFamilySchema, value).expireTimeMs) },
  /** Sign-ins of devices and of clients without a browser that are not finished. */
  pendingLogins: { prefix: pendingLoginPrefix, endMs: pendingLoginEndMs },
  /** Unfinished uploads, which no longer count as open when they are removed. */
  openUploads: { prefix: uploadPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + uploadLifeMs },
} as const satisfies Readonly<Record<string, Expiring>>

/** The name of one sort of expiring entries, e.g. `refreshTokens`. */
type ExpiringSort = keyof typeof sorts

/** The names of all expiring sorts. */
const expiringSorts = Object.keys(sorts) as ExpiringSort[] // These are the keys of the table.

/**
 * Removes expired entries of one sort. Returns their number. An entry that cannot be read stays and does not stop the others; its error is thrown at the end.
 * Rejects with StoreError, or the signal's reason.
 */
async function expireEntries(store: Store, sort: ExpiringSort, { nowMs, signal }: { nowMs: number; signal: AbortSignal }): Promise<number> {
  const { prefix, endMs }: Expiring = sorts[sort]
  let removed = 0
  const removeOld = async (old: readonly Entry[]): Promise<void> => {
    if (old.length === 0) return
    // With a guard, because an entry may be renewed at the same time. It then stays until the next run.
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

/** The sorts of expired data: events by age and by size, idempotency keys, expiring entries, first sign-ins by deleted providers, tag moves. */
export const expiredSorts = ['outboxOld', 'outboxOverSize', 'idempotency', ...expiringSorts, 'firstSignIns', 'tagHistory'] as const

/** The name of one sort of expired data, e.g. `idempotency`. */
export type ExpiredSort = (typeof expiredSorts)[number]

/** The number of removed entries of each sort. */
export type ExpireCounts = Readonly<Record<ExpiredSort, number>>

/** The retention of events: 72 hours, and 256 MiB per root group (docs/spec/events.md#retention). */
export const outboxRetention: OutboxRetention = { lifeMs: eventLifeMs, bytesPerRoot: 256 * 1024 * 1024 }

/** Removes expired entries below `x/` in the store. The leader runs one; several at once do no harm. */
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
   * Removes all expired data. Returns the number of removed entries of each sort. A failure of one sort does not stop the others. Rejects with the first
   * failure, which is a StoreError or the signal's reason. What was removed before stays removed.
   */
  async expire(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#expire(expiredSorts, nowMs, signal)
  }

  /** Removes only data that is too old. Unlike `expire`, it does not have to measure the size of all events. */
  async expireOld(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#expire(
      expiredSorts.filter((sort) => sort !== 'outboxOverSize'),
      nowMs,
      signal,
    )
  }

  async #expire(sorts: readonly ExpiredSort[], nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    const counts = Object.fromEntries(expiredSorts.map((sort) => [sort, 0])) as Record<ExpiredSort, number> // The object has a key for each sort.
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
