import { clone, create, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import type { FieldMask } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import { applyMask, maskAllowsEtag, populatedPaths } from '../base/schema/field-mask.ts'
import { fieldAccess } from '../base/schema/field-behavior.ts'
import { randomHex } from '../base/runtime.ts'
import { isUid, maxUidLength, rootParent, trustedUid, type Uid } from '../base/uid.ts'
import { resources } from '../base/schema/schema.ts'
import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import { recordKey } from '../store/keys.ts'
import { ChangeSet, newEtag } from './change-set.ts'
import { commit, type MutationPlan } from './commit.ts'
import { alreadyExists, notFound, staleEtag } from './errors.ts'
import { onceByKey, type Idempotent } from './idempotency.ts'
import type { AnyKind, Planning } from './kind.ts'
import { outboxWrite, type EventBody } from './outbox.ts'
import { firstOwner, nextOwner, ownedFields, resetFields } from './ownership.ts'
import { recordAnswer } from './read.ts'
import type { EnvelopeFacts } from './record-codec.ts'
import { changedSecrets, newSecrets, sealSecrets, type Secrets } from './secrets.ts'
import { rendered } from './shown.ts'
import type { Context, Handler, HandlerAnswer, Services } from './services.ts'
import { assertValid } from './validate.ts'

/** Returns the request field that contains the resource: the field whose type is the kind's message. */
export function resourceFieldOf(input: DescMessage, kind: { readonly desc: DescMessage }): DescField | undefined {
  return input.fields.find((field) => field.fieldKind === 'message' && field.message.typeName === kind.desc.typeName)
}

/** Returns the resource in a create or update request; an empty one if the request contains none. */
export function resourceIn(kind: AnyKind, context: Context, message: Message): Resource {
  const field = resourceFieldOf(context.method.input, kind)
  if (field === undefined) throw new TypeError(`the request of ${context.method.rpc} contains no ${kind.index.kind}`)
  // The field was found by its type.
  return ((message as unknown as Record<string, unknown>)[field.localName] as Resource | undefined) ?? (create(kind.desc) as Resource)
}

/** Returns a copy without output-only fields. Clients may send these, and the server ignores them (docs/spec/resources.md#output-only-fields). */
export function writableCopy(desc: DescMessage, record: Resource): Resource {
  const copy = clone(desc, record) as Resource
  const fields = copy as unknown as Record<string, unknown>
  const empty = create(desc) as unknown as Record<string, unknown>
  for (const field of desc.fields) if (fieldAccess(field).outputOnly && field.oneof === undefined) fields[field.localName] = empty[field.localName]
  copy.uid = ''
  copy.etag = ''
  return copy
}

/** Returns a new uid below `parent`. A root's uid consists of 20 random bytes, a child's own segment of 8. Throws code 3 if the tree would become too deep. */
export function newUid(services: Services, parent: string): Uid {
  if (parent === rootParent) return trustedUid(randomHex(services.random, 20))
  const uid = `${parent}/${randomHex(services.random, 8)}`
  if (uid.length > maxUidLength) throw DomainError.invalid('parent', 'exceeds the maximum depth of the tree: choose a group closer to the root')
  return trustedUid(uid)
}

/** Returns the event payload for a created or changed record. */
export function bodyOf(kind: AnyKind, planning: Planning, record: Resource): EventBody {
  const shown = rendered(kind, planning.services, record)
  return { desc: kind.desc, message: kind.eventPayload?.(shown) ?? shown }
}

/** The data of a mutation that its event contains. */
interface EmittedEvent {
  readonly changes: ChangeSet
  readonly subject: string
  /** Uid of the event's group, if it does not follow from the subject. */
  readonly group?: string
  readonly body: EventBody | undefined
}

/** Adds the event of a mutation to its transaction. */
export function emit(planning: Planning, context: Context, what: EmittedEvent): void {
  const { event } = context.method
  if (event === undefined) return
  const path = context.method.http[0]?.template.replace(/\/?\{.*$/, '') ?? ''
  const source = `${planning.services.settings.ownIssuer}${path}`
  const write = outboxWrite(planning.services.random, {
    event,
    source,
    subject: what.subject,
    ...(what.group === undefined ? {} : { group: what.group }),
    body: what.body,
    caller: planning.caller,
    nowMs: planning.nowMs,
    traceparent: context.traceparent,
  })
  what.changes.write(write)
  // Each plan uses a new key for the event. The guard that it does not exist lets this change set commit at most once, however often it is sent.
  what.changes.guard({ kind: 'absent', key: write.key })
  what.changes.proofKey = write.key
}

/** Adds a new record of `kind` below `parent` to the change set, without any checks. Returns the record as readers will see it. */
export function planChild(
  kind: AnyKind,
  planning: Planning,
  source: { changes: ChangeSet; parent: string; record: Resource; secrets?: Secrets; uid?: Uid; atMs?: number; facts?: Pick<EnvelopeFacts, 'pushedDigest'> },
): Resource {
  const { services } = planning
  const atMs = source.atMs ?? planning.nowMs
  const uid = source.uid ?? newUid(services, source.parent)
  const sealed = sealSecrets(services.keyring, { kind: kind.index.kind, uid }, source.secrets ?? new Map())
  const written = {
    etag: newEtag(services.random),
    createMs: atMs,
    updateMs: atMs,
    managedBy: firstOwner(planning),
    ownedFields: ownedFields(planning),
    sealed,
  }
  const facts = { ...written, ...source.facts }
  return source.changes.create(kind, { uid, record: source.record, facts })
}

/** Returns the uid for a kind with one record per group, which is the group's own uid. Throws code 6 if the record exists. */
function theOneOf(kind: AnyKind, { tables }: Planning, parent: string): Uid {
  if (tables.get(kind.index.kind, parent) !== undefined) throw alreadyExists(kind.index.kind, 'a group has at most one')
  return trustedUid(parent)
}

/** Plans a new record of `kind` below `parent`: the kind's rules, its keys, and the guards on the parent. Returns the record as readers will see it. */
export function planCreate(kind: AnyKind, planning: Planning, source: { changes: ChangeSet; parent: string; draft: Resource }): Resource {
  const { changes, parent } = source
  if (parent !== rootParent) {
    const parentKind = resources.get(kind.index.kind)?.parents.find((candidate) => candidate !== rootParent) ?? 'Group'
    if (planning.tables.get(parentKind, parent) === undefined) throw notFound(parentKind, parent)
    changes.guard({ kind: 'exists', key: recordKey(parentKind, trustedUid(parent)) })
  }
  const record = writableCopy(kind.desc, source.draft)
  const secrets = newSecrets(kind, record)
  const uid = resources.get(kind.index.kind)?.singleton === true ? theOneOf(kind, planning, parent) : newUid(planning.services, parent)
  // `parent` is the uid of an existing record, or the root.
  changes.add(kind.create?.(planning, { uid, parent: parent as Uid | '/', record, secrets }))
  return planChild(kind, planning, { changes, parent, record, secrets, uid })
}

/** Returns the answer of a create for which an earlier call with the same Idempotency-Key made the resource: the resource as it is now. */
function earlierAnswer(kind: AnyKind, services: Services, earlier: readonly string[]): HandlerAnswer {
  const uid = earlier[0] ?? ''
  const record = services.cache.tables.get(kind.index.kind, uid)
  if (record === undefined) throw notFound(kind.index.kind, uid)
  return recordAnswer(kind, services, record.message)
}

/** Adds the writes that remember the Idempotency-Key to the transaction of its call. */
export function rememberKey(memory: Idempotent | undefined, changes: ChangeSet, made: { uids: readonly string[]; nowMs: number }): void {
  if (memory === undefined) return
  changes.add(memory.remember(made.uids, made.nowMs))
  // The guards of the Idempotency-Key already let the change set commit at most once, so the guard of the event is not needed. The largest batch of role
  // bindings has no room for both.
  if (changes.proofKey !== undefined) changes.unguard(changes.proofKey)
}

/** A create for which the parent is known. */
export interface CreateCall {
  readonly context: Context
  readonly message: Message
  /** A uid, or `/` for a root. */
  readonly parent: string
  /** Adds more writes to the transaction that creates the record. */
  readonly also?: (planning: Planning, changes: ChangeSet, record: Resource) => void
  /** Adds values to the event's copy of the record that `also` writes and that the cache does not have yet. */
  readonly eventShows?: (shown: Resource) => void
  /** Adds values to the answer that only the creator sees, and only once. Not called for a dry run, or for a record that an earlier call created. */
  readonly showOnce?: (shown: Resource) => void
}

/** Creates a record below `parent`, which must exist; `/` stands for the root. */
export async function createRecord(kind: AnyKind, services: Services, call: CreateCall): Promise<HandlerAnswer> {
  const { context, message, parent } = call
  const draft = resourceIn(kind, context, message)
  assertValid(kind.desc, writableCopy(kind.desc, draft))
  const plan = (planning: Planning, memory: Idempotent | undefined): MutationPlan<Resource> => {
    const changes = new ChangeSet()
    const record = planCreate(kind, planning, { changes, parent, draft })
    call.also?.(planning, changes, record)
    const body = bodyOf(kind, planning, record)
    // A kind's body is one of its own messages.
    call.eventShows?.(body.message as Resource)
    emit(planning, context, { changes, subject: record.uid, body })
    rememberKey(memory, changes, { uids: [record.uid], nowMs: planning.nowMs })
    return { changes, result: record }
  }
  const outcome = await onceByKey(services, { context, message, parent }, (memory) => commit(services, context, (planning) => plan(planning, memory)))
  if (outcome.kind === 'earlier') return earlierAnswer(kind, services, outcome.uids)
  const answer = recordAnswer(kind, services, outcome.made)
  // The message in the answer is one of the kind.
  if (!context.validateOnly) call.showOnce?.(answer.message as Resource)
  return answer
}

/** Creates the handler of Create for a kind whose parent is given as a uid. */
export function createHandler(kind: AnyKind): Handler {
  return (services, context, message) => createRecord(kind, services, { context, message, parent: (message as Message & { parent: string }).parent })
}

/**
 * Throws code 10 if the record's etag is not `expected`, or there is no record. `expected` is one etag, several separated by commas, or `*` for any. Undefined
 * expects nothing.
 */
export function assertEtag(record: Pick<CachedRecord, 'etag'> | undefined, expected: string | undefined): void {
  if (expected === undefined || expected === '') return
  if (record === undefined || (expected !== '*' && !expected.split(',').includes(record.etag))) throw staleEtag()
}

/**
 * Returns the paths of the fields that an update changes: those in the mask. Without a mask, they are the keys of a REST body or the set fields of a gRPC
 * message (docs/spec/conventions.md#update-masks).
 */
export function pathsOf(kind: Pick<AnyKind, 'desc'>, context: Context, request: { patch: Resource; mask: FieldMask | undefined }): readonly string[] {
  if (request.mask !== undefined && request.mask.paths.length > 0) return request.mask.paths
  return context.present ?? populatedPaths(kind.desc, request.patch)
}

/** Returns the record with this uid, or throws code 5. */
export function existingRecord(kind: AnyKind, planning: Pick<Planning, 'tables'>, uid: string): CachedRecord {
  const record = isUid(uid) ? planning.tables.get(kind.index.kind, uid) : undefined
  if (record === undefined) throw notFound(kind.index.kind, uid)
  return record
}

/** Resolves when the grants that decide whether the record may change are cached; undefined if there is nothing to wait for. */
function whenChangeable(kind: AnyKind, { cache, grants }: Services, uid: string): Promise<void> | undefined {
  const record = kind.asksAbout === undefined ? undefined : cache.tables.get(kind.index.kind, uid)
  return record === undefined ? undefined : grants.prepareAmong(kind.asksAbout?.(cache.tables, record) ?? [])
}

/** Creates the handler of Update: it changes the fields in the mask, then checks the whole resource (docs/spec/conventions.md#update). */
export function updateHandler(kind: AnyKind): Handler {
  return async (services, context, message) => {
    const { updateMask: mask } = message as Message & { updateMask?: FieldMask }
    const patch = resourceIn(kind, context, message)
    await whenChangeable(kind, services, patch.uid)
    const updated = await commit(services, context, (planning): MutationPlan<Resource> => {
      const cached = existingRecord(kind, planning, patch.uid)
      assertEtag(cached, context.ifMatch)
      if (maskAllowsEtag(mask === undefined || mask.paths.length === 0 ? undefined : mask.paths)) assertEtag(cached, patch.etag)
      const managedBy = nextOwner(planning, kind.index.kind, cached)
      // First reset fields, then set others: a member of a oneof may replace another member.
      const paths = [...resetFields(planning, kind.desc, cached), ...pathsOf(kind, context, { patch, mask })]
      const next = applyMask(kind.desc, { current: cached.message, patch }, paths)
      assertValid(kind.desc, writableCopy(kind.desc, next))
      const secrets = changedSecrets(kind, { cached, record: next, paths })
      const changes = new ChangeSet()
      const extra = kind.update?.(planning, { uid: cached.uid, parent: cached.parent, record: next, secrets, paths }, cached.message)
      const sealed = sealSecrets(services.keyring, cached, secrets)
      // Every write increases the update time, even if the clock did not advance (docs/spec/resources.md#times).
      const updateMs = Math.max(planning.nowMs, cached.updateMs + 1)
      const facts = { etag: newEtag(services.random), createMs: cached.createMs, updateMs, managedBy, ownedFields: ownedFields(planning), sealed }
      const record = changes.update(kind, { cached, record: next, facts })
      changes.add(extra)
      emit(planning, context, { changes, subject: cached.uid, body: bodyOf(kind, planning, record) })
      return { changes, result: record }
    })
    return recordAnswer(kind, services, updated)
  }
}

/** Creates the handler of Delete: it returns an empty message, or throws code 5 if the record does not exist. */
export function deleteHandler(kind: AnyKind): Handler {
  return async (services, context, message) => {
    const { uid } = message as Message & { uid: string }
    await commit(services, context, (planning): MutationPlan<undefined> => {
      const record = existingRecord(kind, planning, uid)
      assertEtag(record, context.ifMatch)
      nextOwner(planning, kind.index.kind, record)
      const changes = new ChangeSet()
      changes.remove(kind, record)
      changes.add(kind.remove?.(planning, record))
      emit(planning, context, { changes, subject: uid, body: kind.omitDeletePayload === true ? undefined : { desc: context.method.input, message } })
      return { changes, result: undefined }
    })
    return { message: create(context.method.output), subject: uid }
  }
}
