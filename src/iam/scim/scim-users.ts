import { isDeepStrictEqual } from 'node:util'
import { create } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { parentOf, type Uid } from '../../base/uid.ts'
import { ScimUserSchema, type ScimUser } from '../../gen/taproot/store/v1/scim_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { nameKey, recordKey } from '../../store/keys.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { alreadyExists, staleEtag } from '../../engine/errors.ts'
import { scimUnchanged } from './scim-state.ts'
import { defineKind, type Claim, type Planning } from '../../engine/kind.ts'
import type { MutationContext, Services } from '../../engine/services.ts'
import { planChild } from '../../engine/write.ts'
import { DomainError } from '../../base/errors.ts'
import { factsOfUser, type ScimObject } from './scim-values.ts'

type ScimUserRecord = ScimUser & Resource

const index: KindIndex = {
  kind: 'ScimUser',
  desc: ScimUserSchema,
  filters: { user_name: { field: 'user_name' }, external_id: { field: 'external_id' } },
  removedWith: [{ kind: 'IdentityProvider', filter: 'parent' }],
}

function claimOf(uid: Uid, attribute: string, value: string): Claim {
  return { key: nameKey(index.kind, parentOf(uid), `${attribute} ${value}`), taken: () => alreadyExists(index.kind, `another user has this ${attribute}`) }
}

/**
 * The kind ScimUser: a user that a directory created over SCIM. It is a child of an identity provider, and is deleted with it
 * (docs/spec/scim.md#scim-server). No method of the platform API shows or changes it.
 */
export const scimUserKind = defineKind<ScimUserRecord>({
  index,
  desc: ScimUserSchema,
  uniqueName: false,
  claims: (uid, { userName, externalId }) => [claimOf(uid, 'userName', userName), ...(externalId === '' ? [] : [claimOf(uid, 'externalId', externalId)])],
})

/** A user for a response. */
export interface ScimUserView {
  readonly uid: Uid
  readonly etag: string
  readonly createMs: number
  readonly updateMs: number
  readonly attributes: ScimObject
}

/** Returns the attributes of the user in this record. All callers share the object, so it must not be changed. */
function attributesOf(record: CachedRecord): ScimObject {
  const known = record.derived
  // a cast: only this file fills the slot of these records
  if (known !== undefined) return known as ScimObject
  // a cast: factsOfUser wrote this value
  const read = JSON.parse((record.message as ScimUserRecord).attributes) as ScimObject
  record.derived = read
  return read
}

/** Returns the user in a record of kind ScimUser. */
export function viewOf(record: CachedRecord): ScimUserView {
  const { uid, etag, createMs, updateMs } = record
  return { uid, etag, createMs, updateMs, attributes: attributesOf(record) }
}

function viewOfRecord(record: ScimUserRecord, attributes: ScimObject): ScimUserView {
  const { uid, etag, createTime, updateTime } = record
  if (createTime === undefined || updateTime === undefined) throw new TypeError('a stored record has its times')
  return { uid: uid as Uid, etag, createMs: timestampMs(createTime), updateMs: timestampMs(updateTime), attributes }
}

const idPattern = /^[0-9a-f]{16}$/

/** Returns the user of the provider with this id. Undefined if there is none. */
export function userWithId(tables: RecordTables, provider: Uid, id: string): CachedRecord | undefined {
  return idPattern.test(id) ? tables.get(index.kind, `${provider}/${id}`) : undefined
}

/** Returns the user of the provider with this `userName` (in its compared form) or `externalId`. Undefined if there is none. */
export function userWith(tables: RecordTables, provider: Uid, by: { filter: 'user_name' | 'external_id'; value: string }): CachedRecord | undefined {
  const { filter, value } = by
  const table = tables.table(index.kind)
  const [alike, own] = [table.matching(filter, value), table.matching('parent', provider)]
  // Other providers can have any number of users with this name.
  for (const record of alike.size < own.size ? alike : own) if (record.parent === provider && table.valueOf(record, filter) === value) return record
  return undefined
}

/** Returns a part of the provider's users, sorted by uid, and their total number. */
export function usersOf(tables: RecordTables, provider: Uid, { skip, limit }: { skip: number; limit: number }): { records: CachedRecord[]; total: number } {
  const table = tables.table(index.kind)
  const { from, to } = table.rangeWithin(provider, false)
  const first = Math.min(from + skip, to)
  return { records: table.byUid.items(first, Math.min(first + limit, to)), total: to - from }
}

/** Returns the size of the user in this record, as JSON. */
export function bytesOf(record: CachedRecord): number {
  return Buffer.byteLength((record.message as ScimUserRecord).attributes)
}

/** True if the user in this record can sign in. */
export function isActive(record: CachedRecord): boolean {
  return (record.message as ScimUserRecord).active
}

/** The directory that changes users, and its request. */
export interface ScimWriting {
  readonly services: Services
  readonly provider: Uid
  /** `authorize` throws code 16 if the token no longer works, and code 7 if the organisation is suspended. */
  readonly context: MutationContext
}

/** Guards that the provider exists, and that its SCIM credentials are those that authenticated the request. */
function guarded({ tables }: Planning, provider: Uid): ChangeSet {
  const changes = new ChangeSet()
  changes.guard({ kind: 'exists', key: recordKey('IdentityProvider', provider) })
  changes.guard(scimUnchanged(tables, provider))
  return changes
}

/** Maximum number of users of a provider. Concurrent writes can exceed it slightly. */
const maxUsers = 100_000

/** Throws code 8 with HTTP 507 if the provider has the maximum number of users. */
function assertRoom({ tables }: Planning, provider: Uid, most: number): void {
  const { total } = usersOf(tables, provider, { skip: 0, limit: 0 })
  if (total >= most) throw new DomainError(8, `the identity provider has ${most} users: delete some before you create another`, { httpStatus: 507 })
}

/** Creates a user. Throws code 6 if the `userName` or `externalId` is taken, code 8 at `most` users, and as factsOfUser. */
export async function createScimUser({ services, provider, context }: ScimWriting, given: ScimObject, most = maxUsers): Promise<ScimUserView> {
  const attributes: ScimObject = { active: true, ...given }
  const facts = factsOfUser(attributes)
  return await commit(services, context, (planning): MutationPlan<ScimUserView> => {
    const changes = guarded(planning, provider)
    assertRoom(planning, provider, most)
    const record: ScimUserRecord = create(ScimUserSchema, facts)
    const made = planChild(scimUserKind, planning, { changes, parent: provider, record }) as ScimUserRecord
    // Only this change set writes the new key, so the key proves its commit.
    changes.proofKey = recordKey(index.kind, made.uid as Uid)
    return { changes, result: viewOfRecord(made, attributes) }
  })
}

/** Returns the error for a missing user: code 5. */
function noSuchUser(): DomainError {
  return new DomainError(5, 'the identity provider has no user with this id')
}

/** The user to change. `isCurrent` returns true for an etag that the request accepts. */
export interface ScimSubject {
  readonly id: string
  isCurrent(etag: string): boolean
}

function existing({ tables }: Planning, provider: Uid, { id, isCurrent }: ScimSubject): CachedRecord {
  const record = userWithId(tables, provider, id)
  if (record === undefined) throw noSuchUser()
  if (!isCurrent(record.etag)) throw staleEtag()
  return record
}

/** Returns a user of the provider for a response. Throws code 5. */
export function readScimUser({ services, provider }: Pick<ScimWriting, 'services' | 'provider'>, id: string): ScimUserView {
  const record = userWithId(services.cache.tables, provider, id)
  if (record === undefined) throw noSuchUser()
  return viewOf(record)
}

/** Changes a user. An unchanged user keeps its etag. Throws code 5, code 6, code 10 `ETAG_MISMATCH`, and as `change` and factsOfUser. */
export async function updateScimUser(writing: ScimWriting, subject: ScimSubject, change: (attributes: ScimObject) => ScimObject): Promise<ScimUserView> {
  const { services, provider, context } = writing
  return await commit(services, context, (planning): MutationPlan<ScimUserView> => {
    const changes = guarded(planning, provider)
    const cached = existing(planning, provider, subject)
    const current = attributesOf(cached)
    const attributes = change(current)
    const facts = factsOfUser(attributes)
    if (isDeepStrictEqual(current, attributes)) {
      changes.guard({ kind: 'unchanged', key: recordKey(index.kind, cached.uid), revision: cached.revision })
      return { changes, result: viewOf(cached) }
    }
    const record: ScimUserRecord = create(ScimUserSchema, { ...facts, uid: cached.uid })
    const times = { createMs: cached.createMs, updateMs: Math.max(planning.nowMs, cached.updateMs + 1) }
    const stored = changes.update(scimUserKind, { cached, record, facts: { etag: newEtag(services.random), managedBy: '', ...times } })
    return { changes, result: viewOfRecord(stored, attributes) }
  })
}

/** Deletes a user. Throws code 5, code 10 `ETAG_MISMATCH`. */
export async function deleteScimUser({ services, provider, context }: ScimWriting, subject: ScimSubject): Promise<void> {
  await commit(services, context, (planning): MutationPlan<undefined> => {
    const changes = guarded(planning, provider)
    changes.remove(scimUserKind, existing(planning, provider, subject))
    return { changes, result: undefined }
  })
}
