import { DomainError } from '../../base/errors.ts'
import { boundedPattern, maxPatternsWeight, patternError, patternWeight } from './bounded-pattern.ts'
import type { Claims, DecodedToken } from '../tokens/decoded-token.ts'
import { normalizeIssuer } from './issuer-name.ts'

/** What an identity asks of a token (docs/spec/identities.md#claim-matching). Of each pair at most one is set; absent audience means the platform's own. */
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

/** The longest text that a pattern is tried on, in characters. */
const longestInput = 512
const longestSubject = 1024

/**
 * What all patterns together may cost for one token, in instructions times characters; small patterns count as of `leastSize`. RE2 is linear in the text but not cheap:
 * the worst pattern costs this about 20 ms, in which the process does nothing else.
 */
const maxEffort = 256_000
const leastSize = 250

/** What is left to spend on one token's patterns. */
interface Effort {
  left: number
}

/**
 * Checks the patterns of one identity, by field, when the identity is written. Throws code 3 on the field of the first bad pattern.
 * A pattern is bad if it is not an RE2 expression, exceeds a limit, or brings the total weight above its limit.
 */
export function checkPatterns(patterns: readonly (readonly [field: string, pattern: string])[]): void {
  let weight = 0
  for (const [field, pattern] of patterns) {
    const own = patternWeight(pattern)
    weight += own
    // Before it is compiled; what is too much alone is refused for that, and not compiled either.
    if (weight > maxPatternsWeight && own <= maxPatternsWeight)
      throw DomainError.invalid(
        field,
        `makes the patterns too long: ${maxPatternsWeight} characters at most in all. A repetition counts as its expansion, a Unicode class such as \\pL as 100`,
      )
    const error = patternError(pattern)
    if (error !== undefined) throw DomainError.invalid(field, error)
  }
}

/** True where the whole of `text` matches; never where the pattern does not compile or `text` is over 512 characters. */
export function matchesPattern(pattern: string, text: string): boolean {
  return tryPattern(pattern, { text, longest: longestInput, effort: { left: maxEffort } })
}

/**
 * Which of the token's audiences was accepted, or undefined where the token does not match. An absent issuer or subject never matches. `defaultAudiences` stand
 * in where the identity names none. No pattern matches more than 512 characters (a subject: 1024), nor do all of them together match more than about 1000.
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

/** Both forms at once ask for both; neither matches nothing. */
function matchesOne(exact: string | undefined, pattern: string | undefined, candidate: ClaimCandidate): boolean {
  if (exact === undefined && pattern === undefined) return false
  return (exact === undefined || exact === candidate.text) && (pattern === undefined || tryPattern(pattern, candidate))
}

/** No match where there is no text, or where trying would cost more than is left. */
function tryPattern(pattern: string, { text, longest, effort }: ClaimCandidate): boolean {
  if (text === undefined || text.length > longest) return false
  const expression = boundedPattern(pattern)
  if (expression === undefined) return false
  const cost = Math.max(leastSize, expression.size) * text.length
  if (cost > effort.left) return false
  effort.left -= cost
  return expression.matches(text)
}

/** A claim as text: strings as they are, numbers and booleans as JSON; everything else is no match. */
function claimText(claims: Claims, name: string): string | undefined {
  const value = Object.hasOwn(claims, name) ? claims[name] : undefined
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' ? JSON.stringify(value) : undefined
}
