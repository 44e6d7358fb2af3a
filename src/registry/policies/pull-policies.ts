import { lineage, isWithin, type Uid } from '../../base/uid.ts'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { CachedRecord, KindIndex, Resource } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import { defineKind, type MutationDraft } from '../../engine/kind.ts'
import { PullPolicySchema, type PullPolicy, type PullPolicy_Exception, type PullPolicy_Rule } from '../../gen/taproot/registry/v2/pull_policies_pb.ts'
import { signatureViolations } from './signature-rule.ts'

/** A pull policy as it is stored. */
export type PullPolicyRecord = PullPolicy & Resource

const index: KindIndex = { kind: 'PullPolicy', desc: PullPolicySchema, name: 'name', filters: {}, removedWith: [] }

/** The longest age in a rule, in days. */
const maxDays = 36_500

function ruleViolations({ condition }: PullPolicy_Rule, field: string): FieldViolation[] {
  if (condition.case === 'requireSbom' && !condition.value) return [{ field: `${field}.require_sbom`, description: 'must be true: leave the rule out instead' }]
  if (condition.case === 'denyDeprecated' && !condition.value)
    return [{ field: `${field}.deny_deprecated`, description: 'must be true: leave the rule out instead' }]
  if (condition.case === 'maxAgeDays' && condition.value > maxDays) return [{ field: `${field}.max_age_days`, description: `must be at most ${maxDays}` }]
  if (condition.case === 'requireSignature') return signatureViolations(condition.value, `${field}.require_signature`)
  return []
}

function exceptionViolations({ repoUid, digest, vulnerability }: PullPolicy_Exception, field: string, parent: string): FieldViolation[] {
  if (repoUid === '' && digest === '' && vulnerability === '') return [{ field, description: 'needs `repoUid`, `digest` or `vulnerability`' }]
  if (repoUid !== '' && (repoUid === parent || !isWithin(repoUid, parent)))
    return [{ field: `${field}.repo_uid`, description: 'must be a repo below the group of the policy' }]
  return []
}

/** Throws code 3 for rules and exceptions of a policy of the group `parent` that decide nothing. `prefix` is the path of the policy in the request. */
export function assertRules({ rules, exceptions }: PullPolicy, parent: string, prefix = ''): void {
  const violations = [
    ...rules.flatMap((rule, at) => ruleViolations(rule, `${prefix}rules[${at}]`)),
    ...exceptions.flatMap((exception, at) => exceptionViolations(exception, `${prefix}exceptions[${at}]`, parent)),
  ]
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}

function assertDraft({ record, parent }: MutationDraft<PullPolicyRecord>): undefined {
  assertRules(record, parent)
}

/** The kind PullPolicy: rules on what may be pulled from the repos of a group, and of all groups below it (docs/spec/registry.md#pull-policies). */
export const pullPolicyKind = defineKind<PullPolicyRecord>({
  index,
  desc: PullPolicySchema,
  uniqueName: true,
  create: (_, draft) => assertDraft(draft),
  update: (_, draft) => assertDraft(draft),
})

const none: readonly CachedRecord[] = []

/** True if any group has a policy. */
export function hasPolicies(tables: RecordTables): boolean {
  return tables.hasKind('PullPolicy') && tables.table('PullPolicy').size > 0
}

/** Returns the policies that count for a repo: those of all groups above it, of outer groups first. */
export function policiesAbove(tables: RecordTables, repo: Uid): readonly CachedRecord[] {
  if (!hasPolicies(tables)) return none
  const table = tables.table('PullPolicy')
  return [...lineage(repo)].reverse().flatMap((group) => [...table.matching('parent', group)])
}

function needsSignature({ rules }: PullPolicy): boolean {
  return rules.some(({ condition }) => condition.case === 'requireSignature')
}

/** Returns those of the policies that require signatures. */
export function signaturePolicies(policies: readonly CachedRecord[]): CachedRecord[] {
  return policies.filter((record) => needsSignature(messageOf(record, 'PullPolicy')))
}

/** Returns the keys of the policies, each once. Undefined if none of them requires signatures. */
export function signatureKeys(policies: readonly PullPolicy[]): string[] | undefined {
  if (!policies.some(needsSignature)) return undefined
  const rules = policies.flatMap((policy) => policy.rules)
  return [...new Set(rules.flatMap(({ condition }) => (condition.case === 'requireSignature' ? condition.value.keys : [])))]
}
