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

/** Users that a directory made over SCIM: children of an identity provider, and gone with it (docs/spec/scim.md#scim-server). No method of the API shows or changes them. */
export const scimUserKind = defineKind<ScimUserRecord>({
  index,
  desc: ScimUserSchema,
  uniqueName: false,
  claims: (uid, { userName, externalId }) => [claimOf(uid, 'userName', userName), ...(externalId === '' ? [] : [claimOf(uid, 'externalId', externalId)])],
})

/** A user as it is shown. */
export interface ScimUserView {
  readonly uid: Uid
  readonly etag: string
  readonly createMs: number
  readonly updateMs: number
  readonly attributes: ScimObject
}

/** What the directory said of the user in this record. Shared by all readers: never change it. */
function attributesOf(record: CachedRecord): ScimObject {
  const known = record.derived
  // Nobody else leaves anything at records of this kind.
  if (known !== undefined) return known as ScimObject
  // factsOfUser wrote it.
  const read = JSON.parse((record.message as ScimUserRecord).attributes) as ScimObject
  record.derived = read
  return read
}

/** The user in a record of kind ScimUser. */
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

/** The provider's user with this id; undefined where there is none. */
export function userWithId(tables: RecordTables, provider: Uid, id: string): CachedRecord | undefined {
  return idPattern.test(id) ? tables.get(index.kind, `${provider}/${id}`) : undefined
}

/** The provider's user with this `userName` (as it is compared) or `externalId`; undefined where there is none. */
export function userWith(tables: RecordTables, provider: Uid, by: { filter: 'user_name' | 'external_id'; value: string }): CachedRecord | undefined {
  const { filter, value } = by
  const table = tables.table(index.kind)
  const [alike, own] = [table.matching(filter, value), table.matching('parent', provider)]
  // Other providers may have any number of users of this name.
  for (const record of alike.size < own.size ? alike : own) if (record.parent === provider && table.valueOf(record, filter) === value) return record
  return undefined
}

/** The provider's users, in uid order, from one place to another; and how many there are. */
export function usersOf(tables: RecordTables, provider: Uid, { skip, limit }: { skip: number; limit: number }): { records: CachedRecord[]; total: number } {
  const table = tables.table(index.kind)
  const { from, to } = table.rangeWithin(provider, false)
  const first = Math.min(from + skip, to)
  return { records: table.byUid.items(first, Math.min(first + limit, to)), total: to - from }
}

/** How large the user in this record is, as JSON. */
export function bytesOf(record: CachedRecord): number {
  return Buffer.byteLength((record.message as ScimUserRecord).attributes)
}

/** True where the user in this record may sign in. */
export function isActive(record: CachedRecord): boolean {
  return (record.message as ScimUserRecord).active
}

/** On whose behalf users are changed. */
export interface ScimWriting {
  readonly services: Services
  readonly provider: Uid
  /** Its `authorize` throws code 16 where the token works no more, and code 7 where the organisation is suspended. */
  readonly context: MutationContext
}

/** The change holds only while the provider is there, and its SCIM credentials are those that the caller was let in by. */
function guarded({ tables }: Planning, provider: Uid): ChangeSet {
  const changes = new ChangeSet()
  changes.guard({ kind: 'exists', key: recordKey('IdentityProvider', provider) })
  changes.guard(scimUnchanged(tables, provider))
  return changes
}

/** The most users of one provider; writes at once may bring a few more. */
const maxUsers = 100_000

/** Throws code 8 with HTTP 507 where the provider has so many users. */
function assertRoom({ tables }: Planning, provider: Uid, most: number): void {
  const { total } = usersOf(tables, provider, { skip: 0, limit: 0 })
  if (total >= most) throw new DomainError(8, `the identity provider has ${most} users: delete some before you create another`, { httpStatus: 507 })
}

/** Makes a user. Throws code 6 where the provider has one of that `userName` or `externalId`, code 8 where it has `most` users, and as factsOfUser. */
export async function createScimUser({ services, provider, context }: ScimWriting, given: ScimObject, most = maxUsers): Promise<ScimUserView> {
  const attributes: ScimObject = { active: true, ...given }
  const facts = factsOfUser(attributes)
  return await commit(services, context, (planning): MutationPlan<ScimUserView> => {
    const changes = guarded(planning, provider)
    assertRoom(planning, provider, most)
    const record: ScimUserRecord = create(ScimUserSchema, facts)
    const made = planChild(scimUserKind, planning, { changes, parent: provider, record }) as ScimUserRecord
    // No other change set writes this new key: it tells whether this one committed.
    changes.proofKey = recordKey(index.kind, made.uid as Uid)
    return { changes, result: viewOfRecord(made, attributes) }
  })
}

/** Code 5 for a user that the provider has not. */
function noSuchUser(): DomainError {
  return new DomainError(5, 'the identity provider has no user with this id')
}

/** Which user is changed, and in which state; `isCurrent` says of an etag whether the caller meant this state. */
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

/** The provider's user, as it is shown. Throws code 5. */
export function readScimUser({ services, provider }: Pick<ScimWriting, 'services' | 'provider'>, id: string): ScimUserView {
  const record = userWithId(services.cache.tables, provider, id)
  if (record === undefined) throw noSuchUser()
  return viewOf(record)
}

/** Changes a user; one that stays the same keeps its etag. Throws code 5, code 6, code 10 `ETAG_MISMATCH`, and as `change` and factsOfUser. */
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

/** Removes a user. Throws code 5, code 10 `ETAG_MISMATCH`. */
export async function deleteScimUser({ services, provider, context }: ScimWriting, subject: ScimSubject): Promise<void> {
  await commit(services, context, (planning): MutationPlan<undefined> => {
    const changes = guarded(planning, provider)
    changes.remove(scimUserKind, existing(planning, provider, subject))
    return { changes, result: undefined }
  })
}
