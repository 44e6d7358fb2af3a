import { create } from '@bufbuild/protobuf'
import type { MappedRole, SignInResult } from '../../auth/oidc/external-sign-in.ts'
import { normalizeIssuer } from '../../auth/oidc/issuer-name.ts'
import type { OidcClient } from '../../auth/oidc/oidc-client.ts'
import type { ProviderFacts } from '../../auth/oidc/trust-domain.ts'
import { actorClaims } from '../../auth/tokens/principal.ts'
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

/** The event of a sign-in whose groups gave it roles (docs/spec/identities.md#mapped-sessions; its type is ours). It belongs to the provider's organisation. */
const event = { type: 'auth.session.mapped.v1', group: 'root', internal: false } as const

/** Tells of a sign-in that the mappings of its groups gave roles to; does nothing for others. Rejects with StoreError: nobody gets such roles in secret. */
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

/** The identity providers that name this issuer, in the order of their uids. */
export function providersOf(tables: RecordTables, issuer: string): ProviderFacts[] {
  const records = [...tables.table('IdentityProvider').matching('issuer', normalizeIssuer(issuer))]
  return records.flatMap((record) => {
    const oidc = oidcOf(providerIn(record))
    if (oidc === undefined) return []
    return [{ uid: record.uid, group: trustedUid(record.parent), issuer: oidc.issuer, clientId: oidc.clientId, groupsClaim: oidc.groupsClaim }]
  })
}

/** The roles that the provider's mappings give to a member of these groups (docs/spec/identities.md#mapped-sessions); none in a suspended organisation. */
export function mappedRoles(tables: RecordTables, provider: Uid, groups: readonly string[]): MappedRole[] {
  if (isSuspended(tables, provider)) return []
  return mappingsFor(tables, provider, groups).flatMap(({ scope, roleUid, externalGroupId: externalGroup }) =>
    isUid(roleUid) ? [{ group: scope, role: roleUid, externalGroup }] : [],
  )
}

/** The provider's record, where it still has the issuer and the client that a sign-in began with; undefined where it is gone or changed. */
export function unchangedProvider(tables: RecordTables, begun: Pick<ProviderFacts, 'uid' | 'issuer' | 'clientId'>): CachedRecord | undefined {
  const record = tables.get('IdentityProvider', begun.uid)
  if (record === undefined) return undefined
  const oidc = oidcOf(providerIn(record))
  const isSame = oidc !== undefined && normalizeIssuer(oidc.issuer) === normalizeIssuer(begun.issuer) && oidc.clientId === begun.clientId
  return isSame ? record : undefined
}

/** The role that the provider in this record gives at the first sign-in by it. */
export function defaultRoleOf(record: CachedRecord): string {
  return providerIn(record).defaultRole
}

/** The identity providers of the verified organisation of this name, in the order of their uids. */
export function providersOfOrganization(tables: RecordTables, name: string): CachedRecord[] {
  const root = verifiedRoot(tables, name)
  return root === undefined ? [] : [...tables.table('IdentityProvider').matching('parent', root.uid)]
}

/** The client at an identity provider, with its secret; undefined where the provider is gone, or has no configuration. Throws SealingError. */
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
