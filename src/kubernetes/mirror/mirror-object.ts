import { createHash } from 'node:crypto'
import { toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { registry } from '../../base/schema/schema.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { ObjectKind } from '../object-kinds.ts'
import { originLabel, uidAnnotation, type PlatformStatus } from '../platform-object.ts'
import type { LiveStatus } from '../reconcile/live-status.ts'
import { messageOf, specFields } from '../reconcile/desired.ts'

/** The object that mirrors a record, without the fields that the API server adds. */
export interface MirrorObject {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly spec: JsonObject
}

/** Returns the name of the mirror of record `uid`: `pg-<20 hex digits>` (docs/spec/kubernetes.md#mirror-objects). */
export function mirrorName({ shortName }: Pick<ObjectKind, 'shortName'>, uid: string): string {
  return `${shortName}-${createHash('sha256').update(uid).digest('hex').slice(0, 20)}`
}

/** Builds the mirror of a record with all fields that a spec has. References are by uid. */
export function mirrorOf(row: ObjectKind, record: CachedRecord): MirrorObject {
  const desc = messageOf(row)
  const { message } = record
  const all = toJson(desc, message, { registry }) as JsonObject
  const spec: Record<string, JsonValue> = {}
  for (const { jsonName } of specFields(row)) if (all[jsonName] !== undefined) spec[jsonName] = all[jsonName]
  for (const { field, holds } of row.references) {
    const held = desc.fields.find(({ name }) => name === holds)
    const uid = held === undefined ? record.parent : all[held.jsonName]
    if (typeof uid === 'string' && uid !== '/') spec[field] = { uid }
  }
  return { name: mirrorName(row, record.uid), labels: { [originLabel]: 'api' }, annotations: { [uidAnnotation]: record.uid }, spec }
}

/** Spec fields with defaults from the API server. They do not depend on the record. */
const defaulted: ReadonlySet<string> = new Set(['deletionPolicy', 'adoptionPolicy'])

/** Returns the fields of a mirror's spec that come from the record. */
export function decidedOf(spec: unknown): JsonObject {
  // a cast: the API server returns JSON
  return Object.fromEntries(Object.entries(spec as JsonObject).filter(([field]) => !defaulted.has(field)))
}

/** Builds the status of a mirror. A mirror always matches its record. */
export function mirrorStatus(
  record: CachedRecord,
  { generation, before, live }: { generation: number; before: PlatformStatus | undefined; live: LiveStatus },
): PlatformStatus {
  const known = before?.conditions?.find(({ type }) => type === 'Ready')
  // The update time of the record, which is the same on every replica.
  const since = known?.lastTransitionTime ?? `${new Date(record.updateMs).toISOString().slice(0, 19)}Z`
  const condition = { reason: 'Mirrored', message: 'shows a record that the API owns', observedGeneration: generation, lastTransitionTime: since } as const
  return {
    uid: record.uid,
    etag: record.etag,
    observedGeneration: generation,
    ...live,
    conditions: [
      { type: 'Ready', status: 'True', ...condition },
      { type: 'Synced', status: 'True', ...condition },
    ],
  }
}
