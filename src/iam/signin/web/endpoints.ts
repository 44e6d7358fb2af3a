import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { TokenExchange, ExchangeInput } from '../exchange.ts'
import type { Profile } from '../../../auth/access-tokens/principal.ts'
import type { Uid } from '../../../base/uid.ts'
import { WhoAmI_ProfileSchema, WhoAmISchema, type WhoAmI_Profile } from '../../../gen/taproot/auth/v1/auth_pb.ts'
import { RawTokenSchema, type ExchangeRequest } from '../../../gen/taproot/oidc/v1/security_token_service_pb.ts'
import { callerOfToken } from '../../../engine/services.ts'
import type { Call } from '../../../transport/calls/call.ts'
import { HeldAnswers, heldField } from './held-answers.ts'
import { headlessSessionEndpoint, noteExchanged, refreshEndpoint, registerByToken, registerEndpoint, type PeopleEndpointOptions } from './people-endpoints.ts'
import type { EndpointHandler } from '../../../transport/calls/pipeline.ts'

/** The dependencies and options of the endpoints. */
export interface EndpointOptions extends PeopleEndpointOptions {
  readonly exchange: TokenExchange
  /** `iss` and default audience of the platform's tokens. */
  readonly ownIssuer: string
}

/**
 * Exchanges a token that an identity's claim match accepts for an access token (docs/spec/tokens.md#token-exchange). In a dry run, the
 * response has no token, and the audit line no new identity.
 */
function exchangeEndpoint(options: EndpointOptions): EndpointHandler {
  const { services, exchange, tokenIssue, admit } = options
  return async (call, message) => {
    const request = message as ExchangeRequest
    const input = inputOf(call, request)
    // A person who signs in with an organisation's provider is registered at the first sign-in (docs/spec/identities.md#registration).
    const registers = request.identityProvider !== '' && request.identity === ''
    if (registers) {
      const { requestId, authorization } = call.headers
      const as = { identityProvider: request.identityProvider }
      const registration = { requestId, validateOnly: call.validateOnly, signal: call.signal }
      const before = (person: Uid): void => {
        admit?.(person)
        tokenIssue.check(input)
      }
      const { identity } = await registerByToken(options, { ...registration, authorization, as, before })
      // A dry run registers no one, so there is no token to check for an unknown person.
      const isKnown = services.cache.tables.get('Identity', identity) !== undefined
      if (call.validateOnly && !isKnown) return { message: create(RawTokenSchema), subject: identity }
    }
    const { token, expiryMs, principal } = await exchange(input, call.signal)
    const subject = principal.identityUid
    if (!registers) admit?.(subject)
    // A session with mapped roles must not start without its event.
    if (call.validateOnly) return { message: create(RawTokenSchema), subject }
    await noteExchanged(services, principal, call.signal)
    return { message: create(RawTokenSchema, { token, expiry: timestampFromMs(expiryMs) }), subject }
  }
}

function inputOf({ headers }: Call, { aud, identity, scopes, scope, cap, identityProvider }: ExchangeRequest): ExchangeInput {
  // The older field `scope` adds one more item to `scopes`.
  return { authorization: headers.authorization, aud, identity, scopes: [...scopes, scope], cap, identityProvider }
}

function profileOf({ name = '', picture = '', given_name: givenName = '', family_name: familyName = '' }: Profile): WhoAmI_Profile {
  return create(WhoAmI_ProfileSchema, { name, picture, givenName, familyName })
}

/** Returns the caller's identity, token and capabilities. */
function whoAmIEndpoint(options: EndpointOptions): EndpointHandler {
  // Created by the first call; from then on, it is updated with the records of the replica.
  let answers: HeldAnswers | undefined
  return async (call, _message, session) => {
    if (session === undefined) throw new TypeError('the handler of Validate was called without a session')
    const { token, caller } = session
    answers ??= new HeldAnswers(options.services)
    const held = await answers.of(call.transport, caller)
    // Building the response may take time. The identity must still exist at the commit of the response.
    callerOfToken(options.services, token)
    const { email = '', emailVerified = false, profile } = token.act
    const message = create(WhoAmISchema, {
      issuer: options.ownIssuer,
      subject: caller.identity,
      audience: [options.ownIssuer],
      expiry: timestampFromMs(token.expiresAtMs),
      issuedAt: timestampFromMs(token.issuedAtMs),
      capabilities: 'items' in held ? held.items : [],
      email,
      emailVerified,
      ...(profile === undefined ? {} : { profile: profileOf(profile) }),
    })
    return 'joined' in held ? { message, page: { field: heldField, items: [], joined: held.joined } } : { message }
  }
}

/** Returns handlers for the methods on tokens, which have no records. */
export function createEndpoints(options: EndpointOptions): ReadonlyMap<string, EndpointHandler> {
  return new Map([
    ['taproot.oidc.v1.SecurityTokenService/Exchange', exchangeEndpoint(options)],
    ['taproot.oidc.v1.SecurityTokenService/ExchangeRefreshToken', refreshEndpoint(options)],
    ['taproot.auth.v1.Auth/Validate', whoAmIEndpoint(options)],
    ['taproot.auth.v1.Auth/Register', registerEndpoint(options)],
    ['taproot.auth.v1.Auth/GetHeadlessSession', headlessSessionEndpoint(options)],
  ])
}
