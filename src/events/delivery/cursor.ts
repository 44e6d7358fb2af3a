import { create, toBinary } from '@bufbuild/protobuf'
import { rootOf, type Uid } from '../../base/uid.ts'
import { SubscriptionProgressSchema, type SubscriptionProgress } from '../../gen/taproot/store/v1/events_pb.ts'
import { recordKey } from '../../store/keys.ts'
import type { Revision, Store } from '../../store/store.ts'
import type { EventLog } from '../../engine/log/event-log.ts'
import { comparePositions, type LogEntry, type Position } from '../../engine/log/log-index.ts'
import { progressIn, progressKey } from '../records/progress.ts'

/** An event from its first start until the cursor passes it. It is `running` from each start until `finish` or `putBack`. */
export interface Slot {
  readonly entry: LogEntry
  /** How often the cursor had been moved elsewhere, such as by a replay, when the event was started. */
  readonly epoch: number
  state: 'running' | 'waiting' | 'finished'
  /** Attempts of this process. */
  attempts: number
}

/**
 * The position of a subscription in the event log. Events are started in order and may finish in any order. The cursor passes an event
 * once it and all events before it are finished. An event is not started again while it runs, unless a replay moved the cursor.
 */
export class DeliveryCursor {
  readonly #store: Store
  readonly #subscription: Uid
  readonly #slots: Slot[] = []
  /** Keys of events that finished, although the cursor was moved after their start. */
  readonly #ahead = new Set<string>()
  #epoch = 0
  #waiting = 0
  /** All events up to this position were started, or are not wanted. */
  #started: Position = { revision: 0, key: '' }
  #revision: Revision | undefined
  progress: SubscriptionProgress = create(SubscriptionProgressSchema)
  /** True if `progress` differs from the stored one. */
  isDirty = false

  constructor(store: Store, subscription: Uid) {
    this.#store = store
    this.#subscription = subscription
  }

  /** The cursor: all events up to here are finished or not wanted. */
  get position(): Position {
    return { revision: Number(this.progress.revision), key: this.progress.key }
  }

  /** True if no started event waits for the cursor to pass it. */
  get isIdle(): boolean {
    return this.#slots.length === 0
  }

  /**
   * Reads the progress from the store. If it was written elsewhere, moves the cursor there and returns true. Only the position is taken over
   * then: all else is newer in memory. Rejects with StoreError or the signal's reason.
   */
  async load(log: EventLog, signal: AbortSignal): Promise<boolean> {
    const entry = await this.#store.get(progressKey(this.#subscription), signal)
    if (entry !== undefined && entry.revision === this.#revision) return false
    const isFirst = this.#revision === undefined
    this.#revision = entry?.revision
    const stored = entry === undefined ? undefined : progressIn(entry)
    this.isDirty = stored === undefined || this.progress.delivered > stored.delivered
    if (stored === undefined) this.#moveTo(log.last)
    else if (isFirst) this.progress = stored
    else this.#moveTo({ revision: Number(stored.revision), key: stored.key })
    // In a restored store, the log may end before the cursor. Then the time in the cursor's key shows where to continue. A cursor without
    // a key belongs to a new subscription, which is newer than the log.
    if (this.progress.key !== '' && this.position.revision > (log.loadedAt ?? 0)) {
      const next = log.firstFrom(this.progress.key, rootOf(this.#subscription))
      this.#moveTo(next === undefined ? log.last : { revision: next.revision, key: '' })
      this.isDirty = true
    }
    this.#slots.length = 0
    this.#waiting = 0
    this.#epoch += 1
    this.#ahead.clear()
    this.#started = this.position
    return true
  }

  /** Yields the events to start, in order: first those that were put back, then new ones that `wants` accepts. */
  *next(log: EventLog, wants: (entry: LogEntry) => boolean): Generator<Slot, void> {
    if (this.#waiting > 0) yield* this.#again(wants)
    for (const entry of log.after(this.#started, rootOf(this.#subscription))) {
      this.#started = { revision: entry.revision, key: entry.key }
      if (!wants(entry)) continue
      const slot: Slot = { entry, epoch: this.#epoch, state: this.#ahead.delete(entry.key) ? 'finished' : 'running', attempts: 0 }
      this.#slots.push(slot)
      if (slot.state === 'running') yield slot
    }
    if (this.#slots.length === 0) this.#moveTo(this.#started)
  }

  /** Moves the cursor past events up to a position, none of which is wanted. */
  skipTo(position: Position): void {
    if (comparePositions(position, this.#started) <= 0) return
    this.#started = position
    if (this.isIdle) this.#moveTo(position)
  }

  /** Yields the events that were put back and are still wanted. A change of the subscription may make events unwanted. */
  *#again(wants: (entry: LogEntry) => boolean): Generator<Slot, void> {
    for (const slot of [...this.#slots]) {
      if (slot.state !== 'waiting') continue
      slot.state = 'running'
      this.#waiting -= 1
      if (wants(slot.entry)) yield slot
      else this.finish(slot)
    }
  }

  /** Marks an event as finished, and moves the cursor past all finished events. */
  finish(slot: Slot): void {
    slot.state = 'finished'
    if (slot.epoch !== this.#epoch) this.#ahead.add(slot.entry.key)
    let passed: Slot | undefined
    while (this.#slots[0]?.state === 'finished') passed = this.#slots.shift()
    if (passed === undefined) return
    this.#moveTo(this.#slots.length === 0 ? this.#started : passed.entry)
    this.isDirty = true
  }

  /** Returns an event to the queue, to be started again. */
  putBack(slot: Slot): void {
    if (slot.epoch !== this.#epoch) return
    slot.state = 'waiting'
    this.#waiting += 1
  }

  /** Returns the number of waiting events, at most `most`. Reads a limited part of the log. */
  countPending(log: EventLog, wants: (entry: LogEntry) => boolean, most: number): number {
    const finished = new Set([...this.#ahead, ...this.#slots.filter(({ state }) => state === 'finished').map(({ entry }) => entry.key)])
    let count = 0
    let looked = 0
    for (const entry of log.after(this.position, rootOf(this.#subscription))) {
      looked += 1
      if (count >= most || looked > countedAtMost) break
      if (wants(entry) && !finished.has(entry.key)) count += 1
    }
    return count
  }

  /**
   * Writes the progress. Returns false if it was written elsewhere since it was read (by a replay), or if the subscription is gone.
   * Rejects with StoreError or the signal's reason.
   */
  async save(signal: AbortSignal): Promise<boolean> {
    const key = progressKey(this.#subscription)
    const held = this.#revision
    this.isDirty = false
    const outcome = await this.#store.transact(
      {
        guards: [
          { kind: 'exists', key: recordKey('Subscription', this.#subscription) },
          held === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: held },
        ],
        writes: [{ kind: 'put', key, value: toBinary(SubscriptionProgressSchema, this.progress) }],
      },
      signal,
    )
    if (outcome.committed) this.#revision = outcome.revision
    return outcome.committed
  }

  #moveTo({ revision, key }: Position): void {
    this.progress.revision = BigInt(revision)
    this.progress.key = key
  }
}

/** Maximum number of log entries that a count reads. */
const countedAtMost = 20_000
