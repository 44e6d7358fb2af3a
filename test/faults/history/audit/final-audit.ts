import { setTimeout as delay } from 'node:timers/promises'
import { fromBinary } from '@bufbuild/protobuf'
import { IdempotencyRecordSchema } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { idempotencyHour, idempotencyHourPrefix, idempotencyKey } from '../../../../src/engine/idempotency.ts'
import { outboxPrefix } from '../../../../src/engine/log/outbox-keys.ts'
import { cascadePrefix } from '../../../../src/store/keys.ts'
import type { Entry, Store } from '../../../../src/store/store.ts'
import { readAll, recordsOf, storedBinding, structureErrors, type StoredRecord } from '../../../conformance/model/store-errors.ts'
import type { History, HistoryKind, Operation, Seen } from '../history.ts'
import { eventsOf, outboxErrors } from './outbox-audit.ts'

/** The result of an audit. */
export interface AuditReport {
  /** One line for each fault. */
  readonly errors: readonly string[]
  readonly records: number
  readonly outboxEvents: number
}

/** The input of an audit. */
export interface AuditOptions {
  readonly store: Store
  /** If absent, only the store is checked. */
  readonly history?: History
  /** True if events and idempotency keys may have expired, as after clock jumps of days. Then missing ones are not reported. False by default. */
  readonly isExpired?: boolean
}

/** Maximum time of sweeps in milliseconds. */
const cascadeTimeoutMs = 30_000
const cascadePollMs = 100
/** The client number of the last reads, which no workload client has. */
const auditor = 1_000_000

/**
 * Checks the raw store after all writes and cascades have ended. It looks for keys without their record, records without their keys, and bindings of deleted
 * records. It also looks for changes without their event, and for missing acknowledged writes. It adds the stored records to the history as last reads, so
 * call it before `checkHistory`. Without a history it checks only the store.
 */
export async function finalAudit({ store, history, isExpired = false }: AuditOptions): Promise<AuditReport> {
  await cascadesEnded(store)
  const call = history?.now() ?? 0
  const { entries, revision } = await readAll(store, 'r/')
  const index = await readAll(store, 'i/', revision)
  const outbox = await readAll(store, outboxPrefix, revision)
  const idempotency = await readAll(store, 'x/idem/', revision)
  const records = recordsOf(entries)
  const events = eventsOf(outbox.entries)
  const errors = structureErrors(records, index.entries)
  if (!isExpired) errors.push(...idempotencyErrors(idempotency.entries))
  if (history !== undefined) {
    if (!isExpired) errors.push(...outboxErrors(history.operations, { events, records }))
    recordStore(history, records, call)
  }
  return { errors, records: records.length, outboxEvents: events.length }
}

/** Waits until no deletion mark is left, or the time is over; a remaining mark is then a fault. */
async function cascadesEnded(store: Store): Promise<void> {
  const deadline = performance.now() + cascadeTimeoutMs
  while (performance.now() < deadline) {
    const { entries } = await store.range({ prefix: cascadePrefix, limit: 1 }, AbortSignal.timeout(cascadeTimeoutMs))
    if (entries.length === 0) return
    await delay(cascadePollMs)
  }
}

/** Checks that every idempotency key has an entry under its expiration hour, and the reverse. */
function idempotencyErrors(entries: readonly Entry[]): string[] {
  const keys = new Set(entries.map((entry) => entry.key))
  const wanted = new Set<string>()
  for (const entry of entries.filter(({ key }) => !key.startsWith(idempotencyHourPrefix))) {
    const hash = entry.key.slice(idempotencyKey('').length)
    wanted.add(entry.key)
    wanted.add(`${idempotencyHourPrefix}${idempotencyHour(Number(fromBinary(IdempotencyRecordSchema, entry.value).timeMs))}/${hash}`)
  }
  return [
    ...[...wanted].filter((key) => !keys.has(key)).map((key) => `${key}: is missing, so its idempotency key is never trimmed`),
    ...[...keys].filter((key) => !wanted.has(key)).map((key) => `${key}: there is no idempotency key for it`),
  ]
}

function seenOf(record: StoredRecord): Seen {
  const { kind, uid, etag } = record
  if (kind === 'RoleBinding') {
    const { identityUid, roleUid } = storedBinding(record)
    return { uid, etag, value: roleUid, identity: identityUid }
  }
  // Groups, identities and roles have descriptions.
  const { description } = record.message as StoredRecord['message'] & { description: string }
  return { uid, etag, value: description, tag: description.split(' ')[0] ?? '' }
}

const written: readonly string[] = ['Group', 'Identity', 'Role', 'RoleBinding'] satisfies HistoryKind[]

/** Returns every group of the history in which a record was created or listed, with the kind. */
function placesOf(operations: readonly Operation[]): { kind: HistoryKind; parent: string }[] {
  const found = new Map<string, { kind: HistoryKind; parent: string }>()
  for (const { action, outcome, kind, parent } of operations) {
    const isPlace = (action === 'create' || action === 'list') && outcome === 'ok' && parent !== '/'
    if (isPlace) found.set(`${kind} ${parent}`, { kind, parent })
  }
  return [...found.values()]
}

/** Adds the state of the store to the history: a read of every named record and a list of every group. All are at one moment since `call`. */
function recordStore(history: History, records: readonly StoredRecord[], call: number): void {
  const stored = new Map(records.filter((record) => written.includes(record.kind)).map((record) => [`${record.kind} ${record.uid}`, record]))
  const named = new Map<string, { kind: HistoryKind; parent: string; uid: string }>()
  for (const { kind, parent, uid, members = [] } of history.operations) {
    for (const name of [...members.map((member) => member.uid), ...(uid === undefined ? [] : [uid])]) named.set(`${kind} ${name}`, { kind, parent, uid: name })
  }
  const places = placesOf(history.operations)
  const moment = { client: auditor, call, return: history.now() } as const
  for (const [key, target] of named) {
    const record = stored.get(key)
    history.record(
      record === undefined
        ? { ...moment, ...target, action: 'read', outcome: 'absent' }
        : { ...moment, ...target, action: 'read', outcome: 'ok', ...seenOf(record) },
    )
  }
  for (const { kind, parent } of places) {
    // A person without a group owns the root group, because they created it.
    const isOwn = (seen: Seen): boolean => named.has(`${kind} ${seen.uid}`) || seen.identity === undefined || seen.identity.includes('/')
    const members = records
      .filter((record) => record.kind === kind && record.parent === parent)
      .map(seenOf)
      .filter(isOwn)
    history.record({ ...moment, action: 'list', kind, parent, outcome: 'ok', members })
  }
}
