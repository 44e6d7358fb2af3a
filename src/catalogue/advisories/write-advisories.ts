import { clone, create, fromBinary, toBinary, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { EmptySchema, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { reflect } from '@bufbuild/protobuf/reflect'
import { decide } from '../../authz/effective-permissions.ts'
import { setOf } from '../../base/capability.ts'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import { isUid, parentOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord, Resource } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import { onceByKey, type Idempotent } from '../../engine/idempotency.ts'
import type { Planning } from '../../engine/kind.ts'
import { recordAnswer } from '../../engine/read.ts'
import type { Context, Handler, Services } from '../../engine/services.ts'
import { assertEtag, emit, newUid, planChild, rememberKey } from '../../engine/write.ts'
import * as v1 from '../../gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import * as v2 from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { recordKey } from '../../store/keys.ts'
import { ownAdvisoryKind } from './own-advisories.ts'
import { advisorySources } from './visible-advisories.ts'

const kind = 'Advisory'
type AdvisoryRecord = v2.Advisory & Resource

/** The most events and aliases of an advisory, and the most characters of texts and bytes of findings (docs/spec/advisories.md#hand-made-advisories). */
const most = { events: 100, aliases: 100, versions: 100, text: 512, note: 4_096, findings: 16_384 }

const approve = setOf(['advisories.approve'])
const finalStates: readonly v2.ReviewState[] = [v2.ReviewState.APPROVED, v2.ReviewState.REJECTED]

/** The messages of events in both versions. They have the same numbers. */
const eventTypes = {
  detection: [v1.AdvisoryEvent_DetectionSchema, v2.AdvisoryEvent_DetectionSchema],
  fixed: [v1.AdvisoryEvent_FixedSchema, v2.AdvisoryEvent_FixedSchema],
  falsePositiveDetermination: [v1.AdvisoryEvent_FalsePositiveDeterminationSchema, v2.AdvisoryEvent_FalsePositiveDeterminationSchema],
  analysisNotPlanned: [v1.AdvisoryEvent_AnalysisNotPlannedSchema, v2.AdvisoryEvent_AnalysisNotPlannedSchema],
  fixNotPlanned: [v1.AdvisoryEvent_FixNotPlannedSchema, v2.AdvisoryEvent_FixNotPlannedSchema],
  pendingUpstreamFix: [v1.AdvisoryEvent_PendingUpstreamFixSchema, v2.AdvisoryEvent_PendingUpstreamFixSchema],
  truePositiveDetermination: [v1.AdvisoryEvent_TruePositiveDeterminationSchema, v2.AdvisoryEvent_TruePositiveDeterminationSchema],
  patched: [v1.AdvisoryEvent_PatchedSchema, v2.AdvisoryEvent_PatchedSchema],
} as const satisfies Record<NonNullable<v1.AdvisoryEvent['type']['case']>, readonly [DescMessage, DescMessage]>

function typeInV2(type: v1.AdvisoryEvent['type']): v2.AdvisoryEvent['type'] {
  if (type.case === undefined) return { case: undefined }
  const [from, to]: readonly [DescMessage, DescMessage] = eventTypes[type.case]
  return { case: type.case, value: fromBinary(to, toBinary(from, type.value)) } as v2.AdvisoryEvent['type'] // of the same row
}

function textFault(field: DescField, text: string): string | undefined {
  const isNote = field.name === 'note'
  const max = isNote ? most.note : most.text
  if (text.length > max) return `must have at most ${max} characters`
  return (isNote ? /[\u0000-\u0008\u000b-\u001f]/ : /[\u0000-\u001f]/).test(text) ? 'must not have control characters' : undefined
}

/** Returns what is wrong with one value of a field; undefined if nothing. */
function valueFault(field: DescField, value: unknown): string | undefined {
  if (typeof value === 'string') return textFault(field, value)
  if (value instanceof Uint8Array && value.length > most.findings) return `must have at most ${most.findings} bytes`
  const { enum: names } = field
  return names !== undefined && typeof value === 'number' && names.value[value] === undefined ? 'is unknown' : undefined
}

const mostItems: Readonly<Record<string, number>> = { events: most.events, aliases: most.aliases, patched_versions: most.versions }

/** Yields what is wrong with the values in a message, and in the messages in it. */
function* faultsIn(desc: DescMessage, message: Message, path = ''): Generator<FieldViolation> {
  const reflected = reflect(desc, message)
  for (const field of desc.fields.filter((one) => reflected.isSet(one))) {
    const value: unknown = reflected.get(field)
    const isList = field.fieldKind === 'list'
    const items = isList ? [...reflected.get(field)] : [value]
    const max = mostItems[field.name] ?? Infinity
    if (isList && items.length > max) yield { field: `${path}${field.name}`, description: `at most ${max}` }
    for (const [at, item] of items.slice(0, max).entries()) {
      const place = `${path}${field.name}${isList ? `[${at}]` : ''}`
      const description = valueFault(field, item)
      if (description !== undefined) yield { field: place, description }
      if (field.message !== undefined) yield* faultsIn(field.message, (item as { readonly message: Message }).message, `${place}.`) // a reflected message
    }
  }
}

function* eventFaults(event: v1.AdvisoryEvent, path = ''): Generator<FieldViolation> {
  if (event.type.case === undefined) yield { field: `${path}type`, description: 'is required' }
}

/** Throws code 3 for events that are not valid. */
function assertEvent(event: v1.AdvisoryEvent): void {
  const faults = [...eventFaults(event), ...faultsIn(v1.AdvisoryEventSchema, event)]
  if (faults.length > 0) throw DomainError.invalidFields(faults)
}

/** Throws code 3 for an advisory that is not valid. */
function assertAdvisory(advisory: v1.Advisory): void {
  const faults = [
    ...(advisory.artifactName === '' ? [{ field: 'artifact_name', description: 'is required' }] : []),
    ...advisory.events.flatMap((event, at) => [...eventFaults(event, `events[${at}].`)]),
    ...faultsIn(v1.AdvisorySchema, advisory),
  ]
  if (faults.length > 0) throw DomainError.invalidFields(faults)
}

/** Throws code 7 if the caller may not decide about reviews in the group. */
function assertMayApprove({ permissions }: Planning, group: string): void {
  if (decide(permissions, group, approve).kind !== 'allowed') throw DomainError.denied(['advisories.approve'], group)
}

/** What a new event takes from its advisory and from the one that it replaces. */
interface EventPlace {
  readonly advisory: Uid
  readonly current?: v2.AdvisoryEvent
}

/** Returns the event to store. Without a status, its review is pending. */
function eventOf(planning: Planning, event: v1.AdvisoryEvent, { advisory, current }: EventPlace): v2.AdvisoryEvent {
  const { findings, author, reviewer, status, issue, type } = event
  const reviewState = status === v1.ReviewStatus.UNKNOWN ? (current?.reviewState ?? v2.ReviewState.PENDING) : (status as number as v2.ReviewState) // same numbers
  if (finalStates.includes(reviewState)) assertMayApprove(planning, parentOf(advisory))
  return create(v2.AdvisoryEventSchema, {
    uid: current?.uid ?? newUid(planning.services, advisory),
    createTime: current?.createTime ?? timestampFromMs(planning.nowMs),
    findings,
    author: author === '' ? (current?.author ?? planning.caller.identity) : author,
    reviewer,
    reviewState,
    ...(issue === undefined ? {} : { issue }),
    type: typeInV2(type),
  })
}

/** Returns the advisory to store, without events. Id and author keep their values if they are not set, and a new advisory without an id has its first alias. */
function advisoryOf({ caller }: Pick<Planning, 'caller'>, advisory: v1.Advisory, current?: v2.Advisory): AdvisoryRecord {
  const { artifactName, artifactType, artifactArchitecture, componentName, componentType, componentLocation, aliases, legacyAdvisoryID } = advisory
  const advisoryId = [advisory.advisoryId, current?.advisoryId, aliases[0]].find((id) => id !== undefined && id !== '')
  if (advisoryId === undefined) throw DomainError.invalid('advisory_id', 'is required without aliases')
  const isWhole = componentName === ''
  return create(v2.AdvisorySchema, {
    advisoryId,
    author: [advisory.author, current?.author].find((author) => author !== undefined && author !== '') ?? caller.identity,
    ...{ artifactName, artifactType, artifactArchitecture, componentLocation, aliases },
    componentName: isWhole ? artifactName : componentName,
    componentType: isWhole && componentType === '' ? artifactType : componentType,
    ...(legacyAdvisoryID === undefined ? {} : { legacyAdvisoryId: legacyAdvisoryID }),
  })
}

/** Returns the record to change. Throws code 5 if there is none, and code 9 if it is one of an import. */
async function assertOwn(services: Services, uid: string): Promise<void> {
  if (!isUid(uid) || services.cache.tables.get(kind, uid) !== undefined) return
  const group = services.cache.tables.get('Group', parentOf(uid))
  const imported = group === undefined ? [] : await Promise.all(advisorySources(services).map((source) => source.get(uid)))
  if (imported.every((body) => body === undefined)) return
  const description = 'the advisory was imported: only imports change it'
  throw DomainError.precondition([{ type: 'ADVISORY_IMPORTED', subject: uid, description }], { reason: 'ADVISORY_IMPORTED' })
}

/** Returns the advisory with this uid. Throws code 5 that has what the request names. */
function existing({ tables }: Planning, context: Context, { uid, named = uid }: { readonly uid: string; readonly named?: string }): CachedRecord {
  const record = isUid(uid) ? tables.get(kind, uid) : undefined
  if (record === undefined) throw notFound(kind, named)
  assertEtag(record, context.ifMatch)
  return record
}

/** Plans the change of an advisory, with its event. */
function planUpdate(
  planning: Planning,
  context: Context,
  { cached, record }: { cached: CachedRecord; record: AdvisoryRecord },
): { changes: ChangeSet; record: AdvisoryRecord } {
  const changes = new ChangeSet()
  const updateMs = Math.max(planning.nowMs, cached.updateMs + 1)
  const facts = { etag: newEtag(planning.services.random), createMs: cached.createMs, updateMs, managedBy: cached.managedBy }
  const updated = changes.update<AdvisoryRecord>(ownAdvisoryKind, { cached, record, facts })
  emit(planning, context, { changes, subject: cached.uid, body: { desc: v2.AdvisorySchema, message: updated } })
  return { changes, record: updated }
}

/** Answers Create: a new advisory of a group. The answer is the one of version 2 (docs/spec/advisories.md#hand-made-advisories). */
export const createAdvisory: Handler = async (services, context, message) => {
  const { parentId, advisory = create(v1.AdvisorySchema) } = message as v1.CreateAdvisoryRequest // the method's input
  assertAdvisory(advisory)
  const parent = trustedUid(parentId) // authorization has found the group
  const outcome = await onceByKey(services, { context, message, parent: parentId }, (memory) =>
    commit(services, context, (planning): MutationPlan<Resource> => {
      if (planning.tables.get('Group', parent) === undefined) throw notFound('Group', parentId)
      const changes = new ChangeSet()
      changes.guard({ kind: 'exists', key: recordKey('Group', parent) })
      const uid = newUid(services, parent)
      const record = advisoryOf(planning, advisory)
      record.events = advisory.events.map((event) => eventOf(planning, event, { advisory: uid }))
      const made = planChild(ownAdvisoryKind, planning, { changes, parent, record, uid })
      emit(planning, context, { changes, subject: uid, body: { desc: v2.AdvisorySchema, message: made } })
      rememberKey(memory, changes, { uids: [uid], nowMs: planning.nowMs })
      return { changes, result: made }
    }),
  )
  if (outcome.kind === 'made') return recordAnswer(ownAdvisoryKind, services, outcome.made)
  const [uid = ''] = outcome.uids
  const record = services.cache.tables.get(kind, uid)
  if (record === undefined) throw notFound(kind, uid)
  return recordAnswer(ownAdvisoryKind, services, record.message)
}

/** The fields by which an advisory is about something. */
const identifying = ['advisoryId', 'artifactName', 'artifactType', 'artifactArchitecture', 'componentName', 'componentType', 'componentLocation'] as const

function isAboutOther(one: v2.Advisory, other: v2.Advisory): boolean {
  return identifying.some((field) => one[field] !== other[field]) || one.aliases.join('\n') !== other.aliases.join('\n')
}

/** True if an event of the advisory was approved or rejected. */
function isReviewed({ events }: v2.Advisory): boolean {
  return events.some(({ reviewState }) => finalStates.includes(reviewState))
}

/** Answers Update: it replaces the advisory, but for its events. What approved events are about changes with `advisories.approve` only. */
export const updateAdvisory: Handler = async (services, context, message) => {
  const advisory = message as v1.Advisory // the method's input
  assertAdvisory(advisory)
  await assertOwn(services, advisory.id)
  const updated = await commit(services, context, (planning): MutationPlan<Resource> => {
    const cached = existing(planning, context, { uid: advisory.id })
    const current = messageOf(cached, kind)
    const record = advisoryOf(planning, advisory, current)
    if (isReviewed(current) && isAboutOther(current, record)) assertMayApprove(planning, parentOf(cached.uid))
    record.uid = cached.uid
    record.events = current.events
    const planned = planUpdate(planning, context, { cached, record })
    return { changes: planned.changes, result: planned.record }
  })
  return recordAnswer(ownAdvisoryKind, services, updated)
}

/** Answers Delete. What was approved or rejected goes with `advisories.approve` only: it counts for images. */
export const deleteAdvisory: Handler = async (services, context, message) => {
  const { id } = message as v1.DeleteAdvisoryRequest // the method's input
  await assertOwn(services, id)
  await commit(services, context, (planning): MutationPlan<undefined> => {
    const record = existing(planning, context, { uid: id })
    if (isReviewed(messageOf(record, kind))) assertMayApprove(planning, parentOf(record.uid))
    const changes = new ChangeSet()
    changes.remove(ownAdvisoryKind, record)
    emit(planning, context, { changes, subject: id, body: { desc: context.method.input, message } })
    return { changes, result: undefined }
  })
  return { message: create(EmptySchema), subject: id }
}

/** A change of the events of an advisory. `change` returns the event that it made. */
interface EventChange {
  readonly uid: string
  readonly named: string
  readonly memory?: Idempotent | undefined
  readonly change: (planning: Planning, record: AdvisoryRecord) => v2.AdvisoryEvent
}

/** Commits a change of the events of an advisory. Resolves with the event. */
async function changeEvents(services: Services, context: Context, { uid, named, memory, change }: EventChange): Promise<v2.AdvisoryEvent> {
  await assertOwn(services, uid)
  return commit(services, context, (planning): MutationPlan<v2.AdvisoryEvent> => {
    const cached = existing(planning, context, { uid, named })
    const record = clone<typeof v2.AdvisorySchema>(v2.AdvisorySchema, messageOf(cached, kind))
    const event = change(planning, record)
    const { changes } = planUpdate(planning, context, { cached, record })
    rememberKey(memory, changes, { uids: [event.uid], nowMs: planning.nowMs })
    return { changes, result: event }
  })
}

/** Answers CreateAdvisoryEvent with the event of version 2. */
export const createAdvisoryEvent: Handler = async (services, context, message) => {
  const { parentId, advisoryEvent = create(v1.AdvisoryEventSchema) } = message as v1.CreateAdvisoryEventRequest // the method's input
  assertEvent(advisoryEvent)
  const outcome = await onceByKey(services, { context, message, parent: parentId }, (memory) =>
    changeEvents(services, context, {
      uid: parentId,
      named: parentId,
      memory,
      change(planning, record) {
        if (record.events.length >= most.events)
          throw DomainError.precondition([{ type: 'TOO_MANY_EVENTS', subject: parentId, description: `an advisory has at most ${most.events} events` }], {
            reason: 'TOO_MANY_EVENTS',
          })
        const made = eventOf(planning, advisoryEvent, { advisory: trustedUid(parentId) })
        record.events.push(made)
        return made
      },
    }),
  )
  if (outcome.kind === 'made') return { message: outcome.made, subject: parentId }
  const record = services.cache.tables.get(kind, parentId)
  const [uid = ''] = outcome.uids
  const event = record === undefined ? undefined : messageOf(record, kind).events.find((one) => one.uid === uid)
  if (event === undefined) throw notFound(kind, uid)
  return { message: event, subject: parentId }
}

/** Answers UpdateAdvisoryEvent with the event of version 2: it replaces the event, unless its review is final. */
export const updateAdvisoryEvent: Handler = async (services, context, message) => {
  const change = message as v1.AdvisoryEvent // the method's input
  const uid = parentOf(trustedUid(change.id)) // authorization has checked its form
  assertEvent(change)
  const event = await changeEvents(services, context, {
    uid,
    named: change.id,
    change(planning, record) {
      const at = record.events.findIndex((one) => one.uid === change.id)
      const current = record.events[at]
      if (current === undefined) throw notFound(kind, change.id)
      if (finalStates.includes(current.reviewState))
        throw DomainError.precondition([{ type: 'REVIEW_FINAL', subject: change.id, description: 'the review of the event is final: add another event' }], {
          reason: 'REVIEW_FINAL',
        })
      const made = eventOf(planning, change, { advisory: trustedUid(uid), current })
      record.events[at] = made
      return made
    },
  })
  return { message: event, subject: uid }
}
