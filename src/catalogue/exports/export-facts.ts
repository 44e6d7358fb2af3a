import { timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import {
  AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive,
  ReviewState,
  type Advisory,
  type AdvisoryEvent,
} from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { OsvFacts } from '../advisories/osv-facts.ts'

/** An advisory of the catalogue. */
export interface StoredAdvisory {
  readonly advisory: Advisory
  readonly facts: OsvFacts
}

/** What an export needs besides the advisories. */
export interface ExportFacts {
  /** Who publishes the document: a name for people. */
  readonly publisher: string
  /** The URL of the API, without a slash at its end. */
  readonly baseUrl: string
  /** The time of what has no time of its own, in milliseconds since 1970. */
  readonly builtMs: number
}

/** A status in the words of VEX, with what the event says about it. */
export type VexStatus =
  | { readonly status: 'under_investigation' }
  | { readonly status: 'affected'; readonly action: string; readonly remediation: 'none_available' | 'no_fix_planned' | 'workaround' }
  | { readonly status: 'fixed'; readonly versions: readonly string[]; readonly note: string }
  | { readonly status: 'not_affected'; readonly justification: string | undefined; readonly impact: string }

/** What to do, for events without a note. VEX wants a sentence. */
const actions = {
  truePositiveDetermination: 'The package is affected. No fix is known yet.',
  pendingUpstreamFix: 'The fix depends on the upstream project.',
  fixNotPlanned: 'No fix is planned.',
  analysisNotPlanned: 'No analysis is planned.',
} as const

/** The justifications of VEX (docs/spec/advisories.md#advisory-exports). */
const justifications: Readonly<Record<FalsePositive, string | undefined>> = {
  [FalsePositive.UNSPECIFIED]: undefined,
  [FalsePositive.VULNERABILITY_RECORD_ANALYSIS_CONTESTED]: 'vulnerable_code_not_present',
  [FalsePositive.COMPONENT_VULNERABILITY_MISMATCH]: 'component_not_present',
  [FalsePositive.VULNERABLE_CODE_VERSION_NOT_USED]: 'vulnerable_code_not_present',
  [FalsePositive.VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE]: 'vulnerable_code_not_present',
  [FalsePositive.VULNERABLE_CODE_NOT_IN_EXECUTION_PATH]: 'vulnerable_code_not_in_execute_path',
  [FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY]: 'vulnerable_code_cannot_be_controlled_by_adversary',
  [FalsePositive.INLINE_MITIGATIONS_EXIST]: 'inline_mitigations_already_exist',
}

function statusOf({ type }: AdvisoryEvent): VexStatus | undefined {
  switch (type.case) {
    case 'detection':
      return { status: 'under_investigation' }
    case 'truePositiveDetermination':
      return { status: 'affected', action: type.value.note || actions[type.case], remediation: type.value.note === '' ? 'none_available' : 'workaround' }
    case 'pendingUpstreamFix':
      return { status: 'affected', action: type.value.note || actions[type.case], remediation: 'none_available' }
    case 'fixNotPlanned':
    case 'analysisNotPlanned':
      return { status: 'affected', action: type.value.note || actions[type.case], remediation: 'no_fix_planned' }
    case 'fixed':
      return { status: 'fixed', versions: type.value.fixedVersion === '' ? [] : [type.value.fixedVersion], note: type.value.note }
    case 'patched':
      return { status: 'fixed', versions: type.value.patchedVersions, note: type.value.note }
    case 'falsePositiveDetermination': {
      // A value that this version does not know has no justification.
      const { [type.value.type]: justification } = justifications as Readonly<Record<number, string | undefined>>
      return { status: 'not_affected', justification, impact: type.value.note || 'The package is not affected.' }
    }
    default:
      return undefined
  }
}

/** A status with its time. */
export interface Stated {
  readonly status: VexStatus
  /** Milliseconds since 1970. Undefined if the event has no time. */
  readonly ms: number | undefined
}

/** Returns what the approved events say, in time order. Of one moment, the last in the list comes last. */
export function statusesOf({ events }: Advisory): Stated[] {
  return events
    .filter(({ reviewState }) => reviewState === ReviewState.APPROVED)
    .flatMap((event) => {
      const status = statusOf(event)
      return status === undefined ? [] : [{ status, ms: msOf(event.createTime) }]
    })
    .sort((one, other) => (one.ms ?? 0) - (other.ms ?? 0))
}

/** Returns a time in milliseconds. */
export function msOf(time: Timestamp | undefined): number | undefined {
  return time === undefined ? undefined : timestampMs(time)
}

/** Returns a time as documents write it. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString()
}

/** Returns the ids of the vulnerability: those of CVE first, then the advisory's own. */
export function idsOf({ advisoryId, aliases }: Advisory): string[] {
  const ids = [...new Set([advisoryId, ...aliases])]
  return [...ids.filter(isCve), ...ids.filter((id) => !isCve(id))]
}

/** True for an id of CVE, in the form that CSAF accepts. */
export function isCve(id: string): boolean {
  return /^CVE-[0-9]{4}-[0-9]{4,}$/.test(id)
}
