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

/** The request field that holds the resource: the one of the kind's own message type. */
export function resourceFieldOf(input: DescMessage, kind: { readonly desc: DescMessage }): DescField | undefined {
  return input.fields.find((field) => field.fieldKind === 'message' && field.message.typeName === kind.desc.typeName)
}

/** The resource in a create or update request; an empty one where the request has none. */
export function resourceIn(kind: AnyKind, context: Context, message: Message): Resource {
  const field = resourceFieldOf(context.method.input, kind)
  if (field === undefined) throw new TypeError(`${context.method.rpc} carries no ${kind.index.kind}`)
  // The field was found by its type.
  return ((message as unknown as Record<string, unknown>)[field.localName] as Resource | undefined) ?? (create(kind.desc) as Resource)
}

/** A copy with what only the server writes cleared: clients may send it, it does not count (docs/spec/resources.md#output-only-fields). */
export function writableCopy(desc: DescMessage, record: Resource): Resource {
  const copy = clone(desc, record) as Resource
  const fields = copy as unknown as Record<string, unknown>
  const empty = create(desc) as unknown as Record<string, unknown>
  for (const field of desc.fields) if (fieldAccess(field).outputOnly && field.oneof === undefined) fields[field.localName] = empty[field.localName]
  copy.uid = ''
  copy.etag = ''
  return copy
}

/** The uid of a new child; a root's is 20 random bytes, a child's segment 8. Throws code 3 where the tree would get too deep. */
export function newUid(services: Services, parent: string): Uid {
  if (parent === rootParent) return trustedUid(randomHex(services.random, 20))
  const uid = `${parent}/${randomHex(services.random, 8)}`
  if (uid.length > maxUidLength) throw DomainError.invalid('parent', 'is too deep in the tree')
  return trustedUid(uid)
}

/** What an event carries of a record that was made or changed. */
export function bodyOf(kind: AnyKind, planning: Planning, record: Resource): EventBody {
  const shown = rendered(kind, planning.services, record)
  return { desc: kind.desc, message: kind.told?.(shown) ?? shown }
}

/** Adds the mutation's event to its transaction. */
export function emit(planning: Planning, context: Context, what: { changes: ChangeSet; subject: string; body: EventBody | undefined }): void {
  const { event } = context.method
  if (event === undefined) return
  const path = context.method.http[0]?.template.replace(/\/?\{.*$/, '') ?? ''
  const source = `${planning.services.settings.ownIssuer}${path}`
  const write = outboxWrite(planning.services.random, {
    event,
    source,
    subject: what.subject,
    body: what.body,
    caller: planning.caller,
    nowMs: planning.nowMs,
  })
  what.changes.write(write)
  // The entry's key is new with every plan. Its absence lets this change set commit once at most, however often it is sent, whatever others do in between.
  what.changes.guard({ kind: 'absent', key: write.key })
  what.changes.proofKey = write.key
}

/** Puts a new record of `kind` below `parent` into the change set, unchecked. Returns it as it will be read. */
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

/** The uid of a group's one record of a kind: the group's own. Throws code 6 where it is there. */
function theOneOf(kind: AnyKind, { snapshot }: Planning, parent: string): Uid {
  if (snapshot.get(kind.index.kind, parent) !== undefined) throw alreadyExists(kind.index.kind, 'the group has one')
  return trustedUid(parent)
}

/** Plans one new record of `kind` below `parent`: rules, keys, guards on the parent. Returns the record as it will be read. */
export function planCreate(kind: AnyKind, planning: Planning, source: { changes: ChangeSet; parent: string; draft: Resource }): Resource {
  const { changes, parent } = source
  if (parent !== rootParent) {
    const parentKind = resources.get(kind.index.kind)?.parents.find((candidate) => candidate !== rootParent) ?? 'Group'
    if (planning.snapshot.get(parentKind, parent) === undefined) throw notFound(parentKind, parent)
    changes.guard({ kind: 'exists', key: recordKey(parentKind, trustedUid(parent)) })
  }
  const record = writableCopy(kind.desc, source.draft)
  const secrets = newSecrets(kind, record)
  const uid = resources.get(kind.index.kind)?.singleton === true ? theOneOf(kind, planning, parent) : newUid(planning.services, parent)
  // The parent was found as a record, or is the root.
  changes.add(kind.create?.(planning, { uid, parent: parent as Uid | '/', record, secrets }))
  return planChild(kind, planning, { changes, parent, record, secrets, uid })
}

/** Answers a create that was made before with the same key: the resource as it is now. */
function earlierAnswer(kind: AnyKind, services: Services, earlier: readonly string[]): HandlerAnswer {
  const uid = earlier[0] ?? ''
  const row = services.replica.snapshot.get(kind.index.kind, uid)
  if (row === undefined) throw notFound(kind.index.kind, uid)
  return recordAnswer(kind, services, row.message)
}

/** Remembers the key in the transaction that it belongs to. */
export function rememberKey(memory: Idempotent | undefined, changes: ChangeSet, made: { uids: readonly string[]; nowMs: number }): void {
  if (memory === undefined) return
  changes.add(memory.remember(made.uids, made.nowMs))
  // That key lets the change set commit once at most, as the event's does: the largest batch of role bindings has no room for both guards.
  if (changes.proofKey !== undefined) changes.unguard(changes.proofKey)
}

/** A create whose parent is known. */
export interface CreateCall {
  readonly context: Context
  readonly message: Message
  /** A uid, or `/` for a root. */
  readonly parent: string
  /** What else belongs to the same transaction. */
  readonly also?: (planning: Planning, changes: ChangeSet, record: Resource) => void
  /** Adds to what is answered what only the maker is ever shown; not called for a dry run, nor where the record was made by an earlier call. */
  readonly showOnce?: (shown: Resource) => void
}

/** Creates a record below `parent` (already resolved; `/` for a root). */
export async function createRecord(kind: AnyKind, services: Services, call: CreateCall): Promise<HandlerAnswer> {
  const { context, message, parent } = call
  const draft = resourceIn(kind, context, message)
  assertValid(kind.desc, writableCopy(kind.desc, draft))
  const plan = (planning: Planning, memory: Idempotent | undefined): MutationPlan<Resource> => {
    const changes = new ChangeSet()
    const record = planCreate(kind, planning, { changes, parent, draft })
    call.also?.(planning, changes, record)
    emit(planning, context, { changes, subject: record.uid, body: bodyOf(kind, planning, record) })
    rememberKey(memory, changes, { uids: [record.uid], nowMs: planning.nowMs })
    return { changes, result: record }
  }
  const outcome = await onceByKey(services, { context, message, parent }, (memory) => commit(services, context, (planning) => plan(planning, memory)))
  if (outcome.kind === 'earlier') return earlierAnswer(kind, services, outcome.uids)
  const answer = recordAnswer(kind, services, outcome.made)
  // recordAnswer renders one of the kind's own messages.
  if (!context.validateOnly) call.showOnce?.(answer.message as Resource)
  return answer
}

/** Answers Create for a kind whose parent is given as a uid. */
export function createHandler(kind: AnyKind): Handler {
  return (services, context, message) => createRecord(kind, services, { context, message, parent: (message as Message & { parent: string }).parent })
}

/** Throws code 10 where a precondition on the etag does not hold, also where there is no row. `expected` is one etag, several with commas between them, or `*` for any. */
export function assertEtag(row: Pick<CachedRecord, 'etag'> | undefined, expected: string | undefined): void {
  if (expected === undefined || expected === '') return
  if (row === undefined || (expected !== '*' && !expected.split(',').includes(row.etag))) throw staleEtag()
}

/** The paths that an update changes (docs/spec/conventions.md#update-masks): the mask; else the keys of a REST body; else what a gRPC message has set. */
export function pathsOf(kind: Pick<AnyKind, 'desc'>, context: Context, request: { patch: Resource; mask: FieldMask | undefined }): readonly string[] {
  if (request.mask !== undefined && request.mask.paths.length > 0) return request.mask.paths
  return context.present ?? populatedPaths(kind.desc, request.patch)
}

/** The row under `uid`, or code 5. */
export function existingRow(kind: AnyKind, planning: Pick<Planning, 'snapshot'>, uid: string): CachedRecord {
  const row = isUid(uid) ? planning.snapshot.get(kind.index.kind, uid) : undefined
  if (row === undefined) throw notFound(kind.index.kind, uid)
  return row
}

/** Resolves when the grants are at hand that a change of the record asks about; undefined where there is nothing to wait for. */
function whenChangeable(kind: AnyKind, { replica, grants }: Services, uid: string): Promise<void> | undefined {
  const row = kind.asksAbout === undefined ? undefined : replica.snapshot.get(kind.index.kind, uid)
  return row === undefined ? undefined : grants.prepareAmong(kind.asksAbout?.(replica.snapshot, row) ?? [])
}

/** Answers Update: changes what the mask names, checks the whole result (docs/spec/conventions.md#update). */
export function updateHandler(kind: AnyKind): Handler {
  return async (services, context, message) => {
    const { updateMask: mask } = message as Message & { updateMask?: FieldMask }
    const patch = resourceIn(kind, context, message)
    await whenChangeable(kind, services, patch.uid)
    const updated = await commit(services, context, (planning): MutationPlan<Resource> => {
      const row = existingRow(kind, planning, patch.uid)
      assertEtag(row, context.ifMatch)
      if (maskAllowsEtag(mask === undefined || mask.paths.length === 0 ? undefined : mask.paths)) assertEtag(row, patch.etag)
      const managedBy = nextOwner(planning, kind.index.kind, row)
      // Resets come first: one member of a oneof may take the place of another.
      const paths = [...resetFields(planning, kind.desc, row), ...pathsOf(kind, context, { patch, mask })]
      const next = applyMask(kind.desc, { current: row.message, patch }, paths)
      assertValid(kind.desc, writableCopy(kind.desc, next))
      const secrets = changedSecrets(kind, { row, record: next, paths })
      const changes = new ChangeSet()
      const extra = kind.update?.(planning, { uid: row.uid, parent: row.parent, record: next, secrets, paths }, row.message)
      const sealed = sealSecrets(services.keyring, row, secrets)
      // Time moves forward with every write, also where the clock does not (docs/spec/resources.md#times).
      const updateMs = Math.max(planning.nowMs, row.updateMs + 1)
      const facts = { etag: newEtag(services.random), createMs: row.createMs, updateMs, managedBy, ownedFields: ownedFields(planning), sealed }
      const record = changes.update(kind, { row, record: next, facts })
      changes.add(extra)
      emit(planning, context, { changes, subject: row.uid, body: bodyOf(kind, planning, record) })
      return { changes, result: record }
    })
    return recordAnswer(kind, services, updated)
  }
}

/** Answers Delete: an empty message, or code 5 where there is nothing to delete. */
export function deleteHandler(kind: AnyKind): Handler {
  return async (services, context, message) => {
    const { uid } = message as Message & { uid: string }
    await commit(services, context, (planning): MutationPlan<undefined> => {
      const row = existingRow(kind, planning, uid)
      assertEtag(row, context.ifMatch)
      nextOwner(planning, kind.index.kind, row)
      const changes = new ChangeSet()
      changes.remove(kind, row)
      changes.add(kind.remove?.(planning, row))
      emit(planning, context, { changes, subject: uid, body: kind.omitDeletePayload === true ? undefined : { desc: context.method.input, message } })
      return { changes, result: undefined }
    })
    return { message: create(context.method.output), subject: uid }
  }
}
