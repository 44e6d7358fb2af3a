import { Alarm } from '../../base/timing.ts'
import { errorText } from '../../base/error-text.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { Subscription } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import { recordKey } from '../../store/keys.ts'
import type { EventLog, LoggedEvent } from '../../engine/log/event-log.ts'
import type { LogEntry, Position } from '../../engine/log/log-index.ts'
import { isWanted } from '../records/event-types.ts'
import { pauseReason } from '../records/progress.ts'
import { maxPending, pauseWrite } from '../records/subscriptions.ts'
import { DeliveryAttempts, type AttemptContext, type AttemptOutcome, type SentOutcome } from './delivery-attempts.ts'
import { DeliveryCursor, type Slot } from './cursor.ts'
import { backoff, failedAttempt, FailedDeliveries, lastAttemptMs, type Attempt, type CopyRoom, type Retry } from './failed-deliveries.ts'

/** Receives the results of deliveries, for metrics. */
export interface DeliveryObserver {
  delivery(outcome: 'delivered' | 'failed' | 'dead' | 'expired'): void
}

/** Dependencies that the workers of all subscriptions share. */
export interface WorkerContext extends AttemptContext {
  readonly observer: DeliveryObserver | undefined
  readonly copies: CopyRoom
}

/** Maximum number of events of one subscription that are delivered concurrently. */
const windowSize = 8
/** Number of consecutive failures after which a sink counts as failing. Then the cursor stops, and only one event is tried. */
const failuresToFailing = 5
const saveEveryMs = 1_000
const lookedForOldest = 1_000
const lastSaveTimeoutMs = 2_000

/**
 * Delivers the events of one subscription. After a failure, the event waits for another attempt and the cursor continues. If the sink
 * fails repeatedly, or the subscription is ordered, the cursor stops (docs/spec/events.md#delivery). A success alone causes no write: the
 * cursor is written at most once a second.
 */
export class SubscriptionWorker {
  readonly uid: Uid
  readonly #context: WorkerContext
  readonly #cursor: DeliveryCursor
  readonly #failed: FailedDeliveries
  readonly #attempts: DeliveryAttempts
  readonly #alarm = new Alarm()
  #running = 0
  #savedMs = 0
  #hasChanged = false
  #isLooping = false
  /** True if the worker has reached the end of the log, and no wanted event has been appended since. Then unwanted events need not be read. */
  #isCaughtUp = false

  constructor(uid: Uid, context: WorkerContext) {
    this.uid = uid
    this.#context = context
    this.#cursor = new DeliveryCursor(context.services.store, uid)
    this.#failed = new FailedDeliveries(context.services, uid, context.copies)
    this.#attempts = new DeliveryAttempts(uid, context)
  }

  /** True while the sink counts as failing. */
  get isFailing(): boolean {
    return this.#cursor.progress.failingReason !== ''
  }

  /** Returns the first waiting event; undefined if there is none, or if the subscription is paused. */
  oldestWaiting(log: EventLog): LogEntry | undefined {
    if (this.#isCaughtUp && this.#cursor.isIdle) return undefined
    if (this.#isPaused()) return undefined
    // Unwanted events may come first, until the cursor passes them. So it looks a little further for a wanted one.
    let looked = 0
    for (const entry of log.after(this.#cursor.position, rootOf(this.uid))) {
      if (this.wants(entry)) return entry
      if (++looked === lookedForOldest) return undefined
    }
    return undefined
  }

  /** Wakes the worker for a wanted event that was appended after `passed`. */
  offer(passed: Position): void {
    if (this.#isCaughtUp) this.#cursor.skipTo(passed)
    this.#isCaughtUp = false
    this.wake()
  }

  /** The subscription's settings may have changed. They do not apply to earlier events. */
  recordChanged(): void {
    if (this.#isCaughtUp) this.#cursor.skipTo(this.#context.log.last)
    this.wake()
  }

  /** Makes the worker read the log again. */
  wake(): void {
    this.#alarm.ring()
  }

  /** Called after a change of the subscription: makes the worker read its state again, and ends the waits of a failing sink. */
  changed(): void {
    this.#hasChanged = true
    this.wake()
  }

  /** Returns true if the subscription wants the event. */
  readonly wants = (entry: LogEntry): boolean => {
    const record = this.#record()
    return record !== undefined && isWanted(record, entry)
  }

  /** Returns true if the subscription wants the event, or if the cache lacks the subscription. */
  mayWant(entry: LogEntry): boolean {
    return this.#record() === undefined || this.wants(entry)
  }

  /** Delivers events until `signal` aborts, and finally writes the cursor. Rejects with StoreError. */
  async run(signal: AbortSignal): Promise<void> {
    const { services, log } = this.#context
    this.#isCaughtUp = false
    await this.#cursor.load(log, signal)
    await this.#failed.load(signal)
    this.#isLooping = true
    try {
      while (!signal.aborted) {
        this.#alarm.arm()
        const dueMs = (await this.#isReloading(signal)) ? Infinity : await this.#start(signal)
        const saveMs = await this.#saveIfDue(signal)
        await this.#alarm.until(Math.min(dueMs, saveMs), { clock: services.clock, signal })
      }
    } finally {
      this.#isLooping = false
      await this.#lastSave()
      this.#failed.release()
    }
  }

  /**
   * Reads the stored state after a change. A replay moves the cursor, and a redelivery retries failed events. Returns true while current
   * deliveries must end first.
   */
  async #isReloading(signal: AbortSignal): Promise<boolean> {
    if (!this.#hasChanged) return false
    if (this.#running > 0) return true
    this.#hasChanged = false
    // The store refuses this if the progress was written elsewhere, so a replay is not overwritten.
    if (this.#cursor.isDirty) await this.#cursor.save(signal)
    if (await this.#cursor.load(this.#context.log, signal)) this.#isCaughtUp = false
    await this.#failed.load(signal)
    this.#cursor.progress.nextAttemptTimeMs = 0n
    for (const { state } of this.#failed.retries) state.nextAttemptTimeMs = 0n
    return false
  }

  #record(): Subscription | undefined {
    return this.#context.services.cache.tables.get('Subscription', this.uid)?.message
  }

  #isPaused(): boolean {
    return pauseReason(this.#context.services.cache.tables, this.uid) !== undefined
  }

  /** Returns the number of events that may be delivered concurrently. */
  #limit({ ordered }: Subscription): number {
    return this.isFailing || ordered ? 1 : windowSize
  }

  #nowMs(): number {
    return this.#context.services.clock.now()
  }

  /** Starts all deliveries that can start now. Returns when to continue, in milliseconds since 1970. */
  async #start(signal: AbortSignal): Promise<number> {
    const { log } = this.#context
    const record = this.#record()
    if (record === undefined || this.#isPaused()) {
      this.#isCaughtUp = false
      return Infinity
    }
    const notBeforeMs = Number(this.#cursor.progress.nextAttemptTimeMs)
    if (this.#nowMs() < notBeforeMs) return notBeforeMs
    const limit = this.#limit(record)
    const dueMs = this.isFailing ? Infinity : this.#startRetries(limit, signal)
    if (this.#running >= limit) return dueMs
    for (const slot of this.#cursor.next(log, this.wants)) {
      void this.#deliver(slot, signal)
      if (this.#running >= limit) return dueMs
    }
    this.#isCaughtUp = true
    return dueMs
  }

  #startRetries(limit: number, signal: AbortSignal): number {
    let dueMs = Infinity
    for (const retry of this.#failed.retries) {
      if (this.#running >= limit) break
      if (retry.running) continue
      const retryMs = Number(retry.state.nextAttemptTimeMs)
      if (retryMs <= this.#nowMs()) void this.#deliverAgain(retry, signal)
      else dueMs = Math.min(dueMs, retryMs)
    }
    return dueMs
  }

  /** Delivers an event, and then the ones that follow it while no other work is due. */
  async #deliver(first: Slot, signal: AbortSignal): Promise<void> {
    this.#running += 1
    for (let slot: Slot | undefined = first; slot !== undefined;) {
      const outcome = await this.#attempts.send(slot.entry, slot, signal)
      if (outcome.kind !== 'undone') slot.attempts += 1
      const wasDirty = this.#cursor.isDirty
      if (!signal.aborted) await this.#note(slot, outcome, signal)
      // The cursor must be written in time.
      if (!wasDirty && this.#cursor.isDirty) this.wake()
      slot = outcome.kind === 'delivered' && !signal.aborted ? this.#following() : undefined
    }
    this.#running -= 1
    this.wake()
  }

  /** Returns the event to deliver after a success, without the cost of the loop. Undefined if there is none, or if the loop must decide. */
  #following(): Slot | undefined {
    const record = this.#record()
    const isPlain = this.#isLooping && !this.#hasChanged && this.#failed.size === 0 && this.#cursor.progress.nextAttemptTimeMs === 0n
    if (!isPlain || record === undefined || this.#isPaused() || this.#running > this.#limit(record)) return undefined
    for (const slot of this.#cursor.next(this.#context.log, (entry) => isWanted(record, entry))) return slot
    this.#isCaughtUp = true
    return undefined
  }

  async #note(slot: Slot, outcome: AttemptOutcome, signal: AbortSignal): Promise<void> {
    const { entry } = slot
    if (outcome.kind === 'delivered') {
      this.#succeeded()
      this.#cursor.finish(slot)
    } else if (outcome.kind === 'failed') {
      if (await this.#passFailure(entry, outcome, signal)) this.#cursor.finish(slot)
      else this.#cursor.putBack(slot)
    } else if (outcome.kind === 'expired') {
      this.#context.observer?.delivery('expired')
      this.#cursor.finish(slot)
    } else {
      if (outcome.kind === 'gone') await this.#pause('the sink answered 410 Gone', signal)
      // Set even after a pause, since the cache may not show the pause yet, or the store may have refused it.
      this.#cursor.progress.nextAttemptTimeMs = BigInt(this.#nowMs() + backoff.firstMs)
      this.#cursor.putBack(slot)
    }
  }

  async #deliverAgain(retry: Retry, signal: AbortSignal): Promise<void> {
    this.#running += 1
    retry.running = true
    const { attempts, event: copy } = retry.state
    const outcome = await this.#attempts.send(entryOf(retry.key), { attempts, copy }, signal)
    if (!signal.aborted) await this.#noteRetry(retry, outcome, signal)
    // Not before its state is written, since the worker would start it again.
    retry.running = false
    this.#running -= 1
    this.wake()
  }

  async #noteRetry(retry: Retry, outcome: AttemptOutcome, signal: AbortSignal): Promise<void> {
    if (outcome.kind === 'delivered' || outcome.kind === 'expired') {
      if (outcome.kind === 'delivered') this.#succeeded()
      if (await this.#failed.remove(retry, signal)) return
    } else if (outcome.kind === 'failed') {
      const attempt = this.#noteFailure(outcome, { attempts: retry.state.attempts + 1, untilMs: lastAttemptMs(retry) })
      if (!attempt.isLast) return this.#failed.failedAgain(retry, attempt, signal)
      if (await this.#abandon({ key: retry.key, copy: retry.state.event }, attempt, signal)) return
    } else if (outcome.kind === 'gone') await this.#pause('the sink answered 410 Gone', signal)
    retry.state.nextAttemptTimeMs = BigInt(this.#nowMs() + backoff.firstMs)
  }

  #succeeded(): void {
    const { progress } = this.#cursor
    progress.failures = 0
    progress.failingReason = ''
    progress.nextAttemptTimeMs = 0n
    progress.lastError = ''
    progress.delivered += 1n
    progress.lastDeliveryTimeMs = BigInt(this.#nowMs())
    this.#cursor.isDirty = true
    this.#context.observer?.delivery('delivered')
  }

  /** True between attempts of a failing sink. Further failures count as one, since the sink may only have been started again. */
  #isWaiting(): boolean {
    return this.isFailing && this.#nowMs() < Number(this.#cursor.progress.nextAttemptTimeMs)
  }

  #noteFailure(outcome: SentOutcome & { kind: 'failed' }, event: { readonly attempts: number; readonly untilMs: number }): Attempt {
    const { progress } = this.#cursor
    if (!this.#isWaiting()) progress.failures += 1
    progress.lastError = outcome.error
    this.#cursor.isDirty = true
    this.#context.observer?.delivery('failed')
    return failedAttempt(outcome, { ...event, atMs: this.#nowMs(), random: this.#context.services.random })
  }

  /**
   * Handles a failed delivery. Returns true if the cursor may pass the event, because it is stored for another attempt or given up.
   * Otherwise the subscription waits.
   */
  async #passFailure(entry: LogEntry, outcome: SentOutcome & { kind: 'failed' }, signal: AbortSignal): Promise<boolean> {
    const { progress } = this.#cursor
    const isWaiting = this.#isWaiting()
    const attempt = this.#noteFailure(outcome, { attempts: progress.failures + 1, untilMs: lastAttemptMs(entry) })
    if (attempt.isLast && (await this.#abandon({ key: entry.key }, attempt, signal))) return true
    const isDown = progress.failures >= failuresToFailing || this.#failed.isFull
    if (!isDown && this.#record()?.ordered !== true && (await this.#failed.park(entry.key, attempt, signal))) return true
    if (isDown) progress.failingReason = outcome.error
    if (!isWaiting) progress.nextAttemptTimeMs = BigInt(Math.ceil(attempt.nextAtMs))
    return false
  }

  /**
   * Makes a dead letter of an event. Returns true, also if there are too many to keep another one: the event is not tried again. Returns false if the store
   * did not answer: the next failure abandons the event.
   */
  async #abandon({ key, copy }: { readonly key: string; readonly copy?: Uint8Array }, attempt: Attempt, signal: AbortSignal): Promise<boolean> {
    const { services, observer } = this.#context
    let logged: LoggedEvent | undefined
    try {
      logged = await this.#attempts.read(entryOf(key), signal, copy)
    } catch (error) {
      if (!signal.aborted) services.log.warn('an undeliverable event was not read', { subscription: this.uid, event: key, error: errorText(error) })
      return false
    }
    const result = logged === undefined ? 'kept' : await this.#failed.bury(logged, attempt, signal)
    if (result === 'unwritten' && this.#record() !== undefined) return false
    if (result === 'full') services.log.warn('an undeliverable event is not kept', { subscription: this.uid, event: key })
    observer?.delivery('dead')
    return true
  }

  /** Pauses the subscription with a reason that its owner must resolve. */
  async #pause(reason: string, signal: AbortSignal): Promise<void> {
    const { store, log } = this.#context.services
    const write = pauseWrite(this.uid, { reason, identity: '', nowMs: this.#nowMs() })
    try {
      await store.transact({ guards: [{ kind: 'exists', key: recordKey('Subscription', this.uid) }], writes: [write] }, signal)
      log.warn('a subscription was paused', { subscription: this.uid, reason })
    } catch (error) {
      // The next attempt pauses it again for the same reason.
      if (!signal.aborted) log.warn('a subscription was not paused', { subscription: this.uid, reason, error: errorText(error) })
    }
  }

  /** Writes the cursor if it is due. Returns when the next write is due, in milliseconds since 1970. */
  async #saveIfDue(signal: AbortSignal): Promise<number> {
    if (!this.#cursor.isDirty) return Infinity
    if (this.#nowMs() - this.#savedMs < saveEveryMs) return this.#savedMs + saveEveryMs
    const { log } = this.#context
    this.#cursor.progress.pending = Math.min(this.#failed.size + this.#cursor.countPending(log, this.wants, maxPending + 1), maxPending + 1)
    this.#savedMs = this.#nowMs()
    // The progress was written elsewhere: a replay moved the cursor.
    if (!(await this.#cursor.save(signal)) && this.#record() !== undefined) {
      if (await this.#cursor.load(log, signal)) this.#isCaughtUp = false
      this.wake()
    }
    return Infinity
  }

  async #lastSave(): Promise<void> {
    if (!this.#cursor.isDirty) return
    await this.#cursor.save(AbortSignal.timeout(lastSaveTimeoutMs)).catch((error: unknown) => {
      this.#context.services.log.debug('the cursor of a subscription was not written', { subscription: this.uid, error: errorText(error) })
    })
  }
}

/** Returns a log entry for an event of which only the key is known. */
function entryOf(key: string): LogEntry {
  return { key, revision: 0, type: '', group: '', subject: '' }
}
