import type { TokenRestrictions, SessionRole } from '../tokens/token-restrictions.ts'
import { DomainError } from '../../base/errors.ts'
import type { Clock } from '../../base/runtime.ts'
import { isUid, rootOf, type Uid } from '../../base/uid.ts'
import type { AwsMatch } from '../aws/aws-match.ts'
import { matchClaims } from './claim-match.ts'
import type { ClaimMatch } from './claim-match.ts'
import { checkTimes } from '../tokens/decoded-token.ts'
import type { DecodedToken } from '../tokens/decoded-token.ts'
import type { IssuerKeys } from './issuer-keys.ts'
import { isSameIssuer, normalizeIssuer, personUid } from './issuer-name.ts'
import { KeySetError } from '../keys/key-set.ts'
import { isOperator, profileIn } from '../tokens/principal.ts'
import type { Actor, Operator } from '../tokens/principal.ts'
import { parseStaticKeys } from '../keys/static-keys.ts'
import { TokenError, tokenTooLarge } from '../tokens/token-error.ts'
import type { TokenVerifier } from '../tokens/token-verifier.ts'
import { countingIn, trustOf, type ProviderFacts, type Trust, type TrustInput } from './trust-domain.ts'

/** Static keys of an identity (docs/spec/identities.md#static-keys). */
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
  | { readonly kind: 'aws'; readonly match: AwsMatch }
  | { readonly kind: 'servicePrincipal' }
  | { readonly kind: 'none' }

/** What signing in needs to know of an identity. */
export interface IdentityFacts {
  readonly uid: Uid
  readonly createTimeMs: number
  readonly relationship: Relationship
}

/** A person who signs in by (issuer, subject). */
export interface PersonToken extends Pick<Trust, 'via' | 'knownIn'> {
  readonly uid: Uid
  readonly act: Actor
}

/** As whom somebody wants to sign in; empty texts count as absent. */
export interface SignInAs {
  /** The identity to assume. */
  readonly identity?: string | undefined
  /** The uid of the provider that a person came by: whom they do not name gives them no roles of mapped groups, and hears of none. */
  readonly identityProvider?: string | undefined
}

/** A role of a session, and the group at the provider that gave it. */
export interface MappedRole extends SessionRole {
  readonly externalGroup: string
}

/** What a provider's mapped groups gave to a session (docs/spec/identities.md#mapped-sessions). */
export interface MappedSession {
  readonly provider: Uid
  readonly roles: readonly MappedRole[]
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
  /** What the way of signing in cuts from the identity's rights. */
  readonly restrictions: Pick<TokenRestrictions, 'knownIn'>
  /** What the mapped groups of the token give to a session that begins with it; absent where that is nothing. */
  readonly mapped?: MappedSession
}

/** The most roles of one session: they are in its access token. */
const maxSessionRoles = 50

/** The roles of the session that begins with a sign-in, each once, whichever groups gave it. Throws code 9 `TOKEN_TOO_LARGE` where there are more than 50. */
export function sessionRoles({ mapped }: Pick<SignedIn, 'mapped'>): Pick<TokenRestrictions, 'roles'> {
  if (mapped === undefined) return {}
  const roles = [...new Map(mapped.roles.map(({ group, role }) => [`${group} ${role}`, { group, role }])).values()]
  if (roles.length > maxSessionRoles) throw tokenTooLarge('too many roles are mapped to the groups of this person: map fewer')
  return { roles }
}

/** What may be absent now or come later, from memory or from elsewhere. */
type MaybeLater<Value> = Value | undefined | Promise<Value | undefined>

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
  identityOf(uid: Uid, signal: AbortSignal): MaybeLater<IdentityFacts>
  /** The registered person with this uid. Nobody where absent. */
  personOf?(uid: Uid, signal: AbortSignal): MaybeLater<{ readonly createTimeMs: number }>
  /** The identity providers that name this issuer. None where absent. */
  providersOf?(issuer: string, signal: AbortSignal): MaybeLater<readonly ProviderFacts[]>
  readonly admits?: TrustInput['admits']
  /** True where the person is bound in the group or below. Never where absent. */
  isBoundWithin?(person: Uid, group: Uid): boolean
  /** The roles that the provider's mappings give to members of these groups. None where absent. */
  rolesOf?(provider: ProviderFacts, groups: readonly string[]): readonly MappedRole[]
}

/** Accepts external tokens. Throws TokenError (see tokenFailure) for the token itself, DomainError for what it may not be used for. */
export interface ExternalSignIn {
  /**
   * With `identity`: as that identity, else code 7 in one form for every reason that lies with the identity. Without: as an operator or a registered person; code 3 on
   * `identity_provider`, code 9 `TOKEN_TOO_LARGE` where they are known in more groups than a token has room for.
   */
  signIn(token: DecodedToken, as: SignInAs, signal: AbortSignal): Promise<SignedIn>
  /** The person of this token, registered or not. Throws code 3 on `identity_provider`. */
  verifyPerson(token: DecodedToken, as: Pick<SignInAs, 'identityProvider'>, signal: AbortSignal): Promise<PersonToken>
}

/** See ExternalSignIn. */
export function createExternalSignIn(options: ExternalSignInOptions): ExternalSignIn {
  function refuseOwn(token: DecodedToken): void {
    if (isSameIssuer(token.issuer, options.ownIssuer)) throw new TokenError('own_issuer')
  }

  async function personOf(token: DecodedToken, as: Pick<SignInAs, 'identityProvider'>, signal: AbortSignal): Promise<PersonToken> {
    refuseOwn(token)
    const providers = (await options.providersOf?.(token.issuer, signal)) ?? []
    const operatorIssuers = options.operators.map((operator) => normalizeIssuer(operator.issuer))
    const named = [...operatorIssuers, ...(providers.length === 0 ? [] : [token.issuer])]
    const tenants = [...new Set(providers.map(({ uid }) => rootOf(uid)))]
    await options.verifier.verifyByIssuer(token, { named, tenants }, signal)
    const isKnownIssuer = isConfiguredIssuer(options, token.issuer)
    const input = { platform: options.audiences, isKnownIssuer, providers, provider: as.identityProvider, admits: options.admits }
    const { audience, ...trust } = trustOf(token, input)
    return { uid: personUid(token.issuer, token.subject), act: actorOf(token, audience, isKnownIssuer), ...trust }
  }

  function mappedBy(provider: ProviderFacts, token: DecodedToken): Pick<SignedIn, 'mapped'> {
    const roles = options.rolesOf?.(provider, groupsIn(token, provider)) ?? []
    return roles.length === 0 ? {} : { mapped: { provider: provider.uid, roles } }
  }

  return {
    verifyPerson: personOf,
    async signIn(token, as, signal) {
      refuseOwn(token)
      // Who names themselves comes in as without: a person's record matches their tokens, but says nothing of where they count, nor of whom a directory let go.
      const isThemselves = as.identity === personUid(token.issuer, token.subject)
      if (!isEmpty(as.identity) && !isThemselves) return await asIdentity(options, { token, identity: as.identity }, signal)
      const { uid, act, via, ...trusted } = await personOf(token, as, signal)
      const knownIn = trusted.knownIn && countingIn(trusted.knownIn, (group) => options.isBoundWithin?.(uid, group) ?? false)
      const person = await options.personOf?.(uid, signal)
      const operator = knownIn === undefined && isOperator(options.operators, uid, act)
      if (person === undefined && !operator) {
        throw new DomainError(7, 'nobody is registered with this token: register first, or name the identity to assume with `identity`')
      }
      // Anybody may name another's issuer and client, and would hear who is in which group: only whom the person names.
      const [provider] = isEmpty(as.identityProvider) ? [] : via
      const restrictions = knownIn === undefined ? {} : { knownIn }
      const known = person === undefined ? {} : { createTimeMs: person.createTimeMs }
      return { identityUid: uid, operator, act, token, restrictions, ...(provider && mappedBy(provider, token)), ...known }
    },
  }
}

function isEmpty(text: string | undefined): text is undefined | '' {
  return text === undefined || text === ''
}

/** The most groups of a token that are looked at. */
const maxGroups = 1000

/** The groups that the provider says the person is in. */
function groupsIn(token: DecodedToken, { groupsClaim }: ProviderFacts): readonly string[] {
  const claim = groupsClaim === '' ? undefined : token.claims[groupsClaim]
  const groups = Array.isArray(claim) ? claim.slice(0, maxGroups) : [claim]
  return groups.filter((group): group is string => typeof group === 'string' && group !== '')
}

interface AssumeInput {
  readonly token: DecodedToken
  readonly identity: string
}

async function asIdentity(options: ExternalSignInOptions, { token, identity }: AssumeInput, signal: AbortSignal): Promise<SignedIn> {
  checkTimes(token, options.clock.now())
  // Above all groups there are people only: nobody assumes another person.
  const isPerson = !identity.includes('/')
  const facts = isUid(identity) && !isPerson ? await options.identityOf(identity, signal) : undefined
  const audience = facts === undefined ? undefined : await acceptedAudience(options, { token, facts }, signal)
  if (facts === undefined || audience === undefined) throw await refusal(options, token, signal)
  // Keys of the identity's own say nothing for the issuer that it names.
  const isTrustedIssuer = facts.relationship.kind === 'claimMatch' && isConfiguredIssuer(options, token.issuer)
  return { identityUid: facts.uid, createTimeMs: facts.createTimeMs, operator: false, act: actorOf(token, audience, isTrustedIssuer), token, restrictions: {} }
}

/**
 * One answer for an unknown identity, for every claim that differs (docs/spec/tokens.md#exchange-errors), and for keys of the identity's own that do not verify the token: which of them it was would
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
  readonly facts: IdentityFacts
}

/** Verifies the token for an identity and says which of its audiences was accepted; undefined where it does not match or verify. */
async function acceptedAudience(options: ExternalSignInOptions, { token, facts }: AcceptInput, signal: AbortSignal): Promise<string | undefined> {
  const { uid, relationship } = facts
  switch (relationship.kind) {
    case 'claimMatch':
      return await acceptClaims(options, { token, match: relationship.match, tenant: rootOf(uid) }, signal)
    case 'staticKeys':
      return await acceptStatic(options, token, relationship.keys)
    // AWS signs requests, no tokens: see AwsSignIn. A service principal is nobody's to assume.
    case 'aws':
    case 'servicePrincipal':
    case 'none':
      return undefined
  }
}

interface ClaimsInput {
  readonly token: DecodedToken
  readonly match: ClaimMatch
  /** The organisation of the identity. */
  readonly tenant: Uid
}

/** An issuer pattern opens only configured issuers: a pattern must not make us call whoever wrote a token. */
async function acceptClaims(options: ExternalSignInOptions, { token, match, tenant }: ClaimsInput, signal: AbortSignal): Promise<string | undefined> {
  const { issuer } = match
  const reachable = issuer === undefined ? options.issuerKeys.isConfigured(token.issuer) : normalizeIssuer(issuer) === normalizeIssuer(token.issuer)
  if (!reachable) return undefined
  const scope = { named: issuer === undefined ? [] : [issuer], tenants: [tenant] }
  if (!(await verifies(options.verifier.verifyByIssuer(token, scope, signal)))) return undefined
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

/** True where the configuration names the issuer, for people or for operators. */
export function isConfiguredIssuer({ issuerKeys, operators }: Pick<ExternalSignInOptions, 'issuerKeys' | 'operators'>, issuer: string): boolean {
  return issuerKeys.isConfigured(issuer) || operators.some((operator) => isSameIssuer(operator.issuer, issuer))
}

function actorOf(token: DecodedToken, audience: string, isTrusted: boolean): Actor {
  const { email, email_verified: verified } = token.claims
  const isVerified = typeof email === 'string' && email !== '' && (verified === true || verified === 'true')
  const address = isVerified ? { email, ...(isTrusted ? ({ emailVerified: true } as const) : {}) } : {}
  return { issuer: normalizeIssuer(token.issuer), subject: token.subject, audience, ...address, ...profileIn(token.claims) }
}
