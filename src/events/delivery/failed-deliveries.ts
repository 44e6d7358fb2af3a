import { clone, create, toBinary } from '@bufbuild/protobuf'
import { errorText } from '../../base/error-text.ts'
import type { Random } from '../../base/runtime.ts'
import { backoffMs, type Backoff } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { FailedDeliverySchema, type FailedDelivery } from '../../gen/taproot/store/v1/events_pb.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { outboxTimeMs } from '../../engine/log/outbox-keys.ts'
import type { Services } from '../../engine/services.ts'
import { recordKey } from '../../store/keys.ts'
import type { Write } from '../../store/store.ts'
import { failedOf, failedPrefixOf } from '../records/progress.ts'

/** Maximum number of failed deliveries that one subscription keeps, including dead letters. */
const maxFailed = 1_000
/** Maximum size of the copies that the failed deliveries of one subscription have, in bytes. */
const maxCopyBytes = 16 * 2 ** 20

/** A failed delivery that is to be tried again. */
export interface Retry {
  /** The outbox key of the event. */
  readonly key: string
  readonly state: FailedDelivery
  running: boolean
}

/** The waits between the attempts of an event. */
export const backoff: Backoff = { firstMs: 1_000, maxMs: 3_600_000 }
/** How long delivery of an event is tried, in milliseconds. Events are stored longer, so that a dead letter can still copy the event. */
const retryForMs = 71.5 * 3_600_000

/** A failed attempt. */
export interface Attempt {
  readonly atMs: number
  readonly status: number
  readonly error: string
  readonly latencyMs: number
  readonly nextAtMs: number
  /** True if the event is not tried again. */
  readonly isLast: boolean
}

/**
 * Returns the time of the last attempt of an event, in milliseconds since 1970. A copy of the event outlives the outbox: its delivery is
 * tried for as long as that of a new event.
 */
export function lastAttemptMs({ key, state }: { readonly key: string; readonly state?: FailedDelivery }): number {
  const isCopy = state !== undefined && state.event.length > 0
  return (isCopy ? Number(state.firstAttemptTimeMs) : outboxTimeMs(key)) + retryForMs
}

/** Returns a failed attempt at `atMs`. The next one is not after `untilMs`, since the event expires soon after that. */
export function failedAttempt(
  { status, error, latencyMs, retryAfterMs }: Pick<Attempt, 'status' | 'error' | 'latencyMs'> & { readonly retryAfterMs: number | undefined },
  { atMs, attempts, untilMs, random }: { readonly atMs: number; readonly attempts: number; readonly untilMs: number; readonly random: Random },
): Attempt {
  const waitMs = Math.max(backoffMs(backoff, attempts, random), Math.min(retryAfterMs ?? 0, backoff.maxMs))
  const isLast = atMs >= untilMs
  return { atMs, status, error, latencyMs, isLast, nextAtMs: isLast ? atMs + waitMs : Math.min(atMs + waitMs, untilMs) }
}

/** Records an attempt in the state of a delivery. */
function note(state: FailedDelivery, { atMs, status, error, latencyMs, nextAtMs }: Attempt): void {
  state.attempts += 1
  state.status = status
  state.error = error
  state.latencyMs = latencyMs
  state.lastAttemptTimeMs = BigInt(atMs)
  state.nextAttemptTimeMs = BigInt(Math.ceil(nextAtMs))
}

/** The size of the copies that the failed deliveries of each organisation have. The leader alone makes copies. */
export class CopyRoom {
  readonly #bytes = new Map<Uid, number>()
  readonly #maxOf: (root: Uid) => number

  /** `maxOf` returns the maximum size for an organisation, in bytes. */
  constructor(maxOf: (root: Uid) => number) {
    this.#maxOf = maxOf
  }

  /** Returns true if the organisation may have so many bytes more. */
  has(root: Uid, bytes: number): boolean {
    return (this.#bytes.get(root) ?? 0) + bytes <= this.#maxOf(root)
  }

  add(root: Uid, bytes: number): void {
    const sum = (this.#bytes.get(root) ?? 0) + bytes
    if (sum === 0) this.#bytes.delete(root)
    else this.#bytes.set(root, sum)
  }
}

/** The failed deliveries of one subscription. Those to try again are in memory and in the store; dead letters are only counted. */
export class FailedDeliveries {
  readonly #services: Pick<Services, 'store' | 'log'>
  readonly #subscription: Uid
  readonly #retries = new Map<string, Retry>()
  readonly #room: CopyRoom
  #dead = 0
  #copyBytes = 0

  constructor(services: Pick<Services, 'store' | 'log'>, subscription: Uid, room: CopyRoom) {
    this.#services = services
    this.#subscription = subscription
    this.#room = room
  }

  /** The deliveries to try again, oldest failure first. */
  get retries(): Iterable<Retry> {
    return this.#retries.values()
  }

  /** The number of deliveries to try again. */
  get size(): number {
    return this.#retries.size
  }

  /** True if the maximum number of failed deliveries is reached. */
  get isFull(): boolean {
    return this.#retries.size + this.#dead >= maxFailed
  }

  /** Reads all failed deliveries from the store. Rejects with StoreError or the signal's reason. */
  async load(signal: AbortSignal): Promise<void> {
    this.#retries.clear()
    this.#dead = 0
    this.release()
    for await (const { key, state } of failedOf(this.#services.store, this.#subscription, signal)) {
      this.#addCopy(state.event.length)
      if (state.dead) this.#dead += 1
      else this.#retries.set(key, { key, state, running: false })
    }
  }

  /** Stores a delivery for another attempt. Returns false if the maximum is reached, or if the store refuses the write. */
  async park(key: string, attempt: Attempt, signal: AbortSignal): Promise<boolean> {
    if (this.isFull) return false
    const state = create(FailedDeliverySchema, { firstAttemptTimeMs: BigInt(attempt.atMs) })
    note(state, attempt)
    const isKept = await this.#put(key, state, signal)
    if (isKept) this.#retries.set(key, { key, state, running: false })
    return isKept
  }

  /** Records another failed attempt. */
  async failedAgain({ key, state }: Retry, attempt: Attempt, signal: AbortSignal): Promise<void> {
    note(state, attempt)
    await this.#put(key, state, signal)
  }

  /**
   * Removes a delivery that succeeded, or whose event has expired. Returns false if the store refuses the write; then the delivery is
   * tried again.
   */
  async remove({ key, state }: Retry, signal: AbortSignal): Promise<boolean> {
    const isWritten = await this.#write({ kind: 'delete', key: this.#keyOf(key) }, signal)
    if (isWritten && this.#retries.delete(key)) this.#addCopy(-state.event.length)
    return isWritten
  }

  /** Ends the count of the copies, because they are counted again, or because the subscription is gone or delivered elsewhere. */
  release(): void {
    this.#addCopy(-this.#copyBytes)
  }

  /**
   * Keeps a copy of an event that is not tried again. `full`: there are too many failed deliveries or copies, so nothing of it is kept.
   * `unwritten`: the store does not take the write.
   */
  async bury(event: { readonly key: string; readonly event: OutboxEvent }, attempt: Attempt, signal: AbortSignal): Promise<'kept' | 'full' | 'unwritten'> {
    const retry = this.#retries.get(event.key)
    const copy = toBinary(OutboxEventSchema, event.event)
    const added = copy.length - (retry?.state.event.length ?? 0)
    if (retry === undefined && this.isFull) return 'full'
    if (added > 0 && !(this.#copyBytes + added <= maxCopyBytes && this.#room.has(rootOf(this.#subscription), added)))
      return retry === undefined || (await this.remove(retry, signal)) ? 'full' : 'unwritten'
    // A copy: if the store does not take it, the delivery stays as it is.
    const state = retry === undefined ? create(FailedDeliverySchema, { firstAttemptTimeMs: BigInt(attempt.atMs) }) : clone(FailedDeliverySchema, retry.state)
    note(state, attempt)
    state.nextAttemptTimeMs = 0n
    state.dead = true
    state.event = copy
    if (!(await this.#put(event.key, state, signal))) return 'unwritten'
    this.#retries.delete(event.key)
    this.#dead += 1
    this.#addCopy(added)
    return 'kept'
  }

  #addCopy(bytes: number): void {
    this.#copyBytes += bytes
    this.#room.add(rootOf(this.#subscription), bytes)
  }

  #keyOf(key: string): string {
    return `${failedPrefixOf(this.#subscription)}${key}`
  }

  #put(key: string, state: FailedDelivery, signal: AbortSignal): Promise<boolean> {
    return this.#write({ kind: 'put', key: this.#keyOf(key), value: toBinary(FailedDeliverySchema, state) }, signal)
  }

  /** Returns false if the subscription is gone, or if the store refuses the write. */
  async #write(write: Write, signal: AbortSignal): Promise<boolean> {
    const { store, log } = this.#services
    try {
      const { committed } = await store.transact({ guards: [{ kind: 'exists', key: recordKey('Subscription', this.#subscription) }], writes: [write] }, signal)
      return committed
    } catch (error) {
      if (!signal.aborted) log.warn('the state of a delivery was not written', { subscription: this.#subscription, error: errorText(error) })
      return false
    }
  }
}
