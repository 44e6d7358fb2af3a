import type { Store } from '../../store/store.ts'
import { expiringSorts, trimExpired, type ExpiringSort } from './expired.ts'
import { trimFirstSignIns } from './first-sign-ins.ts'
import { trimIdempotency } from './idempotency.ts'
import { OutboxTrimmer, type OutboxRetention } from './outbox.ts'
import { trimTagHistory, type HistoryRetention } from './tag-history.ts'

/** What is trimmed: events by age and by size, idempotency keys, what expires, first sign-ins by providers that are gone, moves of tags. */
export const trimmedSorts = ['outboxOld', 'outboxOverSize', 'idempotency', ...expiringSorts, 'firstSignIns', 'tagHistory'] as const

/** One of them. */
export type Trimmed = (typeof trimmedSorts)[number]

/** How many entries of each sort were removed. */
export type TrimCounts = Readonly<Record<Trimmed, number>>

/** 72 hours, 256 MiB per root group (docs/spec/events.md#retention). */
export const outboxRetention: OutboxRetention = { lifeMs: 72 * 3_600_000, bytesPerRoot: 256 * 1024 * 1024 }

/** Removes from `x/` what has outlived its time. One per leadership; any number may run at once without harm. */
export class Trimmer {
  readonly #store: Store
  readonly #outbox: OutboxTrimmer
  readonly #history: HistoryRetention

  constructor(store: Store, retention: { readonly outbox?: OutboxRetention; readonly history?: HistoryRetention } = {}) {
    this.#store = store
    this.#outbox = new OutboxTrimmer(store, retention.outbox ?? outboxRetention)
    this.#history = retention.history ?? {}
  }

  /** Trims everything; returns how many entries of each sort. Rejects with StoreError, or the signal's reason; what was done until then stays done. */
  async trim(nowMs: number, signal: AbortSignal): Promise<TrimCounts> {
    const counts = await this.trimOld(nowMs, signal)
    return { ...counts, outboxOverSize: await this.#outbox.trimOverSize(nowMs, signal) }
  }

  /** Only what is too old; that takes no account of what there is. */
  async trimOld(nowMs: number, signal: AbortSignal): Promise<TrimCounts> {
    const idempotency = await trimIdempotency(this.#store, nowMs, signal)
    const expired: Partial<Record<ExpiringSort, number>> = {}
    for (const sort of expiringSorts) expired[sort] = await trimExpired(this.#store, sort, { nowMs, signal })
    const { accessRequests = 0, refreshTokens = 0, pendingLogins = 0, openUploads = 0 } = expired
    const firstSignIns = await trimFirstSignIns(this.#store, signal)
    const outboxOld = await this.#outbox.trimOld(nowMs, signal)
    const tagHistory = await trimTagHistory(this.#store, { ...this.#history, nowMs }, signal)
    return { outboxOld, outboxOverSize: 0, idempotency, accessRequests, refreshTokens, pendingLogins, openUploads, firstSignIns, tagHistory }
  }
}
