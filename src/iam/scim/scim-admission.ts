import type { DecodedToken } from '../../auth/tokens/decoded-token.ts'
import type { Uid } from '../../base/uid.ts'
import { IdentityProvider_OIDC_CorrelationRule as CorrelationRule, type IdentityProvider } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import { scimStateOf } from './scim-state.ts'
import { isActive, userWith } from './scim-users.ts'

/** The claim that a provider's directory has as `externalId`, by its correlation rule (docs/spec/identities.md#correlation-rules). */
function correlationClaim(snapshot: Snapshot, provider: Uid): 'sub' | 'oid' {
  const row = snapshot.get('IdentityProvider', provider)
  // A row of kind IdentityProvider holds one.
  const configuration = (row?.message as unknown as IdentityProvider | undefined)?.configuration
  const rule = configuration?.case === 'oidc' ? configuration.value.correlationRule : CorrelationRule.UNSPECIFIED
  return rule === CorrelationRule.OID_EQUALS_EXTERNAL_ID ? 'oid' : 'sub'
}

/** By what the provider's directory knows whom the token is of; empty where the token does not say. */
export function externalIdOf(snapshot: Snapshot, provider: Uid, { claims }: Pick<DecodedToken, 'claims'>): string {
  const value = claims[correlationClaim(snapshot, provider)]
  return typeof value === 'string' ? value : ''
}

/**
 * Whether the provider may stand for this person. Where its SCIM is on, only for active users of its directory: whoever is unknown to it, deleted or deactivated is refused.
 * Where SCIM is off its users have no effect (docs/spec/scim.md#admission, ADR 0019).
 */
export function admitsPerson(snapshot: Snapshot, provider: Uid, externalId: string): boolean {
  if (scimStateOf(snapshot, provider)?.enabled !== true) return true
  const row = externalId === '' ? undefined : userWith(snapshot, provider, { filter: 'external_id', value: externalId })
  return row !== undefined && isActive(row)
}

/** As admitsPerson, of whom a refresh token is; the claims of a family that was begun before its `externalId` was kept say only the subject. */
export function admitsRefresh(snapshot: Snapshot, provider: Uid, family: { readonly externalId: string; readonly subject: string }): boolean {
  const subject = correlationClaim(snapshot, provider) === 'sub' ? family.subject : ''
  return admitsPerson(snapshot, provider, family.externalId || subject)
}
