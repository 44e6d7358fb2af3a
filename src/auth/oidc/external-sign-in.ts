import type { TokenRestrictions, SessionRole } from '../access-tokens/token-restrictions.ts'
import { DomainError } from '../../base/errors.ts'
import type { Clock } from '../../base/runtime.ts'
import { isUid, rootOf, type Uid } from '../../base/uid.ts'
import type { AwsMatch } from '../aws/aws-match.ts'
import { matchClaims } from './claim-match.ts'
import type { ClaimMatch } from './claim-match.ts'
import { checkTimes } from '../access-tokens/decoded-token.ts'
import type { DecodedToken } from '../access-tokens/decoded-token.ts'
import type { IssuerKeys } from './issuer-keys.ts'
import { isSameIssuer, normalizeIssuer, personUid } from './issuer-name.ts'
import { KeySetError } from '../keys/key-set.ts'
import { isOperator, profileIn } from '../access-tokens/principal.ts'
import type { Actor, Operator } from '../access-tokens/principal.ts'
import { parseStaticKeys } from '../keys/static-keys.ts'
import { TokenError, tokenTooLarge } from '../access-tokens/token-error.ts'
import type { TokenVerifier } from '../access-tokens/token-verifier.ts'
import { countingIn, trustOf, type ProviderFacts, type Trust, type TrustInput } from './trust-domain.ts'

/** The static keys with which an identity's tokens are verified (docs/spec/identities.md#static-keys). */
export interface StaticKeys {
  readonly issuer: string
  readonly subject: string
  /** The public keys as the text of a JWKS. */
  readonly issuerKeys: string
  readonly expirationTimeMs?: number
  /** The audiences that are accepted. If empty, the default audiences are. */
  readonly audiences: readonly string[]
}

/** How the tokens of an identity are verified. */
export type Relationship =
  | { readonly kind: 'claimMatch'; readonly match: ClaimMatch }
  | { readonly kind: 'staticKeys'; readonly keys: StaticKeys }
  | { readonly kind: 'aws'; readonly match: AwsMatch }
  | { readonly kind: 'servicePrincipal' }
  | { readonly kind: 'none' }

/** The facts about an identity on which sign-in depends. */
export interface IdentityFacts {
  readonly uid: Uid
  readonly createTimeMs: number
  readonly relationship: Relationship
}

/** A person, identified by issuer and subject of their token. */
export interface PersonToken extends Pick<Trust, 'via' | 'trustedGroups'> {
  readonly uid: Uid
  readonly act: Actor
}

/** The identity and the provider that the caller names for a sign-in. Empty texts count as absent. */
export interface SignInAs {
  /** Uid of the identity to assume. */
  readonly identity?: string | undefined
  /** Uid of the identity provider of a person. Only a provider that is named grants roles of mapped groups. The answer reveals nothing about other providers. */
  readonly identityProvider?: string | undefined
}

/** A role for a session, and the group at the identity provider that grants it. */
export interface MappedRole extends SessionRole {
  readonly externalGroup: string
}

/** The roles that a provider's mapped groups give to a session (docs/spec/identities.md#mapped-sessions). */
export interface MappedSession {
  readonly provider: Uid
  readonly roles: readonly MappedRole[]
}

/** The result of a sign-in with an accepted external token. */
export interface SignInResult {
  readonly identityUid: Uid
  /** Creation time of the identity in milliseconds since 1970; absent for an operator who is not registered. */
  readonly createTimeMs?: number
  readonly operator: boolean
  readonly act: Actor
  /** The verified external token. */
  readonly token: DecodedToken
  /** Restrictions of the identity's permissions that follow from the way of signing in. */
  readonly restrictions: Pick<TokenRestrictions, 'trustedGroups'>
  /** The roles that the token's mapped groups grant to its session; absent if there are none. */
  readonly mapped?: MappedSession
}

/** Maximum number of roles in a session. The session's access token contains all of them. */
const maxSessionRoles = 50

/** Returns the roles of a new session. A role that several groups grant is listed once. Throws code 9 `TOKEN_TOO_LARGE` for more than 50 roles. */
export function sessionRoles({ mapped }: Pick<SignInResult, 'mapped'>): Pick<TokenRestrictions, 'roles'> {
  if (mapped === undefined) return {}
  const roles = [...new Map(mapped.roles.map(({ group, role }) => [`${group} ${role}`, { group, role }])).values()]
  if (roles.length > maxSessionRoles) throw tokenTooLarge('the groups of this person map to too many roles: delete some external group role mappings')
  return { roles }
}

/** A value or undefined, at once or as a promise. */
type MaybeLater<Value> = Value | undefined | Promise<Value | undefined>

/** The dependencies of sign-in with external tokens. */
export interface ExternalSignInOptions {
  readonly verifier: TokenVerifier
  readonly issuerKeys: IssuerKeys
  readonly clock: Clock
  /** The platform's own issuer. Its tokens are never accepted as external ones. */
  readonly ownIssuer: string
  /** The audiences that stand for this platform, see defaultAudiences. */
  readonly audiences: readonly string[]
  readonly operators: readonly Operator[]
  /** Returns the current facts of the identity. */
  identityOf(uid: Uid, signal: AbortSignal): MaybeLater<IdentityFacts>
  /** Returns the registered person with this uid. No person is registered if absent. */
  personOf?(uid: Uid, signal: AbortSignal): MaybeLater<{ readonly createTimeMs: number }>
  /** Returns the identity providers with this issuer. There are none if absent. */
  providersOf?(issuer: string, signal: AbortSignal): MaybeLater<readonly ProviderFacts[]>
  readonly admits?: TrustInput['admits']
  /** True if the person has a role binding in or below the group. False if the function is absent. */
  isBoundWithin?(person: Uid, group: Uid): boolean
  /** Returns the roles that the provider's mappings grant to members of these groups. There are none if absent. */
  rolesOf?(provider: ProviderFacts, groups: readonly string[]): readonly MappedRole[]
}

/** Signs in with external tokens. Throws TokenError (see tokenFailure) for an invalid token, and DomainError for a use that is not allowed. */
export interface ExternalSignIn {
  /**
   * Signs in as `identity` if it is given, otherwise as an operator or a registered person. Every reason that lies with the identity gives the same error with
   * code 7. Throws code 3 on `identity_provider`. Throws code 9 `TOKEN_TOO_LARGE` if more groups trust the person than fit into a token.
   */
  signIn(token: DecodedToken, as: SignInAs, signal: AbortSignal): Promise<SignInResult>
  /** Returns the person that a valid token names, registered or not. Throws code 3 on `identity_provider`. */
  verifyPerson(token: DecodedToken, as: Pick<SignInAs, 'identityProvider'>, signal: AbortSignal): Promise<PersonToken>
}

/** Builds an ExternalSignIn. */
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

  function mappedBy(provider: ProviderFacts, token: DecodedToken): Pick<SignInResult, 'mapped'> {
    const roles = options.rolesOf?.(provider, groupsIn(token, provider)) ?? []
    return roles.length === 0 ? {} : { mapped: { provider: provider.uid, roles } }
  }

  return {
    verifyPerson: personOf,
    async signIn(token, as, signal) {
      refuseOwn(token)
      // Naming one's own uid has the same effect as naming none. The check of claims for an identity would ignore which groups trust the token, and whether a
      // directory removed the person.
      const isThemselves = as.identity === personUid(token.issuer, token.subject)
      if (!isEmpty(as.identity) && !isThemselves) return await asIdentity(options, { token, identity: as.identity }, signal)
      const { uid, act, via, ...trusted } = await personOf(token, as, signal)
      const trustedGroups = trusted.trustedGroups && countingIn(trusted.trustedGroups, (group) => options.isBoundWithin?.(uid, group) ?? false)
      const person = await options.personOf?.(uid, signal)
      const operator = trustedGroups === undefined && isOperator(options.operators, uid, act)
      if (person === undefined && !operator) {
        throw new DomainError(7, 'this person is not registered: register first, or set `identity` to the uid of the identity to assume')
      }
      // Use mapped groups only of the provider that the person names. Anyone can create a provider with the issuer and client of another, and would otherwise
      // learn people's groups.
      const [provider] = isEmpty(as.identityProvider) ? [] : via
      const restrictions = trustedGroups === undefined ? {} : { trustedGroups }
      const known = person === undefined ? {} : { createTimeMs: person.createTimeMs }
      return { identityUid: uid, operator, act, token, restrictions, ...(provider && mappedBy(provider, token)), ...known }
    },
  }
}

function isEmpty(text: string | undefined): text is undefined | '' {
  return text === undefined || text === ''
}

/** Maximum number of groups that are read from a token. */
const maxGroups = 1000

/** Returns the groups of the person in the provider's groups claim. */
function groupsIn(token: DecodedToken, { groupsClaim }: ProviderFacts): readonly string[] {
  const claim = groupsClaim === '' ? undefined : token.claims[groupsClaim]
  const groups = Array.isArray(claim) ? claim.slice(0, maxGroups) : [claim]
  return groups.filter((group): group is string => typeof group === 'string' && group !== '')
}

interface AssumeInput {
  readonly token: DecodedToken
  readonly identity: string
}

async function asIdentity(options: ExternalSignInOptions, { token, identity }: AssumeInput, signal: AbortSignal): Promise<SignInResult> {
  checkTimes(token, options.clock.now())
  // A uid without a parent is that of a person, and no caller may assume another person.
  const isPerson = !identity.includes('/')
  const facts = isUid(identity) && !isPerson ? await options.identityOf(identity, signal) : undefined
  const audience = facts === undefined ? undefined : await acceptedAudience(options, { token, facts }, signal)
  if (facts === undefined || audience === undefined) throw await refusal(options, token, signal)
  // Keys that an identity itself provides prove nothing about the issuer that it names.
  const isTrustedIssuer = facts.relationship.kind === 'claimMatch' && isConfiguredIssuer(options, token.issuer)
  return { identityUid: facts.uid, createTimeMs: facts.createTimeMs, operator: false, act: actorOf(token, audience, isTrustedIssuer), token, restrictions: {} }
}

/**
 * Returns the error of a refused sign-in. It is the same for an unknown identity, for a mismatched claim (docs/spec/tokens.md#exchange-errors), and for a
 * token that the identity's own keys do not verify. Different errors would reveal whether the identity exists and what it trusts. For a configured issuer, a
 * fault of the token itself is thrown as TokenError, because it does not depend on an identity.
 */
async function refusal(options: ExternalSignInOptions, token: DecodedToken, signal: AbortSignal): Promise<DomainError> {
  if (options.issuerKeys.isConfigured(token.issuer)) await options.verifier.verifyByIssuer(token, { named: [] }, signal)
  return new DomainError(7, 'the token does not match the identity')
}

/** Resolves to whether the identity's keys verify the token. Rejects only for temporary failures, so that clients retry. */
async function verifies(verification: Promise<void>): Promise<boolean> {
  try {
    await verification
    return true
  } catch (error) {
    if (!(error instanceof TokenError) || error.reason === 'issuer_unavailable') throw error
    return false
  }
}

interface AcceptInput {
  readonly token: DecodedToken
  readonly facts: IdentityFacts
}

/** Verifies a token for an identity. Resolves to the accepted audience, or undefined if the token does not match or verify. */
async function acceptedAudience(options: ExternalSignInOptions, { token, facts }: AcceptInput, signal: AbortSignal): Promise<string | undefined> {
  const { uid, relationship } = facts
  switch (relationship.kind) {
    case 'claimMatch':
      return await acceptClaims(options, { token, match: relationship.match, tenant: rootOf(uid) }, signal)
    case 'staticKeys':
      return await acceptStatic(options, token, relationship.keys)
    // AWS identities use signed requests instead of tokens: see AwsSignIn. No caller may assume a service principal.
    case 'aws':
    case 'servicePrincipal':
    case 'none':
      return undefined
  }
}

interface ClaimsInput {
  readonly token: DecodedToken
  readonly match: ClaimMatch
  /** The uid of the identity's organisation. */
  readonly tenant: Uid
}

/**
 * Verifies a token whose claims match those that the identity requires. An issuer pattern matches configured issuers only. Otherwise the author of a token
 * could make the platform send requests to any server.
 */
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

/** True if the configuration names the issuer, for people or for operators. */
export function isConfiguredIssuer({ issuerKeys, operators }: Pick<ExternalSignInOptions, 'issuerKeys' | 'operators'>, issuer: string): boolean {
  return issuerKeys.isConfigured(issuer) || operators.some((operator) => isSameIssuer(operator.issuer, issuer))
}

function actorOf(token: DecodedToken, audience: string, isTrusted: boolean): Actor {
  const { email, email_verified: verified } = token.claims
  const isVerified = typeof email === 'string' && email !== '' && (verified === true || verified === 'true')
  const address = isVerified ? { email, ...(isTrusted ? ({ emailVerified: true } as const) : {}) } : {}
  return { issuer: normalizeIssuer(token.issuer), subject: token.subject, audience, ...address, ...profileIn(token.claims) }
}
