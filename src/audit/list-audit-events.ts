import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { isSuspended } from '../authz/access.ts'
import { decide, everywhere, visibilityOf } from '../authz/effective-permissions.ts'
import type { AuditEvent, AuditLine } from '../base/audit-line.ts'
import type { AuditPlace, AuditQuery } from '../engine/audit-query.ts'
import { setOf } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import { hashQuery, sealCursor, type CursorKey } from '../base/page-token.ts'
import { isUid, isWithin, rootOf, trustedUid } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { isMember, isPerson, leavesOut } from '../engine/membership.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import { callerOf, turnOf, type Caller, type Handler, type Services } from '../engine/services.ts'
import {
  AuditEvent_Outcome,
  AuditEventSchema,
  ListAuditEventsResponseSchema,
  type AuditEvent as ShownEvent,
  type ListAuditEventsRequest,
} from '../gen/taproot/audit/v2/audit_pb.ts'

const needed = setOf(['audit.list'])

const outcomes = {
  done: AuditEvent_Outcome.DONE,
  denied: AuditEvent_Outcome.DENIED,
  failed: AuditEvent_Outcome.FAILED,
} as const satisfies Record<AuditLine['outcome'], AuditEvent_Outcome>

/** The part of a question that does not depend on the caller's rights. */
type Filters = Omit<AuditQuery, 'groups' | 'after' | 'skip' | 'limit'>

/** Returns the group of a request; empty if there is none. Throws code 3 for filters that events do not have. */
function placeOf({ uidp }: ListAuditEventsRequest): string {
  if (uidp === undefined) return ''
  const { descendantsOf, childrenOf, ancestorsOf, inRoot, ids } = uidp
  if (childrenOf !== '' || ancestorsOf !== '' || inRoot || ids.length > 0) throw DomainError.invalid('uidp', 'audit events are filtered by descendants_of only')
  if (descendantsOf !== '' && !isUid(descendantsOf)) throw DomainError.invalid('uidp.descendants_of', 'must be the uid of a group')
  return descendantsOf
}

/** True if the newest events come first: without an order, and for `time desc`. Throws code 3 for an order that events do not have. */
function isNewestFirst(orderBy: string): boolean {
  const [, key, direction = 'asc'] = /^\s*(time)?(?:\s+(asc|desc))?\s*$/i.exec(orderBy) ?? []
  if (key !== undefined) return direction.toLowerCase() === 'desc'
  if (orderBy.trim() !== '') throw DomainError.invalid('order_by', 'audit events are ordered by time only: use "time asc" or "time desc"')
  return true
}

/** Returns the filters of a request besides its group. */
function filtersOf({ actor, resource, capability, method, outcome, start, end, orderBy }: ListAuditEventsRequest): Filters {
  return {
    ...Object.fromEntries(Object.entries({ actor, resource, capability, method }).filter(([, text]) => text !== '')),
    outcome: (Object.keys(outcomes) as (keyof typeof outcomes)[]).find((name) => outcomes[name] === outcome), // the keys of a literal
    startMs: start === undefined ? undefined : timestampMs(start),
    endMs: end === undefined ? undefined : timestampMs(end),
    newestFirst: isNewestFirst(orderBy),
  }
}

/** Returns where the caller sees events, as of now; undefined: everywhere. The topmost groups only, in which each event lies once. */
function groupsOf({ cache: { tables } }: Services, caller: Caller, place: string): readonly string[] | undefined {
  const visible = visibilityOf(caller.permissions(), needed)
  if (visible.everywhere) return place === '' ? undefined : [place]
  const isLeftOut = place === '' ? leavesOut(tables, caller) : () => false
  const open = visible.groups.filter((group) => !isSuspended(tables, group) && !isLeftOut(group))
  if (place === '') return open
  return open.some((group) => isWithin(place, group)) ? [place] : open.filter((group) => isWithin(group, place))
}

/** True if the caller may see an event, as of now. An event without a place is for those with rights everywhere. */
function isSeen(caller: Caller, event: AuditEvent): boolean {
  return decide(caller.permissions(), event.group ?? event.root ?? everywhere, needed).kind === 'allowed'
}

/** True if the event's organisation knows its actor: an identity of its own, or a person who joined it. */
function isOwnActor(tables: RecordTables, { identity, root }: AuditEvent): boolean {
  // Without an identity the event names no member of another organisation.
  if (identity === undefined) return true
  if (root === undefined || !isUid(identity)) return false
  return isWithin(identity, root) || (isPerson(identity) && isMember(tables, identity, rootOf(trustedUid(root))))
}

/** Returns an event as the caller sees it. A foreign actor is shown by its uid only (docs/spec/events.md#actors). */
function shownOf(tables: RecordTables, caller: Caller, event: AuditEvent): ShownEvent {
  const isWhole = caller.operator || event.identity === caller.identity || isOwnActor(tables, event)
  const about: MessageInitShape<typeof AuditEventSchema> = isWhole
    ? {
        claimedIssuer: event.claimedIssuer,
        claimedSubject: event.claimedSubject,
        actorIssuer: event.actorIssuer,
        actorSubject: event.actorSubject,
        remoteAddress: event.remoteAddress,
        userAgent: event.userAgent,
      }
    : {}
  return create(AuditEventSchema, {
    ...about,
    id: event.id,
    time: timestampFromMs(Date.parse(event.time)),
    outcome: outcomes[event.outcome],
    method: event.method,
    transport: event.transport,
    capabilities: event.capability?.split(',') ?? [],
    requestId: event.requestId ?? '',
    traceparent: event.traceparent,
    actor: event.identity,
    operator: event.operator ?? false,
    resource: event.subject,
    kind: event.kind,
    name: event.name,
    group: event.group,
    root: event.root,
    validateOnly: event.validateOnly ?? false,
    code: event.code,
    reason: event.reason,
    suppressed: event.suppressed ?? 0,
  })
}

/** Returns the place and the rest to skip of a page token; nothing for the first page. */
function continuationOf(key: CursorKey | undefined): { readonly after: AuditPlace | undefined; readonly skip: number } {
  const [timeMs, id, skip] = key ?? []
  // Only this method makes such keys: the hash of the query binds them.
  return typeof timeMs === 'number' && typeof id === 'string' ? { after: { timeMs, id }, skip: Number(skip) } : { after: undefined, skip: 0 }
}

/** ListAuditEvents: the events of the groups at which the caller holds `audit.list` (docs/audit.md#list). */
export const listAuditEvents: Handler = async (services, context, message) => {
  const request = message as ListAuditEventsRequest
  const { audit, cache, clock, pageKeys, random } = services
  if (audit === undefined) throw new DomainError(12, 'this process keeps no audit events')
  const caller = callerOf(context)
  const [place, filters] = [placeOf(request), filtersOf(request)]
  const queryHash = hashQuery(['ListAuditEvents', place, filters, caller.identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const { after, skip } = continuationOf(key)
  const groups = groupsOf(services, caller, place)
  const query = { ...filters, groups, after, skip: skip + request.skip, limit: pageLimit(request.pageSize) }
  // A caller without rights costs the index nothing.
  const { events, next } = groups?.length === 0 ? { events: [], next: undefined } : await audit.read(query, turnOf(context))
  const cursor = next === undefined ? undefined : { key: [next.after.timeMs, next.after.id, next.skip], queryHash, issuedMs: clock.now() }
  return {
    message: create(ListAuditEventsResponseSchema, {
      // Rights may have changed since the question.
      events: events.filter((event) => isSeen(caller, event)).map((event) => shownOf(cache.tables, caller, event)),
      nextPageToken: cursor === undefined ? '' : sealCursor(cursor, pageKeys.current(), random),
      skipped: request.skip,
    }),
    ...(restarted ? { pageTokenRestarted: true } : {}),
  }
}
