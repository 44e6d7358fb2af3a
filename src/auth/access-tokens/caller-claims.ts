import type { TokenRestrictions, SessionRole } from './token-restrictions.ts'
import { decodeCapabilities, encodeCapabilities } from '../../base/capability.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { Claims } from './decoded-token.ts'
import { profileIn, type Actor } from './principal.ts'
import { TokenError } from './token-error.ts'

/** Maximum number of groups in one claim of a token, and maximum length of their uids together in characters. A token must fit into a header. */
export const maxListedGroups = 50
export const maxListedLength = 4096

/** True if these groups fit into one claim of a token. */
export function hasRoomFor(groups: readonly Uid[]): boolean {
  return groups.length <= maxListedGroups && groups.join().length <= maxListedLength
}

/** The claims about the caller that every platform token contains, in addition to those about its purpose. */
export interface CallerClaims {
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  readonly issuedAtMs: number
}

/** Returns the token claims for a caller. */
export function writeCallerClaims({ issuedAtMs, ...facts }: CallerClaims): Record<string, unknown> {
  return { ...writeIssueTime(issuedAtMs), ...writeCallerFacts(facts) }
}

/** Returns the claims for a platform token's issue time. */
export function writeIssueTime(issuedAtMs: number): { readonly iat: number; readonly iat_ms: number } {
  return { iat: Math.floor(issuedAtMs / 1000), iat_ms: issuedAtMs }
}

/** Returns the claims for the bearer and the token's restrictions. */
export function writeCallerFacts({ act, restrictions }: Omit<CallerClaims, 'issuedAtMs'>): Record<string, unknown> {
  const upstream = { ...(act.email === undefined ? {} : { email: act.email }), ...act.profile }
  return {
    act: { aud: act.audience, iss: act.issuer, sub: act.subject, ...(act.awsAccount === undefined ? {} : { 'aws-acct': act.awsAccount }) },
    ...(act.email === undefined ? {} : { email: act.email }),
    ...(act.emailVerified === undefined ? {} : { email_verified: true }),
    ...(Object.keys(upstream).length === 0 ? {} : { upstream }),
    ...(restrictions.scopes === undefined ? {} : { scp: restrictions.scopes }),
    ...(restrictions.capabilities === undefined ? {} : { cpn: encodeCapabilities(restrictions.capabilities) }),
    ...(restrictions.trustedGroups === undefined ? {} : { rts: restrictions.trustedGroups }),
    ...(restrictions.roles === undefined ? {} : { srl: restrictions.roles.map(({ group, role }) => [group, role]) }),
  }
}

/** Reads the claims of a platform token. Throws TokenError `unreadable`, because an unreadable restriction must not widen the token. */
export function readCallerClaims(claims: Claims): CallerClaims {
  return { act: actorOf(claims), restrictions: restrictionsOf(claims), issuedAtMs: issueTimeOf(claims) }
}

/** Returns the identity of a platform token's subject. Throws TokenError `unreadable`. */
export function readIdentity(subject: string): Uid {
  if (!isUid(subject)) throw new TokenError('unreadable')
  return subject
}

/** Reads the issue time in milliseconds. `iat` only has whole seconds, as clients expect, and an identity may be created within the same second. */
function issueTimeOf(claims: Claims): number {
  const exact = claims['iat_ms']
  if (typeof exact !== 'number') throw new TokenError('unreadable')
  return exact
}

/** Returns the members of a claim; an empty object if the claim is not an object. */
function membersOf(claim: unknown): Claims {
  return (typeof claim === 'object' && claim !== null ? claim : {}) as Claims // Each member of the JSON is checked where it is read.
}

function actorOf({ act, email, email_verified: verified, upstream }: Claims): Actor {
  const { aud, iss, sub, 'aws-acct': awsAccount } = membersOf(act)
  if (typeof aud !== 'string' || typeof iss !== 'string' || typeof sub !== 'string') throw new TokenError('unreadable')
  const address = typeof email === 'string' ? { email, ...(verified === true ? ({ emailVerified: true } as const) : {}) } : {}
  const aws = typeof awsAccount === 'string' ? { awsAccount } : {}
  return { issuer: iss, subject: sub, audience: aud, ...address, ...aws, ...profileIn(membersOf(upstream)) }
}

/** Reads a list of uids. Throws TokenError if the claim is anything else. */
function uidsOf(claim: unknown): readonly Uid[] {
  if (!Array.isArray(claim)) throw new TokenError('unreadable')
  return claim.map((uid: unknown) => {
    if (typeof uid !== 'string' || !isUid(uid)) throw new TokenError('unreadable')
    return uid
  })
}

function sessionRolesOf(claim: unknown): readonly SessionRole[] {
  if (!Array.isArray(claim)) throw new TokenError('unreadable')
  return claim.map((pair: unknown) => {
    const [group, role] = uidsOf(pair)
    if (group === undefined || role === undefined) throw new TokenError('unreadable')
    return { group, role }
  })
}

function restrictionsOf({ scp, cpn, rts, srl }: Claims): TokenRestrictions {
  const capabilities = decodeCapabilities(cpn)
  if (cpn !== undefined && capabilities === undefined) throw new TokenError('unreadable')
  return {
    ...(scp === undefined ? {} : { scopes: uidsOf(scp) }),
    ...(capabilities === undefined ? {} : { capabilities }),
    ...(rts === undefined ? {} : { trustedGroups: uidsOf(rts) }),
    ...(srl === undefined ? {} : { roles: sessionRolesOf(srl) }),
  }
}
