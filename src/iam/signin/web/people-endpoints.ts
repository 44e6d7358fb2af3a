import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { parseAuthorization } from '../../../auth/tokens/authorization-header.ts'
import { decodeToken, type DecodedToken } from '../../../auth/tokens/decoded-token.ts'
import type { Exchanged, TokenHolder, TokenIssue, RequestedToken } from '../exchange.ts'
import type { ExternalSignIn, PersonToken, SignInAs } from '../../../auth/oidc/external-sign-in.ts'
import { tokenFailure } from '../../../auth/tokens/token-error.ts'
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
import type { Call } from '../../../transport/call.ts'
import type { EndpointHandler } from '../../../transport/pipeline.ts'

/** What the doors for people are made of. */
export interface PeopleEndpointOptions {
  readonly services: Services
  readonly signIn: ExternalSignIn
  readonly tokenIssue: TokenIssue
  /**
   * Counts a request of whom a door has found behind a credential. Throws code 8, so it comes before anything is written: clients repeat what was answered so (docs/spec/limits.md#rate-limits).
   * Absent where requests are not limited.
   */
  readonly admit?: (principal: Uid) => void
}

/** The text of a claim; undefined where it is none. */
function claimText(token: DecodedToken, claim: string): string | undefined {
  const value = token.claims[claim]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** What is registered of the person that a verified token stands for. */
export function personOfToken(token: DecodedToken, { uid, act, knownIn }: PersonToken): Person {
  return {
    uid,
    act,
    name: claimText(token, 'name') ?? claimText(token, 'preferred_username'),
    emailUnverified: claimText(token, 'email'),
    ...(knownIn === undefined ? {} : { knownIn }),
  }
}

/** Notes what a sign-in came to: the event of roles of mapped groups, when the identity was last seen, and a person's address. Rejects with StoreError where the event is lost. */
export async function noteExchanged(services: Services, principal: Exchanged['principal'], signal: AbortSignal): Promise<void> {
  await noteMappedSession(services, principal, signal)
  const { identityUid: uid, act, restrictions, token } = principal
  const person = token === undefined || uid.includes('/') ? undefined : personOfToken(token, { uid, act, via: [], ...restrictions })
  await noteSignIn(services, uid, person)
}

/** Somebody who comes with a token of their issuer. */
interface Arrival extends Omit<Registration, 'person' | 'via'> {
  readonly authorization: string | undefined
  readonly as: Pick<SignInAs, 'identityProvider'>
  /** Shown who it is before anything is written; what this throws leaves all as it is. */
  readonly before?: ((person: Uid) => void) | undefined
}

/**
 * Makes the person of an external token known, and gives what the provider that they came by gives at the first sign-in. Throws as the token exchange, what `before` throws,
 * and code 7 `NOT_INVITED`.
 */
export async function registerByToken(
  { services, signIn }: Pick<PeopleEndpointOptions, 'services' | 'signIn'>,
  { authorization, as, before, ...rest }: Arrival,
): Promise<Registered> {
  const { token, person } = await verifiedPerson(signIn, authorization, { as, signal: rest.signal })
  before?.(person.uid)
  await services.replica.barrier(rest.signal)
  return registerPerson(services, { ...rest, person: personOfToken(token, person), via: person.via })
}

/** Verifies the token of a person, as a sign-in does. Throws as the token exchange. */
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

/** Auth.Register: the person of the bearer becomes known (docs/spec/identities.md#registration). */
export function registerEndpoint(options: PeopleEndpointOptions): EndpointHandler {
  return async (call, message) => {
    const { identityId, code } = message as RegisterRequest
    const { requestId, authorization } = call.headers
    const registration = { requestId, validateOnly: call.validateOnly, signal: call.signal, identityId, code }
    const registered = await registerByToken(options, { ...registration, authorization, as: {}, before: options.admit })
    return { message: create(SessionSchema, registered), subject: registered.identity }
  }
}

/** Auth.GetHeadlessSession: what a browser left for the holder of the key (docs/spec/tokens.md#device-sign-in). Throws code 5 where nothing was left, or not lately. */
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

/** What a refresh token came to. */
interface Refreshed {
  readonly person: Uid
  readonly access: { readonly token: string; readonly expiryMs: number }
  readonly next: IssuedRefreshToken
}

/** Uses a refresh token up for an access token and a successor (docs/spec/tokens.md#refresh-tokens). Throws code 16; code 8 and as TokenIssue before the token is used. */
export async function refreshed(
  { services, tokenIssue, admit }: Pick<PeopleEndpointOptions, 'services' | 'tokenIssue' | 'admit'>,
  { text, requested }: { text: string; requested: RequestedToken },
  signal: AbortSignal,
): Promise<Refreshed> {
  const holderOf = ({ person, claims, audiences }: RefreshGrant): TokenHolder => {
    const createTimeMs = services.replica.snapshot.get('Identity', person)?.createMs
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

/** ExchangeRefreshToken: the bearer is used up, the answer carries an access token and its successor (docs/spec/tokens.md#refresh-tokens). */
export function refreshEndpoint(options: PeopleEndpointOptions): EndpointHandler {
  return async (call, message) => {
    const request = message as ExchangeRefreshTokenRequest
    if (call.validateOnly) throw DomainError.invalid('validate_only', 'a refresh token can not be tried without being used')
    const requested = { aud: request.aud, scopes: [...request.scopes, request.scope], cap: request.cap }
    const { person, access, next } = await refreshed(options, { text: refreshTokenOf(call), requested }, call.signal)
    const answer = create(TokenPairSchema, {
      token: create(RawTokenSchema, { token: access.token, expiry: timestampFromMs(access.expiryMs) }),
      refreshToken: create(RawTokenSchema, { token: next.text, expiry: timestampFromMs(next.expireMs) }),
    })
    return { message: answer, subject: person }
  }
}
