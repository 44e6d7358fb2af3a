import { create } from '@bufbuild/protobuf'
import type { MappedRole, SignInResult } from '../../auth/oidc/external-sign-in.ts'
import { normalizeIssuer } from '../../auth/oidc/issuer-name.ts'
import type { OidcClient } from '../../auth/oidc/oidc-client.ts'
import type { ProviderFacts } from '../../auth/oidc/trust-domain.ts'
import { actorClaims } from '../../auth/access-tokens/principal.ts'
import { isSuspended } from '../../authz/access.ts'
import { isUid, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { outboxWrite } from '../../engine/outbox.ts'
import { openSecret } from '../../engine/secrets.ts'
import type { Services } from '../../engine/services.ts'
import { MappedSessionSchema } from '../../gen/taproot/auth/v1/auth_pb.ts'
import type { IdentityProvider } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import { mappingsFor } from '../records/external-group-role-mappings.ts'
import { verifiedRoot } from '../records/groups.ts'
import { clientSecretPath, oidcOf } from '../records/identity-providers.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/**
 * Event of a sign-in that got roles from mapped groups (docs/spec/identities.md#mapped-sessions). It belongs to the organisation of the
 * provider.
 */
const event = { type: 'auth.session.mapped.v1', group: 'root', internal: false } as const

/**
 * Writes the event of a sign-in that got roles from mapped groups. Does nothing for other sign-ins. Rejects with StoreError: without the
 * event, the sign-in fails.
 */
export async function noteMappedSession(
  services: Services,
  signedIn: Pick<SignInResult, 'identityUid' | 'operator' | 'act' | 'mapped'>,
  signal: AbortSignal,
): Promise<void> {
  const { identityUid: identity, operator, act, mapped } = signedIn
  if (mapped === undefined) return
  const { provider, roles } = mapped
  const caller = { identity, operator, actor: actorClaims(act), restrictions: {}, permissions: () => ({ operator: false, grants: [] }) }
  const message = create(MappedSessionSchema, {
    identity,
    identityProvider: provider,
    roles: roles.map(({ externalGroup, role, group: scope }) => ({ externalGroup, role, scope })),
  })
  const happened = { source: `${services.settings.ownIssuer}/sts/exchange`, subject: provider, nowMs: services.clock.now(), caller }
  const write = outboxWrite(services.random, { event, ...happened, body: { desc: MappedSessionSchema, message } })
  await services.store.transact({ guards: [], writes: [write] }, signal)
}

function providerIn(record: CachedRecord): IdentityProvider {
  return messageOf(record, 'IdentityProvider')
}

/** Returns the identity providers with this issuer, ordered by uid. */
export function providersOf(tables: RecordTables, issuer: string): ProviderFacts[] {
  const records = [...tables.table('IdentityProvider').matching('issuer', normalizeIssuer(issuer))]
  return records.flatMap((record) => {
    const oidc = oidcOf(providerIn(record))
    if (oidc === undefined) return []
    return [{ uid: record.uid, group: trustedUid(record.parent), issuer: oidc.issuer, clientId: oidc.clientId, groupsClaim: oidc.groupsClaim }]
  })
}

/**
 * Returns the roles that the mappings of the provider confer on a member of these groups (docs/spec/identities.md#mapped-sessions). None in a suspended
 * organisation.
 */
export function mappedRoles(tables: RecordTables, provider: Uid, groups: readonly string[]): MappedRole[] {
  if (isSuspended(tables, provider)) return []
  return mappingsFor(tables, provider, groups).flatMap(({ scope, roleUid, externalGroupId: externalGroup }) =>
    isUid(roleUid) ? [{ group: scope, role: roleUid, externalGroup }] : [],
  )
}

/** Returns the provider's record if it still has the issuer and client with which the sign-in started; undefined otherwise. */
export function unchangedProvider(tables: RecordTables, begun: Pick<ProviderFacts, 'uid' | 'issuer' | 'clientId'>): CachedRecord | undefined {
  const record = tables.get('IdentityProvider', begun.uid)
  if (record === undefined) return undefined
  const oidc = oidcOf(providerIn(record))
  const isSame = oidc !== undefined && normalizeIssuer(oidc.issuer) === normalizeIssuer(begun.issuer) && oidc.clientId === begun.clientId
  return isSame ? record : undefined
}

/** Returns the default role of the provider in this record. */
export function defaultRoleOf(record: CachedRecord): string {
  return providerIn(record).defaultRole
}

/** Returns the identity providers of the verified organisation with this name, ordered by uid. */
export function providersOfOrganization(tables: RecordTables, name: string): CachedRecord[] {
  const root = verifiedRoot(tables, name)
  return root === undefined ? [] : [...tables.table('IdentityProvider').matching('parent', root.uid)]
}

/**
 * Returns the OIDC client of an identity provider, with its secret; undefined if the provider or its settings are missing. Throws
 * SealingError.
 */
export function oidcClientOf(services: Pick<Services, 'keyring' | 'cache'>, provider: Uid): OidcClient | undefined {
  const record = services.cache.tables.get('IdentityProvider', provider)
  const oidc = record && oidcOf(providerIn(record))
  if (record === undefined || oidc === undefined) return undefined
  const { issuer, clientId, pkceEnabled, additionalScopes } = oidc
  return {
    tenant: rootOf(record.uid),
    issuer,
    clientId,
    pkce: pkceEnabled,
    additionalScopes,
    clientSecret: openSecret(services.keyring, record, clientSecretPath),
  }
}
