import type { DecodedToken } from '../../auth/access-tokens/decoded-token.ts'
import type { Uid } from '../../base/uid.ts'
import { IdentityProvider_OIDC_CorrelationRule as CorrelationRule } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { scimStateOf } from './scim-state.ts'
import { isActive, userWith } from './scim-users.ts'

/**
 * Returns the token claim that corresponds to `externalId` in the directory, by the provider's correlation rule
 * (docs/spec/identities.md#correlation-rules).
 */
function correlationClaim(tables: RecordTables, provider: Uid): 'sub' | 'oid' {
  const record = tables.get('IdentityProvider', provider)
  const configuration = record?.message.configuration
  const rule = configuration?.case === 'oidc' ? configuration.value.correlationRule : CorrelationRule.UNSPECIFIED
  return rule === CorrelationRule.OID_EQUALS_EXTERNAL_ID ? 'oid' : 'sub'
}

/** Returns the id of the token's person in the provider's directory; empty if the token has none. */
export function externalIdOf(tables: RecordTables, provider: Uid, { claims }: Pick<DecodedToken, 'claims'>): string {
  const value = claims[correlationClaim(tables, provider)]
  return typeof value === 'string' ? value : ''
}

/**
 * Returns true if the person may sign in with the provider. If SCIM is on, the person must be an active user of its directory. Unknown,
 * deleted and deactivated users are refused. If SCIM is off, its users have no effect (docs/spec/scim.md#admission, ADR 0019).
 */
export function admitsPerson(tables: RecordTables, provider: Uid, externalId: string): boolean {
  if (scimStateOf(tables, provider)?.enabled !== true) return true
  const record = externalId === '' ? undefined : userWith(tables, provider, { filter: 'external_id', value: externalId })
  return record !== undefined && isActive(record)
}

/** Like admitsPerson, for the person of a refresh token. If no `externalId` was stored with the token, uses the subject. */
export function admitsRefresh(tables: RecordTables, provider: Uid, family: { readonly externalId: string; readonly subject: string }): boolean {
  const subject = correlationClaim(tables, provider) === 'sub' ? family.subject : ''
  return admitsPerson(tables, provider, family.externalId || subject)
}
