import type { DecodedToken } from '../../auth/tokens/decoded-token.ts'
import type { Uid } from '../../base/uid.ts'
import { IdentityProvider_OIDC_CorrelationRule as CorrelationRule } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { scimStateOf } from './scim-state.ts'
import { isActive, userWith } from './scim-users.ts'

/** The claim that a provider's directory has as `externalId`, by its correlation rule (docs/spec/identities.md#correlation-rules). */
function correlationClaim(tables: RecordTables, provider: Uid): 'sub' | 'oid' {
  const record = tables.get('IdentityProvider', provider)
  // A record of kind IdentityProvider holds one.
  const configuration = record?.message.configuration
  const rule = configuration?.case === 'oidc' ? configuration.value.correlationRule : CorrelationRule.UNSPECIFIED
  return rule === CorrelationRule.OID_EQUALS_EXTERNAL_ID ? 'oid' : 'sub'
}

/** By what the provider's directory knows whom the token is of; empty where the token does not say. */
export function externalIdOf(tables: RecordTables, provider: Uid, { claims }: Pick<DecodedToken, 'claims'>): string {
  const value = claims[correlationClaim(tables, provider)]
  return typeof value === 'string' ? value : ''
}

/**
 * Whether the provider may stand for this person. Where its SCIM is on, only for active users of its directory: whoever is unknown to it, deleted or deactivated is refused.
 * Where SCIM is off its users have no effect (docs/spec/scim.md#admission, ADR 0019).
 */
export function admitsPerson(tables: RecordTables, provider: Uid, externalId: string): boolean {
  if (scimStateOf(tables, provider)?.enabled !== true) return true
  const record = externalId === '' ? undefined : userWith(tables, provider, { filter: 'external_id', value: externalId })
  return record !== undefined && isActive(record)
}

/** As admitsPerson, of whom a refresh token is; the claims of a family that was begun before its `externalId` was kept say only the subject. */
export function admitsRefresh(tables: RecordTables, provider: Uid, family: { readonly externalId: string; readonly subject: string }): boolean {
  const subject = correlationClaim(tables, provider) === 'sub' ? family.subject : ''
  return admitsPerson(tables, provider, family.externalId || subject)
}
