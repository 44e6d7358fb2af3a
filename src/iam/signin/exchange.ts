import { restrictFurther, type TokenRestrictions } from '../../auth/tokens/token-restrictions.ts'
import { capabilityByName, setOf } from '../../base/capability.ts'
import type { CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isWithin, parseUid } from '../../base/uid.ts'
import type { Uid } from '../../base/uid.ts'
import { parseAuthorization } from '../../auth/tokens/authorization-header.ts'
import { awsRequestText } from '../../auth/aws/aws-request.ts'
import type { AwsSignIn } from '../../auth/aws/aws-sign-in.ts'
import { hasRoomFor, maxListedGroups, maxListedLength } from '../../auth/tokens/caller-claims.ts'
import { decodeToken, maxTokenLength } from '../../auth/tokens/decoded-token.ts'
import { urlForms } from '../../auth/tokens/token-verifier.ts'
import type { Actor } from '../../auth/tokens/principal.ts'
import { sessionRoles, type ExternalSignIn, type SignInResult } from '../../auth/oidc/external-sign-in.ts'
import type { AccessGrant, PlatformTokens } from '../../auth/tokens/platform-token.ts'
import { tokenFailure } from '../../auth/tokens/token-error.ts'

/** Request of a token exchange (docs/spec/tokens.md#token-exchange). Repeated keys are lists, and `scopes` contains `scope`. */
export interface ExchangeInput {
  /** Raw `authorization` header or metadata: the upstream token, or a signed AWS request. */
  readonly authorization: string | undefined
  readonly aud: readonly string[]
  /** Identity to assume. Empty means absent. */
  readonly identity?: string
  /** Identity provider of the sign-in. Empty means absent. */
  readonly identityProvider?: string
  readonly scopes: readonly string[]
  /** Names of capabilities, such as `groups.list`. */
  readonly cap: readonly string[]
}

/** A new access token. */
export interface Exchanged {
  readonly token: string
  readonly expiryMs: number
  /** Has no token if a signed AWS request replaces it. */
  readonly principal: Omit<SignInResult, 'token'> & Partial<Pick<SignInResult, 'token'>>
  readonly restrictions: TokenRestrictions
  readonly audiences: readonly string[]
}

/** Limits of the original sign-in. A later token cannot exceed them. */
export interface TokenBounds {
  readonly restrictions: TokenRestrictions
  /** Absent at the sign-in itself: then the configuration defines the audiences. An empty list means the default one. */
  readonly audiences?: readonly string[]
}

/** Subject of an access token. */
export type TokenSubject = Pick<SignInResult, 'identityUid' | 'createTimeMs' | 'act'> & TokenBounds

/** Requested audiences and restrictions of the token. */
export type RequestedToken = Pick<ExchangeInput, 'aud' | 'scopes' | 'cap'>

/**
 * Issues access tokens after a sign-in. Both methods throw DomainError code 3 on `aud`, `scopes` or `cap`. They throw code 7 `AUDIENCE_NOT_GRANTED` and
 * `SCOPE_NOT_GRANTED` if the request exceeds the sign-in. They throw code 9 `TOKEN_TOO_LARGE` if an endpoint would refuse the token. `cap` can only remove
 * capabilities (docs/spec/tokens.md#narrowing).
 */
export interface TokenIssue {
  /** Checks that the request can be granted. Without a holder, it checks against any sign-in. */
  check(requested: RequestedToken, holder?: TokenSubject): void
  /** Returns a token with the requested restrictions. Without requested audiences, it has those of the sign-in. */
  issue(holder: TokenSubject, requested: RequestedToken): Promise<Pick<Exchanged, 'token' | 'expiryMs' | 'restrictions' | 'audiences'>>
}

/** Dependencies of the token issue. */
export interface TokenIssueOptions {
  readonly tokens: PlatformTokens
  /** Audiences that can be requested, configuration `tokens.audiences`. */
  readonly audiences: readonly string[]
  /** Default audience. */
  readonly defaultAudience: string
  /**
   * Whether the configuration currently trusts the issuer to verify e-mail addresses. A refresh token can outlive a configuration. If absent, no issuer is
   * trusted.
   */
  trusts?(issuer: string): boolean
  /** Capabilities of the identity by group uid, as information in the claim `cap` of the token. Undefined if they are too many for a token. */
  heldBy?(identity: Uid, restrictions: TokenRestrictions): Promise<ReadonlyMap<Uid, CapabilitySet> | undefined>
}

/** See TokenIssue. */
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
 * Token exchange for REST and gRPC. Throws DomainError 16 without a readable bearer, 7 `verifying token: ...` for an invalid one, and 7 if it does not match.
 * Throws 14 if the keys of the issuer cannot be fetched, and 3 on `aud`, `scopes` or `cap`.
 */
export type TokenExchange = (input: ExchangeInput, signal: AbortSignal) => Promise<Exchanged>

/** Sign-in functions of an exchange. */
export interface ExchangeSignIn {
  readonly external: ExternalSignIn
  readonly aws: AwsSignIn
}

/** See Exchange. */
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

/** Returns the audiences as the client writes them. A final slash is ignored in the check. */
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

/** Returns the limits after the requested restrictions. */
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
