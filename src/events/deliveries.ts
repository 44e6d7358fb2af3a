import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { durationFromMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { hashQuery, sealCursor } from '../base/page-token.ts'
import { DomainError } from '../base/errors.ts'
import { rootOf, trustedUid, type Uid } from '../base/uid.ts'
import { CooperativeTask } from '../cache/cooperative-task.ts'
import type { EventLog } from '../engine/log/event-log.ts'
import type { LogEntry, Position } from '../engine/log/log-index.ts'
import { notFound } from '../engine/errors.ts'
import { outboxId, outboxKey, outboxTimeMs } from '../engine/log/outbox-keys.ts'
import type { RecentDelivery } from '../engine/log/recent-deliveries.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import type { Context, Handler, Services } from '../engine/services.ts'
import { existingRecord } from '../engine/write.ts'
import {
  Delivery_State,
  DeliverySchema,
  ListDeliveriesResponseSchema,
  type Delivery,
  type ListDeliveriesRequest,
  type RedeliverEventsRequest,
  type ReplayEventsRequest,
} from '../gen/taproot/events/v2/subscriptions_pb.ts'
import { OutboxEventSchema, type OutboxEvent } from '../gen/taproot/store/v1/envelope_pb.ts'
import { FailedDeliverySchema, RedeliverySchema, SubscriptionProgressSchema, type SubscriptionProgress } from '../gen/taproot/store/v1/events_pb.ts'
import type { Store } from '../store/store.ts'
import { uuidOf } from './event-attributes.ts'
import { isWanted } from './records/event-types.ts'
import { failedOf, progressKey, readProgress, redeliveryKey, revived, type Failed } from './records/progress.ts'
import { changeState, subscriptionKind } from './records/subscriptions.ts'

async function failedKeysOf(store: Store, subscription: Uid, signal: AbortSignal): Promise<Set<string>> {
  const keys = new Set<string>()
  for await (const { key } of failedOf(store, subscription, signal)) keys.add(key)
  return keys
}

/** Returns the id of an event from its outbox key, as events show it. */
function idIn(key: string): string {
  return uuidOf({ id: outboxId(key) })
}

/** Returns true if `id` is the id of the event with this outbox key. Ids may be written with or without dashes. */
function hasId(key: string, id: string): boolean {
  const bare = id.replaceAll('-', '')
  return bare === idIn(key).replaceAll('-', '') || bare === outboxId(key).replaceAll('-', '')
}

function shownFailure({ key, state }: Failed, event: OutboxEvent | undefined): Delivery {
  const { dead, attempts, status, error, lastAttemptTimeMs, nextAttemptTimeMs, latencyMs } = state
  return create(DeliverySchema, {
    eventId: idIn(key),
    eventType: event?.type ?? '',
    subject: event?.subject ?? '',
    eventTime: timestampFromMs(outboxTimeMs(key)),
    state: dead ? Delivery_State.DEAD : Delivery_State.FAILED,
    attempts,
    lastStatus: status,
    lastError: error,
    lastAttemptTime: timestampFromMs(Number(lastAttemptTimeMs)),
    lastLatency: durationFromMs(latencyMs),
    ...(dead ? {} : { nextAttemptTime: timestampFromMs(Number(nextAttemptTimeMs)) }),
  })
}

function shownPending({ key, type, subject }: LogEntry): Delivery {
  return create(DeliverySchema, {
    eventId: idIn(key),
    eventType: type,
    subject,
    eventTime: timestampFromMs(outboxTimeMs(key)),
    state: Delivery_State.PENDING,
  })
}

function shownSuccess({ entry, attempts, status, timeMs, latencyMs }: RecentDelivery): Delivery {
  return create(DeliverySchema, {
    ...shownPending(entry),
    state: Delivery_State.DELIVERED,
    attempts,
    lastStatus: status,
    lastAttemptTime: timestampFromMs(timeMs),
    lastLatency: durationFromMs(latencyMs),
  })
}

/**
 * Yields the deliveries of a subscription after the last one of a page. First come failed and dead ones, sorted by event time, then
 * waiting ones in commit order.
 */
class Deliveries {
  readonly #services: Services
  readonly #log: EventLog
  readonly #uid: Uid
  readonly #progress: SubscriptionProgress | undefined
  /** The outbox keys of failed and dead deliveries, once all were read. */
  #failedKeys: ReadonlySet<string> | undefined

  private constructor(services: Services, log: EventLog, { uid, progress }: { readonly uid: Uid; readonly progress: SubscriptionProgress | undefined }) {
    this.#services = services
    this.#log = log
    this.#uid = uid
    this.#progress = progress
  }

  /** Reads the cursor, before the failed deliveries: so an event that fails meanwhile is among one or the other. */
  static async read(services: Services, log: EventLog, { uid, signal }: { readonly uid: Uid; readonly signal: AbortSignal }): Promise<Deliveries> {
    return new Deliveries(services, log, { uid, progress: await readProgress(services.store, uid, signal) })
  }

  /** The number of events that the sink accepted. */
  get deliveredCount(): bigint {
    return this.#progress?.delivered ?? 0n
  }

  async *failed(after: string, signal: AbortSignal): AsyncGenerator<Listed, void> {
    const keys = new Set<string>()
    for await (const failed of failedOf(this.#services.store, this.#uid, signal)) {
      keys.add(failed.key)
      if (failed.key <= after) continue
      const copy = failed.state.event.length > 0 ? fromBinary(OutboxEventSchema, failed.state.event) : undefined
      const logged = copy ?? (await this.#log.read({ key: failed.key, revision: 0, type: '', group: '', subject: '' }, signal))?.event
      yield { delivery: shownFailure(failed, logged), place: [failed.key] }
    }
    this.#failedKeys = keys
  }

  /** Yields successes before a number, newest first; none if another process delivers. */
  *delivered(before: number): Generator<Listed, void> {
    for (const recent of this.#services.recentDeliveries.of(this.#uid) ?? []) {
      if (recent.number < before) yield { delivery: shownSuccess(recent), place: [recent.number] }
    }
  }

  async *pending(after: Position | undefined, signal: AbortSignal): AsyncGenerator<Listed, void> {
    const progress = this.#progress
    if (progress === undefined) return
    // The cursor may not have passed a failed event yet, because an earlier one is still being sent.
    const failed = this.#failedKeys ?? (await failedKeysOf(this.#services.store, this.#uid, signal))
    const record = this.#services.cache.tables.get('Subscription', this.#uid)?.message
    if (record === undefined) return
    const from = after ?? { revision: Number(progress.revision), key: progress.key }
    const task = new CooperativeTask()
    for (const entry of this.#log.after(from, rootOf(this.#uid))) {
      if (isWanted(record, entry) && !failed.has(entry.key)) yield { delivery: shownPending(entry), place: [entry.revision, entry.key] }
      if (task.shouldYield) await task.pause()
    }
  }
}

interface Listed {
  readonly delivery: Delivery
  readonly place: readonly (string | number)[]
}

/** Yields the deliveries that a request selects, starting at its page. */
async function* listed(deliveries: Deliveries, request: ListDeliveriesRequest, { place, signal }: Paged): AsyncGenerator<Listed, void> {
  const { state } = request
  const [first, second] = place
  const isPending = typeof first === 'number'
  if (state === Delivery_State.DELIVERED) {
    yield* deliveries.delivered(isPending ? first : Infinity)
    return
  }
  if (!isPending && state !== Delivery_State.PENDING) {
    for await (const one of deliveries.failed(first ?? '', signal)) if (state === Delivery_State.STATE_UNSPECIFIED || state === one.delivery.state) yield one
  }
  if (state === Delivery_State.STATE_UNSPECIFIED || state === Delivery_State.PENDING) {
    yield* deliveries.pending(isPending ? { revision: first, key: String(second) } : undefined, signal)
  }
}

interface Paged {
  readonly place: readonly (string | number)[]
  readonly signal: AbortSignal
}

/** ListDeliveries: lists the failed, dead and waiting deliveries of a subscription. */
export const listDeliveries: Handler = async (services, context, message) => {
  const request = message as ListDeliveriesRequest
  const { signal } = context
  const record = existingRecord(subscriptionKind, services.cache, request.uid)
  const queryHash = hashQuery([context.method.rpc, record.uid, request.state, context.caller?.identity])
  const { key: place = [], restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const { log, release } = await services.eventLog.acquire(signal)
  try {
    await log.caughtUp(signal)
    const limit = pageLimit(request.pageSize)
    const found: Listed[] = []
    let toSkip = request.skip
    const deliveries = await Deliveries.read(services, log, { uid: record.uid, signal })
    for await (const one of listed(deliveries, request, { place, signal })) {
      if (toSkip > 0) toSkip -= 1
      else if (found.push(one) > limit) break
    }
    context.authorize()
    const page = found.slice(0, limit)
    const last = page.at(-1)
    const hasMore = found.length > limit && last !== undefined
    const cursor = hasMore ? { key: last.place, queryHash, issuedMs: services.clock.now() } : undefined
    return {
      message: create(ListDeliveriesResponseSchema, {
        deliveries: page.map(({ delivery }) => delivery),
        nextPageToken: cursor === undefined ? '' : sealCursor(cursor, services.pageKeys.current(), services.random),
        skipped: request.skip,
        deliveredCount: deliveries.deliveredCount,
        deliveredElsewhere: services.recentDeliveries.of(record.uid) === undefined,
      }),
      subject: record.uid,
      ...(restarted ? { pageTokenRestarted: true } : {}),
    }
  } finally {
    release()
  }
}

/** RedeliverEvents: tries failed and dead deliveries again at once, and then for as long as new events are tried. */
export const redeliverEvents: Handler = async (services, context, message) => {
  const { uid, eventId } = message as RedeliverEventsRequest
  const record = existingRecord(subscriptionKind, services.cache, uid)
  return changeState(services, context, {
    uid,
    change: () => undefined,
    async prepare(signal) {
      if (eventId === '') return undefined
      for await (const failed of failedOf(services.store, record.uid, signal)) if (hasId(failed.key, eventId)) return failed
      throw notFound('Delivery', eventId, { resourceType: 'events.taproot.dev/Delivery' })
    },
    // The leader may have delivered the event since it was read. Then it must not be written again.
    guards: (failed) => (failed === undefined ? [] : [{ kind: 'unchanged', key: failed.entry.key, revision: failed.entry.revision }]),
    writes(subscription, { nowMs }, failed) {
      const timeMs = BigInt(nowMs)
      if (failed !== undefined) return [{ kind: 'put', key: failed.entry.key, value: toBinary(FailedDeliverySchema, revived(failed.state, timeMs)) }]
      // One write for all of them, however many there are.
      return [{ kind: 'put', key: redeliveryKey(subscription), value: toBinary(RedeliverySchema, create(RedeliverySchema, { timeMs })) }]
    },
  })
}

/**
 * Returns the position before the first event to replay. Throws code 5 if the event is no longer stored, and code 3 for a time in the
 * future.
 */
function replayFrom(log: EventLog, { uid, from }: ReplayEventsRequest, nowMs: number): Position {
  const root = rootOf(trustedUid(uid))
  if (from.case === 'fromEventId') {
    for (const entry of log.after({ revision: 0, key: '' }, root)) if (hasId(entry.key, from.value)) return before(entry)
    throw notFound('Event', from.value, { resourceType: 'events.taproot.dev/Event' })
  }
  // The schema requires an event or a time.
  const timeMs = from.value === undefined ? 0 : timestampMs(from.value)
  if (timeMs > nowMs) throw DomainError.invalid('from_time', 'must not be in the future')
  const first = log.firstFrom(outboxKey(Math.max(0, timeMs), ''), root)
  return first === undefined ? log.last : before(first)
}

/** Returns the position just before an event. No other key sorts between the two. */
function before({ revision, key }: LogEntry): Position {
  return { revision, key: key.slice(0, -1) }
}

/** ReplayEvents: moves the cursor back, so that events are delivered again, with the same ids. */
export const replayEvents: Handler = async (services: Services, context: Context, message) => {
  const request = message as ReplayEventsRequest
  const record = existingRecord(subscriptionKind, services.cache, request.uid)
  const { log, release } = await services.eventLog.acquire(context.signal)
  try {
    await log.caughtUp(context.signal)
    const { revision, key } = replayFrom(log, request, services.clock.now())
    return await changeState(services, context, {
      uid: request.uid,
      change: () => undefined,
      prepare: (signal) => readProgress(services.store, record.uid, signal),
      writes: (uid, _, progress = create(SubscriptionProgressSchema)) => [
        { kind: 'put', key: progressKey(uid), value: toBinary(SubscriptionProgressSchema, { ...progress, revision: BigInt(revision), key }) },
      ],
    })
  } finally {
    release()
  }
}
