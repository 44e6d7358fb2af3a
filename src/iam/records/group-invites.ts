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
import { assertCanGrant } from '../../engine/grant-rules.ts'
import { defineKind, type MutationDraft, type Kind, type Planning, type Records } from '../../engine/kind.ts'
import type { Handler, Services } from '../../engine/services.ts'
import { createRecord } from '../../engine/write.ts'
import { bindableBy, noSuchRole, planBinding } from './role-bindings.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type InviteRecord = GroupInvite & Resource

const index: KindIndex = {
  kind: 'GroupInvite',
  desc: GroupInviteSchema,
  // No request filters by the code: that is how `findInvite` looks.
  filters: { key_id: { field: 'key_id' }, code: { field: 'code' } },
  removedWith: [],
}

/** What is kept of a code, and what an invite is found by. */
function digestOf(code: string): string {
  return createHash('sha256').update(code).digest('hex')
}

function newCode({ random }: Pick<Services, 'random'>): string {
  return Buffer.from(random.bytes(32)).toString('base64url')
}

/** The inviter must hold what the role grants: who redeems the code gets it without being asked for anything (docs/spec/iam.md#no-escalation). */
function settle(planning: Planning, { record, parent }: MutationDraft<InviteRecord>, code: string): undefined {
  const role = bindableBy(planning, record.roleUid, parent)
  if (role === undefined) throw DomainError.invalid('role_uid', noSuchRole)
  assertCanGrant(planning, parent, roleCapabilities(role))
  // The schema requires a ttl, and bounds it.
  const { seconds, nanos } = record.ttl ?? { seconds: 0n, nanos: 0 }
  record.expirationTime = timestampFromMs(planning.nowMs + Number(seconds) * 1000 + Math.ceil(nanos / 1_000_000))
  delete record.ttl
  // Random, so that it tells nothing of the code.
  record.keyId = randomHex(planning.services.random, 8)
  record.code = digestOf(code)
}

/** The invite with its role as it is now, and without what is kept of the code. */
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
  // Nobody learns this code: whoever is to learn one makes the invite by createGroupInvite.
  create: (planning, draft) => settle(planning, draft, newCode(planning.services)),
  render,
  eventPayload: ({ uid, expirationTime }) => create(GroupInviteSchema, { uid, ...(expirationTime === undefined ? {} : { expirationTime }) }),
}

/**
 * Group invites: codes by which people join a group with a role (docs/spec/iam.md#group-invites). What is stored has the code's SHA-256 digest in the place of the code: that finds the
 * invite, and nobody gets from it to the code, which is 32 random bytes.
 *
 * What the inviter may confer is settled when the invite is made. A role that is widened later widens what its open invites confer as it widens its bindings: whoever
 * widens it must hold the wider set at the role's own group (roles.ts), so at every group where it can be bound or promised, and could have granted it there
 * themselves. Built-in roles are changed by nobody. An inviter who loses rights leaves invites behind as they leave bindings behind: both are listed and can be deleted.
 */
export const groupInviteKind = defineKind(rules)

/** CreateGroupInvite: the code is in this answer and nowhere else, so not in that to a repeated Idempotency-Key either. */
export const createGroupInvite: Handler = (services, context, message) => {
  const { parent } = message as CreateGroupInviteRequest
  const code = newCode(services)
  const kind = defineKind<InviteRecord>({ ...rules, create: (planning, draft) => settle(planning, draft, code) })
  return createRecord(kind, services, {
    context,
    message,
    parent,
    showOnce(shown) {
      // A kind renders its own messages.
      const invite = shown as InviteRecord
      invite.code = code
    },
  })
}

/** What an invite promises, and to whom. */
export interface InviteTerms {
  /** The group that is joined. */
  readonly group: Uid
  readonly roleUid: string
  /** Lower case. Only who has this address, verified, may join; undefined where anyone with the code may. */
  readonly email: string | undefined
  readonly singleUse: boolean
  /** It counts up to here, without this very moment. */
  readonly expirationMs: number
}

/** The invite that a code is of, expired or not; undefined where there is none. */
export function findInvite(tables: RecordTables, code: string): CachedRecord | undefined {
  const [record] = tables.table(index.kind).matching('code', digestOf(code))
  return record
}

/** What the invite in this record promises. */
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
 * Puts into the change set what makes the person a member as the invite says: the binding, unless they have it; the invite's end, where it is for one person. Its guards
 * let no two people redeem an invite for one, nor anyone an invite or in a group that is gone meanwhile. Throws code 5, as for an unknown
 * code, where the invite has expired or its role is gone. Whether the person has the invite's address, and their record, are the caller's to see to.
 */
export function planRedeem(planning: Planning, changes: ChangeSet, { record, personUid }: { readonly record: CachedRecord; readonly personUid: Uid }): void {
  if (personUid.includes('/')) throw new TypeError(`${personUid} is not a person`)
  const { group, roleUid, singleUse, expirationMs } = inviteTerms(record)
  if (planning.nowMs >= expirationMs || !planBinding(planning, changes, { group, identity: personUid, role: roleUid })) throw notFound(index.kind, '')
  if (singleUse) changes.remove(groupInviteKind, record)
  else changes.guard({ kind: 'unchanged', key: recordKey(index.kind, record.uid), revision: record.revision })
}
