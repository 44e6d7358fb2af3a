import type { JsonObject } from '@bufbuild/protobuf'
import { capabilitiesFor } from '../../../../src/events/index.ts'
import { freshName } from '../../../support/test-server.ts'
import { walkTerms } from '../../walk/world.ts'
import { grantedRole } from '../world.ts'
import { below, conferring, forgiving, row, type ScopedRequest, type ScopedRow } from './scoped-row.ts'

const claimMatch = { issuer: 'https://issuer.example', subject: 'foreign-name' }
const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret' }
const sink = 'https://hooks.example.com/taproot'
/** The capabilities for the records that any event is about. */
const allEvents = capabilitiesFor({ types: [], includePulls: false })
const account = { amazon: { account: '123456789012' } }
/** The uid of a person without a binding. */
const person = 'd'.repeat(40)
const imageV1: ScopedRequest = (repoId, { digest }) => ({ repoId, digest })
/** Without such a tag, nothing is known about images. */
export const countsV1 = (repo: string): JsonObject => ({ repo, tag: 'none', from: '2026-01-01T00:00:00.000Z', to: '2026-01-02T00:00:00.000Z' })
const scimV1 = (identityProviderId: string): JsonObject => ({ identityProviderId })

/** The capabilities of the methods of version 1. */
export const scopedV1Methods: Readonly<Record<string, ScopedRow>> = {
  'Groups/Create': row('groups.create', 'place', below('group', { name: 'made by the matrix' })),
  'Groups/Update': row('groups.update', 'place', (id) => ({ id, name: 'replaced by the matrix' })),
  'Groups/Delete': forgiving(row('groups.delete', 'group', (id) => ({ id }))),
  'Identities/Create': row('identity.create', 'place', (parentId) => ({ parentId, identity: { name: 'made', claimMatch } })),
  'Identities/Update': row('identity.update', 'identity', (id) => ({ id, name: 'replaced', claimMatch })),
  'Identities/Delete': forgiving(row('identity.delete', 'identity', (id) => ({ id }))),
  'Roles/Create': row('roles.create', 'place', (parentId) => ({ parentId, role: { name: 'made', capabilities: ['groups.list'] } })),
  'Roles/Update': row('roles.update', 'role', (id) => ({ id, name: 'replaced', capabilities: ['groups.list'] })),
  'Roles/Delete': forgiving(row('roles.delete', 'role', (id) => ({ id }))),
  'RoleBindings/Create': conferring(row('role_bindings.create', 'place', below('roleBinding', { identity: person, role: grantedRole }))),
  'RoleBindings/CreateBatch': conferring(
    row('role_bindings.create', 'place', (parent) => ({ parent, roleBindings: [{ identity: person, role: grantedRole }] })),
  ),
  'RoleBindings/Update': conferring(row('role_bindings.update', 'binding', (id, { identity }) => ({ id, identity, role: grantedRole }))),
  'RoleBindings/Delete': forgiving(row('role_bindings.delete', 'binding', (id) => ({ id }))),
  'IdentityProviders/Create': conferring(
    row('identity_providers.create role_bindings.create', 'place', (parentId) => ({
      parentId,
      identityProvider: { name: 'made', defaultRole: grantedRole, oidc },
    })),
  ),
  'IdentityProviders/Update': conferring(
    row('identity_providers.update role_bindings.create', 'provider', (id) => ({ id, name: 'replaced', defaultRole: grantedRole, oidc })),
  ),
  'IdentityProviders/Delete': forgiving(row('identity_providers.delete', 'provider', (id) => ({ id }))),
  'IdentityProviders/GenerateScimToken': conferring(row('identity_providers.scim.manage identity_providers.list', 'provider', scimV1)),
  'IdentityProviders/RegenerateScimToken': conferring(
    row('identity_providers.scim.manage identity_providers.list', 'scimProvider', (id, { scimEtag: etag }) => ({ ...scimV1(id), etag })),
  ),
  'IdentityProviders/RevokeScimToken': row('identity_providers.scim.manage identity_providers.list', 'scimProvider', scimV1),
  'IdentityProviders/SetScimEnabled': row('identity_providers.scim.manage identity_providers.list', 'scimProvider', (id, { scimEtag: etag }) => ({
    ...scimV1(id),
    etag,
    enabled: false,
  })),
  'ExternalGroupRoleMappings/Get': row('identity_providers.list', 'mapping'),
  // docs/spec/identities.md#group-mappings: see CreateExternalGroupRoleMapping.
  'ExternalGroupRoleMappings/Create': conferring(
    row('identity_providers.create role_bindings.create', 'provider', (parentId, { place }) => ({
      parentId,
      mapping: { externalGroupId: 'made', roleUidp: grantedRole, scope: place.slice(0, 40) },
    })),
    'at the root',
  ),
  'ExternalGroupRoleMappings/Delete': forgiving(row('identity_providers.delete', 'mapping', (id) => ({ id }))),
  'ExternalGroupRoleMappings/BatchDelete': row('identity_providers.delete', 'mappedProvider', (parentId) => ({
    parentId,
    ids: [`${parentId}/${'0'.repeat(16)}`],
  })),
  'GroupInvites/Create': conferring(row('group_invites.create role_bindings.create', 'place', (group) => ({ group, role: grantedRole, ttl: '3600s' }))),
  'GroupInvites/Delete': forgiving(row('group_invites.delete', 'invite', (id) => ({ id }))),
  'GroupAccountAssociations/Create': row('account_associations.create', 'group', (group) => ({ group, name: 'made', ...account })),
  'GroupAccountAssociations/Update': row('account_associations.update', 'association', (group) => ({ group, name: 'replaced', ...account })),
  'GroupAccountAssociations/Delete': forgiving(row('account_associations.delete', 'association', (group) => ({ group }))),
  'GroupAccountAssociations/Check': row('account_associations.list', 'association', (group) => ({ group, accountType: 'GOOGLE' })),
  'Terms/AcceptTerms': row('terms.accept', 'place', (group) => ({ group, documentIds: [walkTerms[1].id] })),
  'Terms/ListAccepted': row('terms.list', 'place', (group) => ({ group })),
  'Subscriptions/Create': row(['subscriptions.create', ...allEvents].join(' '), 'place', (parentId) => ({ parentId, subscription: { sink } })),
  'Subscriptions/Delete': forgiving(row('subscriptions.delete', 'subscription', (id) => ({ id }))),
  'Advisories/Create': row('advisories.create', 'place', (parentId) => ({ parentId, advisory: { advisoryId: freshName('X'), artifactName: 'made' } })),
  'Advisories/Update': row('advisories.update', 'ownAdvisory', (id) => ({ id, artifactName: freshName('replaced') })),
  'Advisories/Delete': forgiving(row('advisories.delete', 'ownAdvisory', (id) => ({ id }))),
  'Advisories/CreateAdvisoryEvent': row('advisories.create', 'ownAdvisory', (parentId) => ({ parentId, advisoryEvent: { detection: { manual: {} } } })),
  'Advisories/ListAdvisoryEvents': row('advisories.list', 'ownAdvisory', (parentId) => ({ parentId })),
  'Advisories/UpdateAdvisoryEvent': row('advisories.update', 'advisoryEvent', (id) => ({ id, detection: { manual: {} } })),
  'SecurityAdvisory/ListResolvedVulnsReports': row('apk.list repo.list manifest.metadata.list tag.list', 'repo', (repo) => ({
    imageRefs: [{ repo, tags: ['none'] }],
    from: '2026-01-01T00:00:00.000Z',
    to: '2026-01-02T00:00:00.000Z',
  })),
  'Registry/CreateRepo': row('repo.create', 'place', (parentId) => ({ parentId, repo: { name: 'made' } })),
  'Registry/UpdateRepo': row('repo.update', 'repo', (id) => ({ id, name: 'replaced' })),
  'Registry/CreateDeployment': row('repo.update', 'repo', (parentId) => ({ parentId, charts: [{ repo: 'oci://charts.example' }] })),
  'Registry/UpdateDeployment': row('repo.update', 'repo', (repoId) => ({ repoId, charts: [{ repo: 'oci://charts.example' }] })),
  'Registry/GetDeployment': row('repo.list', 'repo', (repoId) => ({ repoId })),
  'Registry/DeleteRepo': forgiving(row('repo.delete', 'repo', (id) => ({ id }))),
  'Registry/CreateTag': row('tag.create', 'repo', (repoId, { digest }) => ({ repoId, tag: { name: 'made', digest } })),
  'Registry/GetArchs': row('repo.list manifest.metadata.list', 'repo', imageV1),
  'Registry/GetImageConfig': row('repo.list manifest.metadata.list', 'repo', imageV1),
  'Registry/GetRepoCountBySource': row('repo.list', 'repo', (id) => ({ id })),
  'Registry/GetRepoTagsSummary': row('tag.list', 'repo', (repoId) => ({ repoId })),
  'Registry/GetVulnReport': row('repo.list vuln_reports.list', 'repo', imageV1),
  'Registry/GetSize': row('repo.list manifest.metadata.list', 'repo', imageV1),
  'Registry/ListTagHistory': row('tag.list', 'tag', (parentId) => ({ parentId })),
  'Vulnerabilities/ListVulnReports': row('vuln_report.list', 'repo', (repoId) => ({ repoId })),
  'Vulnerabilities/ListVulnCountReports': row('vuln_report.list', 'repo', countsV1),
  'Vulnerabilities/ListCumulativeVulnCountReports': row('vuln_report.list', 'repo', countsV1),
  'Registry/UpdateTag': row('tag.update', 'tag', (id) => ({ id, deprecated: true })),
  'Registry/DeleteTag': forgiving(row('tag.delete', 'tag', (id) => ({ id }))),
}
