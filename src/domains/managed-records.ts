import { isDeepStrictEqual } from 'node:util'
import { create, equals, type Message } from '@bufbuild/protobuf'
import { FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import type { Subscription } from '../gen/taproot/events/v2/subscriptions_pb.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { methods } from '../base/schema/schema.ts'
import { trustedUid, type Uid } from '../base/uid.ts'
import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import { ChangeSet, newEtag } from '../engine/change-set.ts'
import { commit, type MutationPlan } from '../engine/commit.ts'
import { staleEtag } from '../engine/errors.ts'
import type { AnyKind, Planning } from '../engine/kind.ts'
import { pauseForObject, pauseWrite, showPause } from '../events/index.ts'
import { kinds } from './kinds.ts'
import { nextOwner, ownedFields } from '../engine/ownership.ts'
import { bareOf } from '../engine/record-codec.ts'
import { innerContext, type Context, type Services } from '../engine/services.ts'
import { rendered } from '../engine/shown.ts'
import { bodyOf, createRecord, deleteHandler, emit, existingRecord, resourceFieldOf, updateHandler } from '../engine/write.ts'

/** A Kubernetes object that writes its record, with its permissions (ADR 0016). */
export interface ObjectCaller {
  readonly managedBy: string
  /** The uid that stands for the object as the author of a change. */
  readonly identity: Uid
  /** Returns the current permissions of the object, which are granted to its namespace. */
  readonly permissions: () => EffectivePermissions
  /** Throws DomainError if the object may no longer write the record. Called before each attempt. */
  readonly authorize: () => void
  /** An id of the write, for logs and errors. */
  readonly requestId: string
  readonly signal: AbortSignal
}

/**
 * A change of a record by its Kubernetes object. The fields `paths` (proto names) get the values in `record`. Fields that the object set earlier and no longer
 * sets are reset. All other fields stay.
 */
export interface RecordChange {
  readonly uid: Uid
  readonly record: Resource
  readonly paths: readonly string[]
  /** True if the object may take over a record without an owner. */
  readonly adopts: boolean
}

function kindNamed(kind: string): AnyKind {
  const found = kinds.get(kind)
  if (found === undefined) throw new TypeError(`unknown kind ${kind}`)
  return found
}

function methodOf(kind: string, verb: 'create' | 'update' | 'delete'): MethodRow {
  const method = methods.find((row) => row.kind === kind && row.verb === verb)
  if (method === undefined) throw new TypeError(`the API has no method to ${verb} a ${kind}`)
  return method
}

function contextOf(caller: ObjectCaller, method: MethodRow, how: { adopts?: boolean; fields?: readonly string[]; validateOnly?: boolean } = {}): Context {
  const { managedBy, identity, permissions, authorize, requestId, signal } = caller
  return innerContext({
    method,
    caller: { identity, operator: false, actor: { iss: 'kubernetes', sub: managedBy }, restrictions: {}, permissions },
    requestId,
    signal,
    validateOnly: how.validateOnly ?? false,
    ownership: { kind: 'object', managedBy, adopts: how.adopts ?? false, fields: how.fields ?? [] },
    authorize,
  })
}

function methodNamed(rpc: string): MethodRow {
  const method = methods.find((row) => row.rpc === rpc)
  if (method === undefined) throw new TypeError(`unknown method ${rpc}`)
  return method
}

function requestOf(kind: string, method: MethodRow, fields: { record: Resource; [field: string]: unknown }): Message {
  const { record, ...rest } = fields
  const held = resourceFieldOf(method.input, kindNamed(kind))
  if (held === undefined) throw new TypeError(`the request of ${method.rpc} contains no ${kind}`)
  return create(method.input, { ...rest, [held.localName]: record })
}

/** Returns the record in the answer of a create or an update. */
function recordOf(answer: { readonly message: Message }): Resource {
  return answer.message as Resource
}

/** A new record below `parent` (`/` for a root). The Kubernetes object sets the fields `paths` (proto names). */
export interface NewRecord {
  readonly kind: string
  readonly parent: string
  readonly record: Resource
  readonly paths: readonly string[]
  /** The reason why a new subscription starts paused; undefined if it does not. */
  readonly pause?: string | undefined
}

/** Creates the record of a Kubernetes object. Throws the errors of an API create, and code 6 `OWNED_ALREADY` if the object already has a record. */
export async function createManaged(services: Services, caller: ObjectCaller, made: NewRecord): Promise<Resource> {
  const method = methodOf(made.kind, 'create')
  const message = requestOf(made.kind, method, { record: made.record, parent: made.parent })
  const { kind, parent, pause } = made
  const also = (planning: Planning, changes: ChangeSet, { uid }: Resource): void => {
    if (pause !== undefined) changes.write(pauseWrite(trustedUid(uid), { reason: pause, identity: planning.caller.identity, nowMs: planning.nowMs }))
  }
  const eventShows = (shown: Resource): void => {
    if (pause !== undefined) showPause(shown as Message as Subscription, pause) // a cast: only subscriptions are paused
  }
  const context = contextOf(caller, method, { fields: made.paths })
  return recordOf(await createRecord(kindNamed(kind), services, { context, message, parent, also, eventShows }))
}

/**
 * Updates the record of a Kubernetes object if it differs from the object. Resolves to the record, and whether it was written. Throws the errors of an API
 * update, and code 9 `NOT_OWNED` if the object does not own the record.
 */
export async function updateManaged(
  services: Services,
  caller: ObjectCaller,
  change: RecordChange & { readonly kind: string },
): Promise<{ record: Resource; written: boolean }> {
  const { kind, uid, paths, adopts } = change
  const method = methodOf(kind, 'update')
  const record = { ...change.record, uid }
  const message = requestOf(kind, method, { record, updateMask: create(FieldMaskSchema, { paths: [...paths] }) })
  const handler = updateHandler(kindNamed(kind))
  const cached = services.cache.tables.get(kind, uid)
  if (cached?.managedBy === caller.managedBy) {
    const { desc } = kindNamed(kind)
    const planned = recordOf(await handler(services, contextOf(caller, method, { adopts, fields: paths, validateOnly: true }), message))
    const current = rendered(kindNamed(kind), services, cached.message)
    if (equals(desc, bareOf(desc, planned), bareOf(desc, current))) {
      if (!isDeepStrictEqual(cached.ownedFields, paths))
        await noteFields(services, contextOf(caller, method, { fields: paths }), { kind: kindNamed(kind), record: cached })
      return { record: cached.message, written: false }
    }
  }
  return { record: recordOf(await handler(services, contextOf(caller, method, { adopts, fields: paths }), message)), written: true }
}

/**
 * Stores which fields the object sets. Readers see no change: the etag and times stay the same, and there is no event. Throws code 10 if the record has
 * changed in the meantime.
 */
async function noteFields(services: Services, context: Context, { kind, record }: { kind: AnyKind; record: CachedRecord }): Promise<void> {
  await commit(services, context, (planning): MutationPlan<undefined> => {
    const current = existingRecord(kind, planning, record.uid)
    if (current.revision !== record.revision) throw staleEtag()
    const { etag, createMs, updateMs, managedBy } = current
    const changes = new ChangeSet()
    changes.update(kind, { cached: current, record: current.message, facts: { etag, createMs, updateMs, managedBy, ownedFields: ownedFields(planning) } })
    return { changes, result: undefined }
  })
}

/**
 * Pauses the subscription of a Kubernetes object. Without a reason, ends a pause that the object started. Resolves to whether anything was written. Throws the
 * errors of `:pause`.
 */
export function pauseManaged(services: Services, caller: ObjectCaller, what: { readonly uid: Uid; readonly reason: string | undefined }): Promise<boolean> {
  return pauseForObject(services, (rpc) => contextOf(caller, methodNamed(rpc)), what)
}

/**
 * Makes the API the owner of a Kubernetes object's record, which stays unchanged otherwise. Ignores a record that does not exist or that the object does not
 * own.
 */
export async function releaseManaged(services: Services, caller: ObjectCaller, { kind, uid }: { kind: string; uid: Uid }): Promise<void> {
  const context = contextOf(caller, methodOf(kind, 'update'))
  const released = kindNamed(kind)
  await unlessGone(() =>
    commit(services, context, (planning): MutationPlan<undefined> => {
      const cached = existingRecord(released, planning, uid)
      nextOwner(planning, kind, cached)
      const changes = new ChangeSet()
      const facts = { etag: newEtag(services.random), createMs: cached.createMs, updateMs: Math.max(planning.nowMs, cached.updateMs + 1), managedBy: '' }
      const record = changes.update(released, { cached, record: cached.message, facts })
      emit(planning, context, { changes, subject: uid, body: bodyOf(released, planning, record) })
      return { changes, result: undefined }
    }),
  )
}

/** Deletes the record of a Kubernetes object if it exists. Throws the errors of an API delete, e.g. code 9 if a group has children. */
export async function deleteManaged(services: Services, caller: ObjectCaller, { kind, uid }: { kind: string; uid: Uid }): Promise<void> {
  const method = methodOf(kind, 'delete')
  await unlessGone(() => deleteHandler(kindNamed(kind))(services, contextOf(caller, method), create(method.input, { uid })))
}

async function unlessGone(work: () => Promise<unknown>): Promise<void> {
  try {
    await work()
  } catch (error) {
    const isGone = error instanceof DomainError && (error.code === 5 || error.reason === 'NOT_OWNED')
    if (!isGone) throw error
  }
}
