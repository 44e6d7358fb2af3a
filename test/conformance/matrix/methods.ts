import type { JsonObject } from '@bufbuild/protobuf'
import { grantedRole, type Things } from './world.ts'
import { below, changed, conferring, ofOperators, row, type ScopedRequest, type ScopedRow } from './rows/scoped-row.ts'
import { scopedV1Methods } from './rows/v1-methods.ts'
import { freshName } from '../../support/test-server.ts'
import { walkTerms } from '../walk/world.ts'

const claimMatch = { issuer: 'https://issuer.example', subject: 'foreign-name' }
const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret' }
const sink = 'https://hooks.example.com/taproot'
const groupEvents = ['dev.taproot.api.iam.group.']
const account = { amazon: { account: '123456789012' } }
const binding = (things: Things): JsonObject => ({ identityUid: things.identity, roleUid: grantedRole })
/** The uid of a person without a binding. */
const person = 'd'.repeat(40)
const scim = (identityProviderUid: string): JsonObject => ({ identityProviderUid })
const image: ScopedRequest = (repoUid, { digest }) => ({ repoUid, digest })
/** Without such a tag, nothing is known about images. */
const reports: ScopedRequest = (repo) => ({
  imageRefs: [{ repo, tags: ['none'] }],
  startTime: '2026-01-01T00:00:00.000Z',
  endTime: '2026-01-02T00:00:00.000Z',
})

/** The capabilities of each method (docs/spec/conventions.md#method-scopes). */
export const scopedMethods: Readonly<Record<string, ScopedRow>> = {
  'GroupsService/GetGroup': row('groups.list', 'place'),
  'GroupsService/CreateGroup': row('groups.create', 'place', below('group', { name: 'made by the matrix' })),
  'GroupsService/UpdateGroup': row('groups.update', 'place', changed('group')),
  'GroupsService/DeleteGroup': row('groups.delete', 'group'),
  'GroupsService/GetGroupUsage': { ...row('groups.list', 'place'), onlyRoots: true },
  'GroupsService/SetGroupLimits': ofOperators(row('groups.update', 'place', (uid) => ({ uid, resourceLimits: { clusters: 1 } }))),
  'GroupsService/SuspendGroup': ofOperators(row('groups.update', 'place')),
  'GroupsService/ResumeGroup': ofOperators(row('groups.update', 'place')),

  'IdentitiesService/GetIdentity': row('identity.list', 'identity'),
  'IdentitiesService/CreateIdentity': row('identity.create', 'place', below('identity', { name: 'made', claimMatch })),
  'IdentitiesService/UpdateIdentity': row('identity.update', 'identity', changed('identity')),
  'IdentitiesService/DeleteIdentity': row('identity.delete', 'identity'),

  'RolesService/GetRole': row('roles.list', 'role'),
  'RolesService/CreateRole': row('roles.create', 'place', below('role', { name: 'made', capabilities: ['CAP_IAM_GROUPS_LIST'] })),
  'RolesService/UpdateRole': row('roles.update', 'role', changed('role')),
  'RolesService/DeleteRole': row('roles.delete', 'role'),

  'RoleBindingsService/GetRoleBinding': row('role_bindings.list', 'binding'),
  'RoleBindingsService/CreateRoleBinding': conferring(
    row('role_bindings.create', 'place', below('roleBinding', { identityUid: person, roleUid: grantedRole })),
  ),
  'RoleBindingsService/BatchCreateRoleBindings': conferring(
    row('role_bindings.create', 'place', (parent) => ({ parent, requests: [{ roleBinding: { identityUid: person, roleUid: grantedRole } }] })),
  ),
  'RoleBindingsService/UpdateRoleBinding': conferring(row('role_bindings.update', 'binding', (uid, things) => ({ roleBinding: { uid, ...binding(things) } }))),
  'RoleBindingsService/DeleteRoleBinding': row('role_bindings.delete', 'binding'),

  'IdentityProvidersService/GetIdentityProvider': row('identity_providers.list', 'provider'),
  'IdentityProvidersService/CreateIdentityProvider': conferring(
    row('identity_providers.create role_bindings.create', 'place', below('identityProvider', { name: 'made', defaultRole: grantedRole, oidc })),
  ),
  'IdentityProvidersService/UpdateIdentityProvider': row('identity_providers.update role_bindings.create', 'provider', changed('identityProvider')),
  'IdentityProvidersService/DeleteIdentityProvider': row('identity_providers.delete', 'provider'),
  'IdentityProvidersService/GenerateScimToken': conferring(row('identity_providers.scim.manage identity_providers.list', 'provider', scim)),
  'IdentityProvidersService/RegenerateScimToken': conferring(
    row('identity_providers.scim.manage identity_providers.list', 'scimProvider', (uid, { scimEtag: etag }) => ({ ...scim(uid), etag })),
  ),
  'IdentityProvidersService/RevokeScimToken': row('identity_providers.scim.manage identity_providers.list', 'scimProvider', scim),
  'IdentityProvidersService/SetScimEnabled': row('identity_providers.scim.manage identity_providers.list', 'scimProvider', (uid, { scimEtag: etag }) => ({
    ...scim(uid),
    etag,
    enabled: false,
  })),

  'ExternalGroupRoleMappingsService/GetExternalGroupRoleMapping': row('identity_providers.list', 'mapping'),
  // docs/spec/identities.md#group-mappings: the scope of a mapping is the organisation, wherever its provider is.
  'ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping': conferring(
    row('identity_providers.create role_bindings.create', 'provider', (parent, { place }) => ({
      parent,
      externalGroupRoleMapping: { externalGroupId: 'made', roleUid: grantedRole, scope: place.slice(0, 40) },
    })),
    'at the root',
  ),
  'ExternalGroupRoleMappingsService/DeleteExternalGroupRoleMapping': row('identity_providers.delete', 'mapping'),
  'ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings': row('identity_providers.delete', 'mappedProvider', (parent) => ({
    parent,
    names: [`${parent}/${'0'.repeat(16)}`],
  })),

  'GroupInvitesService/GetGroupInvite': row('group_invites.list', 'invite'),
  'GroupInvitesService/CreateGroupInvite': conferring(
    row('group_invites.create role_bindings.create', 'place', below('groupInvite', { roleUid: grantedRole, ttl: '3600s' })),
  ),
  'GroupInvitesService/DeleteGroupInvite': row('group_invites.delete', 'invite'),

  'AccountAssociationsService/GetAccountAssociation': row('account_associations.list', 'association'),
  'AccountAssociationsService/CreateAccountAssociation': row('account_associations.create', 'group', below('accountAssociation', { name: 'made', ...account })),
  'AccountAssociationsService/UpdateAccountAssociation': row('account_associations.update', 'association', changed('accountAssociation')),
  'AccountAssociationsService/DeleteAccountAssociation': row('account_associations.delete', 'association'),
  'AccountAssociationsService/CheckAccountAssociation': row('account_associations.list', 'association', (uid) => ({
    uid,
    // A provider that the association does not configure, so no remote service is called.
    providerType: 'ACCOUNT_PROVIDER_TYPE_GOOGLE',
  })),

  'SubscriptionsService/GetSubscription': row('subscriptions.list', 'subscription'),
  'SubscriptionsService/CreateSubscription': row('subscriptions.create groups.list', 'place', below('subscription', { sink, types: groupEvents })),
  'SubscriptionsService/UpdateSubscription': row('subscriptions.update groups.list', 'subscription', changed('subscription', { sink, types: groupEvents })),
  'SubscriptionsService/DeleteSubscription': row('subscriptions.delete', 'subscription'),
  'SubscriptionsService/PauseSubscription': row('subscriptions.update', 'subscription'),
  'SubscriptionsService/ResumeSubscription': row('subscriptions.update', 'subscription'),
  'SubscriptionsService/TestSubscription': row('subscriptions.update', 'subscription'),

  'SubscriptionsService/ListDeliveries': row('subscriptions.list', 'subscription'),
  'SubscriptionsService/RedeliverEvents': row('subscriptions.update', 'subscription'),
  'SubscriptionsService/RotateSubscriptionSecret': row('subscriptions.update', 'subscription'),
  'SubscriptionsService/ReplayEvents': row('subscriptions.update', 'subscription', (uid) => ({ uid, fromTime: '2026-01-01T00:00:00.000Z' })),

  'TermsService/AcceptTerms': row('terms.accept', 'place', (group) => ({ group, documentIds: [walkTerms[1].id] })),
  'TermsService/ListTermsAcceptances': row('terms.list', 'place', (group) => ({ group })),

  'AccessService/Explain': row('role_bindings.list', 'role', (resource, { identity }) => ({ resource, identity, capability: 'groups.list' })),
  'AccessService/ListAccess': row('role_bindings.list', 'repo', (resource) => ({ resource })),

  'AdvisoriesService/GetAdvisory': row('advisories.list', 'advisory'),
  'SecurityAdvisoryService/ListResolvedVulnsReports': row('apk.list repo.list manifest.metadata.list tag.list', 'repo', reports),

  'ReposService/GetRepo': row('repo.list', 'repo'),
  'ReposService/CreateRepo': row('repo.create', 'place', below('repo', { name: 'made' })),
  'ReposService/UpdateRepo': row('repo.update', 'repo', changed('repo')),
  'ReposService/DeleteRepo': row('repo.delete', 'repo'),
  'ReposService/GetRepoReadme': row('repo.list', 'repo'),
  'ReposService/UpdateRepoReadme': row('repo.update', 'repo', changed('repoReadme', { content: '# Read me' })),
  'ReposService/ListMirrors': row('repo.update', 'repo', (parent) => ({ parent })),
  'ReposService/EndMirror': row('repo.update', 'repo', (parent, { mirror: mirrorUid }) => ({ parent, mirrorUid })),
  'TagsService/GetTag': row('tag.list', 'tag'),
  'TagsService/CreateTag': row('tag.create', 'repo', (parent, { digest }) => ({ parent, tag: { name: 'made', digest } })),
  'TagsService/DeleteTag': row('tag.delete', 'tag'),
  'ImagesService/GetArchitectures': row('repo.list manifest.metadata.list', 'repo', image),
  'ImagesService/GetSize': row('repo.list manifest.metadata.list', 'repo', image),
  'ContentsService/ListPackages': row('repo.list sboms.list', 'repo', image),
  'ContentsService/ListVulnerabilities': row('repo.list vuln_reports.list', 'repo', image),
  'PullPoliciesService/GetPullPolicy': row('pull_policies.list', 'pullPolicy'),
  'PullPoliciesService/CreatePullPolicy': row('pull_policies.create', 'place', (parent) => ({ parent, pullPolicy: { name: freshName('made') } })),
  'PullPoliciesService/UpdatePullPolicy': row('pull_policies.update', 'pullPolicy', (uid) => ({ pullPolicy: { uid, name: freshName('changed') } })),
  'PullPoliciesService/DeletePullPolicy': row('pull_policies.delete', 'pullPolicy'),
  'PullPoliciesService/DryRunPullPolicy': { ...row('pull_policies.list repo.list vuln_reports.list', 'place', (parent) => ({ parent })), atOnce: 4 },
  'EolTagsService/ListEolTags': row('tag.list', 'repo', (repoUid) => ({ repoUid })),
  'VulnReportsService/GetVulnReport': row('repo.list vuln_reports.list', 'repo', image),
  'VulnReportsService/ListVulnReports': row('vuln_report.list', 'repo', image),
  'VulnReportsService/ListScannerReports': row('repo.list vuln_reports.list', 'repo', image),
  'VulnReportsService/GetRawVulnReport': row('vuln_report.list', 'repo', image),
  'VulnReportsService/ListVulnCountReports': row('vuln_report.list', 'repo', reports),
  'VulnReportsService/ListCumulativeVulnCountReports': row('vuln_report.list', 'repo', reports),
  'TagHistoryService/ListTagHistory': row('tag.list', 'repo', (repoUid) => ({ repoUid, tag: 'latest' })),
  'TagHistoryService/RestoreTag': row('tag.create', 'repo', (repoUid, { digest }) => ({ repoUid, tag: 'latest', digest })),
  ...scopedV1Methods,
}

/** A method that lists all records visible to its caller (docs/spec/conventions.md#list-reach). */
export interface ListRow {
  readonly needs: string
  /** The kind of its records, of which each place has one. */
  readonly of: keyof Things
  /** The field of the answer that has the records. */
  readonly plural: string
}

/** The capabilities of each list (docs/spec/conventions.md#method-scopes). */
export const listMethods: Readonly<Record<string, ListRow>> = {
  'GroupsService/ListGroups': { needs: 'groups.list', of: 'group', plural: 'groups' },
  'Groups/List': { needs: 'groups.list', of: 'group', plural: 'items' },
  'IdentitiesService/ListIdentities': { needs: 'identity.list', of: 'identity', plural: 'identities' },
  'Identities/List': { needs: 'identity.list', of: 'identity', plural: 'items' },
  'Roles/List': { needs: 'roles.list', of: 'role', plural: 'items' },
  'RoleBindings/List': { needs: 'role_bindings.list', of: 'binding', plural: 'items' },
  'RolesService/ListRoles': { needs: 'roles.list', of: 'role', plural: 'roles' },
  'RoleBindingsService/ListRoleBindings': { needs: 'role_bindings.list', of: 'binding', plural: 'roleBindings' },
  'IdentityProvidersService/ListIdentityProviders': { needs: 'identity_providers.list', of: 'provider', plural: 'identityProviders' },
  'ExternalGroupRoleMappingsService/ListExternalGroupRoleMappings': {
    needs: 'identity_providers.list',
    of: 'mapping',
    plural: 'externalGroupRoleMappings',
  },
  'GroupInvitesService/ListGroupInvites': { needs: 'group_invites.list', of: 'invite', plural: 'groupInvites' },
  'AccountAssociationsService/ListAccountAssociations': { needs: 'account_associations.list', of: 'association', plural: 'accountAssociations' },
  'IdentityProviders/List': { needs: 'identity_providers.list', of: 'provider', plural: 'items' },
  'ExternalGroupRoleMappings/List': { needs: 'identity_providers.list', of: 'mapping', plural: 'items' },
  'GroupInvites/List': { needs: 'group_invites.list', of: 'invite', plural: 'items' },
  'GroupAccountAssociations/List': { needs: 'account_associations.list', of: 'association', plural: 'items' },
  'Subscriptions/List': { needs: 'subscriptions.list', of: 'subscription', plural: 'items' },
  'SubscriptionsService/ListSubscriptions': { needs: 'subscriptions.list', of: 'subscription', plural: 'subscriptions' },
  'Registry/ListRepos': { needs: 'repo.list', of: 'repo', plural: 'items' },
  'Registry/ListEolTags': { needs: 'tag.list', of: 'tag', plural: 'items' },
  'Registry/ListTags': { needs: 'tag.list', of: 'tag', plural: 'items' },
  'ReposService/ListRepos': { needs: 'repo.list', of: 'repo', plural: 'repos' },
  'AdvisoriesService/ListAdvisories': { needs: 'advisories.list', of: 'advisory', plural: 'advisories' },
  'Advisories/List': { needs: 'advisories.list', of: 'advisory', plural: 'items' },
  'PullPoliciesService/ListPullPolicies': { needs: 'pull_policies.list', of: 'pullPolicy', plural: 'pullPolicies' },
  'TagsService/ListTags': { needs: 'tag.list', of: 'tag', plural: 'tags' },
}

/** A method about data that all organisations share: capabilities in any group are enough (docs/spec/libraries.md#library-rights). */
export interface SharedRow {
  readonly needs: readonly string[]
  readonly request: JsonObject
  /** The code for callers with the capabilities. */
  readonly code: number
}

/** Methods about shared data. */
export const sharedMethods: Readonly<Record<string, SharedRow>> = {
  'ArtifactsService/ListArtifacts': { needs: ['libraries.artifacts.list'], request: { ecosystems: ['ECOSYSTEM_PYTHON'] }, code: 0 },
  'ArtifactsService/ListArtifactVersions': { needs: ['libraries.artifacts.list'], request: { artifactId: 'npm:@no/such' }, code: 5 },
  'ArtifactsService/GetArtifactCount': { needs: ['libraries.artifacts.list'], request: { ecosystems: ['ECOSYSTEM_JAVA'] }, code: 0 },
  'Registry/GetPackageVersionMetadata': { needs: ['version.list'], request: { package: 'no-such' }, code: 5 },
  'Artifacts/List': { needs: ['libraries.artifacts.list'], request: { ecosystems: ['PYTHON'] }, code: 0 },
  'Artifacts/ListVersions': { needs: ['libraries.artifacts.list'], request: { id: 'npm:@no/such' }, code: 5 },
  'Artifacts/GetArtifactCount': { needs: ['libraries.artifacts.list'], request: { ecosystems: ['JAVA'] }, code: 0 },
}

/** A method without a needed capability, and its code for every caller with a token. */
export interface PlainRow {
  /** Returns a request about the group of a place or a record in it, if it names one. */
  readonly request: (things: Things) => JsonObject
  readonly code: number
  /** The code for operators, if it differs. */
  readonly operators?: number
  /** The kind of record in the request. */
  readonly about?: keyof Things
  readonly because: string
}

/** Methods for every signed-in caller. Callers with another answer are in test/conformance/walk/cases/cases-groups.ts. */
export const signedInMethods: Readonly<Record<string, PlainRow>> = {
  'IdentitiesService/LookupIdentity': { request: () => claimMatch, code: 0, because: 'docs/spec/identities.md#identity-lookup: never 404' },
  'Identities/Lookup': { request: () => claimMatch, code: 5, because: 'docs/spec/version-1.md#identities: this person never signed in' },
  'GroupsService/LookupGroup': { request: () => ({}), code: 5, because: 'docs/spec/iam.md#group-lookup: every failure is the same' },
  'GroupsService/RequestGroupAccess': { request: ({ place }) => ({ groupUid: place }), about: 'place', code: 5, because: 'docs/spec/iam.md#group-lookup' },
  'Groups/LookupGroup': { request: () => ({}), code: 5, because: 'docs/spec/iam.md#group-lookup: every failure is the same' },
  'Groups/RequestGroupAccess': { request: ({ place }) => ({ groupId: place }), about: 'place', code: 5, because: 'docs/spec/iam.md#group-lookup' },
  'Groups/CheckEligibility': { request: () => ({}), code: 0, because: 'docs/spec/iam.md#group-lookup: never 404' },
  'GroupsService/JoinGroup': {
    request: ({ person: uid }) => ({ uid }),
    about: 'person',
    code: 5,
    because: 'decisions: a role binding is needed there; what it finds is in test/conformance/spec/iam/joining.test.ts',
  },
  'GroupsService/ReleaseGroupName': { request: () => ({ name: 'free' }), code: 7, operators: 5, because: 'only operators release a reserved name' },
  'GroupsService/CheckEligibility': { request: () => ({}), code: 0, because: 'docs/spec/iam.md#group-lookup: never 404' },
  'EventsService/PullEvents': { request: () => ({ cursor: 'now' }), code: 0, because: 'docs/spec/events.md#feed: shows each caller what they may see' },
  'EventsService/WatchEvents': { request: () => ({ cursor: 'now' }), code: 0, because: 'docs/spec/events.md#streams: shows each caller what they may see' },
  'AccessService/TestCapabilities': {
    request: ({ repo }) => ({ resource: repo, capabilities: [] }),
    about: 'repo',
    code: 0,
    because: 'docs/spec/iam.md#test-capabilities: never 404',
  },
  'AuditService/ListAuditEvents': { request: () => ({ method: 'none' }), code: 0, because: 'docs/audit.md#list: shows each caller what they may see' },
  'ContentsService/ListPackageImages': {
    request: () => ({ purl: 'pkg:apk/alpine/musl' }),
    code: 0,
    because: 'docs/spec/registry.md#images-with-a-package: shows each caller what they may see',
  },
  'Vulnerabilities/GetRawVulnReport': {
    request: ({ digest }) => ({ digest }),
    about: 'digest',
    code: 5,
    because: 'docs/spec/version-1.md#vulnerability-reports: no tag points to this image, and it was not read',
  },
  'CataloguesService/ListCatalogues': { request: () => ({}), code: 7, operators: 0, because: 'docs/spec/advisories.md#catalogues: for operators' },
  'CataloguesService/UseCatalogue': {
    request: () => ({ digest: 'none' }),
    code: 7,
    operators: 5,
    because: 'docs/spec/advisories.md#catalogues: for operators',
  },
  'CataloguesService/PruneCatalogues': { request: () => ({}), code: 7, operators: 0, because: 'docs/spec/advisories.md#catalogues: for operators' },
  'CataloguesService/ListFeeds': { request: () => ({}), code: 7, operators: 0, because: 'docs/spec/advisories.md#catalogues: for operators' },
  'CataloguesService/RunFeed': { request: () => ({ name: 'none' }), code: 7, operators: 5, because: 'docs/spec/advisories.md#catalogues: for operators' },
  'Auth/Validate': { request: () => ({}), code: 0, because: 'docs/spec/tokens.md#who-am-i: who am I' },
  'Auth/Delete': {
    request: ({ person: id }) => ({ id }),
    about: 'person',
    code: 5,
    because: 'docs/spec/identities.md#registration: only a root identity, only one’s own',
  },
}

/** Methods that verify a credential of another kind; an access token of this server is not one. */
export const externalMethods: Readonly<Record<string, PlainRow>> = {
  'SecurityTokenService/Exchange': {
    request: ({ identity }) => ({ identity }),
    about: 'identity',
    code: 7,
    because: 'docs/spec/tokens.md#token-uses: no token of ours is a source',
  },
  'SecurityTokenService/ExchangeRefreshToken': { request: () => ({}), code: 16, because: 'docs/spec/tokens.md#refresh-tokens' },
  'Auth/Register': { request: () => ({ code: 'none' }), code: 7, because: 'docs/spec/identities.md#registration: with the upstream token' },
}

/** Methods for everyone, and their code for an empty request. */
export const publicMethods: Readonly<Record<string, number>> = {
  'PingService/Ping': 0,
  'v1.PingService/Ping': 0,
  // There is no session without a code.
  'Auth/GetHeadlessSession': 5,
  // What it shows depends on the caller, see test/conformance/spec/documents.test.ts.
  'SecurityAdvisoryService/ListDocuments': 0,
  'SecurityAdvisoryService/ListVulnerabilityMetadata': 0,
  'SecurityAdvisory/ListDocuments': 0,
  'SecurityAdvisory/ListVulnerabilityMetadata': 0,
}
