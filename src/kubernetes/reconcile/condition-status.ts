import type { DomainError } from '../../base/errors.ts'
import { codeNames } from '../../base/errors.ts'
import { jsonPath, withFieldNames } from '../../base/schema/field-names.ts'
import type { RecordFacts, ResolvedReferences } from './facts.ts'
import type { ConditionType } from '../platform-object.ts'

/** The conditions in an object's status. */
export interface ConditionStatus {
  readonly ready: 'True' | 'False'
  readonly reason: string
  readonly message: string
  /**
   * Further conditions that are true:
   * - `Stalled`: only a change of the object, a grant or the record helps
   * - `Reconciling`: the problem may end by itself
   * - `InConflict`: the record belongs to another owner
   */
  readonly also: readonly Exclude<ConditionType, 'Ready' | 'Synced'>[]
}

function stalled(reason: string, message: string, ...also: ConditionStatus['also']): ConditionStatus {
  return { ready: 'False', reason, message, also: ['Stalled', ...also] }
}

function waiting(reason: string, message: string): ConditionStatus {
  return { ready: 'False', reason, message, also: ['Reconciling'] }
}

/** Maximum number of list items that a message names. */
const namedAtOnce = 5

/** Formats the first items of a list, and the number of the others. */
export function firstOf<T>(items: readonly T[], textOf: (item: T) => string = String): string {
  const more = items.length - namedAtOnce
  return `${items.slice(0, namedAtOnce).map(textOf).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

const howToClaim = 'to adopt it, use a grant with allowAdoption and create a new object with adoptionPolicy'

/** Returns the reason for pausing a subscription whose events show more than the grants of its namespace allow. */
export function excessReason(capabilities: readonly string[]): string {
  return `the maxRole of the namespace's grants lacks ${firstOf(capabilities)}`
}

/** The possible conditions. A message stays the same as long as its facts do. */
export const verdicts = {
  ready: { ready: 'True', reason: 'InSync', message: 'the record matches this object', also: [] },
  notGranted: (place: string) =>
    stalled('NotGranted', `no PlatformNamespaceGrant lets this namespace own objects of this kind ${place === '/' ? 'at the root' : `in group ${place}`}`),
  exceedsGrant: (capabilities: readonly string[]) =>
    stalled(
      'ExceedsGrant',
      `would confer ${firstOf(capabilities)}: the maxRole of this namespace's grants lacks them; use a narrower role, or ask for a grant with a wider maxRole`,
    ),
  showsTooMuch: (capabilities: readonly string[]) =>
    stalled('ExceedsGrant', `its events need ${firstOf(capabilities)}: ${excessReason(capabilities)}; choose fewer types, or ask for a wider maxRole`),
  secretsDisabled: () =>
    stalled('SecretsDisabled', 'the controller may not write Secrets: set kubernetes.pullSecrets.enabled, or remove secretName and use :rotateSecret'),
  secretInUse: (name: string) => waiting('SecretInUse', `the Secret ${name} belongs to another owner and stays as it is; use another name, or delete it`),
  refNotFound: ({ field, meant }: ResolvedReferences & { found: false }) => waiting('RefNotFound', `${field}: ${meant} does not exist, or has no record yet`),
  invalid: (what: string) => stalled('Invalid', what),
  misplaced: ({ parent }: RecordFacts) =>
    stalled('Misplaced', `its record is in group ${parent}, and records cannot move; delete the object and create another`),
  externalLost: (uid: string) =>
    stalled('ExternalLost', `the record ${uid} was deleted through the API; to create it again, remove the annotation taproot.dev/uid`),
  ownedByAnother: ({ uid, managedBy }: RecordFacts) =>
    stalled('InConflict', `the record ${uid} belongs to another Kubernetes object: ${managedBy}`, 'InConflict'),
  olderFirst: (conflictingObject: string) => stalled('InConflict', `an older object requests the same record: ${conflictingObject}`, 'InConflict'),
  takenOver: ({ uid }: RecordFacts) => stalled('InConflict', `the record ${uid} was taken over through the API; ${howToClaim}: ByUid`, 'InConflict'),
  adoptionRefused: ({ uid }: RecordFacts) => stalled('InConflict', `the record ${uid} belongs to the API; ${howToClaim}: ByUid`, 'InConflict'),
  nameTaken: ({ uid }: RecordFacts) =>
    stalled('InConflict', `the record ${uid} has this name already and belongs to the API; ${howToClaim}: ByName`, 'InConflict'),
} as const satisfies Record<string, ConditionStatus | ((what: never) => ConditionStatus)>

/**
 * Returns the condition for a refused step, from the error's code and reason. Returns undefined if the step must be retried without a
 * report, because another change came first or the store does not answer.
 */
export function conditionStatusOf(error: DomainError, isDeletion: boolean, blockers = ''): ConditionStatus | undefined {
  // Objects use JSON names of fields.
  const message = `${codeNames[error.code]}: ${withFieldNames(error, jsonPath).message}${blockers === '' ? '' : `: ${blockers}`}`
  if (error.reason === 'NOT_OWNED') return stalled('InConflict', message, 'InConflict')
  if (error.reason === 'OWNED_ALREADY') return undefined
  if (error.reason === 'NAME_HELD') return waiting('NameReserved', message)
  if (error.reason === 'QUOTA_EXCEEDED') return waiting('QuotaExceeded', message)
  if (error.reason === 'ORGANIZATION_SUSPENDED') return waiting('OrganizationSuspended', message)
  switch (error.code) {
    case 3:
      return stalled('Invalid', message)
    case 5:
      return waiting('RefNotFound', message)
    case 6:
      return stalled('InConflict', message, 'InConflict')
    case 7:
      return stalled('ExceedsGrant', message)
    case 8:
      return waiting('StoreFull', message)
    case 9:
      return waiting(isDeletion ? 'DeletionBlocked' : 'Blocked', message)
    default:
      return undefined
  }
}
