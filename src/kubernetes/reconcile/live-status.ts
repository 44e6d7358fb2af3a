import type { Uid } from '../../base/uid.ts'
import { readSubscription } from '../../events/index.ts'
import type { Services } from '../../engine/services.ts'
import { Subscription_StateSchema } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import type { RecordKind } from '../object-kinds.ts'
import type { PlatformStatus } from '../platform-object.ts'

/** The part of a status that is not in the record. It has no times and counters, since each change of a status is a write. */
export type LiveStatus = Pick<PlatformStatus, 'state' | 'stateReason'>

/** Maximum length of a reason in a status, in characters. */
const maxReason = 1_024

/** Reads the state of a record; empty for kinds without one. Rejects with StoreError or the signal's reason. */
export async function readLiveStatus(services: Services, { kind, uid }: { kind: RecordKind; uid: Uid }, signal: AbortSignal): Promise<LiveStatus> {
  const shown = kind === 'Subscription' ? await readSubscription(services, uid, signal) : undefined
  if (shown === undefined) return {}
  const state = Subscription_StateSchema.value[shown.state]?.name
  return { ...(state !== undefined && { state }), ...(shown.stateReason !== '' && { stateReason: shown.stateReason.slice(0, maxReason) }) }
}
