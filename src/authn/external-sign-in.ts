import { DomainError } from '../core/errors.ts'
import type { Clock } from '../core/runtime.ts'
import { isUid } from '../core/uid.ts'
import type { Uid } from '../core/uid.ts'
import { matchClaims } from './claim-match.ts'
import type { ClaimMatch } from './claim-match.ts'
import { checkTimes } from './decoded-token.ts'
import type { DecodedToken } from './decoded-token.ts'
import type { IssuerKeys } from './issuer-keys.ts'
import { isSameIssuer, normalizeIssuer, personUid } from './issuer-name.ts'
import { KeySetError } from './key-set.ts'
import { isOperator } from './principal.ts'
import type { Actor, Operator } from './principal.ts'
import { parseStaticKeys } from './static-keys.ts'
import { TokenError } from './token-error.ts'
import type { TokenVerifier } from './token-verifier.ts'

/** Static keys of an identity (rules 2.4). */
export interface StaticKeys {
  readonly issuer: string
  readonly subject: string
  /** A JWKS as text. */
  readonly issuerKeys: string
  readonly expirationTimeMs?: number
  /** Where not empty, only these audiences are accepted. */
  readonly audiences: readonly string[]
}

/** How an identity signs in. */
export type Relationship =
  | { readonly kind: 'claimMatch'; readonly match: ClaimMatch }
  | { readonly kind: 'staticKeys'; readonly keys: StaticKeys }
  | { readonly kind: 'aws' }
  | { readonly kind: 'servicePrincipal' }
  | { readonly kind: 'none' }

/** What signing in needs to know of an identity. */
export interface IdentityFacts {
  readonly uid: Uid
  readonly createTimeMs: number
  readonly relationship: Relationship
}

/** A person who signs in by (issuer, subject). */
export interface PersonToken {
  readonly uid: Uid
  readonly act: Actor
}

/** Somebody an external token was accepted for. */
export interface SignedIn {
  readonly identityUid: Uid
  /** When the identity was made; absent for an operator who is not registered. */
  readonly createTimeMs?: number
  readonly operator: boolean
  readonly act: Actor
  /** The upstream token, verified. */
  readonly token: DecodedToken
}

/** What may be absent now or come later, from memory or from elsewhere. */
type Found<Value> = Value | undefined | Promise<Value | undefined>

/** What signing in is made of. */
export interface ExternalSignInOptions {
  readonly verifier: TokenVerifier
  readonly issuerKeys: IssuerKeys
  readonly clock: Clock
  /** Our own issuer, never a source. */
  readonly ownIssuer: string
  /** Audiences that mean this platform, see defaultAudiences. */
  readonly audiences: readonly string[]
  readonly operators: readonly Operator[]
  /** The identity as it is now. */
  identityOf(uid: Uid, signal: AbortSignal): Found<IdentityFacts>
  /** The registered person with this uid. Nobody where absent. */
  personOf?(uid: Uid, signal: AbortSignal): Found<{ readonly createTimeMs: number }>
  /** The client ids of identity providers that name this issuer: further audiences of people's tokens. Undefined where none names it. */
  providerOf?(issuer: string, signal: AbortSignal): Found<{ readonly clientIds: readonly string[] }>
}

/** Accepts external tokens. Throws TokenError (see tokenFailure) for the token itself, DomainError for what it may not be used for. */
export interface ExternalSignIn {
  /** With `identity`: as that identity, else code 7 in one form for every reason that lies with the identity. Without: as an operator or a registered person. */
  signIn(token: DecodedToken, identity: string | undefined, signal: AbortSignal): Promise<SignedIn>
  /** The person of this token, registered or not. */
  verifyPerson(token: DecodedToken, signal: AbortSignal): Promise<PersonToken>
}

/** See ExternalSignIn. */
export function createExternalSignIn(options: ExternalSignInOptions): ExternalSignIn {
  function refuseOwn(token: DecodedToken): void {
    if (isSameIssuer(token.issuer, options.ownIssuer)) throw new TokenError('own_issuer')
  }

  async function verifyPerson(token: DecodedToken, signal: AbortSignal): Promise<PersonToken> {
    refuseOwn(token)
    const provider = await options.providerOf?.(token.issuer, signal)
    const named = [...options.operators.map((operator) => operator.issuer), ...(provider === undefined ? [] : [token.issuer])]
    await options.verifier.verifyByIssuer(token, { named }, signal)
    const accepted = [...options.audiences, ...(provider?.clientIds ?? [])]
    const audience = token.audiences.find((candidate) => accepted.includes(candidate))
    if (audience === undefined) throw new DomainError(7, 'the token is for another audience')
    return { uid: personUid(token.issuer, token.subject), act: actorOf(token, audience) }
  }

  return {
    verifyPerson,
    async signIn(token, identity, signal) {
      refuseOwn(token)
      if (identity !== undefined) return await asIdentity(options, { token, identity }, signal)
      const { uid, act } = await verifyPerson(token, signal)
      const person = await options.personOf?.(uid, signal)
      const operator = isOperator(options.operators, uid, act)
      if (person === undefined && !operator) {
        throw new DomainError(7, 'nobody is registered with this token: register first, or name the identity to assume with `identity`')
      }
      return { identityUid: uid, operator, act, token, ...(person === undefined ? {} : { createTimeMs: person.createTimeMs }) }
    },
  }
}

interface AssumeInput {
  readonly token: DecodedToken
  readonly identity: string
}

async function asIdentity(options: ExternalSignInOptions, { token, identity }: AssumeInput, signal: AbortSignal): Promise<SignedIn> {
  checkTimes(token, options.clock.now())
  const facts = isUid(identity) ? await options.identityOf(identity, signal) : undefined
  const audience = facts === undefined ? undefined : await acceptedAudience(options, { token, relationship: facts.relationship }, signal)
  if (facts === undefined || audience === undefined) throw await refusal(options, token, signal)
  return { identityUid: facts.uid, createTimeMs: facts.createTimeMs, operator: false, act: actorOf(token, audience), token }
}

/**
 * One answer for an unknown identity, for every claim that differs (rules 8), and for keys of the identity's own that do not verify the token: which of them it was would
 * tell whether the identity exists, and what it trusts. What is wrong with a configured issuer's token is said (thrown as TokenError), since no identity has part in that.
 */
async function refusal(options: ExternalSignInOptions, token: DecodedToken, signal: AbortSignal): Promise<DomainError> {
  if (options.issuerKeys.isConfigured(token.issuer)) await options.verifier.verifyByIssuer(token, { named: [] }, signal)
  return new DomainError(7, 'the token does not match the identity')
}

/** Whether the keys that the identity chose verify the token. Throws only what may pass by itself: clients come again for that. */
async function verifies(verification: Promise<void>): Promise<boolean> {
  try {
    await verification
    return true
  } catch (error) {
    if (!(error instanceof TokenError) || error.fault === 'issuer_unavailable') throw error
    return false
  }
}

interface AcceptInput {
  readonly token: DecodedToken
  readonly relationship: Relationship
}

/** Verifies the token for a relationship and says which of its audiences was accepted; undefined where it does not match or verify. */
async function acceptedAudience(options: ExternalSignInOptions, { token, relationship }: AcceptInput, signal: AbortSignal): Promise<string | undefined> {
  switch (relationship.kind) {
    case 'claimMatch':
      return await acceptClaims(options, { token, match: relationship.match }, signal)
    case 'staticKeys':
      return await acceptStatic(options, token, relationship.keys)
    case 'aws':
      throw new DomainError(12, 'AWS identities are not supported yet')
    case 'servicePrincipal':
    case 'none':
      return undefined
  }
}

interface ClaimsInput {
  readonly token: DecodedToken
  readonly match: ClaimMatch
}

/** An issuer pattern opens only configured issuers: a pattern must not make us call whoever wrote a token. */
async function acceptClaims(options: ExternalSignInOptions, { token, match }: ClaimsInput, signal: AbortSignal): Promise<string | undefined> {
  const { issuer } = match
  const reachable = issuer === undefined ? options.issuerKeys.isConfigured(token.issuer) : normalizeIssuer(issuer) === normalizeIssuer(token.issuer)
  if (!reachable) return undefined
  if (!(await verifies(options.verifier.verifyByIssuer(token, { named: issuer === undefined ? [] : [issuer] }, signal)))) return undefined
  return matchClaims(match, token, options.audiences)
}

async function acceptStatic(options: ExternalSignInOptions, token: DecodedToken, keys: StaticKeys): Promise<string | undefined> {
  const live = keys.expirationTimeMs === undefined || options.clock.now() < keys.expirationTimeMs
  if (!live || normalizeIssuer(keys.issuer) !== normalizeIssuer(token.issuer) || keys.subject !== token.subject) return undefined
  if (!(await verifies(verifyStatic(options, token, keys.issuerKeys)))) return undefined
  const accepted = keys.audiences.length > 0 ? keys.audiences : options.audiences
  return token.audiences.find((audience) => accepted.includes(audience))
}

async function verifyStatic(options: ExternalSignInOptions, token: DecodedToken, text: string): Promise<void> {
  await options.verifier.verifyByKeys(token, staticKeySet(text))
}

function staticKeySet(text: string): ReturnType<typeof parseStaticKeys> {
  try {
    return parseStaticKeys(text)
  } catch (error) {
    throw error instanceof KeySetError ? new TokenError('issuer_keys', error) : error
  }
}

function actorOf(token: DecodedToken, audience: string): Actor {
  const { email, email_verified: verified } = token.claims
  const isVerified = typeof email === 'string' && email !== '' && (verified === true || verified === 'true')
  return { issuer: normalizeIssuer(token.issuer), subject: token.subject, audience, ...(isVerified ? { email } : {}) }
}
