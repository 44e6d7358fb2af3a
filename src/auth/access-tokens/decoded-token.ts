import { decodeJwt, decodeProtectedHeader } from 'jose'
import type { JWTPayload } from 'jose'
import { TokenError } from './token-error.ts'

/** Maximum length of a token, in characters. Longer tokens are refused unread. */
export const maxTokenLength = 16 * 1024

/** Tolerance for differences between clocks, in milliseconds (docs/spec/tokens.md#credentials). */
export const leewayMs = 60_000

/** Signature algorithms that external tokens may use. All are asymmetric (docs/spec/tokens.md#issuer-keys). */
export const acceptedAlgorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const

const algorithmSet: ReadonlySet<string> = new Set(acceptedAlgorithms)

/** Values of `typ` that mark a JWT as a credential. The same keys also sign other JWTs, such as logout tokens and security events, which are not credentials. */
const acceptedTypes: ReadonlySet<string> = new Set(['jwt', 'jose', 'at+jwt'])

const longestName = 2048

/** The claims of a token as its issuer wrote them. */
export type Claims = Readonly<Record<string, unknown>>

/** A JWT that was parsed but not verified. No part of it is trusted until its signature is checked. */
export interface DecodedToken {
  readonly text: string
  readonly algorithm: string
  readonly keyId: string | undefined
  readonly issuer: string
  readonly subject: string
  readonly audiences: readonly string[]
  readonly expiresAtMs: number
  readonly notBeforeMs: number | undefined
  readonly claims: Claims
}

/**
 * Parses a JWT in compact form. Throws TokenError `too_large`, `algorithm` (none, symmetric or unknown), or `unreadable` for everything else. The latter
 * includes a missing `iss`, `sub` or `exp`, and critical header extensions.
 */
export function decodeToken(text: string): DecodedToken {
  if (text.length > maxTokenLength) throw new TokenError('too_large')
  const { header, claims } = parse(text)
  if (header.crit !== undefined || header['b64'] !== undefined || !isCredentialType(header.typ)) throw new TokenError('unreadable')
  if (header.alg === undefined || !algorithmSet.has(header.alg)) throw new TokenError('algorithm')
  if (header.kid !== undefined && typeof header.kid !== 'string') throw new TokenError('unreadable')
  const { exp, nbf } = claims
  if (!isName(claims.iss) || !isName(claims.sub) || !isSeconds(exp) || !(nbf === undefined || isSeconds(nbf))) throw new TokenError('unreadable')
  return {
    text,
    algorithm: header.alg,
    keyId: header.kid,
    issuer: claims.iss,
    subject: claims.sub,
    audiences: audiencesOf(claims.aud),
    expiresAtMs: exp * 1000,
    notBeforeMs: nbf === undefined ? undefined : nbf * 1000,
    claims,
  }
}

/** Checks `exp` and `nbf` with one minute of tolerance. Throws TokenError `expired` or `not_yet_valid`. */
export function checkTimes(token: DecodedToken, nowMs: number): void {
  if (token.expiresAtMs + leewayMs <= nowMs) throw new TokenError('expired')
  if (token.notBeforeMs !== undefined && token.notBeforeMs - leewayMs > nowMs) throw new TokenError('not_yet_valid')
}

function parse(text: string): { header: ReturnType<typeof decodeProtectedHeader>; claims: JWTPayload } {
  try {
    return { header: decodeProtectedHeader(text), claims: decodeJwt(text) }
  } catch (cause) {
    throw new TokenError('unreadable', cause)
  }
}

function isCredentialType(typ: unknown): boolean {
  if (typ === undefined) return true
  return typeof typ === 'string' && acceptedTypes.has(typ.toLowerCase().replace(/^application\//, ''))
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && value.length <= longestName
}

function isSeconds(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && Math.abs(value) < 1e12
}

function audiencesOf(aud: unknown): readonly string[] {
  if (aud === undefined) return []
  if (typeof aud === 'string') return [aud]
  if (Array.isArray(aud) && aud.every((entry) => typeof entry === 'string')) return aud
  throw new TokenError('unreadable')
}
