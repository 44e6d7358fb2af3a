import { fromBinary } from '@bufbuild/protobuf'
import type { Uid } from '../../base/uid.ts'
import { SubscriptionPauseSchema, SubscriptionProgressSchema, type SubscriptionPause, type SubscriptionProgress } from '../../gen/taproot/store/v1/events_pb.ts'
import { pauseKey } from '../../store/keys.ts'
import type { Entry, Store } from '../../store/store.ts'

/** Prefix of the progress of all subscriptions. */
export const progressPrefix = 'x/events/progress/'
/** Prefix of the failed deliveries of all subscriptions. */
export const failedPrefix = 'x/events/failed/'

/** The progress of a subscription: SubscriptionProgress bytes. Written with the subscription, then by the leader only. */
export function progressKey(subscription: Uid): string {
  return `${progressPrefix}${subscription}`
}

/** Prefix of the failed deliveries of one subscription: FailedDelivery bytes by the event's outbox key. */
export function failedPrefixOf(subscription: Uid): string {
  return `${failedPrefix}${subscription}:`
}

/** Returns the progress in an entry. A subscription without deliveries starts with the events of the commit that created it. */
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

/** Source of the pause entries, which are kept in memory. */
interface PauseSource {
  entry(key: string): Entry | undefined
}

/** Returns the pause of a subscription; undefined if it is not paused. */
export function pauseOf(source: PauseSource, subscription: Uid): SubscriptionPause | undefined {
  const entry = source.entry(pauseKey(subscription))
  return entry === undefined ? undefined : fromBinary(SubscriptionPauseSchema, entry.value)
}
