import type { Condition, ConditionType, PlatformObject, PlatformStatus } from '../platform-object.ts'
import type { LiveStatus } from './live-status.ts'
import type { RecordFacts, ResolvedReferences } from './facts.ts'
import type { ConditionStatus } from './condition-status.ts'

/** What a status is made of. Times are wall time in milliseconds. */
export interface StatusSource {
  readonly conditionStatus: ConditionStatus
  /** The object's record as it is now. */
  readonly record: RecordFacts | undefined
  readonly references: ResolvedReferences
  /** True where the record was written for this status. */
  readonly written: boolean
  /** True where the object is to have another record some time. */
  readonly forgets: boolean
  /** Spec fields that the record has and the object does not name. Undefined where that is not known. */
  readonly extraFields: readonly string[] | undefined
  /** State that is kept apart from the record. */
  readonly live: LiveStatus
  readonly nowMs: number
}

function rfc3339(ms: number): string {
  // Kubernetes keeps whole seconds.
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

/** The status of an object: equal to the one that it has where nothing is new. A record that it no longer has stays named, as the one that was lost. */
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

/** An empty list is left out, and so is what a record had that is not there. */
function extrasOf({ status }: PlatformObject, { record, extraFields = status?.extraFields ?? [] }: StatusSource): Pick<PlatformStatus, 'extraFields'> {
  return record === undefined || extraFields.length === 0 ? {} : { extraFields }
}

function pick<K extends string, V>(key: K, value: V | undefined): { readonly [P in K]?: V } {
  // An object of at most one member, under the key that was asked for.
  return (value === undefined ? {} : { [key]: value }) as { readonly [P in K]?: V }
}
