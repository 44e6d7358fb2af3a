import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { ImageFacts } from '../../../src/cache/lists/contents-source.ts'
import { Vulnerability_SeverityLevel as Level } from '../../../src/gen/taproot/registry/v2/contents_pb.ts'
import {
  PullPolicy_Mode as Mode,
  PullPolicy_OnUnknown as OnUnknown,
  PullPolicy_SignatureRequirementSchema,
  PullPolicySchema,
  type PullPolicy,
  type PullPolicy_SignatureRequirement,
} from '../../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import type { Signature, SignatureFacts } from '../../../src/registry/policies/signature-rule.ts'
import { explained, verdictOn, type PullFacts } from '../../../src/registry/policies/verdict.ts'

const dayMs = 86_400_000
const nowMs = 1_000 * dayMs
const [repo, otherRepo] = [trustedUid('a/b'), trustedUid('a/c')]
const [own, index, foreign] = ['sha256:1', 'sha256:2', 'sha256:3']
const anyDigest = digestOf(Buffer.from('an image'))
const names = ['CVE-1', 'CVE-2', 'GHSA-1', 'GHSA-2']

const levels = fc.constantFrom(Level.UNKNOWN, Level.NEGLIGIBLE, Level.LOW, Level.MEDIUM, Level.HIGH, Level.CRITICAL)
const vulnerability = fc.record({ names: fc.uniqueArray(fc.constantFrom(...names), { minLength: 1, maxLength: 2 }), level: levels, isCertain: fc.boolean() })
const image: fc.Arbitrary<ImageFacts> = fc.record({
  digest: fc.constant(anyDigest),
  hasSbom: fc.constantFrom(true, false, undefined),
  vulnerabilities: fc.array(vulnerability, { maxLength: 3 }),
  gap: fc.constantFrom('', 'it was not read yet'),
})
const [issuers, subjects] = [
  ['https://i', 'https://j'],
  ['a@x', 'b@x', 'b@y'],
] as const
const signer = fc.record({ issuer: fc.constantFrom(...issuers), subject: fc.constantFrom(...subjects) })
/** A signature by some of the keys `1` and `2`, or with a certificate that may be valid. */
const signature: fc.Arbitrary<Signature> = fc
  .record({ keys: fc.subarray(['1', '2']), signer: fc.option(signer, { nil: undefined }), hasCertificate: fc.boolean() })
  .map(({ keys, signer: named, hasCertificate }) => ({
    ...{ signer: hasCertificate ? named : undefined, hasCertificate, problem: '' },
    isSignedBy: (key) => keys.includes(key),
  }))
const signatures: fc.Arbitrary<SignatureFacts> = fc
  .record({
    signatures: fc.array(signature, { maxLength: 3 }),
    faults: fc.array(fc.constant('it is of another image'), { maxLength: 1 }),
    gap: fc.constantFrom('', 'signatures cannot be read now'),
    trustProblem: fc.constantFrom('', 'no trusted root is configured'),
  })
  .map((found) => (found.trustProblem === '' ? found : { ...found, signatures: found.signatures.map((one): Signature => ({ ...one, signer: undefined })) }))
const facts: fc.Arbitrary<PullFacts> = fc
  .record({
    signatures: fc.option(signatures, { nil: undefined }),
    images: fc.array(image, { maxLength: 3 }),
    isDeprecated: fc.boolean(),
    pushed: fc.option(fc.integer({ min: 900, max: 1_000 })),
    by: fc.integer({ min: 900, max: 1_000 }),
  })
  .map(({ images, isDeprecated, pushed, by, signatures: found }) => ({
    ...{ repo, digests: [own, index], images, isDeprecated, signatures: found, nowMs },
    pushedMs: pushed === null ? undefined : pushed * dayMs,
    pushedByMs: Math.max(by, pushed ?? 0) * dayMs,
  }))
const subjectCondition = fc.oneof(
  fc.constantFrom(...subjects).map((value) => ({ case: 'subject' as const, value })),
  fc.constantFrom('*', 'b@*', '*@x', '*b*x', 'b').map((value) => ({ case: 'subjectPattern' as const, value })),
)
const requirement = fc
  .record({ keys: fc.subarray(['1', '2', '3']), identities: fc.array(fc.record({ issuer: fc.constantFrom(...issuers), subjectCondition }), { maxLength: 2 }) })
  .map((fields) => create(PullPolicy_SignatureRequirementSchema, fields))
const condition = fc.oneof(
  requirement.map((value) => ({ case: 'requireSignature' as const, value })),
  fc.constantFrom(Level.NEGLIGIBLE, Level.LOW, Level.MEDIUM, Level.HIGH).map((value) => ({ case: 'maxSeverity' as const, value })),
  fc.constant({ case: 'requireSbom' as const, value: true }),
  fc.constant({ case: 'denyDeprecated' as const, value: true }),
  fc.integer({ min: 1, max: 120 }).map((value) => ({ case: 'maxAgeDays' as const, value })),
)
const rule = fc.record({
  condition,
  mode: fc.constantFrom(Mode.AUDIT, Mode.WARN, Mode.ENFORCE),
  onUnknown: fc.constantFrom(OnUnknown.ON_UNKNOWN_UNSPECIFIED, OnUnknown.ALLOW, OnUnknown.DENY),
})
const exception = fc
  .record({
    repoUid: fc.constantFrom('', repo, otherRepo),
    digest: fc.constantFrom('', own, index, foreign),
    vulnerability: fc.constantFrom('', ...names),
    end: fc.constantFrom(-1, 0, 1),
  })
  .map(({ end, ...fields }) => ({ ...fields, endTime: timestampFromMs(nowMs + end) }))
const policy: fc.Arbitrary<PullPolicy> = fc
  .record({ uid: fc.uuid(), name: fc.constantFrom('one', 'two'), rules: fc.array(rule, { maxLength: 4 }), exceptions: fc.array(exception, { maxLength: 2 }) })
  .map((fields) => create(PullPolicySchema, fields))

const ranks: readonly Level[] = [Level.NEGLIGIBLE, Level.LOW, Level.MEDIUM, Level.HIGH, Level.CRITICAL]

/** Says in the simplest way whether no signature is by any of those who may sign. */
function lacksSignature({ keys, identities }: PullPolicy_SignatureRequirement, found: SignatureFacts | undefined): boolean | undefined {
  if (found === undefined) return undefined
  for (const { signer: named, isSignedBy } of found.signatures) {
    if (keys.some((key) => isSignedBy(key))) return false
    for (const {
      issuer,
      subjectCondition: { value = '' },
    } of identities) {
      const pattern = new RegExp(`^${value.split('*').join('.*')}$`)
      if (named?.issuer === issuer && pattern.test(named.subject)) return false
    }
  }
  const isUnchecked = identities.length > 0 && found.trustProblem !== '' && found.signatures.some(({ hasCertificate }) => hasCertificate)
  return found.gap !== '' || isUnchecked ? undefined : true
}

/** Says for one rule, in the simplest way, whether it is violated: yes, no, or not known. */
function isViolated({ condition: { case: sort, value } }: PullPolicy['rules'][number], given: PullFacts, excepted: readonly string[]): boolean | undefined {
  if (sort === 'requireSignature') return lacksSignature(value, given.signatures)
  if (sort === 'denyDeprecated') return given.isDeprecated
  if (sort === 'maxAgeDays') {
    const isTooOld = (ms: number): boolean => given.nowMs - ms > Number(value) * dayMs
    if (isTooOld(given.pushedByMs)) return true
    return given.pushedMs !== undefined && !isTooOld(given.pushedMs) ? false : undefined
  }
  if (given.images.length === 0) return undefined
  const each = given.images.map(({ hasSbom, vulnerabilities, gap }): boolean | undefined => {
    if (sort === 'requireSbom') return hasSbom === undefined ? undefined : !hasSbom
    const counted = vulnerabilities.filter((one) => one.names.every((name) => !excepted.includes(name)))
    const isAbove = (level: Level): boolean | undefined =>
      level === Level.UNKNOWN ? undefined : ranks.indexOf(level) > ranks.findIndex((rank) => rank === value)
    if (counted.some((one) => one.isCertain && isAbove(one.level) === true)) return true
    return gap !== '' || counted.some((one) => isAbove(one.level) !== false) ? undefined : false
  })
  return each.includes(true) ? true : each.includes(undefined) ? undefined : false
}

/** Decides in the simplest way: each rule of each policy on its own. */
function expected(policies: readonly PullPolicy[], given: PullFacts): string {
  const decisions = new Set<string>()
  for (const { rules, exceptions } of policies) {
    const active = exceptions.filter(({ repoUid, digest, endTime }) => {
      const end = Number(endTime?.seconds) * 1000 + Number(endTime?.nanos) / 1e6
      return end > given.nowMs && ['', repo].includes(repoUid) && ['', own, index].includes(digest)
    })
    if (active.some((one) => one.vulnerability === '')) continue
    for (const one of rules) {
      const violated = isViolated(
        one,
        given,
        active.map((row) => row.vulnerability),
      )
      if (violated === false || (violated === undefined && one.onUnknown !== OnUnknown.DENY)) continue
      decisions.add(one.mode === Mode.ENFORCE ? 'deny' : one.mode === Mode.WARN ? 'warn' : 'allow')
    }
  }
  return decisions.has('deny') ? 'deny' : decisions.has('warn') ? 'warn' : 'allow'
}

describe('verdicts of pull policies', () => {
  test('decide like a naive model, for all rules, modes, groups and exceptions', () => {
    fc.assert(
      fc.property(fc.array(policy, { maxLength: 3 }), facts, (policies, given) => {
        const { decision, lacksOnlySignature } = verdictOn(policies, given)
        expect(decision).toBe(expected(policies, given))
        const others = policies.map((one) => ({ ...one, rules: one.rules.filter(({ condition: { case: sort } }) => sort !== 'requireSignature') }))
        expect(lacksOnlySignature).toBe(decision === 'deny' && expected(others, given) !== 'deny')
      }),
      { numRuns: 3_000 },
    )
  })

  test('a further policy never makes a verdict milder', () => {
    const order = ['allow', 'warn', 'deny']
    fc.assert(
      fc.property(fc.array(policy, { maxLength: 2 }), policy, facts, (policies, more, given) => {
        const [before, after] = [verdictOn(policies, given), verdictOn([...policies, more], given)]
        expect(order.indexOf(after.decision)).toBeGreaterThanOrEqual(order.indexOf(before.decision))
        expect(after.results.slice(0, -1)).toEqual(before.results)
      }),
      { numRuns: 1_000 },
    )
  })

  test('a verdict holds until the time that it names', () => {
    fc.assert(
      fc.property(fc.array(policy, { maxLength: 3 }), facts, fc.integer({ min: 1, max: 200 * dayMs }), (policies, given, laterMs) => {
        const { decision, untilMs, results } = verdictOn(policies, given)
        const atMs = Math.min(nowMs + laterMs, untilMs - 1)
        const later = verdictOn(policies, { ...given, nowMs: atMs })
        expect(later.decision).toBe(decision)
        expect(later.results.map(({ result, mode }) => [result, mode])).toEqual(results.map(({ result, mode }) => [result, mode]))
      }),
      { numRuns: 1_000 },
    )
  })

  test('a violated rule names the result before one with the same effect whose answer is not known', () => {
    const rules = [
      { condition: { case: 'maxSeverity' as const, value: Level.HIGH }, mode: Mode.ENFORCE, onUnknown: OnUnknown.ALLOW },
      { condition: { case: 'requireSbom' as const, value: true }, mode: Mode.AUDIT },
    ]
    const images = [{ digest: anyDigest, hasSbom: false, vulnerabilities: [], gap: 'a file was not read' }]
    const verdict = verdictOn([create(PullPolicySchema, { uid: 'u', name: 'one', rules })], {
      ...{ repo, digests: [own], images, isDeprecated: false, signatures: undefined, pushedMs: undefined, pushedByMs: 0, nowMs },
    })
    expect(verdict).toMatchObject({ decision: 'allow', results: [{ mode: 'AUDIT', result: 'VIOLATED' }] })
    expect(verdict.results[0]?.reasons).toHaveLength(2)
  })

  test('an explanation is plain ASCII without quotes, whatever ids say', () => {
    const rules = [{ condition: { case: 'maxSeverity' as const, value: Level.LOW }, mode: Mode.ENFORCE }]
    const images = [{ digest: anyDigest, hasSbom: true, vulnerabilities: [{ names: ['"\\\r\nä'], level: Level.HIGH, isCertain: true }], gap: '' }]
    const verdict = verdictOn([create(PullPolicySchema, { uid: 'u', name: 'one', rules })], {
      ...{ repo, digests: [own], images, isDeprecated: false, signatures: undefined, pushedMs: undefined, pushedByMs: 0, nowMs },
    })
    expect(explained(verdict)).toBe('one (maxSeverity LOW: 1 vulnerability is above it, such as ?????)')
  })
})
