import { DomainError } from '../../base/errors.ts'
import { boundedPattern, maxPatternsWeight, patternError, patternWeight } from './bounded-pattern.ts'
import type { Claims, DecodedToken } from '../access-tokens/decoded-token.ts'
import { normalizeIssuer } from './issuer-name.ts'

/**
 * The claims that an identity requires of a token (docs/spec/identities.md#claim-matching). Of each pair of exact value and pattern, at most one is set.
 * Without an audience, the token must be for the platform.
 */
export interface ClaimMatch {
  readonly issuer?: string
  readonly issuerPattern?: string
  readonly subject?: string
  readonly subjectPattern?: string
  readonly audience?: string
  readonly audiencePattern?: string
  readonly claims?: Readonly<Record<string, string>>
  readonly claimPatterns?: Readonly<Record<string, string>>
}

/** Maximum length of a text to which a pattern is applied, in characters. */
const longestInput = 512
const longestSubject = 1024

/**
 * Maximum effort of matching all patterns to one token: instructions times characters. A pattern with few instructions counts as `leastSize`. RE2 is linear in
 * the text but slow: the worst pattern needs about 20 ms for this effort, in which it blocks the process.
 */
const maxEffort = 256_000
const leastSize = 250

/** The effort that remains for the patterns of one token. */
interface Effort {
  left: number
}

/**
 * Checks the patterns of one identity when it is written. Throws code 3 on the field of the first bad pattern. A pattern is bad if it is not an RE2
 * expression, exceeds a limit, or brings the total weight above its limit.
 */
export function checkPatterns(patterns: readonly (readonly [field: string, pattern: string])[]): void {
  let weight = 0
  for (const [field, pattern] of patterns) {
    const own = patternWeight(pattern)
    weight += own
    // Check the weight before compiling. A pattern that is too heavy by itself gets its own error, and is not compiled either.
    if (weight > maxPatternsWeight && own <= maxPatternsWeight)
      throw DomainError.invalid(
        field,
        `makes the patterns of the identity too long: at most ${maxPatternsWeight} characters together. A repetition counts as its expansion, a Unicode class such as \\pL as 100`,
      )
    const error = patternError(pattern)
    if (error !== undefined) throw DomainError.invalid(field, error)
  }
}

/** True if the pattern matches the whole of `text`. False if the pattern does not compile, or `text` has over 512 characters. */
export function matchesPattern(pattern: string, text: string): boolean {
  return tryPattern(pattern, { text, longest: longestInput, effort: { left: maxEffort } })
}

/**
 * Returns the audience of the token that was accepted; undefined if the token does not match. A token without issuer or subject never matches.
 * `defaultAudiences` apply if the identity names no audience. A pattern never matches a text of more than 512 characters (1024 for a subject). All patterns
 * together match at most about 1000 characters of one token.
 */
export function matchClaims(match: ClaimMatch, token: DecodedToken, defaultAudiences: readonly string[]): string | undefined {
  const effort: Effort = { left: maxEffort }
  const issuer = match.issuer === undefined ? undefined : normalizeIssuer(match.issuer)
  const matches =
    Object.entries(match.claims ?? {}).every(([name, value]) => claimText(token.claims, name) === value) &&
    matchesOne(issuer, match.issuerPattern, { text: normalizeIssuer(token.issuer), longest: longestInput, effort }) &&
    matchesOne(match.subject, match.subjectPattern, { text: token.subject, longest: longestSubject, effort }) &&
    Object.entries(match.claimPatterns ?? {}).every(([name, pattern]) =>
      tryPattern(pattern, { text: claimText(token.claims, name), longest: longestInput, effort }),
    )
  return matches ? acceptedAudience({ match, defaultAudiences, effort }, token.audiences) : undefined
}

interface AudienceRule {
  readonly match: ClaimMatch
  readonly defaultAudiences: readonly string[]
  readonly effort: Effort
}

function acceptedAudience({ match, defaultAudiences, effort }: AudienceRule, audiences: readonly string[]): string | undefined {
  if (match.audience === undefined && match.audiencePattern === undefined) return audiences.find((audience) => defaultAudiences.includes(audience))
  return audiences.find((text) => matchesOne(match.audience, match.audiencePattern, { text, longest: longestInput, effort }))
}

interface ClaimCandidate {
  readonly text: string | undefined
  readonly longest: number
  readonly effort: Effort
}

/** True if the claim matches the exact value and the pattern, as far as they are set. False if neither is set. */
function matchesOne(exact: string | undefined, pattern: string | undefined, candidate: ClaimCandidate): boolean {
  if (exact === undefined && pattern === undefined) return false
  return (exact === undefined || exact === candidate.text) && (pattern === undefined || tryPattern(pattern, candidate))
}

/** False if the claim is no text, or if matching it would exceed the remaining effort. */
function tryPattern(pattern: string, { text, longest, effort }: ClaimCandidate): boolean {
  if (text === undefined || text.length > longest) return false
  const expression = boundedPattern(pattern)
  if (expression === undefined) return false
  const cost = Math.max(leastSize, expression.size) * text.length
  if (cost > effort.left) return false
  effort.left -= cost
  return expression.matches(text)
}

/** Returns a claim as text: a string as it is, a number or boolean as JSON. Undefined for any other claim. */
function claimText(claims: Claims, name: string): string | undefined {
  const value = Object.hasOwn(claims, name) ? claims[name] : undefined
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' ? JSON.stringify(value) : undefined
}
