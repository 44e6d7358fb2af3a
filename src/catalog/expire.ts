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

/** Entries that say themselves when they have no use any more. */
interface Expiring {
  readonly prefix: string
  /** Milliseconds since 1970. */
  endMs(entry: Entry): number
}

const sorts = {
  /** Requests for access that stand in the way of another. */
  accessRequests: { prefix: accessRequestPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + accessWindowMs },
  /** Families of refresh tokens. */
  refreshTokens: { prefix: refreshPrefix, endMs: ({ value }) => Number(fromBinary(RefreshFamilySchema, value).expireTimeMs) },
  /** Sign-ins of devices and of headless clients. */
  pendingLogins: { prefix: pendingLoginPrefix, endMs: pendingLoginEndMs },
  /** Uploads that nobody ended: they count as open no more. */
  openUploads: { prefix: uploadPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + uploadLifeMs },
} as const satisfies Readonly<Record<string, Expiring>>

/** What expires. */
type ExpiringSort = keyof typeof sorts

/** The names of what expires. */
const expiringSorts = Object.keys(sorts) as ExpiringSort[] // a cast: the keys of the table

/**
 * Removes what has expired of one sort. Returns how many entries. One that can not be read stays and holds up no other: its failure is thrown at the end. Rejects with
 * StoreError, or the signal's reason.
 */
async function expireEntries(store: Store, sort: ExpiringSort, { nowMs, signal }: { nowMs: number; signal: AbortSignal }): Promise<number> {
  const { prefix, endMs }: Expiring = sorts[sort]
  let removed = 0
  const removeOld = async (old: readonly Entry[]): Promise<void> => {
    if (old.length === 0) return
    // Guarded: one may be renewed at this moment. Those are left for the next time.
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

/** What is trimmed: events by age and by size, idempotency keys, what expires, first sign-ins by providers that are gone, moves of tags. */
export const expiredSorts = ['outboxOld', 'outboxOverSize', 'idempotency', ...expiringSorts, 'firstSignIns', 'tagHistory'] as const

/** One of them. */
export type ExpiredSort = (typeof expiredSorts)[number]

/** How many entries of each sort were removed. */
export type ExpireCounts = Readonly<Record<ExpiredSort, number>>

/** 72 hours, 256 MiB per root group (docs/spec/events.md#retention). */
export const outboxRetention: OutboxRetention = { lifeMs: eventLifeMs, bytesPerRoot: 256 * 1024 * 1024 }

/** Removes from `x/` what has outlived its time. One per leadership; any number may run at once without harm. */
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
   * Trims everything; returns how many entries of each sort. A sort that fails holds up no other. Rejects with the first failure, StoreError or the signal's reason; what was
   * done until then stays done.
   */
  async trim(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#trim(expiredSorts, nowMs, signal)
  }

  /** Only what is too old; that takes no account of what there is. */
  async expireOld(nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    return this.#trim(
      expiredSorts.filter((sort) => sort !== 'outboxOverSize'),
      nowMs,
      signal,
    )
  }

  async #trim(sorts: readonly ExpiredSort[], nowMs: number, signal: AbortSignal): Promise<ExpireCounts> {
    const counts = Object.fromEntries(expiredSorts.map((sort) => [sort, 0])) as Record<ExpiredSort, number> // of all sorts
    const work = async (sort: ExpiredSort): Promise<void> => void (counts[sort] = await this.#trimSort(sort, nowMs, signal))
    await oneByOne(sorts, work, { signal })
    return counts
  }

  async #trimSort(sort: ExpiredSort, nowMs: number, signal: AbortSignal): Promise<number> {
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
