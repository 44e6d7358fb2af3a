import type { Store } from '../store/store.ts'
import { oneByOne } from '../engine/one-by-one.ts'
import { expiringSorts, trimExpired } from './expired.ts'
import { trimFirstSignIns } from '../iam/index.ts'
import { trimIdempotency } from '../engine/expire/idempotency.ts'
import { OutboxTrimmer, type OutboxRetention } from '../engine/expire/outbox.ts'
import { trimTagHistory, type HistoryRetention } from '../registry/index.ts'

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

  /**
   * Trims everything; returns how many entries of each sort. A sort that fails holds up no other. Rejects with the first failure, StoreError or the signal's reason; what was
   * done until then stays done.
   */
  async trim(nowMs: number, signal: AbortSignal): Promise<TrimCounts> {
    return this.#trim(trimmedSorts, nowMs, signal)
  }

  /** Only what is too old; that takes no account of what there is. */
  async trimOld(nowMs: number, signal: AbortSignal): Promise<TrimCounts> {
    return this.#trim(
      trimmedSorts.filter((sort) => sort !== 'outboxOverSize'),
      nowMs,
      signal,
    )
  }

  async #trim(sorts: readonly Trimmed[], nowMs: number, signal: AbortSignal): Promise<TrimCounts> {
    const counts = Object.fromEntries(trimmedSorts.map((sort) => [sort, 0])) as Record<Trimmed, number> // of all sorts
    const work = async (sort: Trimmed): Promise<void> => void (counts[sort] = await this.#trimSort(sort, nowMs, signal))
    await oneByOne(sorts, work, { signal })
    return counts
  }

  async #trimSort(sort: Trimmed, nowMs: number, signal: AbortSignal): Promise<number> {
    switch (sort) {
      case 'outboxOld':
        return this.#outbox.trimOld(nowMs, signal)
      case 'outboxOverSize':
        return this.#outbox.trimOverSize(nowMs, signal)
      case 'idempotency':
        return trimIdempotency(this.#store, nowMs, signal)
      case 'firstSignIns':
        return trimFirstSignIns(this.#store, signal)
      case 'tagHistory':
        return trimTagHistory(this.#store, { ...this.#history, nowMs }, signal)
      default:
        return trimExpired(this.#store, sort, { nowMs, signal })
    }
  }
}
