import { isDeepStrictEqual } from 'node:util'
import { decide } from '../../authz/effective-permissions.ts'
import { emptySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { randomHex } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { createManaged, deleteManaged, pauseManaged, releaseManaged, updateManaged, type ObjectCaller } from '../../domains/managed-records.ts'
import { assertNotSuspended } from '../../engine/authorize.ts'
import { parseManagedBy } from '../../engine/ownership.ts'
import { blockersOfGroup } from '../../iam/index.ts'
import type { Authority } from '../grants.ts'
import { KubeError, type KubeObject } from '../kube-api.ts'
import type { ObjectKind, RecordKind } from '../object-kinds.ts'
import { finalizer, isMirror, uidAnnotation, type PlatformObject } from '../platform-object.ts'
import { auditRecord } from './audit.ts'
import { authorityAt } from './authority.ts'
import { conditionStatusOf, type ConditionStatus, firstOf } from './condition-status.ts'
import { extraFields } from './desired.ts'
import { readLiveStatus } from './live-status.ts'
import { keepWebhookSecret, removeWebhookSecret, secretsMadeFor, webhookSecretsAnnotation } from './webhook-secret.ts'
import { recordFacts, type ObjectFacts, type RecordFacts } from './facts.ts'
import type { ObjectPlan, RecordStep } from './plan.ts'
import { statusOf } from './status.ts'
import { clusterIdentity, type World } from '../world.ts'

function recordsInTheWay(tables: RecordTables, kind: RecordKind, uid: Uid): Iterable<CachedRecord> {
  if (kind === 'Group') return blockersOfGroup(tables, uid)
  return kind === 'Role' ? tables.table('RoleBinding').matching('role', uid) : []
}

function textOf({ kind, name, uid, managedBy }: CachedRecord): string {
  const owner = parseManagedBy(managedBy)
  const whose = owner === undefined ? uid : `of the object ${owner.namespace}/${owner.name}`
  return name === '' ? `${kind} ${whose}` : `${kind} "${name}" (${whose})`
}

/** Names the first records that prevent a deletion. Includes only those that the namespace's grants let it see. Empty if there are none. */
function blockersOf(tables: RecordTables, { kind, uid, authority }: { kind: RecordKind; uid: Uid; authority: Authority }): string {
  const seen = [...recordsInTheWay(tables, kind, uid)].filter((record) => decide(authority.permissions, record.uid, emptySet).kind !== 'hidden')
  return firstOf(seen, textOf)
}

/** Everything needed to apply a plan to an object. */
export interface Application {
  readonly world: World
  readonly row: ObjectKind
  readonly facts: ObjectFacts
  /** True if the object no longer exists (`Vanished`). */
  readonly isGone: boolean
  /** Returns true while this controller is the leader. Only the leader writes. */
  readonly leads: () => boolean
  readonly signal: AbortSignal
}

/** The result of applying a plan. `conditionStatus` is undefined if the object is gone. */
export interface Applied {
  readonly conditionStatus: ConditionStatus | undefined
  /** True if the record was written. */
  readonly written: boolean
}

/** The result of a record step. */
interface StepOutcome {
  readonly record: RecordFacts | undefined
  readonly written: boolean
  /** The condition to report if the step was refused. */
  readonly refused?: ConditionStatus
}

/** Throws if this process is no longer the leader. It may have been suspended since the step began. */
function assertLeads({ leads }: Application): void {
  if (!leads()) throw new Error('the leadership was lost before the record was written')
}

/** Throws code 7 if the organisation is suspended, as for its members. Removing a record that no grant allows is still possible there. */
function assertOpen({ world, facts }: Application, authority: Authority, uid: string): void {
  if (facts.exceedingNow.length === 0 && isUid(uid)) assertNotSuspended(world.services.cache.tables, authority.permissions, uid)
}

/** Returns the object as caller of a write. Its grants are checked at `place`: the uid of the record, or of the group that contains it. */
function callerAt(application: Application, place: string, uid = place): ObjectCaller {
  const { world, row, facts, signal } = application
  const source = { row, object: facts.object }
  return {
    managedBy: facts.managedBy,
    identity: clusterIdentity(world.cluster),
    permissions: () => authorityAt(world, source, place).permissions,
    authorize: () => {
      assertLeads(application)
      const authority = authorityAt(world, source, place)
      if (!authority.granted) throw new DomainError(7, 'no grant lets this namespace own this record')
      assertOpen(application, authority, uid)
    },
    requestId: `kube-${randomHex(world.services.random, 8)}`,
    signal,
  }
}

function recordNow({ world, row }: Application, uid: string | undefined): RecordFacts | undefined {
  const found = uid === undefined ? undefined : world.services.cache.tables.get(row.record, uid)
  return found === undefined ? undefined : recordFacts(found)
}

/** Returns why the object pauses its record; undefined if it does not. */
function suspension({ spec }: PlatformObject): string | undefined {
  return spec.suspend === true ? 'suspended by its Kubernetes object' : undefined
}

async function takeStep(application: Application, step: RecordStep): Promise<StepOutcome> {
  const { world, row, facts } = application
  const kind = row.record
  switch (step.do) {
    case 'nothing':
      return { record: facts.own, written: false }
    case 'create': {
      const { record, paths } = step.desired
      const pause = suspension(facts.object)
      const made = await createManaged(world.services, callerAt(application, step.parent), { kind, parent: step.parent, record, paths, pause })
      return { record: recordNow(application, made.uid), written: true }
    }
    case 'update': {
      const { record, paths } = step.desired
      const place = facts.references.found ? facts.references.parent : '/'
      const caller = callerAt(application, place, step.uid)
      const { uid, adopts } = step
      const { written } = await updateManaged(world.services, caller, { kind, uid, record, paths, adopts })
      const paused = row.onExcess === 'pause' && (await pauseManaged(world.services, caller, { uid, reason: suspension(facts.object) }))
      return { record: recordNow(application, uid), written: written || paused }
    }
    case 'pause': {
      const caller = callerAt(application, facts.own?.parent ?? '/', step.uid)
      return { record: facts.own, written: await pauseManaged(world.services, caller, step) }
    }
    case 'delete':
      await deleteManaged(world.services, callerAt(application, facts.own?.parent ?? '/', step.uid), { kind, uid: step.uid })
      return { record: undefined, written: true }
    case 'release':
      // Releasing a record confers nothing, so it needs no grant.
      await releaseManaged(world.services, { ...callerAt(application, '/'), authorize: () => assertLeads(application) }, { kind, uid: step.uid })
      return { record: undefined, written: true }
  }
}

/** Returns true if the object's status already has this condition. */
function isKnown({ object }: ObjectFacts, conditionStatus: ConditionStatus | undefined): boolean {
  const known = object.status?.conditions?.find(({ type }) => type === 'Ready')
  return conditionStatus !== undefined && known?.reason === conditionStatus.reason && conditionStatus.message.startsWith(known.message)
}

async function tryStep(application: Application, step: RecordStep): Promise<StepOutcome> {
  const { world, row, facts } = application
  const auditFields = { cluster: world.cluster, kind: row.record, step: step.do, managedBy: facts.managedBy }
  try {
    const outcome = await takeStep(application, step)
    if (outcome.written) auditRecord(world.auditLog, { ...auditFields, uid: outcome.record?.uid ?? facts.own?.uid })
    return outcome
  } catch (error) {
    const inTheWay = step.do === 'delete' && error instanceof DomainError && error.code === 9
    const { tables } = world.services.cache
    const blockers = inTheWay ? blockersOf(tables, { kind: row.record, uid: step.uid, authority: facts.authority }) : ''
    const refused = error instanceof DomainError ? conditionStatusOf(error, step.do === 'delete', blockers) : undefined
    // The first refusal is audited, but not each retry.
    if (error instanceof DomainError && !isKnown(facts, refused)) auditRecord(world.auditLog, { ...auditFields, uid: facts.own?.uid, error })
    if (refused === undefined) throw error
    return { record: application.facts.own, written: false, refused }
  }
}

/**
 * Patches the metadata of the object with this uid, and with this resource version if `metadata` has one. Returns undefined if the object
 * is gone. Rejects with KubeError if the object has changed, or if another object has its name.
 */
async function patchMetadata(
  { world, row, signal }: Application,
  object: KubeObject,
  metadata: Readonly<Record<string, unknown>>,
): Promise<KubeObject | undefined> {
  const { namespace, name, uid } = object.metadata
  try {
    const ref = namespace === undefined ? { name } : { namespace, name }
    const patched = await world.api.patch(row.type, ref, { metadata: { uid, ...metadata } }, signal)
    world.objects[row.record].observe(patched)
    return patched
  } catch (error) {
    if (error instanceof KubeError && error.reason === 'not_found') return undefined
    throw error
  }
}

/**
 * Returns true for steps that are valid only for the object exactly as read. Caches may be outdated, and another object may have the name
 * by now.
 */
function needsTheVeryObject(step: RecordStep): boolean {
  return step.do === 'create' || step.do === 'delete' || step.do === 'release' || (step.do === 'update' && step.adopts)
}

/** Returns the parts of an object that its record depends on. Its labels, status and other annotations may change at any time. */
function deciding(object: KubeObject): unknown {
  const { uid, generation, deletionTimestamp, annotations } = object.metadata
  return [uid, generation, deletionTimestamp, annotations?.[uidAnnotation], isMirror(object)]
}

/**
 * Adds the finalizer to the object with this uid, even if others write to the object at the same time. Rejects with `conflict` if a part
 * has changed that its record depends on.
 */
async function putFinalizer({ world, row, signal }: Application, object: KubeObject): Promise<KubeObject> {
  const { namespace, name, uid } = object.metadata
  const metadata = { ...(namespace !== undefined && { namespace }), name, uid, finalizers: [finalizer] }
  const kept = await world.api.apply(row.type, { metadata }, {}, signal)
  world.objects[row.record].observe(kept)
  if (!isDeepStrictEqual(deciding(kept), deciding(object))) throw new KubeError('conflict', 'the object has changed since it was read')
  return kept
}

/**
 * Adds the finalizer if the plan needs it. Some steps need the object exactly as read. For these, verifies with an empty patch that it is
 * unchanged at the API server, or still gone. Returns undefined if it is not. Rejects with KubeError if the object has changed, or if
 * another object has its name.
 */
async function hold(application: Application, { finalizer: wanted, record }: ObjectPlan): Promise<KubeObject | undefined> {
  const { isGone, facts } = application
  const { object } = facts
  // If a new object has the same name, it owns the record, and the patch fails.
  if (isGone) return (await patchMetadata(application, object, {})) === undefined ? object : undefined
  const { finalizers = [], resourceVersion } = object.metadata
  if (wanted === 'hold' && !finalizers.includes(finalizer)) return putFinalizer(application, object)
  return needsTheVeryObject(record) ? patchMetadata(application, object, { resourceVersion, finalizers }) : object
}

/** Writes or removes the uid annotation as planned. */
async function carry(
  application: Application,
  object: KubeObject,
  { plan, record }: { plan: ObjectPlan; record: RecordFacts | undefined },
): Promise<KubeObject | undefined> {
  const carried = object.metadata.annotations?.[uidAnnotation]
  const wanted = plan.carries === 'forget' ? undefined : plan.carries === 'record' ? (record?.uid ?? carried) : carried
  if (wanted === carried) return object
  // Removes the annotation only if it has the value that was read. Sets it regardless of the current value.
  const asRead = wanted === undefined ? { resourceVersion: object.metadata.resourceVersion } : {}
  return patchMetadata(application, object, { ...asRead, annotations: { [uidAnnotation]: wanted ?? null } })
}

async function letGo(application: Application, object: KubeObject): Promise<void> {
  const { finalizers = [], resourceVersion } = object.metadata
  if (finalizers.includes(finalizer) && !application.isGone)
    await patchMetadata(application, object, { resourceVersion, finalizers: finalizers.filter((other) => other !== finalizer) })
}

/** Returns spec fields that are set in the record but not in the object; undefined if the object's own fields are unknown. */
function extraFieldsOf({ world, row, facts: { desired } }: Application, record: RecordFacts | undefined): readonly string[] | undefined {
  const found = record === undefined ? undefined : world.services.cache.tables.get(row.record, record.uid)
  return found === undefined || 'invalid' in desired ? undefined : extraFields(row, { record: found.message, desired })
}

async function report(
  application: Application,
  object: KubeObject,
  source: { conditionStatus: ConditionStatus; outcome: StepOutcome; forgets: boolean },
): Promise<void> {
  const { world, row, facts, signal } = application
  const { outcome, conditionStatus, forgets } = source
  // The spec and status are as read; only metadata has changed since.
  const before = { ...facts.object, metadata: object.metadata } as PlatformObject
  const status = statusOf(before, {
    conditionStatus,
    record: outcome.record,
    references: facts.references,
    written: outcome.written,
    forgets,
    extraFields: extraFieldsOf(application, outcome.record),
    live: outcome.record === undefined ? {} : await readLiveStatus(world.services, { kind: row.record, uid: outcome.record.uid }, signal),
    nowMs: world.clock.now(),
  })
  if (isDeepStrictEqual(status, before.status)) return
  if (application.isGone) return world.vanished.note(row.record, { ...before, status })
  const { namespace, name } = before.metadata
  try {
    world.objects[row.record].observe(await world.api.apply(row.type, { metadata: { namespace, name }, status }, { subresource: 'status' }, signal))
  } catch (error) {
    if (!(error instanceof KubeError && error.reason === 'not_found')) throw error
    return
  }
  announce(application, conditionStatus)
}

/** Records an Event if the readiness of the object, or its reason, has changed. */
function announce({ world, row, facts }: Application, { ready, reason, message }: ConditionStatus): void {
  const known = facts.object.status?.conditions?.find(({ type }) => type === 'Ready')
  if (known?.status === ready && known.reason === reason) return
  const { metadata } = facts.object
  world.events.record({ type: row.type, metadata, severity: ready === 'True' ? 'Normal' : 'Warning', reason, action: 'Reconcile', note: message })
}

/**
 * Keeps the Secret that the object names, once its record is as wanted, and removes those that it named before. An annotation has the names of both, so that an
 * interruption leaves none behind. Returns what is in the way.
 */
async function secretProblem(application: Application, record: RecordFacts | undefined, { conditionStatus }: ObjectPlan): Promise<ConditionStatus | undefined> {
  const { world, facts, signal, isGone } = application
  const { object } = facts
  if (record === undefined || conditionStatus?.ready !== 'True') return undefined
  const annotate = (names: readonly string[]): Promise<unknown> =>
    patchMetadata(application, object, { annotations: { [webhookSecretsAnnotation]: names.length === 0 ? null : names.join() } })
  const { secretName } = object.spec
  const wanted = secretName === undefined ? [] : [secretName]
  const made = isGone || !world.writesSecrets ? wanted : secretsMadeFor(object)
  if (wanted.some((name) => !made.includes(name))) await annotate([...made, ...wanted])
  const problem = await keepWebhookSecret(world, { object, uid: record.uid }, signal)
  const outdated = made.filter((name) => name !== secretName)
  if (problem !== undefined || outdated.length === 0) return problem
  for (const name of outdated) await removeWebhookSecret(world, { object, name }, signal)
  await annotate(wanted)
  return undefined
}

/**
 * Applies a plan. Skips steps that are already done, so it can be interrupted at any point and run again. Rejects with KubeError. Rejects
 * with StoreError or DomainError if the store does not answer, or if another change came first. Then it must be retried with new facts.
 */
export async function applyPlan(application: Application, plan: ObjectPlan): Promise<Applied> {
  // If the store does not answer, no change is started at the API server.
  if (plan.record.do !== 'nothing') application.world.services.cache.assertLive()
  const kept = await hold(application, plan)
  // An outdated uid is removed first. Otherwise, after an interruption, the object could keep the uid of a deleted record.
  const held = kept !== undefined && plan.carries === 'forget' ? await carry(application, kept, { plan, record: undefined }) : kept
  if (held === undefined) return { conditionStatus: undefined, written: false }
  const outcome = await tryStep(application, plan.record)
  const { written } = outcome
  if (plan.conditionStatus === undefined && outcome.refused === undefined) {
    await letGo(application, held)
    return { conditionStatus: undefined, written }
  }
  const object = outcome.refused === undefined ? await carry(application, held, { plan, record: outcome.record }) : held
  const conditionStatus = outcome.refused ?? (await secretProblem(application, outcome.record, plan)) ?? plan.conditionStatus
  if (object === undefined || conditionStatus === undefined) return { conditionStatus: undefined, written }
  await report(application, object, { conditionStatus, outcome, forgets: plan.carries === 'forget' && outcome.refused === undefined })
  return { conditionStatus, written }
}
