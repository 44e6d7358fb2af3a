import { RE2JS } from 're2js'
import { DomainError } from '../core/errors.ts'
import { createBoundedMap } from './bounded-map.ts'
import type { Claims, DecodedToken } from './decoded-token.ts'
import { normalizeIssuer } from './issuer-name.ts'

/** What an identity asks of a token (rules 2.3). Of each pair at most one is set; absent audience means the platform's own. */
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

/** The longest pattern, in characters. */
export const maxPatternLength = 1024

/** Compiled size: bounds what one match can cost, together with `longestInput`. */
const maxInstructions = 2000
const longestInput = 2048

const compiled = createBoundedMap<RE2JS>(1000)

/** Throws code 3 on `field` where `pattern` is no RE2 expression or too large a one; for use when an identity is written. */
export function checkPattern(pattern: string, field: string): void {
  if (pattern.length > maxPatternLength) throw DomainError.invalid(field, `must be at most ${String(maxPatternLength)} characters`)
  if (compile(pattern) === undefined) throw DomainError.invalid(field, 'must be a regular expression in RE2 syntax, of moderate size')
}

/** True where the whole of `text` matches; never where the pattern does not compile or `text` is over 2048 characters. */
export function matchesPattern(pattern: string, text: string): boolean {
  if (pattern.length > maxPatternLength || text.length > longestInput) return false
  return compile(pattern)?.matches(text) ?? false
}

/**
 * Which of the token's audiences was accepted, or undefined where the token does not match. An absent issuer or subject never matches. `defaultAudiences` stand
 * in where the identity names none.
 */
export function matchClaims(match: ClaimMatch, token: DecodedToken, defaultAudiences: readonly string[]): string | undefined {
  const issuer = normalizeIssuer(token.issuer)
  const named: ClaimMatch = match.issuer === undefined ? match : { ...match, issuer: normalizeIssuer(match.issuer) }
  const matches =
    matchesOne(named.issuer, named.issuerPattern, issuer) &&
    matchesOne(named.subject, named.subjectPattern, token.subject) &&
    Object.entries(match.claims ?? {}).every(([name, value]) => claimText(token.claims, name) === value) &&
    Object.entries(match.claimPatterns ?? {}).every(([name, pattern]) => matchesText(pattern, claimText(token.claims, name)))
  return matches ? acceptedAudience(match, token.audiences, defaultAudiences) : undefined
}

function acceptedAudience(match: ClaimMatch, audiences: readonly string[], defaults: readonly string[]): string | undefined {
  if (match.audience === undefined && match.audiencePattern === undefined) return audiences.find((audience) => defaults.includes(audience))
  return audiences.find((audience) => matchesOne(match.audience, match.audiencePattern, audience))
}

/** Both forms at once ask for both; neither matches nothing. */
function matchesOne(exact: string | undefined, pattern: string | undefined, text: string): boolean {
  if (exact === undefined && pattern === undefined) return false
  return (exact === undefined || exact === text) && (pattern === undefined || matchesPattern(pattern, text))
}

function matchesText(pattern: string, text: string | undefined): boolean {
  return text !== undefined && matchesPattern(pattern, text)
}

/** A claim as text: strings as they are, numbers and booleans as JSON; everything else is no match. */
function claimText(claims: Claims, name: string): string | undefined {
  const value = Object.hasOwn(claims, name) ? claims[name] : undefined
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' ? JSON.stringify(value) : undefined
}

function compile(pattern: string): RE2JS | undefined {
  const known = compiled.get(pattern)
  if (known !== undefined) return known
  try {
    const fresh = RE2JS.compile(pattern)
    if (fresh.programSize() > maxInstructions) return undefined
    compiled.set(pattern, fresh)
    return fresh
  } catch {
    // Not an expression: told by the absence of a result.
    return undefined
  }
}
