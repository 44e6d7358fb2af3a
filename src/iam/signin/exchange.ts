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

/** What is asked of an exchange (docs/spec/tokens.md#token-exchange); repeated keys as lists, `scope` already in `scopes`. */
export interface ExchangeInput {
  /** The raw `authorization` header or metadata: the upstream token, or a signed AWS request. */
  readonly authorization: string | undefined
  readonly aud: readonly string[]
  /** The identity to assume; empty counts as absent. */
  readonly identity?: string
  /** The provider that the person came by; empty counts as absent. */
  readonly identityProvider?: string
  readonly scopes: readonly string[]
  /** Dotted capability names. */
  readonly cap: readonly string[]
}

/** A fresh access token. */
export interface Exchanged {
  readonly token: string
  readonly expiryMs: number
  /** Without a token where a signed AWS request stands for it. */
  readonly principal: Omit<SignInResult, 'token'> & Partial<Pick<SignInResult, 'token'>>
  readonly restrictions: TokenRestrictions
  readonly audiences: readonly string[]
}

/** What an earlier sign-in allowed: a token that follows from it is for no more. */
export interface TokenBounds {
  readonly restrictions: TokenRestrictions
  /** Absent where it is the sign-in itself: then the configuration says which there are. An empty list stands for the default one. */
  readonly audiences?: readonly string[]
}

/** Whom an access token is made for. */
export type TokenSubject = Pick<SignInResult, 'identityUid' | 'createTimeMs' | 'act'> & TokenBounds

/** What of the token may be chosen. */
export type RequestedToken = Pick<ExchangeInput, 'aud' | 'scopes' | 'cap'>

/**
 * Makes access tokens for those who have signed in. Both throw DomainError code 3 on `aud`, `scopes` or `cap`; code 7 `AUDIENCE_NOT_GRANTED` and `SCOPE_NOT_GRANTED` where
 * more is wished than the sign-in was for; code 9 `TOKEN_TOO_LARGE` where a door would refuse the token. `cap` is only ever intersected (docs/spec/tokens.md#narrowing).
 */
export interface TokenIssue {
  /** Only looks whether the wishes can be met, by any sign-in where no holder is given. */
  check(requested: RequestedToken, holder?: TokenSubject): void
  /** A token, restricted as wished; of the audiences of the sign-in where none is wished. */
  issue(holder: TokenSubject, requested: RequestedToken): Promise<Pick<Exchanged, 'token' | 'expiryMs' | 'restrictions' | 'audiences'>>
}

/** What access tokens are made of. */
export interface TokenIssueOptions {
  readonly tokens: PlatformTokens
  /** The audiences that may be asked for, configuration `tokens.audiences`. */
  readonly audiences: readonly string[]
  /** The audience where none is asked for. */
  readonly defaultAudience: string
  /** Whether the configuration trusts the issuer about e-mail addresses now: a refresh token lives longer than a configuration. None where absent. */
  trusts?(issuer: string): boolean
  /** What the identity holds, by group uid: informational, for the token's `cap`. Undefined where that is too much for a token. */
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
 * The token exchange behind REST and gRPC. Throws DomainError: 16 without a readable bearer; 7 `verifying token: ...` for a bad one; 7 where it does not match; 14 where
 * the issuer's keys can't be had now; 3 on `aud`, `scopes` or `cap`.
 */
export type TokenExchange = (input: ExchangeInput, signal: AbortSignal) => Promise<Exchanged>

/** How an exchange signs in. */
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

/** Audiences as the client spells them; a final slash makes no difference to what is allowed. */
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

/** What the wishes leave of the bounds. */
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
