import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Exchange } from '../authn/exchange.ts'
import { roleCapabilities } from '../authz/grants-index.ts'
import { capabilitiesAt } from '../authz/reach.ts'
import { intersect, isEmpty, namesOf } from '../core/capability.ts'
import { WhoAmI_HeldSchema, WhoAmISchema, type WhoAmI_Held } from '../gen/taproot/auth/v1/auth_pb.ts'
import type { Group } from '../gen/taproot/iam/v2/groups_pb.ts'
import type { Role } from '../gen/taproot/iam/v2/roles_pb.ts'
import { RawTokenSchema, type ExchangeRequest } from '../gen/taproot/oidc/v1/security_token_service_pb.ts'
import { bindingOf } from '../resources/grant-rules.ts'
import { groupKind } from '../resources/iam/groups.ts'
import { noteSignIn } from '../resources/last-seen.ts'
import { rendered } from '../resources/shown.ts'
import type { Services } from '../resources/services.ts'
import type { DoorHandler, Session } from './pipeline.ts'

/** What the doors are made of. */
export interface DoorOptions {
  readonly services: Services
  readonly exchange: Exchange
  /** `iss` and default audience of our tokens. */
  readonly ownIssuer: string
}

/** Token exchange: a token that an identity's claim match accepts, for an access token of ours (rules 8). */
function exchangeDoor({ services, exchange }: DoorOptions): DoorHandler {
  return async (call, message) => {
    const request = message as ExchangeRequest
    const input = {
      authorization: call.headers.authorization,
      aud: request.aud,
      identity: request.identity,
      // The older single field counts like one of the list.
      scopes: [...request.scopes, request.scope],
      cap: request.cap,
    }
    const { token, expiryMs, principal } = await exchange(input, call.signal)
    await noteSignIn(services, principal.identityUid)
    return { message: create(RawTokenSchema, { token, expiry: timestampFromMs(expiryMs) }), subject: principal.identityUid }
  }
}

/** What the caller holds, binding by binding, cut like their token. */
function heldBy({ services }: DoorOptions, { caller }: Session): WhoAmI_Held[] {
  const reach = caller.reach()
  const { snapshot } = services.replica
  return [...snapshot.table('RoleBinding').matching('identity', caller.identity)].flatMap((row) => {
    const role = snapshot.get('Role', bindingOf(row).roleUid)
    const group = snapshot.get('Group', row.parent)
    if (role === undefined || group === undefined) return []
    const held = intersect(roleCapabilities(role), capabilitiesAt(reach, row.parent))
    // The rows of a kind hold that kind's messages.
    const shown = {
      group: rendered(groupKind, snapshot, group.message) as unknown as Group,
      role: role.message as unknown as Role,
      capabilities: [...namesOf(held)],
    }
    return isEmpty(held) ? [] : [create(WhoAmI_HeldSchema, shown)]
  })
}

/** Who the caller is. */
function whoAmIDoor(options: DoorOptions): DoorHandler {
  return (_call, _message, session) => {
    if (session === undefined) throw new TypeError('Validate needs a caller')
    const { token, caller } = session
    const message = create(WhoAmISchema, {
      issuer: options.ownIssuer,
      subject: caller.identity,
      audience: [options.ownIssuer],
      expiry: timestampFromMs(token.expiresAtMs),
      issuedAt: timestampFromMs(token.issuedAtMs),
      capabilities: heldBy(options, session),
      email: token.act.email ?? '',
    })
    return Promise.resolve({ message })
  }
}

/** The methods that work on tokens rather than on records. */
export function createDoors(options: DoorOptions): ReadonlyMap<string, DoorHandler> {
  return new Map([
    ['taproot.oidc.v1.SecurityTokenService/Exchange', exchangeDoor(options)],
    ['taproot.auth.v1.Auth/Validate', whoAmIDoor(options)],
  ])
}
