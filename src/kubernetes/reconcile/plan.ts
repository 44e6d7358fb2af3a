import type { Uid } from '../../base/uid.ts'
import type { Desired } from './desired.ts'
import type { ObjectFacts } from './facts.ts'
import type { ConditionStatus } from './condition-status.ts'
import { excessReason, verdicts } from './condition-status.ts'

/** The step to take on the record. */
export type RecordStep =
  | { readonly do: 'nothing' }
  | { readonly do: 'create'; readonly parent: Uid | '/'; readonly desired: Desired }
  | { readonly do: 'update'; readonly uid: Uid; readonly desired: Desired; readonly adopts: boolean }
  | { readonly do: 'pause'; readonly uid: Uid; readonly reason: string }
  | { readonly do: 'delete' | 'release'; readonly uid: Uid }

/**
 * The steps for one object, in this order: add the finalizer, write the record, write the uid annotation, remove the finalizer, write the
 * status.
 */
export interface ObjectPlan {
  readonly record: RecordStep
  /** `hold` adds the finalizer before a record is created or adopted. `release` removes it after the record is handled. */
  readonly finalizer: 'hold' | 'keep' | 'release'
  /** `record` writes the uid annotation. `forget` removes it, so that the object has no record any more. */
  readonly carries: 'record' | 'keep' | 'forget'
  /** The status if all steps succeed; a failed step sets another one. Undefined for an object that is released. */
  readonly conditionStatus: ConditionStatus | undefined
}

const nothing: RecordStep = { do: 'nothing' }

function blocked(conditionStatus: ConditionStatus): ObjectPlan {
  return { record: nothing, finalizer: 'keep', carries: 'keep', conditionStatus }
}

function letGo(record: RecordStep): ObjectPlan {
  return { record, finalizer: 'release', carries: 'keep', conditionStatus: undefined }
}

/** Returns the plan for an object that is being deleted. */
function planDeletion({ object, own, authority, surroundings }: ObjectFacts): ObjectPlan {
  // Without its own record, only the finalizer must be removed.
  if (own === undefined) return letGo(nothing)
  const isKept = surroundings?.crdGoes === true || !authority.granted
  const policy = surroundings?.namespaceGoes === true ? authority.onNamespaceDelete : (object.spec.deletionPolicy ?? 'Delete')
  return letGo({ do: isKept || policy === 'Orphan' ? 'release' : 'delete', uid: own.uid })
}

/** Returns true if the object may adopt a record without an owner. */
function mayAdopt({ object, authority }: ObjectFacts, by: 'ByUid' | 'ByName'): boolean {
  const { adoptionPolicy = 'ByUid' } = object.spec
  return authority.adoption && adoptionPolicy !== 'Never' && (by === 'ByUid' || adoptionPolicy === 'ByName')
}

/** Returns true if the references resolve to other records than at the last sync, so that the object requests another record. */
function meansAnother({ object, references }: ObjectFacts): boolean {
  const known = object.status?.resolved
  if (known === undefined || !references.found) return false
  return known.parent !== references.parent || known.identity !== references.identity || known.role !== references.role
}

/** Returns the plan for an object with a uid annotation but no record of its own. It never creates a replacement for a lost record. */
function planCarried(facts: ObjectFacts, carried: NonNullable<ObjectFacts['carried']>, desired: Desired): ObjectPlan | undefined {
  if (carried.record === undefined) return meansAnother(facts) ? undefined : blocked(verdicts.externalLost(carried.uid))
  const { record } = carried
  if (record.managedBy !== '') return blocked(verdicts.ownedByAnother(record))
  // The object owned the record before, so an API caller must have taken it over.
  if (facts.object.status?.uid !== undefined) return blocked(verdicts.takenOver(record))
  if (!mayAdopt(facts, 'ByUid')) return blocked(verdicts.adoptionRefused(record))
  return { record: { do: 'update', uid: record.uid, desired, adopts: true }, finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready }
}

/** Returns the plan for an object without a record and without a uid annotation. */
function planFirst(facts: ObjectFacts, parent: Uid | '/', desired: Desired): ObjectPlan {
  const { existingByName, conflictingObject } = facts
  if (conflictingObject !== undefined) return blocked(verdicts.olderFirst(conflictingObject))
  const step = { finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready } as const
  if (existingByName === undefined) return { ...step, record: { do: 'create', parent, desired } }
  if (existingByName.managedBy !== '') return blocked(verdicts.ownedByAnother(existingByName))
  if (!mayAdopt(facts, 'ByName')) return blocked(verdicts.nameTaken(existingByName))
  return { ...step, record: { do: 'update', uid: existingByName.uid, desired, adopts: true } }
}

/** Returns the steps for an object, as a pure function of the facts. There are none if everything is as desired. */
export function planObject(facts: ObjectFacts): ObjectPlan {
  const { object, own, exceedingNow, onExcess } = facts
  if (object.metadata.deletionTimestamp !== undefined) return planDeletion(facts)
  if (exceedingNow.length === 0 || own === undefined) return planDesired(facts)
  // Checked before all other problems. Only role bindings are deleted, since roles and identities confer nothing by themselves.
  if (onExcess === 'delete')
    return { record: { do: 'delete', uid: own.uid }, finalizer: 'keep', carries: 'forget', conditionStatus: verdicts.exceedsGrant(exceedingNow) }
  // A subscription is paused, unless its object now requests fewer events.
  const plan = planDesired(facts)
  return plan.record.do === 'nothing' ? { ...plan, record: { do: 'pause', uid: own.uid, reason: excessReason(exceedingNow) } } : plan
}

/** Returns the plan for an object that is not being deleted, and whose record, if it has one, may stay. */
function planDesired(facts: ObjectFacts): ObjectPlan {
  const { own, carried, references, authority, exceeding, onExcess, desired } = facts
  if (!references.found) return blocked(verdicts.refNotFound(references))
  if (!authority.granted) return blocked(verdicts.notGranted(references.parent))
  if (exceeding.length > 0) return blocked(onExcess === 'pause' ? verdicts.showsTooMuch(exceeding) : verdicts.exceedsGrant(exceeding))
  if ('invalid' in desired) return blocked(verdicts.invalid(desired.invalid))
  if (own !== undefined && own.parent !== references.parent) return blocked(verdicts.misplaced(own))
  if (own !== undefined)
    return { record: { do: 'update', uid: own.uid, desired, adopts: false }, finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready }
  return (carried === undefined ? undefined : planCarried(facts, carried, desired)) ?? planFirst(facts, references.parent, desired)
}
