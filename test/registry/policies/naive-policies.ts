/** What is known of a pull for one rule: that it keeps to it, that it violates it, or neither. */
export type PullState = 'good' | 'bad' | 'unknown'

/** A rule, as the names of the API are. */
export const ruleKinds = ['maxSeverity', 'requireSignature', 'requireSbom', 'denyDeprecated', 'maxAgeDays'] as const
/** One of `ruleKinds`. */
export type RuleKind = (typeof ruleKinds)[number]

/** What happens on a violation, the mildest first. */
export const policyModes = ['AUDIT', 'WARN', 'ENFORCE'] as const
/** One of `policyModes`. */
export type PolicyMode = (typeof policyModes)[number]

/** Whom an exception is for, and whether it counts. Those of one vulnerability are for the only one that the image has, or for another. */
export const exceptionKinds = ['none', 'repo', 'digest', 'vulnerability', 'expired', 'other repo', 'other digest', 'other vulnerability'] as const
/** One of `exceptionKinds`. */
export type ExceptionKind = (typeof exceptionKinds)[number]

/** A policy of one rule. */
export interface NaivePolicy {
  readonly kind: RuleKind
  readonly mode: PolicyMode
  readonly onUnknown: 'ALLOW' | 'DENY'
  readonly exception: ExceptionKind
  /** True for a limit that no image exceeds: the highest severity that a rule may name, and the most days. */
  readonly isLenient?: boolean
}

/** A pull, and what is known of it by rule. */
export interface NaivePull {
  readonly states: Readonly<Record<RuleKind, PullState>>
  /** True if exceptions of the digest are for this manifest, or for an index that contains it. */
  readonly isExcepted: boolean
  /** The state if the excepted vulnerability is left out. */
  readonly severityWithout: PullState
}

/** What one policy says. */
export interface NaiveResult {
  readonly result: 'PASSED' | 'VIOLATED' | 'UNKNOWN'
  readonly mode: PolicyMode
}

/** What all policies say together. */
export interface NaiveVerdict {
  readonly decision: 'ALLOWED' | 'WARNED' | 'REFUSED'
  readonly results: readonly NaiveResult[]
}

/** Returns the state of the pull for the rule of a policy, as docs/images.md says. */
function stateFor({ kind, exception, isLenient = false }: NaivePolicy, pull: NaivePull): PullState {
  if (exception === 'repo') return 'good'
  if (isLenient && pull.states[kind] === 'bad' && (kind === 'maxSeverity' || kind === 'maxAgeDays')) return 'good'
  if (exception === 'digest' && pull.isExcepted) return 'good'
  if (exception === 'vulnerability' && kind === 'maxSeverity') return pull.severityWithout
  return pull.states[kind]
}

/** Decides on a pull in the simplest way, from docs/spec/registry.md: each policy on its own, and the strictest counts. */
export function naiveVerdict(policies: readonly NaivePolicy[], pull: NaivePull): NaiveVerdict {
  let decision: NaiveVerdict['decision'] = 'ALLOWED'
  const results: NaiveResult[] = []
  for (const policy of policies) {
    const state = stateFor(policy, pull)
    const { mode, onUnknown } = policy
    const result = ({ good: 'PASSED', bad: 'VIOLATED', unknown: 'UNKNOWN' } as const)[state]
    const isLet = state === 'unknown' && onUnknown === 'ALLOW'
    results.push({ result, mode: isLet ? 'AUDIT' : mode })
    if (state === 'good' || isLet) continue
    if (mode === 'ENFORCE') decision = 'REFUSED'
    if (mode === 'WARN' && decision === 'ALLOWED') decision = 'WARNED'
  }
  return { decision, results }
}
