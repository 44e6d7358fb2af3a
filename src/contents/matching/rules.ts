import type { ReadVersion } from '../../base/versions/version-order.ts'
import type { VulnerabilityState } from '../../cache/lists/contents-source.ts'
import { AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive, type AdvisoryEvent } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { ReadAdvisory } from './advisory.ts'
import type { RangeAnswer } from './ranges.ts'
import type { SubjectVersion } from './subject.ts'

/**
 * How much an answer counts against those of other advisories about the same vulnerability. Of two determinations, the newer one counts. Else, the worst state
 * does.
 */
export const weights = { detection: 1, beforeFix: 2, range: 3, determination: 4, oneVersion: 5 } as const

/** An advisory and the version of a package that it is about. */
export interface Question {
  readonly read: ReadAdvisory
  readonly version: SubjectVersion
  /** The version as the order of the advisory reads it. Undefined if it is no version. */
  readonly parsed: ReadVersion | undefined
  /** False if the release of the package's distribution is not known, and the advisory is about one of them. */
  readonly isOfRelease: boolean
  /** True if the package is a part of the artifact that the advisory names, or is this artifact. */
  readonly isOfArtifact: boolean
  /** What the ranges say. Undefined if there are none. */
  readonly range: RangeAnswer | undefined
}

/** What a rule says about a package. */
interface Answer {
  readonly state: VulnerabilityState
  readonly weight: keyof typeof weights
  /** The version that has, or had, the fix. */
  readonly fixedVersion?: (question: Question) => string
}

/** A rule. The first one that applies answers for the advisory. */
interface Rule {
  readonly name: string
  readonly applies: (question: Question) => boolean
  /** Undefined if the advisory says nothing about the package. */
  readonly answer: Answer | undefined
}

type EventCase = NonNullable<AdvisoryEvent['type']['case']>

const isNewest =
  (...cases: readonly EventCase[]) =>
  ({ read: { newest } }: Question): boolean =>
    cases.some((one) => newest?.case === one)

const isFix = isNewest('fixed', 'patched')
const says =
  (...answers: readonly RangeAnswer['says'][]) =>
  ({ range }: Question): boolean =>
    range !== undefined && answers.includes(range.says)

const determined = (state: VulnerabilityState): Answer => ({ state, weight: 'determination' })
const fixOfRange = ({ range }: Question): string => range?.fixedVersion ?? ''

/** Returns the newest of the versions that fix it. Only from this one on, all fixes are there. */
function lastFix({ read: { fixes } }: Question): ReadVersion | undefined {
  return fixes.reduce<ReadVersion | undefined>((last, fix) => (last === undefined || fix.compareTo(last) > 0 ? fix : last), undefined)
}

function isFixed(question: Question): boolean {
  const fix = lastFix(question)
  return fix !== undefined && question.parsed !== undefined && question.parsed.compareTo(fix) >= 0
}

function isOtherVersion({ read: { only }, parsed, version }: Question): boolean {
  return only !== undefined && only.text !== version.text && (parsed === undefined || !only.isSameAs(parsed))
}

/** The rules, in order. The newest approved event decides; ranges decide if it is no determination. */
export const rules = [
  { name: 'withdrawn', applies: ({ read }) => read.advisory.deleteTime !== undefined, answer: undefined },
  { name: 'not approved', applies: ({ read }) => read.newest === undefined, answer: undefined },
  { name: 'other artifact', applies: ({ isOfArtifact }) => !isOfArtifact, answer: undefined },
  {
    name: 'other version',
    applies: (question) => isOtherVersion(question) && !(isNewest('fixed')(question) && question.read.namesFix),
    answer: undefined,
  },
  { name: 'false positive', applies: isNewest('falsePositiveDetermination'), answer: determined('not_affected') },
  { name: 'true positive', applies: isNewest('truePositiveDetermination'), answer: determined('affected') },
  { name: 'fix not planned', applies: isNewest('fixNotPlanned'), answer: determined('affected') },
  { name: 'analysis not planned', applies: isNewest('analysisNotPlanned'), answer: determined('affected') },
  { name: 'pending upstream fix', applies: isNewest('pendingUpstreamFix'), answer: determined('affected') },
  { name: 'commits only', applies: ({ read }) => read.affected?.length === 0, answer: undefined },
  { name: 'listed version', applies: says('listed'), answer: { state: 'affected', weight: 'range', fixedVersion: fixOfRange } },
  { name: 'inside of a range', applies: says('inside'), answer: { state: 'affected', weight: 'range', fixedVersion: fixOfRange } },
  { name: 'after the fix of a range', applies: says('after'), answer: { state: 'fixed', weight: 'range', fixedVersion: fixOfRange } },
  { name: 'outside of ranges', applies: says('outside'), answer: { state: 'not_affected', weight: 'range' } },
  { name: 'unreadable range or version', applies: says('unreadable'), answer: { state: 'under_investigation', weight: 'detection' } },
  { name: 'fixed in any version', applies: (question) => isFix(question) && !question.read.namesFix, answer: determined('fixed') },
  {
    name: 'unreadable fix',
    applies: (question) => isFix(question) && question.read.fixes.length === 0,
    answer: { state: 'under_investigation', weight: 'detection' },
  },
  {
    name: 'has the fix',
    applies: (question) => isFix(question) && isFixed(question),
    answer: { state: 'fixed', weight: 'determination', fixedVersion: (question) => lastFix(question)?.text ?? '' },
  },
  {
    name: 'unreadable version',
    applies: (question) => isFix(question) && question.parsed === undefined,
    answer: { state: 'under_investigation', weight: 'detection' },
  },
  {
    name: 'before the fix',
    applies: isFix,
    answer: { state: 'affected', weight: 'beforeFix', fixedVersion: (question) => lastFix(question)?.text ?? '' },
  },
  { name: 'detected', applies: isNewest('detection'), answer: { state: 'under_investigation', weight: 'detection' } },
] as const satisfies readonly Rule[]

/** The name of a rule. */
export type RuleName = (typeof rules)[number]['name']

/** What an advisory says about a package, with the rule that says it. */
export interface Verdict {
  readonly state: VulnerabilityState
  readonly rule: RuleName
  /** See `weights`. */
  readonly weight: number
  readonly fixedVersion: string
  /** What the event says for people. Empty if nothing. */
  readonly note: string
  /** Why the package is not affected. Undefined for other states, and without a reason. */
  readonly justification: FalsePositive | undefined
  readonly read: ReadAdvisory
}

function noteOf(type: AdvisoryEvent['type'] | undefined): string {
  return type === undefined || type.case === undefined || type.case === 'detection' ? '' : type.value.note
}

function justificationOf(type: AdvisoryEvent['type'] | undefined): FalsePositive | undefined {
  return type?.case === 'falsePositiveDetermination' && type.value.type !== FalsePositive.UNSPECIFIED ? type.value.type : undefined
}

/** Returns a verdict about a release that may be another one. It is as strong as a range, and what is affected there may be affected. */
function ofUnknownRelease({ state, fixedVersion, note, ...rest }: Verdict): Verdict {
  const isOpen = state === 'affected' || state === 'under_investigation'
  const unknown = `The release of the distribution is not known. This is about ${rest.read.release}.`
  return {
    ...rest,
    weight: weights.range,
    state: isOpen ? 'under_investigation' : state,
    fixedVersion: isOpen ? '' : fixedVersion,
    note: note === '' ? unknown : `${unknown} ${note}`,
  }
}

/** Returns what an advisory says about a package. Undefined if it says nothing. */
export function verdictOf(question: Question): Verdict | undefined {
  const found = rules.find(({ applies }) => applies(question))
  if (found?.answer === undefined) return undefined
  const { read } = question
  const answer: Answer = found.answer
  const isOfOne = answer.weight === 'determination' && (read.artifact !== undefined || (read.only !== undefined && !isOtherVersion(question)))
  const verdict: Verdict = {
    state: answer.state,
    rule: found.name,
    weight: weights[isOfOne ? 'oneVersion' : answer.weight],
    fixedVersion: answer.fixedVersion?.(question) ?? '',
    note: noteOf(read.newest),
    justification: justificationOf(read.newest),
    read,
  }
  return question.isOfRelease ? verdict : ofUnknownRelease(verdict)
}
