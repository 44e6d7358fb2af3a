import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Exchange, ExchangeInput } from '../authn/exchange.ts'
import type { Profile } from '../authn/principal.ts'
import { roleCapabilities } from '../authz/grants-index.ts'
import { capabilitiesAtMany } from '../authz/reach.ts'
import { intersect, isEmpty, namesOf } from '../core/capability.ts'
import { trustedUid, type Uid } from '../core/uid.ts'
import { WhoAmI_HeldSchema, WhoAmI_ProfileSchema, WhoAmISchema, type WhoAmI_Held, type WhoAmI_Profile } from '../gen/taproot/auth/v1/auth_pb.ts'
import type { Group } from '../gen/taproot/iam/v2/groups_pb.ts'
import type { Role } from '../gen/taproot/iam/v2/roles_pb.ts'
import { RawTokenSchema, type ExchangeRequest } from '../gen/taproot/oidc/v1/security_token_service_pb.ts'
import { bindingOf } from '../resources/grant-rules.ts'
import { groupKind } from '../resources/iam/groups.ts'
import { rendered } from '../resources/shown.ts'
import type { Call } from './call.ts'
import { headlessSessionDoor, noteExchanged, refreshDoor, registerByToken, registerDoor, type PeopleDoorOptions } from './people-doors.ts'
import type { DoorHandler, Session } from './pipeline.ts'

/** What the doors are made of. */
export interface DoorOptions extends PeopleDoorOptions {
  readonly exchange: Exchange
  /** `iss` and default audience of our tokens. */
  readonly ownIssuer: string
}

/** Token exchange: a token that an identity's claim match accepts, for an access token of ours (rules 8). A dry run gives none, and tells of nobody. */
function exchangeDoor(options: DoorOptions): DoorHandler {
  const { services, exchange, tokenIssue, admit } = options
  return async (call, message) => {
    const request = message as ExchangeRequest
    const input = inputOf(call, request)
    // Whom an organisation's provider brings becomes known at the first sign-in (rules 2.7).
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
      // Who would become known by it can't be exchanged for yet.
      const isKnown = services.replica.snapshot.get('Identity', identity) !== undefined
      if (call.validateOnly && !isKnown) return { message: create(RawTokenSchema), subject: identity }
    }
    const { token, expiryMs, principal } = await exchange(input, call.signal)
    const subject = principal.identityUid
    if (!registers) admit?.(subject)
    // A session that nothing tells of is none.
    if (call.validateOnly) return { message: create(RawTokenSchema), subject }
    await noteExchanged(services, principal, call.signal)
    return { message: create(RawTokenSchema, { token, expiry: timestampFromMs(expiryMs) }), subject }
  }
}

function inputOf({ headers }: Call, { aud, identity, scopes, scope, cap, identityProvider }: ExchangeRequest): ExchangeInput {
  // The older single field counts like one of the list.
  return { authorization: headers.authorization, aud, identity, scopes: [...scopes, scope], cap, identityProvider }
}

/** What the caller holds, binding by binding, cut like their token. */
function heldBy({ services }: DoorOptions, { caller }: Session): WhoAmI_Held[] {
  const heldAt = capabilitiesAtMany(caller.reach())
  const { snapshot } = services.replica
  return [...snapshot.table('RoleBinding').matching('identity', caller.identity)].flatMap((row) => {
    const role = snapshot.get('Role', bindingOf(row).roleUid)
    const group = snapshot.get('Group', row.parent)
    if (role === undefined || group === undefined) return []
    const held = intersect(roleCapabilities(role), heldAt(trustedUid(row.parent)))
    // The rows of a kind hold that kind's messages.
    const shown = {
      group: rendered(groupKind, snapshot, group.message) as unknown as Group,
      role: role.message as unknown as Role,
      capabilities: [...namesOf(held)],
    }
    return isEmpty(held) ? [] : [create(WhoAmI_HeldSchema, shown)]
  })
}

function profileOf({ name = '', picture = '', given_name: givenName = '', family_name: familyName = '' }: Profile): WhoAmI_Profile {
  return create(WhoAmI_ProfileSchema, { name, picture, givenName, familyName })
}

/** Who the caller is. */
function whoAmIDoor(options: DoorOptions): DoorHandler {
  return (_call, _message, session) => {
    if (session === undefined) throw new TypeError('Validate needs a caller')
    const { token, caller } = session
    const { email = '', profile } = token.act
    const message = create(WhoAmISchema, {
      issuer: options.ownIssuer,
      subject: caller.identity,
      audience: [options.ownIssuer],
      expiry: timestampFromMs(token.expiresAtMs),
      issuedAt: timestampFromMs(token.issuedAtMs),
      capabilities: heldBy(options, session),
      email,
      ...(profile === undefined ? {} : { profile: profileOf(profile) }),
    })
    return Promise.resolve({ message })
  }
}

/** The methods that work on tokens rather than on records. */
export function createDoors(options: DoorOptions): ReadonlyMap<string, DoorHandler> {
  return new Map([
    ['taproot.oidc.v1.SecurityTokenService/Exchange', exchangeDoor(options)],
    ['taproot.oidc.v1.SecurityTokenService/ExchangeRefreshToken', refreshDoor(options)],
    ['taproot.auth.v1.Auth/Validate', whoAmIDoor(options)],
    ['taproot.auth.v1.Auth/Register', registerDoor(options)],
    ['taproot.auth.v1.Auth/GetHeadlessSession', headlessSessionDoor(options)],
  ])
}
