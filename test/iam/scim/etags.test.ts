import { expect, test } from 'vitest'
import { etagMatcher } from '../../../src/iam/scim/http/scim-request.ts'
import { slowness } from '../../budgets.ts'
import { leastCpuMs } from '../../support/cpu-time.ts'

test.each([
  ['W/"a"', ['a']],
  ['"a", W/"b" ,c', ['a', 'b', 'c']],
  ['w/"a"', ['a']],
  ['*', ['a', 'anything']],
])('the header %s contains the etags %j', (header, etags) => {
  const matches = etagMatcher(header)
  for (const etag of etags) expect([etag, matches?.(etag)]).toEqual([etag, true])
  expect(matches?.('another') ?? false).toBe(header === '*')
})

test('a header with very many spaces is parsed quickly', () => {
  const match = () => expect(etagMatcher(`x,${' '.repeat(30_000)}"x"y`)?.('x')).toBe(true)
  // With quadratic time it would take minutes.
  expect(leastCpuMs(match)).toBeLessThan(600 * slowness())
})
