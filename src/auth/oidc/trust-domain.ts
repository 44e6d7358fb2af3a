import { DomainError } from '../../base/errors.ts'
import { parseUid, type Uid } from '../../base/uid.ts'
import { hasRoomFor } from '../tokens/caller-claims.ts'
import type { DecodedToken } from '../tokens/decoded-token.ts'
import { tokenTooLarge } from '../tokens/token-error.ts'

/** An identity provider of an organisation, as far as signing in needs to know it. */
export interface ProviderFacts {
  readonly uid: Uid
  /** The group that it lies in, and counts in. */
  readonly group: Uid
  readonly issuer: string
  readonly clientId: string
  /** The claim that holds the groups of a person; empty where groups are not mapped. */
  readonly groupsClaim: string
}

/** What a person's token is judged by. */
export interface TrustInput {
  /** The platform's own audiences. */
  readonly platform: readonly string[]
  /** True where the configuration names the issuer. */
  readonly isKnownIssuer: boolean
  /** The providers that name the issuer. */
  readonly providers: readonly ProviderFacts[]
  /** The provider that the person says they came by; empty counts as absent. */
  readonly provider: string | undefined
  /** Whether the provider's directory lets the person of the token in (docs/spec/scim.md#admission). Everybody where absent. */
  readonly admits: ((provider: ProviderFacts, token: DecodedToken) => boolean) | undefined
}

/** What a person's token is worth. */
export interface Trust {
  /** The one of its audiences that was accepted. */
  readonly audience: string
  /** The providers for whose client the token was made: only those the person named may give them a role. */
  readonly via: readonly ProviderFacts[]
  /** The groups that the person is known in; absent where the platform itself knows the issuer and is meant by the token: everywhere. */
  readonly knownIn?: readonly Uid[]
}

/**
 * Where a verified token of a person counts. Everywhere only where the configuration names its issuer and it is meant for the platform. Else an identity provider
 * stands for it, and it counts in that provider's group alone: its issuer may be the group's own, and a token for the group's client may have been obtained by
 * whoever runs that client (docs/spec/identities.md#trust-domain). A token for the platform was made for no client: it tells who somebody is, and not that they belong anywhere. Throws
 * code 3 on `identity_provider`; code 7 where no one stands for it, `NOT_PROVISIONED` where directories say no.
 */
export function trustOf(token: DecodedToken, { platform, isKnownIssuer, providers, provider = '', admits }: TrustInput): Trust {
  const named = provider === '' ? undefined : parseUid(provider, 'identity_provider')
  const forPlatform = token.audiences.find((audience) => platform.includes(audience))
  if (named === undefined && isKnownIssuer && forPlatform !== undefined) return { audience: forPlatform, via: [] }
  const trustDomain = providers.filter(({ uid, clientId }) => {
    if (named !== undefined && uid !== named) return false
    return token.audiences.includes(clientId) || forPlatform !== undefined
  })
  const standing = trustDomain.filter((one) => admits?.(one, token) ?? true)
  if (standing.length === 0 && trustDomain.length > 0) throw notProvisioned()
  const via = standing.filter(({ clientId }) => token.audiences.includes(clientId))
  const audience = via[0]?.clientId ?? forPlatform
  if (standing.length === 0 || audience === undefined) throw noneStands(named)
  return { audience, knownIn: [...new Set(standing.map(({ group }) => group))], via }
}

/** Code 7 in one form, whether the named provider is missing or is another's: nobody learns which there are. */
function noneStands(named: Uid | undefined): DomainError {
  const message = named === undefined ? 'the token is for another audience' : 'no identity provider of this uid has the issuer and the client of the token'
  return new DomainError(7, message)
}

/** Code 7 for whom the provider's directory did not make, has deactivated or has deleted. */
function notProvisioned(): DomainError {
  return new DomainError(7, "the identity provider's directory does not let this person in: ask its administrators", { reason: 'NOT_PROVISIONED' })
}

/**
 * As few groups as an access token has room for: where more vouch for a person, or their uids are long, those that the person is bound in, or below. So no number of
 * tenants that name an issuer keeps its people out, nor how deep they do it. Throws code 9 `TOKEN_TOO_LARGE` where those are too many, too.
 */
export function countingIn(knownIn: readonly Uid[], isBoundWithin: (group: Uid) => boolean): readonly Uid[] {
  if (hasRoomFor(knownIn)) return knownIn
  const counting = knownIn.filter(isBoundWithin)
  if (!hasRoomFor(counting)) throw tokenTooLarge('too many identity providers stand for this token: name one with `identity_provider`')
  return counting
}
