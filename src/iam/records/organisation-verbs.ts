import { clone, create } from '@bufbuild/protobuf'
import { EmptySchema } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../../base/errors.ts'
import { rootParent } from '../../base/uid.ts'
import {
  GroupSchema,
  GroupUsageSchema,
  OrgStatus,
  ReleaseGroupNameRequestSchema,
  type GetGroupUsageRequest,
  type Group,
  type ReleaseGroupNameRequest,
  type ResumeGroupRequest,
  type SetGroupLimitsRequest,
  type SuspendGroupRequest,
} from '../../gen/taproot/iam/v2/groups_pb.ts'
import type { Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { quotaKey } from '../../store/keys.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import type { Planning } from '../../engine/kind.ts'
import { openUploads, storedUse } from '../../engine/quota/content.ts'
import {
  contentLimit,
  countedLimits,
  deadLettersLimit,
  limitNames,
  limitsOf,
  manifestsLimit,
  recordUse,
  unitOf,
  uploadsLimit,
} from '../../engine/quota/limits.ts'
import { recordAnswer } from '../../engine/read.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { countedUse } from '../../engine/quota/counted-use.ts'
import { assertEtag, bodyOf, emit, existingRecord } from '../../engine/write.ts'
import { groupKind } from './groups.ts'
import { planNameFreed } from './held-names.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/** Returns the root group with this uid. Throws code 5 if there is none, and code 3 for a subgroup. */
function organisationRecord(planning: Pick<Planning, 'tables'>, uid: string): CachedRecord {
  const record = existingRecord(groupKind, planning, uid)
  if (record.parent !== rootParent) throw DomainError.invalid('uid', 'must be a root group')
  return record
}

/**
 * Changes fields of an organisation that only operators set. Creations in it that were planned before are planned again, so that the
 * change applies to them.
 */
async function changeOrganisation(services: Services, context: Context, what: { uid: string; change: (group: Group) => void }): Promise<HandlerAnswer> {
  const changed = await commit(services, context, (planning): MutationPlan<Resource> => {
    const cached = organisationRecord(planning, what.uid)
    assertEtag(cached, context.ifMatch)
    const record = clone(GroupSchema, messageOf(cached, 'Group'))
    what.change(record)
    const changes = new ChangeSet()
    changes.isMetered = false
    const facts = {
      etag: newEtag(services.random),
      createMs: cached.createMs,
      updateMs: Math.max(planning.nowMs, cached.updateMs + 1),
      managedBy: cached.managedBy,
    }
    const next = changes.update(groupKind, { cached, record, facts })
    changes.write({ kind: 'put', key: quotaKey(cached.uid), value: new Uint8Array() })
    emit(planning, context, { changes, subject: cached.uid, body: bodyOf(groupKind, planning, next) })
    return { changes, result: next }
  })
  return recordAnswer(groupKind, services, changed)
}

/** SetGroupLimits: replaces all limits. Existing records stay, even above a limit. */
export const setGroupLimits: Handler = (services, context, message) => {
  const { uid, resourceLimits } = message as SetGroupLimitsRequest
  const unknown = Object.keys(resourceLimits).filter((name) => !limitNames.includes(name))
  if (unknown.length > 0) {
    const known = limitNames.join(', ')
    throw DomainError.invalidFields(unknown.map((name) => ({ field: 'resource_limits', description: `no limit is named "${name}": use one of ${known}` })))
  }
  return changeOrganisation(services, context, { uid, change: (group) => (group.resourceLimits = resourceLimits) })
}

/** SuspendGroup: blocks an organisation's members from using it. */
export const suspendGroup: Handler = (services, context, message) =>
  changeOrganisation(services, context, { uid: (message as SuspendGroupRequest).uid, change: (group) => (group.status = OrgStatus.SUSPENDED) })

/** ResumeGroup: ends the suspension of an organisation. */
export const resumeGroup: Handler = (services, context, message) =>
  changeOrganisation(services, context, { uid: (message as ResumeGroupRequest).uid, change: (group) => (group.status = OrgStatus.READY) })

/** ReleaseGroupName: makes a reserved name available to everyone. Throws code 5 if the name is not reserved. */
export const releaseGroupName: Handler = async (services, context, message) => {
  const { name } = message as ReleaseGroupNameRequest
  const rooted = context.with({
    authorize: () => {
      if (!callerOf(context).permissions().operator) throw DomainError.denied([], rootParent)
    },
  })
  rooted.authorize()
  if (name === '') throw DomainError.invalid('name', 'is required')
  const subject = await commit(services, rooted, (planning): MutationPlan<string> => {
    const freed = planNameFreed(planning, name)
    if (freed === undefined) throw notFound('Group', name)
    const changes = new ChangeSet()
    changes.add(freed.extra)
    emit(planning, context, { changes, subject: freed.groupUid, body: { desc: ReleaseGroupNameRequestSchema, message } })
    return { changes, result: freed.groupUid }
  })
  return { message: create(EmptySchema), subject }
}

/** GetGroupUsage: returns the usage and the limits of an organisation. */
export const getGroupUsage: Handler = async (services, { signal }, message) => {
  const { tables } = services.cache
  const { uid } = organisationRecord({ tables }, (message as GetGroupUsageRequest).uid)
  const resourceLimits = { ...limitsOf(tables, uid) }
  const inUnits = (limit: string, use: number): [string, bigint] => [limit, BigInt(Math.ceil(use / unitOf(limit)))]
  const records = countedLimits.map((limit) => inUnits(limit, recordUse(tables, uid, limit)))
  const { store } = services
  const [content, manifests, uploads, counted] = await Promise.all([
    storedUse(store, { limit: contentLimit, root: uid }, signal),
    storedUse(store, { limit: manifestsLimit, root: uid }, signal),
    openUploads(services, uid, signal),
    countedUse(store, uid, signal),
  ])
  const { events, eventBytes, deadLetterBytes, tagMoves, idempotencyKeys } = counted
  const behind = Object.entries({ events, event_mib: eventBytes, [deadLettersLimit]: deadLetterBytes, tag_moves: tagMoves, idempotency_keys: idempotencyKeys })
  const otherUse = [...Object.entries({ [contentLimit]: content, [manifestsLimit]: manifests, [uploadsLimit]: uploads }), ...behind]
  const usage = Object.fromEntries([...records, ...otherUse.map(([limit, use]) => inUnits(limit, use))])
  return { message: create(GroupUsageSchema, { usage, resourceLimits }), subject: uid }
}
