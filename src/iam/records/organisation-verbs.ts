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
import { denied, notFound } from '../../engine/errors.ts'
import type { Planning } from '../../engine/kind.ts'
import { openUploads, storedUse } from '../../engine/quota/content.ts'
import { contentLimit, countedLimits, limitNames, limitsOf, manifestsLimit, recordUse, unitOf, uploadsLimit } from '../../engine/quota/limits.ts'
import { recordAnswer } from '../../engine/read.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { countedUse } from '../../engine/quota/counted-use.ts'
import { assertEtag, bodyOf, emit, existingRow } from '../../engine/write.ts'
import { groupKind } from './groups.ts'
import { planNameFreed } from './held-names.ts'

/** The root group under `uid`. Throws code 5, and code 3 for a subgroup. */
function organisationRow(planning: Pick<Planning, 'snapshot'>, uid: string): CachedRecord {
  const row = existingRow(groupKind, planning, uid)
  if (row.parent !== rootParent) throw DomainError.invalid('uid', 'must be a root group')
  return row
}

/**
 * Changes what operators set of an organisation. All creates in it that were planned before the change are planned again, so that they are authorized and counted as
 * it is from now on.
 */
async function changeOrganisation(services: Services, context: Context, what: { uid: string; change: (group: Group) => void }): Promise<HandlerAnswer> {
  const changed = await commit(services, context, (planning): MutationPlan<Resource> => {
    const row = organisationRow(planning, what.uid)
    assertEtag(row, context.ifMatch)
    // A row of kind Group holds a Group, and a Group is a resource.
    const record = clone(GroupSchema, row.message as unknown as Group)
    what.change(record)
    const changes = new ChangeSet()
    changes.isMetered = false
    const facts = { etag: newEtag(services.random), createMs: row.createMs, updateMs: Math.max(planning.nowMs, row.updateMs + 1), managedBy: row.managedBy }
    const next = changes.update(groupKind, { row, record: record as unknown as Resource, facts })
    changes.write({ kind: 'put', key: quotaKey(row.uid), value: new Uint8Array() })
    emit(planning, context, { changes, subject: row.uid, body: bodyOf(groupKind, planning, next) })
    return { changes, result: next }
  })
  return recordAnswer(groupKind, services, changed)
}

/** SetGroupLimits: these limits and no others. What is used already stays, also where it is more. */
export const setGroupLimits: Handler = (services, context, message) => {
  const { uid, resourceLimits } = message as SetGroupLimitsRequest
  const unknown = Object.keys(resourceLimits).filter((name) => !limitNames.includes(name))
  if (unknown.length > 0) {
    const known = limitNames.join(', ')
    throw DomainError.invalidFields(unknown.map((name) => ({ field: 'resource_limits', description: `no limit is named "${name}"; there are: ${known}` })))
  }
  return changeOrganisation(services, context, { uid, change: (group) => (group.resourceLimits = resourceLimits) })
}

/** SuspendGroup: from now on the organisation is closed to its members. */
export const suspendGroup: Handler = (services, context, message) =>
  changeOrganisation(services, context, { uid: (message as SuspendGroupRequest).uid, change: (group) => (group.status = OrgStatus.SUSPENDED) })

/** ResumeGroup: the organisation is open to its members again. */
export const resumeGroup: Handler = (services, context, message) =>
  changeOrganisation(services, context, { uid: (message as ResumeGroupRequest).uid, change: (group) => (group.status = OrgStatus.READY) })

/** ReleaseGroupName: everyone can take a reserved name at once. Code 5 if it is not reserved. */
export const releaseGroupName: Handler = async (services, context, message) => {
  const { name } = message as ReleaseGroupNameRequest
  const rooted = context.authorizedBy(() => {
    if (!callerOf(context).reach().operator) throw denied([], rootParent)
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

/** GetGroupUsage: what an organisation uses of all that is counted, and its limits. */
export const getGroupUsage: Handler = async (services, { signal }, message) => {
  const { snapshot } = services.replica
  const { uid } = organisationRow({ snapshot }, (message as GetGroupUsageRequest).uid)
  const resourceLimits = { ...limitsOf(snapshot, uid) }
  const inUnits = (limit: string, use: number): [string, bigint] => [limit, BigInt(Math.ceil(use / unitOf(limit)))]
  const records = countedLimits.map((limit) => inUnits(limit, recordUse(snapshot, uid, limit)))
  const { store } = services
  const [content, manifests, uploads, counted] = await Promise.all([
    storedUse(store, { limit: contentLimit, root: uid }, signal),
    storedUse(store, { limit: manifestsLimit, root: uid }, signal),
    openUploads(services, uid, signal),
    countedUse(store, uid, signal),
  ])
  const { events, eventBytes, tagMoves, idempotencyKeys } = counted
  const behind = Object.entries({ events, event_mib: eventBytes, tag_moves: tagMoves, idempotency_keys: idempotencyKeys })
  const beside = [...Object.entries({ [contentLimit]: content, [manifestsLimit]: manifests, [uploadsLimit]: uploads }), ...behind]
  const usage = Object.fromEntries([...records, ...beside.map(([limit, use]) => inUnits(limit, use))])
  return { message: create(GroupUsageSchema, { usage, resourceLimits }), subject: uid }
}
