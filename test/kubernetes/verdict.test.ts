import { expect, test } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import { firstOf, conditionStatusOf, verdicts } from '../../src/kubernetes/reconcile/condition-status.ts'

const numbered = (count: number): readonly string[] => Array.from({ length: count }, (_, at) => `r${at + 1}`)

test.each([
  { count: 1, text: 'r1' },
  { count: 5, text: 'r1, r2, r3, r4, r5' },
  { count: 6, text: 'r1, r2, r3, r4, r5 and 1 more' },
  { count: 500, text: 'r1, r2, r3, r4, r5 and 495 more' },
])('a message about $count items names the first five', ({ count, text }) => {
  expect(firstOf(numbered(count))).toBe(text)
})

test('a blocked deletion names the records that block it', () => {
  const error = new DomainError(9, 'cannot delete group with child groups')
  expect(conditionStatusOf(error, true, firstOf(numbered(6)))).toMatchObject({
    reason: 'DeletionBlocked',
    message: expect.stringMatching(/: r1, .* and 1 more$/) as unknown,
  })
  expect(conditionStatusOf(error, true)?.message).toMatch(/child groups$/)
})

test('a refusal by a grant names the rule and the remedy', () => {
  const { reason, message } = verdicts.exceedsGrant(['groups.delete'])
  expect(reason).toBe('ExceedsGrant')
  expect(message).toMatch(/^would confer groups\.delete: the maxRole .*; use a narrower role, or ask for a grant/)
})
