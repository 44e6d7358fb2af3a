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

/** Throws code 3 for rules and exceptions that decide nothing. */
function assertRules({ record: { rules, exceptions }, parent }: MutationDraft<PullPolicyRecord>): undefined {
  const violations = [
    ...rules.flatMap((rule) => ruleViolations(rule, 'rules')),
    ...exceptions.flatMap((exception) => exceptionViolations(exception, 'exceptions', parent)),
  ]
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}

/** The kind PullPolicy: rules on what may be pulled from the repos of a group, and of all groups below it (docs/spec/registry.md#pull-policies). */
export const pullPolicyKind = defineKind<PullPolicyRecord>({
  index,
  desc: PullPolicySchema,
  uniqueName: true,
  create: (_, draft) => assertRules(draft),
  update: (_, draft) => assertRules(draft),
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

/** Returns those of the policies that require signatures. */
export function signaturePolicies(policies: readonly CachedRecord[]): CachedRecord[] {
  return policies.filter((record) => messageOf(record, 'PullPolicy').rules.some(({ condition }) => condition.case === 'requireSignature'))
}

/** Returns the keys of the policies, each once. */
export function signatureKeys(policies: readonly CachedRecord[]): string[] {
  const rules = policies.flatMap((record) => messageOf(record, 'PullPolicy').rules)
  return [...new Set(rules.flatMap(({ condition }) => (condition.case === 'requireSignature' ? condition.value.keys : [])))]
}
