import { isPath } from '../../base/schema/uid-fields.ts'
import { create } from '@bufbuild/protobuf'
import { personUid } from '../../auth/oidc/issuer-name.ts'
import { isSuspended } from '../../authz/access.ts'
import { decide } from '../../authz/effective-permissions.ts'
import { containsAll, setOf } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isUid, isWithin, rootOf, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { assertNotSuspended } from '../../engine/authorize.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import { boundAround, isPending, leavesOut, planJoined } from '../../engine/membership.ts'
import { callerOf, type Caller, type Context, type Handler, type Services } from '../../engine/services.ts'
import { rendered } from '../../engine/shown.ts'
import { createRecord, emit } from '../../engine/write.ts'
import {
  CheckEligibilityResponseSchema,
  JoinGroupResponseSchema,
  LookupGroupResponseSchema,
  RequestGroupAccessResponseSchema,
  type CreateGroupRequest,
  type Group,
  type JoinGroupRequest,
  type RequestGroupAccessRequest,
} from '../../gen/taproot/iam/v2/groups_pb.ts'
import { groupKind, planFirstOwner, planFounded, verifiedRoot } from './groups.ts'

/** Key prefix of the last access requests: `x/access-request/<group>/<identity>`. The value is the time in milliseconds since 1970, as text. */
export const accessRequestPrefix = 'x/access-request/'

/** For this long, a second access request of the same caller is refused, in milliseconds (docs/spec/iam.md#group-lookup). */
export const accessWindowMs = 24 * 3600 * 1000

const needed = setOf(['groups.create'])

/** Mail domains that do not identify an organisation. */
const freeMail: ReadonlySet<string> = new Set([
  'aol.com',
  'gmail.com',
  'gmx.com',
  'gmx.de',
  'googlemail.com',
  'hotmail.com',
  'icloud.com',
  'live.com',
  'mail.com',
  'mail.ru',
  'me.com',
  'msn.com',
  'outlook.com',
  'pm.me',
  'proton.me',
  'protonmail.com',
  'qq.com',
  'web.de',
  'yahoo.com',
  'yandex.ru',
])

/** Returns the groups that a text may mean: those with this name, and those whose uid ends with it (docs/spec/iam.md#groups). */
function namedGroups(tables: RecordTables, text: string): CachedRecord[] {
  const groups = tables.table('Group')
  const byName = [...groups.matching('name', text)]
  const bySegment = [...groups.matching('segment', text.slice(text.lastIndexOf('/') + 1))].filter((record) => record.uid.endsWith(`/${text}`))
  return [...new Set([...byName, ...bySegment])]
}

/**
 * Returns the group that the request names as parent, if the caller can create groups in it. A name never selects a group of an
 * organisation that the caller did not join, because other tenants could make it ambiguous. Throws code 5 (not found), 7 (not allowed) or
 * 3 (ambiguous).
 */
function resolveParent(services: Services, caller: Caller, text: string): Uid {
  const permissions = caller.permissions()
  const { tables } = services.cache
  const isLeftOut = leavesOut(tables, caller)
  const candidates = isUid(text) ? [text] : namedGroups(tables, text).flatMap(({ uid }) => (isLeftOut(uid) ? [] : [uid]))
  const visible = candidates.filter((uid) => decide(permissions, uid, needed).kind !== 'hidden')
  const [uid, another] = visible
  if (uid === undefined) throw notFound('Group', text, { concealed: candidates.length > 0 || isPath(text) })
  if (another !== undefined) throw DomainError.invalid('parent', 'is the name of several groups; use the uid')
  const decision = decide(permissions, uid, needed)
  if (decision.kind === 'denied') throw DomainError.denied(decision.missing, uid)
  assertNotSuspended(tables, permissions, trustedUid(uid))
  if (tables.get('Group', uid) === undefined) throw notFound('Group', text)
  return uid
}

/** Throws unless the caller can create a root group: an operator, or a person if self-service is on and the token is not restricted. */
function assertMayCreateRoot(services: Services, caller: Caller): void {
  if (caller.permissions().operator) return
  const { scopes, capabilities, trustedGroups } = caller.restrictions
  const isRestricted = scopes !== undefined || trustedGroups !== undefined || (capabilities !== undefined && !containsAll(capabilities, needed))
  if (services.settings.selfServiceRootGroups && !caller.identity.includes('/') && !isRestricted) return
  throw DomainError.denied(['groups.create'], rootParent)
}

/** CreateGroup: creates a group below a group, given by uid, last part of a uid or name. Without a parent, it creates a root group with the caller as owner. */
export const createGroup: Handler = (services, context, message) => {
  const { parent: text } = message as CreateGroupRequest
  const caller = callerOf(context)
  if (text === '' || text === rootParent) {
    const rooted: Context = context.with({ authorize: () => assertMayCreateRoot(services, caller) })
    rooted.authorize()
    return createRecord(groupKind, services, {
      context: rooted,
      message,
      parent: rootParent,
      also: (planning, changes, record) => {
        planFounded(planning, changes, record.uid as Uid)
        planFirstOwner(planning, changes, record.uid as Uid)
      },
    })
  }
  const parent = resolveParent(services, caller, text)
  return createRecord(groupKind, services, { context: context.with({ authorize: () => void resolveParent(services, caller, parent) }), message, parent })
}

/**
 * Returns the domain of the caller's e-mail address. Undefined unless a trusted sign-in verified it and it identifies an organisation.
 * Only for the person with that issuer and subject, since any tenant can create an identity with a trusted issuer and its own keys.
 */
function verifiedDomain(services: Services, caller: Caller): string | undefined {
  const { iss, sub, email } = caller.actor
  if (iss === undefined || sub === undefined || email === undefined || !services.settings.trustedIssuers.has(iss)) return undefined
  if (caller.identity !== personUid(iss, sub) || caller.restrictions.trustedGroups !== undefined) return undefined
  const domain = email.slice(email.lastIndexOf('@') + 1).toLowerCase()
  return domain === '' || freeMail.has(domain) ? undefined : domain
}

/** Returns the verified organisation with the caller's mail domain; undefined if there is none, or if it is suspended. */
function groupOfDomain(services: Services, context: Context): CachedRecord | undefined {
  const { tables } = services.cache
  const domain = verifiedDomain(services, callerOf(context))
  const record = domain === undefined ? undefined : verifiedRoot(tables, domain)
  return record === undefined || isSuspended(tables, record.uid) ? undefined : record
}

/** LookupGroup: returns the organisation with the caller's mail domain. All failures are the same NOT_FOUND (docs/spec/iam.md#group-lookup). */
export const lookupGroup: Handler = (services, context) => {
  const record = groupOfDomain(services, context)
  if (record === undefined) return Promise.reject(notFound('Group', ''))
  return Promise.resolve({
    message: create(LookupGroupResponseSchema, { group: rendered(groupKind, services, record.message) as Group }),
  })
}

/** CheckEligibility: returns whether the caller may use LookupGroup, even if no organisation matches. */
export const checkEligibility: Handler = (services, context) =>
  Promise.resolve({ message: create(CheckEligibilityResponseSchema, { eligible: verifiedDomain(services, callerOf(context)) !== undefined }) })

/** RequestGroupAccess: notifies the owners of the organisation with the caller's mail domain, at most once a day. */
export const requestGroupAccess: Handler = async (services, context, message) => {
  const { groupUid } = message as RequestGroupAccessRequest
  if (groupUid === '') throw DomainError.invalid('group_uid', 'is required')
  const record = groupOfDomain(services, context)
  if (record === undefined || record.uid !== groupUid)
    throw notFound('Group', groupUid, { concealed: services.cache.tables.get('Group', groupUid) !== undefined })
  const answer = { message: create(RequestGroupAccessResponseSchema), subject: groupUid }
  const caller = callerOf(context)
  const key = `${accessRequestPrefix}${groupUid}/${caller.identity}`
  const now = services.clock.now()
  const earlier = await services.store.get(key, context.signal)
  const retryAfterMs = earlier === undefined ? 0 : Number(Buffer.from(earlier.value).toString()) + accessWindowMs - now
  if (retryAfterMs > 0) throw new DomainError(8, 'access was already requested; wait for an answer', { details: { retryAfterMs } })
  if (context.validateOnly) return answer
  const guard = earlier === undefined ? ({ kind: 'absent', key } as const) : ({ kind: 'unchanged', key, revision: earlier.revision } as const)
  const outcome = await services.store.transact({ guards: [guard], writes: [{ kind: 'put', key, value: Buffer.from(String(now)) }] }, context.signal)
  if (!outcome.committed) throw new DomainError(8, 'access was already requested; wait for an answer', { details: { retryAfterMs: accessWindowMs } })
  services.log.info('group access requested', { group: groupUid, identity: caller.identity, email: caller.actor.email })
  return answer
}

/**
 * Throws code 5 if the caller has no role binding at, above or below the group where its sign-in applies. Throws code 7 if the token is
 * restricted, or the organisation is suspended.
 */
function assertMayJoin({ cache: { tables } }: Services, caller: Caller, uid: string): void {
  const { scopes, capabilities, trustedGroups } = caller.restrictions
  const bound = isUid(uid) ? boundAround(tables, caller.identity, uid) : []
  const counting = trustedGroups === undefined ? bound : bound.filter((group) => trustedGroups.some((known) => isWithin(group, known)))
  const isThere = tables.get('Group', uid) !== undefined
  if (!isUid(uid) || counting.length === 0 || !isThere) throw notFound('Group', uid, { concealed: isThere || isPath(uid) })
  if (scopes !== undefined || capabilities !== undefined) throw DomainError.denied([], uid)
  assertNotSuspended(tables, caller.permissions(), uid)
}

/** JoinGroup: the caller joins the organisation. If the caller already joined it, nothing changes and there is no event. */
export const joinGroup: Handler = async (services, context, message) => {
  const { uid } = message as JoinGroupRequest
  if (uid === '') throw DomainError.invalid('uid', 'is required')
  const caller = callerOf(context)
  const joining = context.with({ authorize: () => assertMayJoin(services, caller, uid) })
  joining.authorize()
  const root = rootOf(trustedUid(uid))
  const answer = create(JoinGroupResponseSchema, { organizationUid: root })
  await commit(services, joining, (planning): MutationPlan<undefined> => {
    const changes = new ChangeSet()
    if (isPending(planning.tables, caller.identity, root)) {
      changes.add(planJoined(planning, caller.identity, root))
      emit(planning, joining, { changes, subject: root, body: { desc: JoinGroupResponseSchema, message: answer } })
    }
    return { changes, result: undefined }
  })
  return { message: answer, subject: root }
}
