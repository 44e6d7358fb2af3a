import { assertCanGrant } from '../../authz/grant-check.ts'
import { createHash } from 'node:crypto'
import { clone, create } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { roleCapabilities } from '../../authz/grants-index.ts'
import { DomainError } from '../../base/errors.ts'
import { randomHex } from '../../base/runtime.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import { GroupInviteRoleSchema, GroupInviteSchema, type CreateGroupInviteRequest, type GroupInvite } from '../../gen/taproot/iam/v2/group_invites_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { recordKey } from '../../store/keys.ts'
import type { ChangeSet } from '../../engine/change-set.ts'
import { notFound } from '../../engine/errors.ts'
import { defineKind, type MutationDraft, type Kind, type Planning, type Records } from '../../engine/kind.ts'
import type { Handler, Services } from '../../engine/services.ts'
import { createRecord } from '../../engine/write.ts'
import { bindableBy, noSuchRole, planBinding } from './role-bindings.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type InviteRecord = GroupInvite & Resource

const index: KindIndex = {
  kind: 'GroupInvite',
  desc: GroupInviteSchema,
  // Only `findInvite` filters by the code, not a request.
  filters: { key_id: { field: 'key_id' }, code: { field: 'code' } },
  removedWith: [],
}

/** Returns the digest of a code, which is stored and used to find the invite. */
function digestOf(code: string): string {
  return createHash('sha256').update(code).digest('hex')
}

function newCode({ random }: Pick<Services, 'random'>): string {
  return Buffer.from(random.bytes(32)).toString('base64url')
}

/**
 * Completes a new invite. Throws code 7 if the inviter lacks a capability of the role, since everyone with the code gets them
 * (docs/spec/iam.md#no-escalation).
 */
function settle(planning: Planning, { record, parent }: MutationDraft<InviteRecord>, code: string): undefined {
  const role = bindableBy(planning, record.roleUid, parent)
  if (role === undefined) throw DomainError.invalid('role_uid', noSuchRole)
  assertCanGrant(planning.permissions, parent, roleCapabilities(role))
  // The schema requires and limits the ttl.
  const { seconds, nanos } = record.ttl ?? { seconds: 0n, nanos: 0 }
  record.expirationTime = timestampFromMs(planning.nowMs + Number(seconds) * 1000 + Math.ceil(nanos / 1_000_000))
  delete record.ttl
  // Random, so that it does not reveal the code.
  record.keyId = randomHex(planning.services.random, 8)
  record.code = digestOf(code)
}

/** Returns the invite with the current state of its role, and without the digest of the code. */
function render(records: Records, record: InviteRecord): InviteRecord {
  const shown = clone(GroupInviteSchema, record)
  shown.code = ''
  const role = records.get('Role', record.roleUid)?.message
  if (role !== undefined) {
    const { name, description, capabilities } = role
    shown.role = create(GroupInviteRoleSchema, { uid: record.roleUid, name, description, capabilities })
  }
  return shown
}

const rules: Kind<InviteRecord> = {
  index,
  desc: GroupInviteSchema,
  uniqueName: false,
  // The code for this invite is never returned. Only createGroupInvite returns a usable code.
  create: (planning, draft) => settle(planning, draft, newCode(planning.services)),
  render,
  eventPayload: ({ uid, expirationTime }) => create(GroupInviteSchema, { uid, ...(expirationTime === undefined ? {} : { expirationTime }) }),
}

/**
 * Group invites: codes with which people join a group (docs/spec/iam.md#group-invites). The store has only the SHA-256 digest of a code. The code has 32 random
 * bytes, so the digest does not reveal it.
 *
 * The rights of the inviter are checked when the invite is created. If a role gains capabilities later, its open invites and its role bindings gain them too.
 * The caller who adds them must hold them at the group of the role (roles.ts). So the caller could have granted them in all groups where the role can be used.
 * Built-in roles cannot be changed. If an inviter loses rights, the invites stay, as role bindings do. Both are listed and can be deleted.
 */
export const groupInviteKind = defineKind(rules)

/** CreateGroupInvite: only this response contains the code. A repeated request with the same Idempotency-Key does not return it. */
export const createGroupInvite: Handler = (services, context, message) => {
  const { parent } = message as CreateGroupInviteRequest
  const code = newCode(services)
  const kind = defineKind<InviteRecord>({ ...rules, create: (planning, draft) => settle(planning, draft, code) })
  return createRecord(kind, services, {
    context,
    message,
    parent,
    showOnce(shown) {
      // a cast: the message is a GroupInvite
      const invite = shown as InviteRecord
      invite.code = code
    },
  })
}

/** What an invite grants, and to whom. */
export interface InviteTerms {
  /** The group to join. */
  readonly group: Uid
  readonly roleUid: string
  /** E-mail address in lower case. Only a person with this verified address can use the invite. Undefined if everyone with the code can. */
  readonly email: string | undefined
  readonly singleUse: boolean
  /** Expiry of the invite, exclusive, in milliseconds since 1970. */
  readonly expirationMs: number
}

/** Returns the invite with this code, even if it is expired; undefined if there is none. */
export function findInvite(tables: RecordTables, code: string): CachedRecord | undefined {
  const [record] = tables.table(index.kind).matching('code', digestOf(code))
  return record
}

/** Returns the role, group and address of the invite in this record. */
export function inviteTerms(record: CachedRecord): InviteTerms {
  const { roleUid, email, singleUse, expirationTime } = messageOf(record, 'GroupInvite')
  return {
    group: trustedUid(record.parent),
    roleUid,
    email: email === '' ? undefined : email.toLowerCase(),
    singleUse,
    expirationMs: expirationTime === undefined ? 0 : timestampMs(expirationTime),
  }
}

/**
 * Plans that a person joins by an invite. Writes the role binding, if it is new, and deletes a single-use invite. The guards prevent a
 * second use of a single-use invite, and any use after the invite or group was deleted. Throws code 5, as for an unknown code, if the
 * invite expired or its role was deleted. The caller checks the e-mail address and the person's record.
 */
export function planRedeem(planning: Planning, changes: ChangeSet, { record, personUid }: { readonly record: CachedRecord; readonly personUid: Uid }): void {
  if (personUid.includes('/')) throw new TypeError(`${personUid} is not a person`)
  const { group, roleUid, singleUse, expirationMs } = inviteTerms(record)
  if (planning.nowMs >= expirationMs || !planBinding(planning, changes, { group, identity: personUid, role: roleUid })) throw notFound(index.kind, '')
  if (singleUse) changes.remove(groupInviteKind, record)
  else changes.guard({ kind: 'unchanged', key: recordKey(index.kind, record.uid), revision: record.revision })
}
