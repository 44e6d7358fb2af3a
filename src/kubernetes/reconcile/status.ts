import type { Condition, ConditionType, PlatformObject, PlatformStatus } from '../platform-object.ts'
import type { LiveStatus } from './live-status.ts'
import type { RecordFacts, ResolvedReferences } from './facts.ts'
import type { ConditionStatus } from './condition-status.ts'

/** Input for a status. Times are wall time in milliseconds since 1970. */
export interface StatusSource {
  readonly conditionStatus: ConditionStatus
  /** The object's current record. */
  readonly record: RecordFacts | undefined
  readonly references: ResolvedReferences
  /** True if the record was written just now. */
  readonly written: boolean
  /** True if the object no longer refers to its earlier record and will get another one. */
  readonly forgets: boolean
  /** Spec fields that are set in the record but not in the object; undefined if this is unknown. */
  readonly extraFields: readonly string[] | undefined
  /** State that is stored outside the record. */
  readonly live: LiveStatus
  readonly nowMs: number
}

function rfc3339(ms: number): string {
  // Kubernetes times have whole seconds.
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

function conditionsOf(object: PlatformObject, { conditionStatus, nowMs }: StatusSource): Condition[] {
  const { ready, reason, message, also } = conditionStatus
  const wanted: [ConditionType, Condition['status']][] = [['Ready', ready], ['Synced', ready], ...also.map((type): [ConditionType, 'True'] => [type, 'True'])]
  return wanted.map(([type, status]) => {
    const known = object.status?.conditions?.find((condition) => condition.type === type)
    const lastTransitionTime = known?.status === status ? known.lastTransitionTime : rfc3339(nowMs)
    return { type, status, reason, message: message.slice(0, 1024), observedGeneration: object.metadata.generation ?? 0, lastTransitionTime }
  })
}

/** Returns the status of an object. It is equal to the current status if nothing has changed. The uid of a lost record stays in it. */
export function statusOf(object: PlatformObject, source: StatusSource): PlatformStatus {
  const { record, references, written, forgets, nowMs } = source
  const before = forgets ? undefined : object.status
  const uid = record?.uid ?? before?.uid
  const lastSyncTime = written ? rfc3339(nowMs) : before?.lastSyncTime
  const inStep = record !== undefined && references.found
  const resolved = inStep ? { parent: references.parent, ...pick('identity', references.identity), ...pick('role', references.role) } : before?.resolved
  return {
    ...pick('uid', uid),
    ...pick('etag', record?.etag ?? before?.etag),
    observedGeneration: object.metadata.generation ?? 0,
    ...pick('lastSyncTime', lastSyncTime),
    ...pick('resolved', resolved),
    ...extrasOf(object, source),
    ...source.live,
    conditions: conditionsOf(object, source),
  }
}

/** Returns `extraFields` for the status. Left out if the list is empty or the record does not exist. */
function extrasOf({ status }: PlatformObject, { record, extraFields = status?.extraFields ?? [] }: StatusSource): Pick<PlatformStatus, 'extraFields'> {
  return record === undefined || extraFields.length === 0 ? {} : { extraFields }
}

function pick<K extends string, V>(key: K, value: V | undefined): { readonly [P in K]?: V } {
  // a cast: an object with at most one member, under the given key
  return (value === undefined ? {} : { [key]: value }) as { readonly [P in K]?: V }
}
