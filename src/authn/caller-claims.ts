import { decodeCapabilities, encodeCapabilities } from '../core/capability.ts'
import { isUid, parseUid, type Uid } from '../core/uid.ts'
import type { Claims } from './decoded-token.ts'
import type { Actor, Narrowing } from './principal.ts'
import { TokenError } from './token-error.ts'

/** What every token of ours says of its bearer, beside what it is for. */
export interface CallerClaims {
  readonly act: Actor
  readonly narrowing: Narrowing
  readonly issuedAtMs: number
}

/** The claims that say it. */
export function writeCallerClaims({ act, narrowing, issuedAtMs }: CallerClaims): Record<string, unknown> {
  return {
    iat: Math.floor(issuedAtMs / 1000),
    iat_ms: issuedAtMs,
    act: { aud: act.audience, iss: act.issuer, sub: act.subject },
    ...(act.email === undefined ? {} : { email: act.email, email_verified: true }),
    ...(narrowing.scopes === undefined ? {} : { scp: narrowing.scopes }),
    ...(narrowing.capabilities === undefined ? {} : { cpn: encodeCapabilities(narrowing.capabilities) }),
  }
}

/** What the claims of a token of ours say. Throws TokenError `unreadable`: what can't be read must not widen. */
export function readCallerClaims(claims: Claims): CallerClaims {
  return { act: actorOf(claims['act'], claims['email']), narrowing: narrowingOf(claims), issuedAtMs: issueTimeOf(claims) }
}

/** The identity that a token of ours is for. Throws TokenError `unreadable`. */
export function readIdentity(subject: string): Uid {
  if (!isUid(subject)) throw new TokenError('unreadable')
  return subject
}

/** `iat` has whole seconds only, as clients read it; identities are made within a second. */
function issueTimeOf(claims: Claims): number {
  const exact = claims['iat_ms']
  if (typeof exact !== 'number') throw new TokenError('unreadable')
  return exact
}

function actorOf(act: unknown, email: unknown): Actor {
  const { aud, iss, sub } = (typeof act === 'object' && act !== null ? act : {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked below
  if (typeof aud !== 'string' || typeof iss !== 'string' || typeof sub !== 'string') throw new TokenError('unreadable')
  return { issuer: iss, subject: sub, audience: aud, ...(typeof email === 'string' ? { email } : {}) }
}

function narrowingOf(claims: Claims): Narrowing {
  const { scp, cpn } = claims
  if (scp !== undefined && !(Array.isArray(scp) && scp.every((scope) => typeof scope === 'string' && isUid(scope)))) throw new TokenError('unreadable')
  const capabilities = decodeCapabilities(cpn)
  if (cpn !== undefined && capabilities === undefined) throw new TokenError('unreadable')
  return {
    ...(scp === undefined ? {} : { scopes: scp.map((scope: string) => parseUid(scope, 'scopes')) }),
    ...(capabilities === undefined ? {} : { capabilities }),
  }
}
