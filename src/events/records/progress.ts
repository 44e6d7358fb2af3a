import { fromBinary } from '@bufbuild/protobuf'
import { isSuspended } from '../../authz/access.ts'
import type { Uid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import {
  FailedDeliverySchema,
  RedeliverySchema,
  SubscriptionPauseSchema,
  SubscriptionProgressSchema,
  type FailedDelivery,
  type SubscriptionPause,
  type SubscriptionProgress,
} from '../../gen/taproot/store/v1/events_pb.ts'
import { pauseKey } from '../../store/keys.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Entry, Store } from '../../store/store.ts'

/** Key prefix of the delivery progress of all subscriptions. */
export const progressPrefix = 'x/events/progress/'
/** Key prefix of the last redelivery of all subscriptions. */
export const redeliveryPrefix = 'x/events/redelivery/'
/** Key prefix of the failed deliveries of all subscriptions. */
export const failedPrefix = 'x/events/failed/'

/**
 * Returns the key of a subscription's delivery progress; the value is a SubscriptionProgress. It is written when the subscription is
 * created, and later only by the leader.
 */
export function progressKey(subscription: Uid): string {
  return `${progressPrefix}${subscription}`
}

/** Returns the key prefix of one subscription's failed deliveries. Keys end with the event's outbox key; values are FailedDelivery. */
export function failedPrefixOf(subscription: Uid): string {
  return `${failedPrefix}${subscription}:`
}

/** Returns the key of the last redelivery of all of a subscription's failed events; the value is a Redelivery. Absent if there was none. */
export function redeliveryKey(subscription: Uid): string {
  return `${redeliveryPrefix}${subscription}`
}

/** A failed delivery, the outbox key of its event, and its entry in the store. */
export interface Failed {
  readonly key: string
  readonly state: FailedDelivery
  readonly entry: Entry
}

/** Returns a failed delivery that is tried again since `timeMs`, as if it had not been tried. */
export function revived(state: FailedDelivery, timeMs: bigint): FailedDelivery {
  return { ...state, dead: false, attempts: 0, firstAttemptTimeMs: timeMs, nextAttemptTimeMs: timeMs }
}

/** Yields the failed deliveries of a subscription by the time of their events. Rejects with StoreError or the signal's reason. */
export async function* failedOf(store: Store, subscription: Uid, signal: AbortSignal): AsyncGenerator<Failed, void> {
  const prefix = failedPrefixOf(subscription)
  const redelivery = await store.get(redeliveryKey(subscription), signal)
  for await (const entry of entriesOf(store, { prefix }, signal)) {
    const state = fromBinary(FailedDeliverySchema, entry.value)
    const isRevived = redelivery !== undefined && entry.revision < redelivery.revision
    yield { key: entry.key.slice(prefix.length), state: isRevived ? revived(state, fromBinary(RedeliverySchema, redelivery.value).timeMs) : state, entry }
  }
}

/** Returns the progress in an entry. A new subscription starts with the events of the commit that created it. */
export function progressIn(entry: Entry): SubscriptionProgress {
  const progress = fromBinary(SubscriptionProgressSchema, entry.value)
  if (progress.revision === 0n) progress.revision = BigInt(entry.revision)
  return progress
}

/** Reads the progress of a subscription; undefined if it has none. Rejects with StoreError or the signal's reason. */
export async function readProgress(store: Store, subscription: Uid, signal: AbortSignal): Promise<SubscriptionProgress | undefined> {
  const entry = await store.get(progressKey(subscription), signal)
  return entry === undefined ? undefined : progressIn(entry)
}

/** Returns a subscription's pause; undefined if it is not paused. Pauses are kept in memory. */
export function pauseOf(source: Pick<RecordTables, 'entry'>, subscription: Uid): SubscriptionPause | undefined {
  const entry = source.entry(pauseKey(subscription))
  return entry === undefined ? undefined : fromBinary(SubscriptionPauseSchema, entry.value)
}

/**
 * Returns why nothing is delivered to a subscription: it is paused, or its organisation is suspended. Undefined if it is active
 * (docs/spec/events.md#rights).
 */
export function pauseReason(source: Pick<RecordTables, 'entry' | 'get'>, subscription: Uid): string | undefined {
  return pauseOf(source, subscription)?.reason ?? (isSuspended(source, subscription) ? 'the organisation is suspended' : undefined)
}
