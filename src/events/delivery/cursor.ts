import { create, toBinary } from '@bufbuild/protobuf'
import { rootOf, type Uid } from '../../base/uid.ts'
import { SubscriptionProgressSchema, type SubscriptionProgress } from '../../gen/taproot/store/v1/events_pb.ts'
import { recordKey } from '../../store/keys.ts'
import type { Revision, Store } from '../../store/store.ts'
import type { EventLog } from '../../engine/log/event-log.ts'
import { comparePositions, type LogEntry, type Position } from '../../engine/log/log-index.ts'
import { progressIn, progressKey } from '../records/progress.ts'

/** An event between its first start and the moment when the cursor passes it. It is `running` from a start until `finish` or `putBack`. */
export interface Slot {
  readonly entry: LogEntry
  /** How often the cursor had been moved by others. */
  readonly epoch: number
  state: 'running' | 'waiting' | 'finished'
}

/**
 * Where a subscription is in the log. Events are started in order and may finish in any order; the cursor passes an event once it and all before it are
 * finished. No event is started while it runs, unless a replay moved the cursor.
 */
export class DeliveryCursor {
  readonly #store: Store
  readonly #subscription: Uid
  readonly #slots: Slot[] = []
  /** Events that finished after the cursor was moved by others. */
  readonly #ahead = new Set<string>()
  #epoch = 0
  #waiting = 0
  /** Everything up to here was started, or does not match. */
  #started: Position = { revision: 0, key: '' }
  #revision: Revision | undefined
  progress: SubscriptionProgress = create(SubscriptionProgressSchema)
  /** True if `progress` differs from the store. */
  isDirty = false

  constructor(store: Store, subscription: Uid) {
    this.#store = store
    this.#subscription = subscription
  }

  /** The position before which no event waits. */
  get position(): Position {
    return { revision: Number(this.progress.revision), key: this.progress.key }
  }

  /** True if no event is between its start and the cursor. */
  get isIdle(): boolean {
    return this.#slots.length === 0
  }

  /** Reads the progress from the store, and goes where it says if it was written elsewhere. Returns true if it went. Rejects with StoreError or the signal's reason. */
  async load(log: EventLog, signal: AbortSignal): Promise<boolean> {
    const entry = await this.#store.get(progressKey(this.#subscription), signal)
    if (entry !== undefined && entry.revision === this.#revision) return false
    this.#revision = entry?.revision
    this.isDirty = entry === undefined
    if (entry === undefined) this.#moveTo(log.last)
    else this.progress = progressIn(entry)
    // The log of a restored store may end before the cursor. The time in its key still says where to go on. A cursor without a key is younger than the log.
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

  /** Yields the events to start, in order: those that were put back, then new ones that `wants` accepts. */
  *next(log: EventLog, wants: (entry: LogEntry) => boolean): Generator<Slot, void> {
    if (this.#waiting > 0) yield* this.#again(wants)
    for (const entry of log.after(this.#started, rootOf(this.#subscription))) {
      this.#started = { revision: entry.revision, key: entry.key }
      if (!wants(entry)) continue
      const slot: Slot = { entry, epoch: this.#epoch, state: this.#ahead.delete(entry.key) ? 'finished' : 'running' }
      this.#slots.push(slot)
      if (slot.state === 'running') yield slot
    }
    if (this.#slots.length === 0) this.#moveTo(this.#started)
  }

  /** Passes events up to a position, all of which are unwanted. */
  skipTo(position: Position): void {
    if (comparePositions(position, this.#started) <= 0) return
    this.#started = position
    if (this.isIdle) this.#moveTo(position)
  }

  /** Yields the events that were put back. A change of the subscription may have made some of them unwanted. */
  *#again(wants: (entry: LogEntry) => boolean): Generator<Slot, void> {
    for (const slot of [...this.#slots]) {
      if (slot.state !== 'waiting') continue
      slot.state = 'running'
      this.#waiting -= 1
      if (wants(slot.entry)) yield slot
      else this.finish(slot)
    }
  }

  /** Marks an event as finished and moves the cursor. */
  finish(slot: Slot): void {
    slot.state = 'finished'
    if (slot.epoch !== this.#epoch) this.#ahead.add(slot.entry.key)
    let passed: Slot | undefined
    while (this.#slots[0]?.state === 'finished') passed = this.#slots.shift()
    if (passed === undefined) return
    this.#moveTo(this.#slots.length === 0 ? this.#started : passed.entry)
    this.isDirty = true
  }

  /** Lets an event wait for another start. */
  putBack(slot: Slot): void {
    if (slot.epoch !== this.#epoch) return
    slot.state = 'waiting'
    this.#waiting += 1
  }

  /** Returns how many events wait, up to `most`. Looks at a bounded number of events. */
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
   * Writes the progress. Returns false if it was written elsewhere since it was read (a replay), or the subscription is gone. Rejects with StoreError or the
   * signal's reason.
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

/** How many events a count looks at. */
const countedAtMost = 20_000
