import type { Uid } from '../../base/uid.ts'
import type { Desired } from './desired.ts'
import type { ObjectFacts } from './facts.ts'
import type { ConditionStatus } from './condition-status.ts'
import { verdicts } from './condition-status.ts'

/** What is to be done to the record. */
export type RecordStep =
  | { readonly do: 'nothing' }
  | { readonly do: 'create'; readonly parent: Uid | '/'; readonly desired: Desired }
  | { readonly do: 'update'; readonly uid: Uid; readonly desired: Desired; readonly adopts: boolean }
  | { readonly do: 'delete' | 'release'; readonly uid: Uid }

/** What is to be done for one object, in this order: hold the finalizer, the record, carry the uid, let the finalizer go, the status. */
export interface ObjectPlan {
  readonly record: RecordStep
  /** `hold` before a record is made or taken over; `release` after it is dealt with. */
  readonly finalizer: 'hold' | 'keep' | 'release'
  /** `forget` makes the object one that has no record yet. */
  readonly carries: 'record' | 'keep' | 'forget'
  /** What the status says once all is done; a failing step says otherwise. Undefined for an object that is let go. */
  readonly conditionStatus: ConditionStatus | undefined
}

const nothing: RecordStep = { do: 'nothing' }

function blocked(conditionStatus: ConditionStatus): ObjectPlan {
  return { record: nothing, finalizer: 'keep', carries: 'keep', conditionStatus }
}

function letGo(record: RecordStep): ObjectPlan {
  return { record, finalizer: 'release', carries: 'keep', conditionStatus: undefined }
}

/** The object is being deleted. */
function planDeletion({ object, own, authority, surroundings }: ObjectFacts): ObjectPlan {
  // What is not its own it never touches; what is gone needs nothing.
  if (own === undefined) return letGo(nothing)
  const isKept = surroundings?.crdGoes === true || !authority.granted
  const policy = surroundings?.namespaceGoes === true ? authority.onNamespaceDelete : (object.spec.deletionPolicy ?? 'Delete')
  return letGo({ do: isKept || policy === 'Orphan' ? 'release' : 'delete', uid: own.uid })
}

/** True where the object may take over a record that nobody owns. */
function mayAdopt({ object, authority }: ObjectFacts, by: 'ByUid' | 'ByName'): boolean {
  const { adoptionPolicy = 'ByUid' } = object.spec
  return authority.adoption && adoptionPolicy !== 'Never' && (by === 'ByUid' || adoptionPolicy === 'ByName')
}

/** True where the references have come to mean other records than when the object was last in step with its record: then it asks for another record. */
function meansAnother({ object, references }: ObjectFacts): boolean {
  const known = object.status?.resolved
  if (known === undefined || !references.found) return false
  return known.parent !== references.parent || known.identity !== references.identity || known.role !== references.role
}

/** The object carries a uid but has no record: it never makes one in its place. */
function planCarried(facts: ObjectFacts, carried: NonNullable<ObjectFacts['carried']>, desired: Desired): ObjectPlan | undefined {
  if (carried.record === undefined) return meansAnother(facts) ? undefined : blocked(verdicts.externalLost(carried.uid))
  const { record } = carried
  if (record.managedBy !== '') return blocked(verdicts.ownedByAnother(record))
  // Once in step and now the API's: somebody took it, on purpose.
  if (facts.object.status?.uid !== undefined) return blocked(verdicts.takenOver(record))
  if (!mayAdopt(facts, 'ByUid')) return blocked(verdicts.adoptionRefused(record))
  return { record: { do: 'update', uid: record.uid, desired, adopts: true }, finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready }
}

/** The object has no record and carries no uid. */
function planFirst(facts: ObjectFacts, parent: Uid | '/', desired: Desired): ObjectPlan {
  const { existingByName, conflictingObject } = facts
  if (conflictingObject !== undefined) return blocked(verdicts.olderFirst(conflictingObject))
  const step = { finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready } as const
  if (existingByName === undefined) return { ...step, record: { do: 'create', parent, desired } }
  if (existingByName.managedBy !== '') return blocked(verdicts.ownedByAnother(existingByName))
  if (!mayAdopt(facts, 'ByName')) return blocked(verdicts.nameTaken(existingByName))
  return { ...step, record: { do: 'update', uid: existingByName.uid, desired, adopts: true } }
}

/** What is to be done for an object: a pure function of the facts, and nothing where all is as it should be. */
export function planObject(facts: ObjectFacts): ObjectPlan {
  const { object, own, carried, references, authority, exceeding, exceedingNow, desired } = facts
  if (object.metadata.deletionTimestamp !== undefined) return planDeletion(facts)
  // First, whatever else is wrong. A role or an identity gives nothing by itself: its bindings are what goes.
  if (exceedingNow.length > 0 && own !== undefined)
    return { record: { do: 'delete', uid: own.uid }, finalizer: 'keep', carries: 'forget', conditionStatus: verdicts.exceedsGrant(exceedingNow) }
  if (!references.found) return blocked(verdicts.refNotFound(references))
  if (!authority.granted) return blocked(verdicts.notGranted(references.parent))
  if (exceeding.length > 0) return blocked(verdicts.exceedsGrant(exceeding))
  if ('invalid' in desired) return blocked(verdicts.invalid(desired.invalid))
  if (own !== undefined && own.parent !== references.parent) return blocked(verdicts.misplaced(own))
  if (own !== undefined)
    return { record: { do: 'update', uid: own.uid, desired, adopts: false }, finalizer: 'hold', carries: 'record', conditionStatus: verdicts.ready }
  return (carried === undefined ? undefined : planCarried(facts, carried, desired)) ?? planFirst(facts, references.parent, desired)
}
