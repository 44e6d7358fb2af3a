import type { Uid } from '../../base/uid.ts'
import type { DecisiveVulnerability, ImageFacts } from '../../cache/lists/contents-source.ts'
import { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import {
  PullPolicy_Mode,
  PullPolicy_OnUnknown,
  type PullPolicy,
  type PullPolicy_Exception,
  type PullPolicy_Rule,
} from '../../gen/taproot/registry/v2/pull_policies_pb.ts'
import { signatureAnswer, type SignatureFacts } from './signature-rule.ts'

const { NEGLIGIBLE, LOW, MEDIUM, HIGH, CRITICAL, UNKNOWN } = Vulnerability_SeverityLevel
/** The severities that are known, the least first. */
const severities: readonly Vulnerability_SeverityLevel[] = [NEGLIGIBLE, LOW, MEDIUM, HIGH, CRITICAL]
const dayMs = 24 * 3_600_000

/** What is known of a manifest when it is pulled. */
export interface PullFacts {
  readonly repo: Uid
  /** Its digests, and those of the indexes that contain it: exceptions may name any of them. */
  readonly digests: readonly string[]
  /** Its images, by platform; empty for an artifact, whose contents are not read. */
  readonly images: readonly ImageFacts[]
  readonly isDeprecated: boolean
  /** Its signatures, and those of the indexes that contain it; undefined if they were not read. */
  readonly signatures: SignatureFacts | undefined
  /** The latest known time of the first push, of the manifest or an index that contains it; undefined if none is known. */
  readonly pushedMs: number | undefined
  /** A time that the first pushes are not after. */
  readonly pushedByMs: number
  readonly nowMs: number
}

/** What a rule says about a manifest. */
export type RuleOutcome = 'passed' | 'violated' | 'unknown'

/** What one policy says about a pull. */
export interface PolicyResult {
  readonly policy: Uid
  readonly name: string
  /** The mode of the rule that decided; the strictest mode if all rules passed. */
  readonly mode: 'AUDIT' | 'WARN' | 'ENFORCE'
  readonly result: 'PASSED' | 'VIOLATED' | 'UNKNOWN'
  /** The rules that did not pass, for people, the one that decided first. */
  readonly reasons: readonly string[]
}

/** What all policies together say about a pull. */
export interface PullVerdict {
  readonly decision: 'allow' | 'warn' | 'deny'
  readonly results: readonly PolicyResult[]
  /** True if only rules on signatures refuse the pull. */
  readonly lacksOnlySignature: boolean
  /** The time at which the verdict may change, with the same facts otherwise. */
  readonly untilMs: number
}

/** What a rule says, and why. `untilMs` is the time at which that may change. */
interface RuleAnswer {
  readonly outcome: RuleOutcome
  readonly reason: string
  readonly untilMs?: number
}

const passed: RuleAnswer = { outcome: 'passed', reason: '' }

/** What follows from a rule: nothing, a line in the event, a warning, a refusal. */
type Effect = 0 | 1 | 2 | 3
const effects = { [PullPolicy_Mode.AUDIT]: 1, [PullPolicy_Mode.WARN]: 2, [PullPolicy_Mode.ENFORCE]: 3 } as const satisfies Record<number, Effect>
const modes = ['AUDIT', 'AUDIT', 'WARN', 'ENFORCE'] as const
const decisions = ['allow', 'allow', 'warn', 'deny'] as const

function timeOf({ endTime }: PullPolicy_Exception): number {
  // The schema requires it. Without one, an exception never counts.
  return endTime === undefined ? 0 : Number(endTime.seconds) * 1000 + Math.floor(endTime.nanos / 1e6)
}

/** Returns the exceptions of a policy that count for a manifest now. */
function exceptionsFor({ exceptions }: PullPolicy, { repo, digests, nowMs }: PullFacts): PullPolicy_Exception[] {
  return exceptions.filter((one) => timeOf(one) > nowMs && (one.repoUid === '' || one.repoUid === repo) && (one.digest === '' || digests.includes(one.digest)))
}

/** Returns what the images say, taken together: one violation is enough, and one gap. */
function ofImages(images: readonly ImageFacts[], rule: string, answerOf: (image: ImageFacts) => RuleAnswer): RuleAnswer {
  if (images.length === 0) return { outcome: 'unknown', reason: `${rule}: not known, because the contents of artifacts are not read` }
  const answers = images.map(answerOf)
  const find = (outcome: RuleOutcome): RuleAnswer | undefined => answers.find((answer) => answer.outcome === outcome)
  return find('violated') ?? find('unknown') ?? passed
}

function nameOf(level: Vulnerability_SeverityLevel): string {
  return Object.entries(Vulnerability_SeverityLevel).find(([, number]) => number === level)?.[0] ?? String(level)
}

function severityAnswer(max: Vulnerability_SeverityLevel, facts: PullFacts, exceptions: readonly PullPolicy_Exception[]): RuleAnswer {
  const rule = `maxSeverity ${nameOf(max)}`
  const excepted = new Set(exceptions.map(({ vulnerability }) => vulnerability))
  const limit = severities.indexOf(max)
  const isAbove = ({ level }: DecisiveVulnerability): boolean => level !== UNKNOWN && severities.indexOf(level) > limit
  return ofImages(facts.images, rule, ({ vulnerabilities, gap }) => {
    const counted = vulnerabilities.filter(({ names }) => !names.some((name) => excepted.has(name)))
    const above = counted.filter((one) => one.isCertain && isAbove(one))
    if (above.length > 0) {
      const [first] = above.map(({ names }) => names[0] ?? '').sort()
      return {
        outcome: 'violated',
        reason: `${rule}: ${above.length} ${above.length === 1 ? 'vulnerability is' : 'vulnerabilities are'} above it, such as ${first}`,
      }
    }
    if (gap !== '') return { outcome: 'unknown', reason: `${rule}: not known, because ${gap}` }
    const open = counted.find((one) => one.level === UNKNOWN || isAbove(one))
    if (open === undefined) return passed
    return {
      outcome: 'unknown',
      reason: `${rule}: not known, because ${open.names[0] ?? ''} ${open.level === UNKNOWN ? 'has no severity' : 'is under investigation'}`,
    }
  })
}

function sbomAnswer({ images }: PullFacts): RuleAnswer {
  return ofImages(images, 'requireSbom', ({ hasSbom, gap }) => {
    if (hasSbom === undefined) return { outcome: 'unknown', reason: `requireSbom: not known, because ${gap === '' ? 'its SBOM was removed' : gap}` }
    return hasSbom ? passed : { outcome: 'violated', reason: 'requireSbom: the image has no SBOM' }
  })
}

function ageAnswer(days: number, { pushedMs, pushedByMs, nowMs }: PullFacts): RuleAnswer {
  const rule = `maxAgeDays ${days}`
  const oldestMs = nowMs - days * dayMs
  if (pushedMs !== undefined && pushedMs >= oldestMs) return { ...passed, untilMs: pushedMs + days * dayMs + 1 }
  if (pushedByMs < oldestMs) return { outcome: 'violated', reason: `${rule}: it was pushed before ${new Date(oldestMs).toISOString().slice(0, 10)}` }
  return { outcome: 'unknown', reason: `${rule}: not known, because an earlier version did not record the push`, untilMs: pushedByMs + days * dayMs + 1 }
}

function answerOf({ condition }: PullPolicy_Rule, facts: PullFacts, exceptions: readonly PullPolicy_Exception[]): RuleAnswer {
  switch (condition.case) {
    case 'maxSeverity':
      return severityAnswer(condition.value, facts, exceptions)
    case 'requireSbom':
      return sbomAnswer(facts)
    case 'denyDeprecated':
      return facts.isDeprecated ? { outcome: 'violated', reason: 'denyDeprecated: the tag is deprecated' } : passed
    case 'maxAgeDays':
      return ageAnswer(condition.value, facts)
    case 'requireSignature':
      return signatureAnswer(condition.value, facts.signatures)
    case undefined:
      // A later version may have written a rule that this one does not know.
      return { outcome: 'unknown', reason: 'a rule of a later version: not known here' }
  }
}

function effectOf({ mode, onUnknown }: PullPolicy_Rule, outcome: RuleOutcome): Effect {
  if (outcome === 'passed') return 0
  if (outcome === 'unknown' && onUnknown !== PullPolicy_OnUnknown.DENY) return 1
  // A mode that this version does not know is taken for the strictest one.
  return (effects as Readonly<Record<number, Effect>>)[mode] ?? 3
}

/** What one policy says about a manifest, and what follows. */
interface PolicyAnswer {
  readonly result: PolicyResult
  readonly effect: Effect
  /** What follows for who signs. */
  readonly signerEffect: Effect
  readonly untilMs: number
}

/** Returns what one policy says about a manifest. */
function resultOf(policy: PullPolicy & { readonly uid: string }, facts: PullFacts): PolicyAnswer {
  const active = exceptionsFor(policy, facts)
  const ends = policy.exceptions.map(timeOf).filter((ms) => ms > facts.nowMs)
  const uid = policy.uid as Uid // of a stored record
  if (active.some(({ vulnerability }) => vulnerability === '')) {
    const result = { policy: uid, name: policy.name, mode: strictest(policy.rules), result: 'PASSED', reasons: [] } as const
    return { result, effect: 0, signerEffect: 0, untilMs: Math.min(...ends) }
  }
  const answers = policy.rules.map((rule) => {
    const answer = answerOf(rule, facts, active)
    return { ...answer, isOnSignatures: rule.condition.case === 'requireSignature', effect: effectOf(rule, answer.outcome) }
  })
  // Of rules with the same effect, one that is violated says more than one whose answer is not known.
  const rank = ({ effect, outcome }: { readonly effect: Effect; readonly outcome: RuleOutcome }): number => 2 * effect + Number(outcome === 'violated')
  const failed = answers.filter(({ outcome }) => outcome !== 'passed').sort((a, b) => rank(b) - rank(a))
  const [worst] = failed
  const untilMs = Math.min(...ends, ...answers.map((answer) => answer.untilMs ?? Infinity))
  const mode = worst === undefined ? strictest(policy.rules) : modes[worst.effect]
  const result = worst === undefined ? 'PASSED' : worst.outcome === 'violated' ? 'VIOLATED' : 'UNKNOWN'
  const signerEffect = failed.find(({ isOnSignatures }) => !isOnSignatures)?.effect ?? 0
  const reasons = failed.map(({ reason }) => reason)
  return { result: { policy: uid, name: policy.name, mode, result, reasons }, effect: worst?.effect ?? 0, signerEffect, untilMs }
}

function strictest(rules: readonly PullPolicy_Rule[]): PolicyResult['mode'] {
  return modes[Math.max(0, ...rules.map((rule) => effectOf(rule, 'violated'))) as Effect]
}

/** Returns what policies, those of outer groups first, say about a manifest: the strictest counts (docs/adr/0037). A pure function. */
export function verdictOn(policies: readonly PullPolicy[], facts: PullFacts): PullVerdict {
  const answers = policies.map((policy) => resultOf(policy, facts))
  const worst = Math.max(0, ...answers.map(({ effect }) => effect)) as Effect // of effects
  return {
    decision: decisions[worst],
    results: answers.map(({ result }) => result),
    lacksOnlySignature: decisions[worst] === 'deny' && answers.every(({ signerEffect }) => decisions[signerEffect] !== 'deny'),
    untilMs: Math.min(...answers.map(({ untilMs }) => untilMs)),
  }
}

/** The most characters of an explanation. */
const maxExplanation = 400

/** Returns which policies decided, and why, as plain ASCII without quotes: for a message, or a quoted header. */
export function explained({ decision, results }: PullVerdict): string {
  const isDecisive = ({ mode, result }: PolicyResult): boolean => result !== 'PASSED' && mode === (decision === 'deny' ? 'ENFORCE' : 'WARN')
  const parts = results.filter(isDecisive).map(({ name, reasons }) => `${name} (${reasons[0] ?? ''})`)
  return parts
    .join(', ')
    .replaceAll(/[^ -~]|["\\]/g, '?')
    .slice(0, maxExplanation)
}
