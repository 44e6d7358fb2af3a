import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { parseAuthorization } from '../../../auth/access-tokens/authorization-header.ts'
import { decodeToken, type DecodedToken } from '../../../auth/access-tokens/decoded-token.ts'
import type { Exchanged, TokenSubject, TokenIssue, RequestedToken } from '../exchange.ts'
import type { ExternalSignIn, PersonToken, SignInAs } from '../../../auth/oidc/external-sign-in.ts'
import { tokenFailure } from '../../../auth/access-tokens/token-error.ts'
import { DomainError } from '../../../base/errors.ts'
import { errorDomainSuffix } from '../../../base/schema/schema.ts'
import type { Uid } from '../../../base/uid.ts'
import { HeadlessSessionSchema, SessionSchema, type GetHeadlessSessionRequest, type RegisterRequest } from '../../../gen/taproot/auth/v1/auth_pb.ts'
import { RawTokenSchema, TokenPairSchema, type ExchangeRefreshTokenRequest } from '../../../gen/taproot/oidc/v1/security_token_service_pb.ts'
import { notFound } from '../../../engine/errors.ts'
import { noteMappedSession } from '../sign-in-providers.ts'
import { registerPerson, type Person, type Registered, type Registration } from '../../records/people.ts'
import { headlessSession } from '../pending-logins.ts'
import { useRefreshToken, type IssuedRefreshToken, type RefreshGrant } from '../refresh-tokens.ts'
import { noteSignIn } from '../last-seen.ts'
import type { Services } from '../../../engine/services.ts'
import type { Call } from '../../../transport/calls/call.ts'
import type { EndpointHandler } from '../../../transport/calls/pipeline.ts'

/** The dependencies and options of the endpoints for people. */
export interface PeopleEndpointOptions {
  readonly services: Services
  readonly signIn: ExternalSignIn
  readonly tokenIssue: TokenIssue
  /**
   * Counts a request of the identity of a credential. Throws code 8. It is called before any write, because clients repeat such requests
   * (docs/spec/limits.md#rate-limits). Absent if requests are not limited.
   */
  readonly admit?: (principal: Uid) => void
}

/** Returns the value of a claim if it is a string that is not empty. */
function claimText(token: DecodedToken, claim: string): string | undefined {
  const value = token.claims[claim]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Returns the person of a verified token, for the registration. */
export function personOfToken(token: DecodedToken, { uid, act, trustedGroups }: PersonToken): Person {
  return {
    uid,
    act,
    name: claimText(token, 'name') ?? claimText(token, 'preferred_username'),
    emailUnverified: claimText(token, 'email'),
    ...(trustedGroups === undefined ? {} : { trustedGroups }),
  }
}

/**
 * Records a sign-in: its time, the event of roles from mapped groups, and the e-mail address of a person. Rejects with StoreError if the
 * event cannot be written.
 */
export async function noteExchanged(services: Services, principal: Exchanged['principal'], signal: AbortSignal): Promise<void> {
  await noteMappedSession(services, principal, signal)
  const { identityUid: uid, act, restrictions, token } = principal
  const person = token === undefined || uid.includes('/') ? undefined : personOfToken(token, { uid, act, via: [], ...restrictions })
  await noteSignIn(services, uid, person)
}

/** A person who registers with a token. */
interface Newcomer extends Omit<Registration, 'person' | 'via'> {
  readonly authorization: string | undefined
  readonly as: Pick<SignInAs, 'identityProvider'>
  /** Called with the person's uid before any write. If it throws, the person is not registered. */
  readonly before?: ((person: Uid) => void) | undefined
}

/**
 * Registers the person of an external token. At the first sign-in, the person gets the provider's default role. Throws the errors of the
 * token exchange and of `before`, and code 7 `NOT_INVITED`.
 */
export async function registerByToken(
  { services, signIn }: Pick<PeopleEndpointOptions, 'services' | 'signIn'>,
  { authorization, as, before, ...rest }: Newcomer,
): Promise<Registered> {
  const { token, person } = await verifiedPerson(signIn, authorization, { as, signal: rest.signal })
  before?.(person.uid)
  await services.cache.barrier(rest.signal)
  return registerPerson(services, { ...rest, person: personOfToken(token, person), via: person.via })
}

/** Verifies a person's token as a sign-in does. Throws the errors of the token exchange. */
export async function verifiedPerson(
  signIn: ExternalSignIn,
  authorization: string | undefined,
  { as, signal }: { as: Pick<SignInAs, 'identityProvider'>; signal: AbortSignal },
): Promise<{ token: DecodedToken; person: PersonToken }> {
  try {
    const token = decodeToken(parseAuthorization(authorization).token)
    return { token, person: await signIn.verifyPerson(token, as, signal) }
  } catch (error) {
    throw tokenFailure(error, 'exchange')
  }
}

/** Auth.Register: registers the person of the bearer token (docs/spec/identities.md#registration). */
export function registerEndpoint(options: PeopleEndpointOptions): EndpointHandler {
  return async (call, message) => {
    const { identityId, code } = message as RegisterRequest
    const { requestId, authorization } = call.headers
    const registration = { requestId, validateOnly: call.validateOnly, signal: call.signal, identityId, code }
    const registered = await registerByToken(options, { ...registration, authorization, as: {}, before: options.admit })
    return { message: create(SessionSchema, registered), subject: registered.identity }
  }
}

/**
 * Auth.GetHeadlessSession: returns the token that was encrypted for the holder of the key (docs/spec/tokens.md#device-sign-in). Throws
 * code 5 if it does not exist or has expired.
 */
export function headlessSessionEndpoint({ services }: Pick<PeopleEndpointOptions, 'services'>): EndpointHandler {
  return async (call, message) => {
    const { code } = message as GetHeadlessSessionRequest
    const session = await headlessSession(services, code, call.signal)
    if (session === undefined) throw notFound('HeadlessSession', '', { resourceType: `auth.${errorDomainSuffix}/HeadlessSession` })
    return { message: create(HeadlessSessionSchema, { ecdhPublicKey: Buffer.from(session.publicKey), encryptedIdtoken: session.encrypted }) }
  }
}

function refreshTokenOf(call: Call): string {
  try {
    return parseAuthorization(call.headers.authorization).token
  } catch (error) {
    throw tokenFailure(error, 'exchange')
  }
}

/** The result of using a refresh token. */
interface Refreshed {
  readonly person: Uid
  readonly access: { readonly token: string; readonly expiryMs: number }
  readonly next: IssuedRefreshToken
}

/**
 * Uses a refresh token for an access token and the next refresh token (docs/spec/tokens.md#refresh-tokens). Throws code 16. After an error
 * of `admit` or TokenIssue, the refresh token stays valid.
 */
export async function refreshed(
  { services, tokenIssue, admit }: Pick<PeopleEndpointOptions, 'services' | 'tokenIssue' | 'admit'>,
  { text, requested }: { text: string; requested: RequestedToken },
  signal: AbortSignal,
): Promise<Refreshed> {
  const holderOf = ({ person, claims, audiences }: RefreshGrant): TokenSubject => {
    const createTimeMs = services.cache.tables.get('Identity', person)?.createMs
    return { identityUid: person, act: claims.act, restrictions: claims.restrictions, audiences, ...(createTimeMs === undefined ? {} : { createTimeMs }) }
  }
  const before = (grant: RefreshGrant): void => {
    admit?.(grant.person)
    tokenIssue.check(requested, holderOf(grant))
  }
  const { next, ...grant } = await useRefreshToken(services, { text, before }, signal).catch((error: unknown) => {
    throw tokenFailure(error, 'exchange')
  })
  return { person: grant.person, access: await tokenIssue.issue(holderOf(grant), requested), next }
}

/**
 * ExchangeRefreshToken: uses the bearer token, which becomes invalid. Returns an access token and the next refresh token
 * (docs/spec/tokens.md#refresh-tokens).
 */
export function refreshEndpoint(options: PeopleEndpointOptions): EndpointHandler {
  return async (call, message) => {
    const request = message as ExchangeRefreshTokenRequest
    if (call.validateOnly)
      throw DomainError.invalid('validate_only', 'is not possible for a refresh token, because a check would use it up; send the request without it')
    const requested = { aud: request.aud, scopes: [...request.scopes, request.scope], cap: request.cap }
    const { person, access, next } = await refreshed(options, { text: refreshTokenOf(call), requested }, call.signal)
    const answer = create(TokenPairSchema, {
      token: create(RawTokenSchema, { token: access.token, expiry: timestampFromMs(access.expiryMs) }),
      refreshToken: create(RawTokenSchema, { token: next.text, expiry: timestampFromMs(next.expireMs) }),
    })
    return { message: answer, subject: person }
  }
}
