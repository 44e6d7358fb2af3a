import { createHash } from 'node:crypto'
import { trustedUid } from '../core/uid.ts'
import type { Uid } from '../core/uid.ts'

/** An issuer as it is compared and stored: a bare `accounts.google.com` gets its scheme, nothing else is changed (rules 2.2). */
export function normalizeIssuer(issuer: string): string {
  return issuer === 'accounts.google.com' ? 'https://accounts.google.com' : issuer
}

/** The uid of the person whom `issuer` calls `subject`: 40 hex digits of SHA-256(normalized issuer, NUL, subject) (rules 2.2). */
export function personUid(issuer: string, subject: string): Uid {
  const digest = createHash('sha256')
    .update(`${normalizeIssuer(issuer)}\u0000${subject}`)
    .digest('hex')
  return trustedUid(digest.slice(0, 40))
}

/** True where both name the same issuer but for a trailing slash. */
export function isSameIssuer(one: string, other: string): boolean {
  return one.replace(/\/+$/, '') === other.replace(/\/+$/, '')
}
