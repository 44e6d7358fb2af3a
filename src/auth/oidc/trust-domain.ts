import { DomainError } from '../../base/errors.ts'
import { parseUid, type Uid } from '../../base/uid.ts'
import { hasRoomFor } from '../access-tokens/caller-claims.ts'
import type { DecodedToken } from '../access-tokens/decoded-token.ts'
import { tokenTooLarge } from '../access-tokens/token-error.ts'

/** The data of an organisation's identity provider on which sign-in depends. */
export interface ProviderFacts {
  readonly uid: Uid
  /** Uid of the group that the provider belongs to and that trusts it. */
  readonly group: Uid
  readonly issuer: string
  readonly clientId: string
  /** Name of the claim with the person's groups; empty if the provider's groups are not mapped to roles. */
  readonly groupsClaim: string
}

/** The facts that decide which groups trust a person's token. */
export interface TrustInput {
  /** The audiences that stand for the platform. */
  readonly platform: readonly string[]
  /** True if the configuration names the issuer. */
  readonly isKnownIssuer: boolean
  /** The identity providers with this issuer. */
  readonly providers: readonly ProviderFacts[]
  /** Uid of the provider that the person names; empty counts as absent. */
  readonly provider: string | undefined
  /** Returns whether the provider's directory allows the person to sign in (docs/spec/scim.md#admission). If absent, everyone is allowed. */
  readonly admits: ((provider: ProviderFacts, token: DecodedToken) => boolean) | undefined
}

/** Which parts of the platform trust a person's token. */
export interface Trust {
  /** The audience of the token that was accepted. */
  readonly audience: string
  /** The providers for whose client the token was issued. Only the one that the person named may grant roles. */
  readonly via: readonly ProviderFacts[]
  /** The groups that trust the token. Absent if it is trusted everywhere, because the configuration names the issuer and the token is for the platform. */
  readonly trustedGroups?: readonly Uid[]
}

/**
 * Returns which groups trust a person's verified token (docs/spec/identities.md#trust-domain). All trust it only if the configuration names its issuer and the
 * token is for the platform. Otherwise an identity provider must match, and only that provider's group trusts the token. The group may run the issuer itself,
 * and the operator of the provider's client may have obtained the token. A token for the platform that was issued for no client proves who the person is, but
 * not that they belong to a group. Throws code 3 on `identity_provider`. Throws code 7 if no provider matches, with `NOT_PROVISIONED` if directories refuse
 * the person.
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

/**
 * Returns code 7 for a provider that does not match. It is the same for a missing provider and for another's provider, so that the answer does not reveal
 * which exist.
 */
function noneTrusts(named: Uid | undefined): DomainError {
  const message = named === undefined ? 'the token is for another audience' : 'the identity provider with this uid has another issuer or client than the token'
  return new DomainError(7, message)
}

/** Returns code 7 for a person whom the provider's directory did not create, or has deactivated or deleted. */
function notProvisioned(): DomainError {
  return new DomainError(7, 'the directory of the identity provider does not allow this person to sign in: ask its administrators', {
    reason: 'NOT_PROVISIONED',
  })
}

/**
 * Returns the trusted groups that fit into an access token. If there is no room for all, returns those in or below which the person has a role binding.
 * Tenants that name an issuer therefore cannot lock its people out with many or deep groups. Throws code 9 `TOKEN_TOO_LARGE` if these groups do not fit
 * either.
 */
export function countingIn(trustedGroups: readonly Uid[], isBoundWithin: (group: Uid) => boolean): readonly Uid[] {
  if (hasRoomFor(trustedGroups)) return trustedGroups
  const counting = trustedGroups.filter(isBoundWithin)
  if (!hasRoomFor(counting)) throw tokenTooLarge('too many identity providers match this token: set `identity_provider` to the uid of one')
  return counting
}
