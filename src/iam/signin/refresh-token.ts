import { isUid, type Uid } from '../../base/uid.ts'
import { randomHex, type Random } from '../../base/runtime.ts'
import { TokenError } from '../../auth/tokens/token-error.ts'

/** What a refresh token says. Clients read `exp` of it and nothing else (docs/spec/tokens.md#refresh-tokens). */
export interface RefreshToken {
  /** Seconds since 1970. */
  readonly exp: number
  readonly person: Uid
  /** 32 hex digits. All tokens that follow one another have one. */
  readonly family: string
  /** 64 hex digits, new in every token. */
  readonly secret: string
}

/** A fresh token: of a new family where none is given. */
export function newRefreshToken(random: Random, of: { person: Uid; expireMs: number; family?: string }): RefreshToken {
  const { person, expireMs, family = randomHex(random, 16) } = of
  return { exp: Math.floor(expireMs / 1000), person, family, secret: randomHex(random, 32) }
}

/** Its text: standard base64 of JSON (docs/spec/tokens.md#refresh-tokens). */
export function refreshTokenText({ exp, person, family, secret }: RefreshToken): string {
  return Buffer.from(JSON.stringify({ exp, sub: person, fam: family, sec: secret })).toString('base64')
}

const maxLength = 1024

function isHex(text: unknown, digits: number): text is string {
  return typeof text === 'string' && text.length === digits && /^[0-9a-f]+$/.test(text)
}

/** Reads what refreshTokenText wrote. Throws TokenError `unreadable_refresh`. */
export function parseRefreshToken(text: string): RefreshToken {
  const { exp, sub, fam, sec } = jsonOf(text)
  if (typeof exp !== 'number' || typeof sub !== 'string' || !isUid(sub) || !isHex(fam, 32) || !isHex(sec, 64)) throw new TokenError('unreadable_refresh')
  return { exp, person: sub, family: fam, secret: sec }
}

function jsonOf(text: string): Readonly<Record<string, unknown>> {
  if (text.length > maxLength || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) throw new TokenError('unreadable_refresh')
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64').toString('utf8'))
    // Every member is checked by the caller.
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>
  } catch (error) {
    throw new TokenError('unreadable_refresh', error)
  }
  throw new TokenError('unreadable_refresh')
}
