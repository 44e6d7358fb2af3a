import { create, getOption } from '@bufbuild/protobuf'
import { field as fieldRules, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import { expect, test } from 'vitest'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { PullPolicySchema } from '../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import { RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { patternInWords } from '../../src/base/schema/pattern-words.ts'
import { registry } from '../../src/base/schema/schema.ts'
import { violationsOf } from '../../src/engine/validate.ts'

test.each([
  { title: 'a group name', found: () => violationsOf(GroupSchema, create(GroupSchema, { name: 'Team' })) },
  { title: 'a role name', found: () => violationsOf(RoleSchema, create(RoleSchema, { name: 'Reader' })) },
  { title: 'a repo name', found: () => violationsOf(RepoSchema, create(RepoSchema, { name: 'App' })) },
])('$title that breaks a rule is refused, and the error explains the rule', ({ found }) => {
  const violation = found().find(({ field }) => field === 'name')
  expect(violation?.description).toMatch(/^must have .*: ?a-z, 0-9, space|^may contain only a-z, 0-9, space/)
})

test.each([
  {
    title: 'a glob with two stars',
    rule: { tagGlob: '3.*-*', product: 'python' },
    field: 'tag_glob',
    says: 'may contain only letters, digits, ".", "_", "-" and one "*"',
  },
  {
    title: 'a product that ends with a space',
    rule: { product: 'python ' },
    field: 'product',
    says: 'must have 1 to 255 characters, without white space at its ends',
  },
])('$title is refused in words, without a regular expression', ({ rule, field, says }) => {
  const violation = violationsOf(RepoSchema, create(RepoSchema, { name: 'app', catalogTier: 1, productRules: [rule] })).find((found) =>
    found.field.endsWith(field),
  )
  expect(violation?.description.slice(0, says.length)).toBe(says)
})

/** Returns the patterns of a field's rules, with those of its items, keys and values. */
function patternsIn({ type }: FieldRules): string[] {
  if (type.case === 'string') return type.value.pattern === '' ? [] : [type.value.pattern]
  const inner = type.case === 'repeated' ? [type.value.items] : type.case === 'map' ? [type.value.keys, type.value.values] : []
  return inner.flatMap((rules) => (rules === undefined ? [] : patternsIn(rules)))
}

test('every pattern of the schema has words for its violations', () => {
  const messages = [...registry].filter((entry) => entry.kind === 'message')
  const patterns = new Set(messages.flatMap(({ fields }) => fields.flatMap((field) => patternsIn(getOption(field, fieldRules)))))
  expect(patterns.size).toBeGreaterThan(20)
  expect([...patterns].filter((pattern) => patternInWords(pattern) === undefined)).toEqual([])
})

test('a text of a megabyte is refused because of its length, before its pattern is looked at', () => {
  const name = 'a'.repeat(1024 * 1024)
  expect(violationsOf(RepoSchema, create(RepoSchema, { name }))).toEqual([{ field: 'name', description: 'must be at most 255 characters' }])
  // Text without a limit in characters, and lists of it.
  expect(violationsOf(RepoSchema, create(RepoSchema, { name: 'app', catalogTier: 1, bundles: ['a'.repeat(20_000)] }))).toMatchObject([{ field: 'bundles[0]' }])
})

test.each([
  { title: 'after the year 9999', endTime: { seconds: 253_402_300_800n, nanos: 0 } },
  { title: 'before the year 1', endTime: { seconds: -62_135_596_801n, nanos: 0 } },
  { title: 'with negative nanoseconds', endTime: { seconds: 1n, nanos: -1 } },
  { title: 'with a second of nanoseconds', endTime: { seconds: 1n, nanos: 1_000_000_000 } },
])('a time $title is refused: no JSON could show the record', ({ endTime }) => {
  const policy = create(PullPolicySchema, { name: 'a', exceptions: [{ vulnerability: 'CVE-2026-1', endTime }] })
  expect(violationsOf(PullPolicySchema, policy)).toEqual([{ field: 'exceptions[0].end_time', description: 'must be in the years 1 to 9999' }])
})

test('the first and the last moment that JSON can show are accepted', () => {
  for (const [seconds, nanos] of [[-62_135_596_800n, 0] as const, [253_402_300_799n, 999_999_999] as const]) {
    const policy = create(PullPolicySchema, { name: 'a', exceptions: [{ vulnerability: 'CVE-2026-1', endTime: { seconds, nanos } }] })
    expect(violationsOf(PullPolicySchema, policy)).toEqual([])
  }
})
