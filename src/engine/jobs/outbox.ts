import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { rootOf, trustedUid } from '../../base/uid.ts'
import { OutboxEventSchema } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { OutboxCutSchema } from '../../gen/taproot/store/v1/events_pb.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import type { Entry, Guard, Put, Store, Transaction } from '../../store/store.ts'
import { comparePositions, type Position } from '../log/log-index.ts'
import { outboxCutPrefix, outboxKey, outboxPrefix, outboxTimeMs } from '../log/outbox-keys.ts'
import { expireBatch } from './batch.ts'

/** The limits up to which events are kept: their age and their size (docs/spec/events.md#retention). */
export interface OutboxRetention {
  readonly lifeMs: number
  /** Maximum size in bytes of one root group's events, keys included. */
  readonly bytesPerRoot: number
}

/**
 * Minimum age in milliseconds of an event that is counted. Clocks of processes differ, and an event with a key before the position of the count would never be
 * counted.
 */
const settledMs = 60_000
const hourMs = 3_600_000

/** Returns the transaction that removes these entries. Once subscriptions exist, undelivered events become dead letters here, in the same transaction. */
function removal(entries: readonly Entry[]): Transaction {
  return { guards: [], writes: entries.map(({ key }) => ({ kind: 'delete', key })) }
}

/** Returns the uid of the root group of an event; empty if it has none. */
export function rootOfEvent({ value }: Entry): string {
  const { group } = fromBinary(OutboxEventSchema, value)
  return group === '' ? '' : rootOf(trustedUid(group))
}

/** Returns the size in bytes of an event's key and value. */
export function bytesOf({ key, value }: Entry): number {
  return key.length + value.length
}

function positionOfCut({ value }: Entry): Position {
  const { revision, key } = fromBinary(OutboxCutSchema, value)
  return { revision: Number(revision), key }
}

/** The size in bytes of the counted events, by root group and hour. */
class EventBytes {
  readonly #hours = new Map<number, Map<string, number>>()
  readonly #totals = new Map<string, number>()

  /** Adds the size of an entry, or subtracts it. */
  count(entry: Entry, sign: 1 | -1): void {
    const hour = Math.floor(outboxTimeMs(entry.key) / hourMs)
    const root = rootOfEvent(entry)
    const bytes = sign * bytesOf(entry)
    const roots = this.#hours.get(hour) ?? new Map<string, number>()
    this.#hours.set(hour, roots)
    roots.set(root, (roots.get(root) ?? 0) + bytes)
    this.#setTotal(root, this.totalOf(root) + bytes)
  }

  /** Drops the counts of hours that ended before `timeMs`, whatever removed their events. */
  forgetBefore(timeMs: number): void {
    for (const [hour, roots] of this.#hours) {
      if ((hour + 1) * hourMs > timeMs) continue
      for (const [root, bytes] of roots) this.#setTotal(root, this.totalOf(root) - bytes)
      this.#hours.delete(hour)
    }
  }

  /** Returns the size of a root group's events in bytes. */
  totalOf(root: string): number {
    return this.#totals.get(root) ?? 0
  }

  /** Returns the root groups whose events have more than `limit` bytes. */
  over(limit: number): Set<string> {
    return new Set([...this.#totals].filter(([, bytes]) => bytes > limit).map(([root]) => root))
  }

  /** Returns the start, in milliseconds since 1970, of the first hour in which one of `roots` has events. */
  firstMs(roots: ReadonlySet<string>): number {
    const hours = [...this.#hours].filter(([, bytes]) => [...roots].some((root) => (bytes.get(root) ?? 0) > 0)).map(([hour]) => hour)
    return Math.min(...hours) * hourMs
  }

  #setTotal(root: string, bytes: number): void {
    if (bytes > 0) this.#totals.set(root, bytes)
    else this.#totals.delete(root)
  }
}

/**
 * Removes events that are too old, and the oldest events of root groups whose events are too large in total. The sizes are approximate, are kept in memory,
 * and are lost when the leadership ends. The leader reads every event once, and then only new ones. It can be stopped at any time.
 */
export class OutboxExpirer {
  readonly #store: Store
  readonly #retention: OutboxRetention
  readonly #account = new EventBytes()
  /** The outbox key up to which all events were counted. */
  #counted = outboxPrefix

  constructor(store: Store, retention: OutboxRetention) {
    this.#store = store
    this.#retention = retention
  }

  /** Removes events that are too old. Returns their number. Rejects with StoreError or the signal's reason. */
  async expireOld(nowMs: number, signal: AbortSignal): Promise<number> {
    const endMs = nowMs - this.#retention.lifeMs
    let removed = 0
    for await (const entries of pagesOf(this.#store, { prefix: outboxPrefix, before: outboxKey(endMs, ''), limit: expireBatch }, signal)) {
      await this.#store.transact(removal(entries), signal)
      removed += entries.length
      for (const entry of entries) if (entry.key <= this.#counted) this.#account.count(entry, -1)
    }
    this.#account.forgetBefore(endMs)
    await this.#expireCuts(endMs, signal)
    return removed
  }

  /** Removes the entries about cut events (see Cut) that would be too old by now, because readers before them have missed expired events anyway. */
  async #expireCuts(endMs: number, signal: AbortSignal): Promise<void> {
    for await (const cut of entriesOf(this.#store, { prefix: outboxCutPrefix }, signal)) {
      if (outboxTimeMs(positionOfCut(cut).key) >= endMs) continue
      await this.#store.transact({ guards: [{ kind: 'unchanged', key: cut.key, revision: cut.revision }], writes: [{ kind: 'delete', key: cut.key }] }, signal)
    }
  }

  async #countNew(nowMs: number, signal: AbortSignal): Promise<void> {
    const range = { prefix: outboxPrefix, after: this.#counted, before: outboxKey(nowMs - settledMs, ''), limit: expireBatch }
    for await (const entries of pagesOf(this.#store, range, signal)) {
      for (const entry of entries) this.#account.count(entry, 1)
      this.#counted = entries.at(-1)?.key ?? this.#counted
    }
  }

  /** Removes the oldest events of root groups whose events are too large in total. Returns their number. Rejects with StoreError or the signal's reason. */
  async expireOverSize(nowMs: number, signal: AbortSignal): Promise<number> {
    await this.#countNew(nowMs, signal)
    const over = this.#account.over(this.#retention.bytesPerRoot)
    if (over.size === 0) return 0
    let removed = 0
    const range = { prefix: outboxPrefix, after: outboxKey(this.#account.firstMs(over), ''), before: `${this.#counted}\0`, limit: expireBatch }
    for await (const entries of pagesOf(this.#store, range, signal)) {
      const excess = this.#takeExcess(entries, over)
      try {
        if (excess.length > 0) {
          await this.#announceCuts(excess, signal)
          await this.#store.transact(removal(excess), signal)
        }
      } catch (error) {
        for (const entry of excess) this.#account.count(entry, 1)
        throw error
      }
      removed += excess.length
      if (over.size === 0) break
    }
    return removed
  }

  /** Stores for each root group up to which event its oldest ones will be removed. So readers that are not that far learn that they missed events. */
  async #announceCuts(excess: readonly Entry[], signal: AbortSignal): Promise<void> {
    const newest = new Map<string, Position>()
    for (const entry of excess) {
      const known = newest.get(rootOfEvent(entry))
      if (known === undefined || comparePositions(entry, known) > 0) newest.set(rootOfEvent(entry), entry)
    }
    for (let committed = false; !committed; signal.throwIfAborted()) ({ committed } = await this.#store.transact(await this.#cuts(newest, signal), signal))
  }

  async #cuts(newest: ReadonlyMap<string, Position>, signal: AbortSignal): Promise<Transaction> {
    const guards: Guard[] = []
    const writes: Put[] = []
    for (const [root, position] of newest) {
      const key = `${outboxCutPrefix}${root}`
      const before = await this.#store.get(key, signal)
      guards.push(before === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: before.revision })
      const known = before === undefined ? position : positionOfCut(before)
      const cut = comparePositions(known, position) > 0 ? known : position
      writes.push({ kind: 'put', key, value: toBinary(OutboxCutSchema, create(OutboxCutSchema, { revision: BigInt(cut.revision), key: cut.key })) })
    }
    return { guards, writes }
  }

  /** Returns the entries to remove, and subtracts their sizes. Removes from `over` the root groups that are then within the limit. */
  #takeExcess(entries: readonly Entry[], over: Set<string>): Entry[] {
    return entries.filter((entry) => {
      const root = rootOfEvent(entry)
      if (!over.has(root)) return false
      this.#account.count(entry, -1)
      if (this.#account.totalOf(root) <= this.#retention.bytesPerRoot) over.delete(root)
      return true
    })
  }
}
