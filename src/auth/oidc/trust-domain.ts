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
  readonly trustedGroups?: readonly Uid[]
}

/**
 * Returns where a person's verified token counts (docs/spec/identities.md#trust-domain). It counts everywhere only if configuration names its issuer
 * and the token is for the platform. Otherwise it needs a matching identity provider and counts in that provider's group alone.
 * The issuer may be the group's own, and the operator of the group's client may have obtained the token.
 * A token for the platform was issued for no client. It proves who the person is, but not that they belong to a group.
 * Throws code 3 on `identity_provider`. Throws code 7 if no provider matches, with `NOT_PROVISIONED` if directories reject the person.
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
  if (standing.length === 0 || audience === undefined) throw noneTrusts(named)
  return { audience, trustedGroups: [...new Set(standing.map(({ group }) => group))], via }
}

/** Returns the same code 7 for a missing provider and for another's provider, so that the answer does not reveal which exist. */
function noneTrusts(named: Uid | undefined): DomainError {
  const message = named === undefined ? 'the token is for another audience' : 'the identity provider with this uid has another issuer or client than the token'
  return new DomainError(7, message)
}

/** Code 7 for whom the provider's directory did not make, has deactivated or has deleted. */
function notProvisioned(): DomainError {
  return new DomainError(7, 'the directory of the identity provider does not allow this person to sign in: ask its administrators', {
    reason: 'NOT_PROVISIONED',
  })
}

/**
 * Returns the trusted groups that fit into an access token. If all do not fit, it keeps those with a binding of the person in or below them.
 * Tenants that name an issuer therefore cannot keep its people out, by number or depth. Throws code 9 `TOKEN_TOO_LARGE` if these groups do not fit either.
 */
export function countingIn(trustedGroups: readonly Uid[], isBoundWithin: (group: Uid) => boolean): readonly Uid[] {
  if (hasRoomFor(trustedGroups)) return trustedGroups
  const counting = trustedGroups.filter(isBoundWithin)
  if (!hasRoomFor(counting)) throw tokenTooLarge('too many identity providers match this token: set `identity_provider` to the uid of one')
  return counting
}
