import { describe, expect, test } from 'vitest'
import { checkPatterns, matchClaims, matchesPattern } from '../../src/auth/oidc/claim-match.ts'
import type { ClaimMatch } from '../../src/auth/oidc/claim-match.ts'
import type { DecodedToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { defaultAudiences } from '../../src/auth/access-tokens/token-verifier.ts'
import { normalizeIssuer, personUid } from '../../src/auth/oidc/issuer-name.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs, leastCpuMs } from '../support/cpu-time.ts'
import { thrown } from './parts.ts'

const defaults = defaultAudiences('https://console.example.com', 'registry.example.com')
const issuer = 'https://token.example'
const subject = 'repo:acme/app:ref:refs/heads/main'

function token(changes: Partial<DecodedToken> = {}): DecodedToken {
  const claims = { ref: 'main', run: 7, ok: true, groups: ['a'], nested: {}, none: null, ...changes.claims }
  return {
    text: '',
    algorithm: 'RS256',
    keyId: 'k',
    issuer,
    subject,
    audiences: ['https://console.example.com'],
    expiresAtMs: 0,
    notBeforeMs: undefined,
    ...changes,
    claims,
  }
}

const exact: ClaimMatch = { issuer, subject }

describe('a claim match', () => {
  test.each<[string, ClaimMatch, Partial<DecodedToken>, boolean]>([
    ['exact issuer and subject', exact, {}, true],
    ['another subject', exact, { subject: `${subject}x` }, false],
    ['another issuer', exact, { issuer: `${issuer}/` }, false],
    ['patterns for both', { issuerPattern: 'https://.*\\.example', subjectPattern: 'repo:acme/.*' }, {}, true],
    ['a subject pattern that matches only a part', { issuer, subjectPattern: 'repo:acme' }, {}, false],
    ['a subject pattern with anchors', { issuer, subjectPattern: '^repo:acme/.*$' }, {}, true],
    ['alternatives match as a whole', { issuer, subjectPattern: `x|${subject}|y` }, {}, true],
    ['a pattern does not stop at a line end', { issuer, subjectPattern: '(?m)^a$' }, { subject: 'a\nb' }, false],
    ['an identity without a subject', { issuer }, {}, false],
    ['an identity without an issuer', { subject }, {}, false],
    ['an identity without any rule', {}, {}, false],
    ['a pattern that does not compile', { issuer, subjectPattern: '(' }, {}, false],
    ['the bare Google issuer in the rule alone', { issuer: 'accounts.google.com', subject }, { issuer: 'https://accounts.google.com' }, true],
    ['the bare Google issuer in the token alone', { issuer: 'https://accounts.google.com', subject }, { issuer: 'accounts.google.com' }, true],
    ['default audience: base URL with slash', exact, { audiences: ['https://console.example.com/'] }, true],
    ['default audience: bare host', exact, { audiences: ['console.example.com'] }, true],
    ['default audience: registry host', exact, { audiences: ['registry.example.com'] }, true],
    ['default audience: one of several', exact, { audiences: ['other', 'registry.example.com'] }, true],
    ['default audience: another one', exact, { audiences: ['https://issuer.example.com'] }, false],
    ['default audience: none', exact, { audiences: [] }, false],
    ['own audience', { ...exact, audience: 'mine' }, { audiences: ['mine'] }, true],
    ['own audience replaces the default', { ...exact, audience: 'mine' }, {}, false],
    ['audience pattern', { ...exact, audiencePattern: 'm[a-z]+' }, { audiences: ['x', 'mine'] }, true],
    ['audience pattern that matches only a part', { ...exact, audiencePattern: 'm' }, { audiences: ['mine'] }, false],
    ['a claim with text', { ...exact, claims: { ref: 'main' } }, {}, true],
    ['claims with numbers and booleans are compared as JSON', { ...exact, claims: { run: '7', ok: 'true' } }, {}, true],
    ['every claim must match', { ...exact, claims: { ref: 'main', run: '8' } }, {}, false],
    ['missing claim', { ...exact, claims: { missing: '' } }, {}, false],
    ['properties of the object prototype are not claims', { ...exact, claimPatterns: { constructor: '.*', toString: '.*' } }, {}, false],
    ['lists never match', { ...exact, claimPatterns: { groups: '.*' } }, {}, false],
    ['objects and null never match', { ...exact, claimPatterns: { nested: '.*', none: '.*' } }, {}, false],
    ['claim pattern', { ...exact, claimPatterns: { ref: 'ma.n', run: '[0-9]' } }, {}, true],
    ['claim pattern that matches only a part', { ...exact, claimPatterns: { ref: 'ma' } }, {}, false],
  ])('%s', (_name, match, changes, expected) => {
    expect(matchClaims(match, token(changes), defaults) !== undefined).toBe(expected)
  })

  test('a claim match returns the audience that it accepted', () => {
    expect(matchClaims(exact, token({ audiences: ['x', 'registry.example.com'] }), defaults)).toBe('registry.example.com')
  })
})

describe('a pattern', () => {
  test.each(['(', 'a{2,1}', '(?=a)', '(a)\\1', '[z-a]', 'x'.repeat(1025), '(?:(?:[a-z]{90}){10}|[0-9]{900}){2}'])(
    '%s is refused when the identity is written',
    async (pattern) => {
      expect(await thrown(() => checkPatterns([['claim_match.subject_pattern', pattern]]))).toMatch(/^3: Invalid argument: claim_match\.subject_pattern: /)
    },
  )

  test.each(['.*', '^repo:.*$', '[a-z]{1,63}', '(?i)main|master'])('%s is accepted', async (pattern) => {
    expect(await thrown(() => checkPatterns([['f', pattern]]))).toBe('no failure')
  })

  test('a pattern can not block the server for long', () => {
    const match = () => {
      for (const pattern of ['(a+)+$', '(a|a)*b', '(?:a?){400}a{400}', '(.*)(.*)(.*)(.*)[^a]']) matchesPattern(pattern, `${'a'.repeat(511)}!`)
    }
    expect(leastCpuMs(match)).toBeLessThan(900 * slowness())
  })

  test('a pattern is not tried on very long claim values', () => {
    expect([512, 513].map((length) => matchesPattern('.*', 'a'.repeat(length)))).toEqual([true, false])
    const subjects = [1024, 1025].map((length) => matchClaims({ issuer, subjectPattern: '.*' }, token({ subject: 'a'.repeat(length) }), defaults) !== undefined)
    expect(subjects).toEqual([true, false])
  })

  test('a pattern does not cost more to match if a caller has many other patterns', () => {
    const names = ['a', 'b', 'c']
    const claimPatterns = Object.fromEntries(names.map((name) => [name, '.*']))
    const matches = (length: number): boolean =>
      matchClaims({ ...exact, claimPatterns }, token({ claims: Object.fromEntries(names.map((name) => [name, 'x'.repeat(length)])) }), defaults) !== undefined
    expect([300, 400].map(matches)).toEqual([true, false])
    const audiences = [...Array.from({ length: 50 }, () => 'x'.repeat(100)), 'm'.repeat(100)]
    const accepted = (held: readonly string[]) => matchClaims({ ...exact, audiencePattern: 'm+' }, token({ audiences: held }), defaults)
    expect(accepted(audiences.slice(-5))).toBe(audiences.at(-1))
    expect(accepted(audiences)).toBeUndefined()
  })

  test('a pattern at its highest cost does not block the event loop', () => {
    const texts = Array.from({ length: 50 }, () => Array.from({ length: 204 }, () => (Math.random() < 0.5 ? 'a' : 'b')).join(''))
    const claimPatterns = Object.fromEntries(['1', '2', '3', '4', '5'].map((name) => [name, `[ab]*a[ab]{9${name}}|[ab]*`]))
    const durations = Array.from({ length: 10 }, (_value, round) => {
      // Long enough that all five patterns are tried.
      const claims = Object.fromEntries(['1', '2', '3', '4', '5'].map((name, index) => [name, texts[round * 5 + index]]))
      const startedMs = cpuTimeMs()
      matchClaims({ ...exact, claimPatterns }, token({ claims }), defaults)
      return cpuTimeMs() - startedMs
    })
    expect(durations.toSorted((one, other) => one - other)[5]).toBeLessThan(36 * slowness())
  })

  test('a pattern that would compile to a huge program is refused without being compiled', () => {
    // Another pattern each time: they are cached.
    const refuse = (round: number) => expect(matchesPattern(`${round}${'\\pL{1,1000}'.repeat(80)}`, 'a')).toBe(false)
    expect(leastCpuMs(refuse)).toBeLessThan(30 * slowness())
  })

  test.each(['repo:[^/]{1,39}/[^:]{1,100}:ref:.*', Array.from({ length: 12 }, (_value, index) => `repo:acme/service-number-${String(index)}:.*`).join('|')])(
    'a pattern in common use (%s) is accepted',
    async (pattern) => {
      expect(await thrown(() => checkPatterns([['f', pattern]]))).toBe('no failure')
    },
  )
})

test('the uid of a person depends only on issuer and subject', () => {
  expect(personUid('https://accounts.google.com', 'x')).toBe(personUid('accounts.google.com', 'x'))
  expect(personUid('https://a', 'bc')).not.toBe(personUid('https://ab', 'c'))
  expect(personUid('https://a', 'b')).toMatch(/^[0-9a-f]{40}$/)
  // printf 'https://token.example\0alice' | sha256sum | cut -c1-40
  expect(personUid('https://token.example', 'alice')).toBe('5aad66166b0212a644439ea73cbd2e91403d8fe6')
  expect(normalizeIssuer('https://x/')).toBe('https://x/')
})
