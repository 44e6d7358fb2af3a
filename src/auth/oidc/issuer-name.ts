import { createHash } from 'node:crypto'
import { trustedUid } from '../../base/uid.ts'
import type { Uid } from '../../base/uid.ts'

/**
 * Returns the form in which issuers are compared and stored: a bare `accounts.google.com` gets `https://`, all others stay unchanged
 * (docs/spec/identities.md#claim-matching).
 */
export function normalizeIssuer(issuer: string): string {
  return issuer === 'accounts.google.com' ? 'https://accounts.google.com' : issuer
}

/**
 * Returns the uid of the person with this issuer and subject: the first 40 hex digits of SHA-256(normalized issuer, NUL, subject)
 * (docs/spec/identities.md#uids-of-people).
 */
export function personUid(issuer: string, subject: string): Uid {
  const digest = createHash('sha256')
    .update(`${normalizeIssuer(issuer)}\u0000${subject}`)
    .digest('hex')
  return trustedUid(digest.slice(0, 40))
}

/** Returns why keys cannot be fetched from an issuer with this name; undefined if they can. `mayBeHttp` allows http. */
export function issuerNameError(issuer: string, mayBeHttp: boolean): string | undefined {
  const url = URL.parse(normalizeIssuer(issuer))
  const isWeb = url !== null && (url.protocol === 'https:' || url.protocol === 'http:')
  if (!isWeb) return 'must be an https URL, such as https://issuer.example'
  if (url.username !== '' || url.password !== '' || /[?#]/.test(issuer)) return 'must be a URL without user, query and fragment'
  if (issuer.includes('/.well-known/')) return 'must be the URL of the issuer, not of its discovery document'
  return url.protocol === 'https:' || mayBeHttp ? undefined : 'must be an https URL'
}

/** True if both name the same issuer, apart from a trailing slash. */
export function isSameIssuer(one: string, other: string): boolean {
  return one.replace(/\/+$/, '') === other.replace(/\/+$/, '')
}
