import { fromBinary, type Message } from '@bufbuild/protobuf'
import { registry } from '../../../../src/base/schema/schema.ts'
import { OutboxEventSchema } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import type { Entry } from '../../../../src/store/store.ts'
import type { StoredRecord } from '../../../conformance/model/store-errors.ts'
import type { Operation } from '../history.ts'

/** The parts of an outbox event that concern a record. */
export interface StoredEvent {
  readonly subject: string
  readonly verb: 'created' | 'updated' | 'deleted' | 'other'
  /** The record's etag and description after the mutation; empty for deletions. */
  readonly etag: string
  readonly description: string
}

/** Returns the events in these entries. Throws if one can't be read. */
export function eventsOf(entries: readonly Entry[]): StoredEvent[] {
  return entries.map((entry) => {
    const { subject, type, bodyType, body } = fromBinary(OutboxEventSchema, entry.value)
    const desc = registry.getMessage(bodyType)
    if (desc === undefined) throw new Error(`${entry.key}: a body of unknown type ${bodyType}`)
    // Missing fields are undefined.
    const message = fromBinary(desc, body) as Message & { etag?: string; description?: string }
    const verb = (['created', 'updated', 'deleted'] as const).find((word) => type.includes(`.${word}.`)) ?? 'other'
    return { subject, verb, etag: message.etag ?? '', description: message.description ?? '' }
  })
}

const verbs = { create: 'created', update: 'updated', delete: 'deleted', read: undefined, list: undefined, use: undefined } as const

/** The operations and state that the events of one record are compared with. */
interface Subject {
  readonly uid: string
  readonly events: readonly StoredEvent[]
  readonly operations: readonly Operation[]
  readonly stored: StoredRecord | undefined
}

function counted(items: readonly StoredEvent[], holds: (event: StoredEvent) => boolean): number {
  return items.filter(holds).length
}

/** Checks that an acknowledged change has exactly one event. */
function acknowledgedErrors({ uid, events, operations }: Subject): string[] {
  return operations.flatMap((operation) => {
    const verb = verbs[operation.action]
    if (operation.outcome !== 'ok' || verb === undefined) return []
    const { etag = '' } = operation
    const found = counted(events, (event) => event.verb === verb && (etag === '' || event.etag === etag))
    return found === 1 ? [] : [`${operation.kind} ${uid}: an acknowledged ${operation.action} has ${found} events ${etag}`]
  })
}

/** Checks that a stored change has its event, and every event its change. */
function storedErrors({ uid, events, operations, stored }: Subject): string[] {
  const errors: string[] = []
  const created = counted(events, (event) => event.verb === 'created')
  if (stored !== undefined && created !== 1) errors.push(`${stored.kind} ${uid}: is there and has ${created} events of its creation`)
  const written = counted(events, (event) => event.etag === stored?.etag)
  if (stored !== undefined && written !== 1) errors.push(`${stored.kind} ${uid}: its last state has ${written} events`)
  if (stored !== undefined && events.some((event) => event.verb === 'deleted')) errors.push(`${stored.kind} ${uid}: is there after an event of its deletion`)
  // Role bindings are also deleted with their identity or group, without their own event.
  const isGone = stored === undefined && operations.every((operation) => operation.kind !== 'RoleBinding')
  if (isGone && created > 0 && !events.some((event) => event.verb === 'deleted')) errors.push(`${uid}: was made, and is gone without an event of its deletion`)
  const etags = events.map((event) => event.etag).filter((etag) => etag !== '')
  if (new Set(etags).size < etags.length) errors.push(`${uid}: one mutation has two events`)
  for (const { verb, etag } of events) {
    const explained = operations.some((operation) => verbs[operation.action] === verb && (operation.outcome === 'unknown' || isOf(operation, etag)))
    // The uid of a create without an answer is unknown.
    if (!explained && verb !== 'created') errors.push(`${uid}: an event (${verb} ${etag}) without a mutation that anyone asked for`)
  }
  return errors
}

function isOf(operation: Operation, etag: string): boolean {
  return operation.outcome === 'ok' && (operation.etag === undefined || operation.etag === etag)
}

/** Checks that a change refused as unavailable was not made (docs/spec/errors.md#final-refusals). */
function unavailableErrors({ uid, events, operations }: Subject): string[] {
  return operations
    .filter((operation) => operation.action === 'update' && operation.code === 14 && operation.kind !== 'RoleBinding')
    .filter((operation) => events.some((event) => event.description === operation.value))
    .map((operation) => `${operation.kind} ${uid}: a change was made that was answered UNAVAILABLE (${operation.value})`)
}

/** Compares the events of every record in the history with its operations and the store. Returns one line for each fault. */
export function outboxErrors(operations: readonly Operation[], store: { events: readonly StoredEvent[]; records: readonly StoredRecord[] }): string[] {
  const subjects = new Map<string, { events: StoredEvent[]; operations: Operation[] }>()
  for (const operation of operations) {
    if (operation.uid === undefined) continue
    const subject = subjects.get(operation.uid) ?? { events: [], operations: [] }
    subject.operations.push(operation)
    subjects.set(operation.uid, subject)
  }
  for (const event of store.events) subjects.get(event.subject)?.events.push(event)
  const stored = new Map(store.records.map((record) => [record.uid, record]))
  return [...subjects].flatMap(([uid, known]) => {
    const subject: Subject = { uid, ...known, stored: stored.get(uid) }
    return [...acknowledgedErrors(subject), ...storedErrors(subject), ...unavailableErrors(subject)]
  })
}
