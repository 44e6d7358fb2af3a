import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { boundedPattern, maxPatternsWeight, patternError, patternWeight } from '../../src/auth/oidc/bounded-pattern.ts'
import { checkPatterns } from '../../src/auth/oidc/claim-match.ts'
import { DomainError } from '../../src/base/errors.ts'
import { slowness } from '../budgets.ts'
import { leastCpuMs } from '../support/cpu-time.ts'
import { memoryInUse } from '../support/parts/memory-in-use.ts'

function refusalOf(patterns: readonly (readonly [string, string])[]): string {
  try {
    checkPatterns(patterns)
    return ''
  } catch (error) {
    if (error instanceof DomainError && error.code === 3) return error.message
    throw error
  }
}

describe('a pattern is refused with its field and the limit that it exceeds', () => {
  test.each([
    ['too long', 'a'.repeat(1025), /must be at most 1024 characters$/],
    ['not a regular expression', '(', /must be a regular expression in RE2 syntax$/],
    ['too many instructions', 'a?'.repeat(400), /must compile to at most 500 instructions$/],
    ['nested repetitions', '((a{10}){10}){10}'.repeat(16), /must compile to at most 500 instructions$/],
    ['a repeated long text', `(?:${'abc|'.repeat(100)}){50}`, /must compile to at most 500 instructions$/],
    ['many Unicode classes', '\\pL'.repeat(330), /must have at most 10 Unicode classes, such as \\pL$/],
    ['many ranges', '[\\pL\\pN\\pM]{200}', /must have at most 100000 ranges of characters, counting each repetition$/],
    ['wide case-insensitive ranges', '(?i)[B-\\x{1e943}]', /must not contain \(\?i\) together with brackets and characters beyond ASCII$/],
    ['wide case-insensitive ranges in one bracket', `(?s)(?mi:[${'B-\u{1e943}'.repeat(100)}])`, /must not contain \(\?i\) together/],
  ])('%s', (_name, pattern, message) => {
    const refusal = refusalOf([['claim_match.subject_pattern', pattern]])
    expect(refusal).toMatch(/^Invalid argument: claim_match\.subject_pattern: /)
    expect(refusal).toMatch(message)
    expect(boundedPattern(pattern)).toBeUndefined()
  })

  test('patterns that exceed the limit together', () => {
    const patterns = Array.from({ length: 50 }, (_, index) => [`claim_match.claim_patterns["c${index}"]`, 'a'.repeat(400)] as const)
    expect(refusalOf(patterns)).toMatch(
      /^Invalid argument: claim_match\.claim_patterns\["c20"\]: makes the patterns of the identity too long: at most 8192 characters together/,
    )
  })

  test.each(['\\pL{1,64}', '[\\p{Lu}\\p{Ll}\\pN]+', '(?i)repo:acme/[a-z0-9._-]{1,100}:.*', '(?i)größe', '[^\\x{0}-\\x{1f}]*', '(?:[a-z]{2}-){1,5}[a-z]+'])(
    'a pattern at the limit is accepted, and %s is refused',
    (pattern) => {
      expect(patternError(pattern)).toBeUndefined()
    },
  )
})

const pieces = [
  ...[
    'a',
    'k',
    '.',
    '|',
    '*',
    '+',
    '?',
    '(',
    '(?:',
    ')',
    '()',
    '^',
    '$',
    '\\b',
    '\\B',
    '{2}',
    '{3,9}',
    '{0,20}',
    ')*',
    '){2}',
    '(?i)',
    '(?s)',
    '(?i:',
    'aa|ab|',
  ],
  ...['[a-z]', '[^a-z]', '[\\d\\w]', '\\W', '[[:alpha:]]', '[^[:^word:]]', '[\\x00-\\xff]', '[\\0-\\377]', '(a|b)*', 'x*'],
  ...['ſ', '\u212a', '一', '😀', '\\x{10ffff}', '\\pL', '\\p{Lu}', '\\PN', '[\\pL\\pN]', '[^\\pL]', '\\p{Any}', '[B-\\x{1e943}]', '[B-𞥃]'],
]
const machine = slowness()

/** Long patterns that repeat a few pieces. */
const nasty = fc
  .tuple(fc.array(fc.constantFrom(...pieces), { minLength: 1, maxLength: 4 }), fc.array(fc.constantFrom(...pieces), { maxLength: 8 }), fc.nat(8000))
  .map(([some, more, salt]) => {
    const unit = some.join('')
    const open = (text: string): number => Math.max(0, (text.match(/\(/g)?.length ?? 0) - (text.match(/\)/g)?.length ?? 0))
    const text = `${salt}${more.join('')}${unit.repeat(Math.floor(900 / unit.length))}`.slice(0, 1000)
    return `${text}${')'.repeat(open(text))}`.slice(0, 1024)
  })

test('any pattern is rejected or matched in a few milliseconds', () => {
  const text = 'aé一k'.repeat(128)
  fc.assert(
    fc.property(nasty, (pattern) => {
      // Uses a different text of the same cost each time, because compiled patterns are cached.
      expect(leastCpuMs((round) => void patternError(`${pattern.slice(0, 1020)}${'z'.repeat(round)}`))).toBeLessThan(6 * machine)
      expect(leastCpuMs(() => void boundedPattern(pattern)?.matches(text))).toBeLessThan(18 * machine)
    }),
    { numRuns: 150 },
  )
})

test('any patterns of one identity match in some ten milliseconds', () => {
  const dearest = ['\\pL?x'.repeat(10), '[^\\pL]'.repeat(10), 'a'.repeat(490), '(a|b|c|d|e)'.repeat(90), '\\w'.repeat(400)]
  for (const [index, unit] of dearest.entries()) {
    const work = (round: number): void => {
      let weight = 0
      for (let made = 0; made < 50; made++) {
        const pattern = `${round}x${index}x${made}${unit}`
        weight += patternWeight(pattern)
        if (weight > maxPatternsWeight) return
        patternError(pattern)
      }
    }
    expect(leastCpuMs(work)).toBeLessThan(30 * machine)
  }
})

test('the cache of patterns has a limit in bytes', async () => {
  const text = 'é'.repeat(500)
  const fill = (from: number): void => {
    for (let made = 0; made < 200; made++) boundedPattern(`${from}${'\\pL?'.repeat(10)}${made}`)?.matches(text)
  }
  fill(0)
  const before = await memoryInUse()
  for (let round = 1; round <= 4; round++) fill(round)
  const after = await memoryInUse()
  expect(after.heap + after.external - before.heap - before.external).toBeLessThan(24 * 1024 * 1024)
})
