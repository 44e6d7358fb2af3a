import { restrictFurther, type TokenRestrictions } from '../../auth/access-tokens/token-restrictions.ts'
import { capabilityByName, setOf } from '../../base/capability.ts'
import type { CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isWithin, parseUid } from '../../base/uid.ts'
import type { Uid } from '../../base/uid.ts'
import { parseAuthorization } from '../../auth/access-tokens/authorization-header.ts'
import { awsRequestText } from '../../auth/aws/aws-request.ts'
import type { AwsSignIn } from '../../auth/aws/aws-sign-in.ts'
import { hasRoomFor, maxListedGroups, maxListedLength } from '../../auth/access-tokens/caller-claims.ts'
import { decodeToken, maxTokenLength } from '../../auth/access-tokens/decoded-token.ts'
import { urlForms } from '../../auth/access-tokens/token-verifier.ts'
import type { Actor } from '../../auth/access-tokens/principal.ts'
import { sessionRoles, type ExternalSignIn, type SignInResult } from '../../auth/oidc/external-sign-in.ts'
import type { AccessGrant, PlatformTokens } from '../../auth/access-tokens/platform-token.ts'
import { tokenFailure } from '../../auth/access-tokens/token-error.ts'

/**
 * Request of a token exchange (docs/spec/tokens.md#token-exchange). A repeated parameter is a list, and `scopes` includes the older
 * `scope`.
 */
export interface ExchangeInput {
  /** The `authorization` header or metadata, not parsed: an external token, or a signed AWS request. */
  readonly authorization: string | undefined
  readonly aud: readonly string[]
  /** Uid of the identity to assume; empty if absent. */
  readonly identity?: string
  /** Uid of the identity provider of the sign-in; empty if absent. */
  readonly identityProvider?: string
  readonly scopes: readonly string[]
  /** Names of capabilities, such as `groups.list`. */
  readonly cap: readonly string[]
}

/** A new access token. */
export interface Exchanged {
  readonly token: string
  readonly expiryMs: number
  /** Its token is absent if the caller signed in with a signed AWS request. */
  readonly principal: Omit<SignInResult, 'token'> & Partial<Pick<SignInResult, 'token'>>
  readonly restrictions: TokenRestrictions
  readonly audiences: readonly string[]
}

/** Restrictions of the original sign-in, which a later token cannot exceed. */
export interface TokenBounds {
  readonly restrictions: TokenRestrictions
  /** Absent during the sign-in itself: then the configuration defines the audiences. An empty list means the default audience. */
  readonly audiences?: readonly string[]
}

/** The caller for whom an access token is issued. */
export type TokenSubject = Pick<SignInResult, 'identityUid' | 'createTimeMs' | 'act'> & TokenBounds

/** Requested audiences and restrictions of the token. */
export type RequestedToken = Pick<ExchangeInput, 'aud' | 'scopes' | 'cap'>

/**
 * Issues access tokens after a sign-in. Both methods throw DomainError code 3 on `aud`, `scopes` or `cap`. They throw code 7 `AUDIENCE_NOT_GRANTED` and
 * `SCOPE_NOT_GRANTED` if the request exceeds the sign-in. They throw code 9 `TOKEN_TOO_LARGE` if an endpoint would refuse the token. `cap` can only remove
 * capabilities (docs/spec/tokens.md#narrowing).
 */
export interface TokenIssue {
  /** Throws if the request cannot be granted to the holder; without one, throws if no sign-in could grant it. */
  check(requested: RequestedToken, holder?: TokenSubject): void
  /** Issues a token with the requested restrictions. Without requested audiences, it has those of the sign-in. */
  issue(holder: TokenSubject, requested: RequestedToken): Promise<Pick<Exchanged, 'token' | 'expiryMs' | 'restrictions' | 'audiences'>>
}

/** Dependencies of the token issue. */
export interface TokenIssueOptions {
  readonly tokens: PlatformTokens
  /** Audiences that can be requested: configuration `tokens.audiences`. */
  readonly audiences: readonly string[]
  /** Default audience. */
  readonly defaultAudience: string
  /**
   * Returns whether the configuration currently trusts the issuer to verify e-mail addresses; a refresh token may be older than the
   * configuration. If absent, no issuer is trusted.
   */
  trusts?(issuer: string): boolean
  /** Returns the identity's capabilities by group uid, for the informative claim `cap`. Undefined if they are too many for a token. */
  heldBy?(identity: Uid, restrictions: TokenRestrictions): Promise<ReadonlyMap<Uid, CapabilitySet> | undefined>
}

/** Creates a TokenIssue. */
export function createTokenIssue(options: TokenIssueOptions): TokenIssue {
  const trustedActor = ({ emailVerified, ...act }: Actor): Actor =>
    emailVerified === true && options.trusts?.(act.issuer) === true ? { ...act, emailVerified } : act
  const chosen = (requested: RequestedToken, bounds: TokenBounds): Pick<AccessGrant, 'audiences' | 'restrictions'> => ({
    audiences: chooseAudiences(options, requested.aud, bounds),
    restrictions: chooseRestrictions(requested, bounds),
  })
  return {
    check(requested, holder) {
      const choice = chosen(requested, holder ?? { restrictions: {} })
      if (holder !== undefined) options.tokens.check({ identityUid: holder.identityUid, act: holder.act, ...choice })
    },
    async issue(holder, requested) {
      const { audiences, restrictions } = chosen(requested, holder)
      const held = await options.heldBy?.(holder.identityUid, restrictions)
      const { token, expiresAtMs } = await options.tokens.mint({
        identityUid: holder.identityUid,
        audiences,
        act: trustedActor(holder.act),
        restrictions,
        ...(holder.createTimeMs === undefined ? {} : { notBeforeMs: holder.createTimeMs }),
        ...(held === undefined ? {} : { held }),
      })
      return { token, expiryMs: expiresAtMs, restrictions, audiences }
    },
  }
}

/**
 * Exchanges a credential for an access token, for REST and gRPC. Throws DomainError code 16 without a readable bearer token, and code 7
 * `verifying token: ...` for an invalid one. Throws code 7 if the token matches no identity. Throws code 14 if the keys of the issuer
 * cannot be fetched, and code 3 on `aud`, `scopes` or `cap`.
 */
export type TokenExchange = (input: ExchangeInput, signal: AbortSignal) => Promise<Exchanged>

/** The kinds of sign-in that an exchange supports. */
export interface ExchangeSignIn {
  readonly external: ExternalSignIn
  readonly aws: AwsSignIn
}

/** Creates a TokenExchange. */
export function createExchange(signIn: ExchangeSignIn, tokens: TokenIssue): TokenExchange {
  return async (input, signal) => {
    const principal = await signInAt(signIn, input, signal)
    const restrictions: TokenRestrictions = { ...principal.restrictions, ...sessionRoles(principal) }
    return { ...(await tokens.issue({ ...principal, restrictions }, input)), principal }
  }
}

async function signInAt(signIn: ExchangeSignIn, input: ExchangeInput, signal: AbortSignal): Promise<Exchanged['principal']> {
  try {
    const credential = parseAuthorization(input.authorization)
    const identity = (input.identity === '' ? undefined : input.identity) ?? credential.identity
    const request = credential.token.length > maxTokenLength ? undefined : awsRequestText(credential.token)
    if (request !== undefined) return await signIn.aws(request, identity, signal)
    return await signIn.external.signIn(decodeToken(credential.token), { identity, identityProvider: input.identityProvider }, signal)
  } catch (error) {
    throw tokenFailure(error, 'exchange')
  }
}

/** Returns the audiences as the client wrote them. The check ignores a final slash. */
function chooseAudiences(options: Pick<TokenIssueOptions, 'audiences' | 'defaultAudience'>, asked: readonly string[], bounds: TokenBounds): readonly string[] {
  const wished = [...new Set(asked.filter((audience) => audience !== ''))]
  const granted = bounds.audiences?.length === 0 ? [options.defaultAudience] : bounds.audiences
  const wanted = wished.length > 0 ? wished : (granted ?? [options.defaultAudience])
  const areIn = (list: readonly string[]): boolean => {
    const allowed = new Set(list.flatMap(urlForms))
    return wanted.every((audience) => allowed.has(audience))
  }
  if (!areIn(options.audiences)) throw DomainError.invalid('aud', `must be one of ${options.audiences.join(', ')}`)
  if (granted !== undefined && !areIn(granted)) throw notGranted({ reason: 'AUDIENCE_NOT_GRANTED', what: 'audience' })
  return wanted
}

function notGranted({ reason, what }: { reason: string; what: string }): DomainError {
  return new DomainError(7, `the sign-in was for another ${what}: sign in again for this one`, { reason })
}

/** Returns the restrictions of the new token. */
function chooseRestrictions(requested: RequestedToken, { restrictions }: TokenBounds): TokenRestrictions {
  const wished = readRestrictions(requested)
  const { scopes } = restrictions
  const isGranted = (scope: Uid): boolean => scopes === undefined || scopes.some((group) => isWithin(scope, group))
  if (wished.scopes?.every(isGranted) === false) throw notGranted({ reason: 'SCOPE_NOT_GRANTED', what: 'group' })
  return restrictFurther(restrictions, wished)
}

function readRestrictions(input: Pick<RequestedToken, 'scopes' | 'cap'>): Pick<TokenRestrictions, 'scopes' | 'capabilities'> {
  const scopes = [...new Set(input.scopes.filter((scope) => scope !== ''))].map((scope) => parseUid(scope, 'scopes'))
  if (!hasRoomFor(scopes)) throw DomainError.invalid('scopes', `must be at most ${maxListedGroups} uids, ${maxListedLength} characters in all`)
  const names = input.cap.filter((name) => name !== '')
  if (names.some((name) => capabilityByName(name) === undefined)) throw DomainError.invalid('cap', 'must be names of capabilities, such as groups.list')
  return {
    ...(scopes.length === 0 ? {} : { scopes }),
    ...(names.length === 0 ? {} : { capabilities: setOf(names) }),
  }
}
