import type { MethodRow } from '../base/schema/method.ts'
import type { Dispatch } from '../transport/calls/call.ts'
import { deletesAdvisory, listsAdvisories, listsAdvisoryEvents } from './advisories.ts'
import { advisoryEventMap, advisoryMap, documentMaps, metadataMaps, resolvedMaps } from './advisory-maps.ts'
import { endStaticKeys, limitStaticKeys, looksUp } from './identities.ts'
import { methodNamed } from './inner-call.ts'
import * as maps from './kinds.ts'
import { artifactCountMaps, artifactListMaps, versionFilters, versionMap } from './library-maps.ts'
import { completedBy, joins, lists } from './lists.ts'
import * as organisation from './organisation-maps.ts'
import { archMaps, repoFilters, repoMap, sizeMaps, tagFilters, tagMap } from './registry-maps.ts'
import { createsRepo, replacesRepo, withStoredReadme } from './repos.ts'
import { countField, countReportsMap, eolTagsMap, rawVulnReportMap, vulnReportMaps, vulnReportsMap } from './report-maps.ts'
import { answersWith, passes, summarizesTags } from './tags.ts'
import { creates, deletes, renames, replaces, type MappedMethod, type MethodMapping, type Version1Options } from './mapped-methods.ts'

export { unservedMethods, unservedRoutes } from './unserved.ts'

/** How each method of version 1 is answered by methods of version 2 (ADR 0035). */
const table: Readonly<Record<string, MethodMapping>> = {
  'advisory.v1.SecurityAdvisory/ListDocuments': renames('advisory.v2.SecurityAdvisoryService/ListDocuments', documentMaps),
  'advisory.v1.SecurityAdvisory/ListResolvedVulnsReports': renames('advisory.v2.SecurityAdvisoryService/ListResolvedVulnsReports', resolvedMaps),
  'advisory.v1.SecurityAdvisory/ListVulnerabilityMetadata': renames('advisory.v2.SecurityAdvisoryService/ListVulnerabilityMetadata', metadataMaps),
  'events.v1.Subscriptions/Create': creates('events.v2.SubscriptionsService/CreateSubscription', maps.subscriptionMap),
  'events.v1.Subscriptions/List': lists('events.v2.SubscriptionsService/ListSubscriptions', { filters: maps.subscriptionFilters, items: maps.subscriptionMap }),
  'events.v1.Subscriptions/Delete': deletes('events.v2.SubscriptionsService/DeleteSubscription'),
  'iam.v1.Groups/Create': creates('iam.v2.GroupsService/CreateGroup', maps.groupMap),
  // Only operators set these fields, so other callers need not repeat them.
  'iam.v1.Groups/Update': replaces('iam.v2.GroupsService/UpdateGroup', maps.groupMap, { kept: ['verified', 'kind'] }),
  'iam.v1.Groups/List': lists('iam.v2.GroupsService/ListGroups', { filters: maps.groupFilters, items: maps.groupMap }),
  'iam.v1.Groups/CheckEligibility': renames('iam.v2.GroupsService/CheckEligibility', maps.eligibilityMaps),
  'iam.v1.Groups/LookupGroup': renames('iam.v2.GroupsService/LookupGroup', maps.groupLookupMaps),
  'iam.v1.Groups/RequestGroupAccess': renames('iam.v2.GroupsService/RequestGroupAccess', maps.groupAccessMaps),
  'iam.v1.Groups/Delete': deletes('iam.v2.GroupsService/DeleteGroup'),
  'iam.v1.Identities/Create': creates('iam.v2.IdentitiesService/CreateIdentity', maps.identityMap, { settle: limitStaticKeys }),
  'iam.v1.Identities/Update': replaces('iam.v2.IdentitiesService/UpdateIdentity', maps.identityMap, { settle: endStaticKeys }),
  'iam.v1.Identities/List': lists('iam.v2.IdentitiesService/ListIdentities', { filters: maps.identityFilters, items: maps.identityMap }),
  'iam.v1.Identities/Lookup': looksUp,
  'iam.v1.Identities/Delete': deletes('iam.v2.IdentitiesService/DeleteIdentity'),
  'iam.v1.Roles/Create': creates('iam.v2.RolesService/CreateRole', maps.roleMap),
  'iam.v1.Roles/Update': replaces('iam.v2.RolesService/UpdateRole', maps.roleMap),
  'iam.v1.Roles/List': lists('iam.v2.RolesService/ListRoles', { filters: maps.roleFilters, items: maps.roleMap, parentField: 'parent' }),
  'iam.v1.Roles/Delete': deletes('iam.v2.RolesService/DeleteRole'),
  'iam.v1.RoleBindings/Create': creates('iam.v2.RoleBindingsService/CreateRoleBinding', maps.roleBindingMap),
  'iam.v1.RoleBindings/CreateBatch': renames('iam.v2.RoleBindingsService/BatchCreateRoleBindings', maps.bindingBatchMaps),
  'iam.v1.RoleBindings/Update': replaces('iam.v2.RoleBindingsService/UpdateRoleBinding', maps.roleBindingMap),
  'iam.v1.RoleBindings/List': lists('iam.v2.RoleBindingsService/ListRoleBindings', { filters: maps.roleBindingFilters, items: maps.bindingMap }),
  'iam.v1.RoleBindings/Delete': deletes('iam.v2.RoleBindingsService/DeleteRoleBinding'),
  'iam.v1.IdentityProviders/Create': creates('iam.v2.IdentityProvidersService/CreateIdentityProvider', organisation.providerMap),
  'iam.v1.IdentityProviders/Update': replaces('iam.v2.IdentityProvidersService/UpdateIdentityProvider', organisation.providerMap),
  'iam.v1.IdentityProviders/List': lists('iam.v2.IdentityProvidersService/ListIdentityProviders', {
    filters: organisation.providerFilters,
    items: organisation.providerMap,
    complete: completedBy('iam.v2.IdentityProvidersService/GetIdentityProvider', organisation.providerMap),
  }),
  'iam.v1.IdentityProviders/Delete': deletes('iam.v2.IdentityProvidersService/DeleteIdentityProvider'),
  'iam.v1.IdentityProviders/GenerateScimToken': renames('iam.v2.IdentityProvidersService/GenerateScimToken', organisation.scimMaps.generate),
  'iam.v1.IdentityProviders/RegenerateScimToken': renames('iam.v2.IdentityProvidersService/RegenerateScimToken', organisation.scimMaps.regenerate),
  'iam.v1.IdentityProviders/RevokeScimToken': renames('iam.v2.IdentityProvidersService/RevokeScimToken', organisation.scimMaps.revoke),
  'iam.v1.IdentityProviders/SetScimEnabled': renames('iam.v2.IdentityProvidersService/SetScimEnabled', organisation.scimMaps.setEnabled),
  'iam.v1.GroupAccountAssociations/Create': creates('iam.v2.AccountAssociationsService/CreateAccountAssociation', organisation.associationMap),
  'iam.v1.GroupAccountAssociations/Update': replaces('iam.v2.AccountAssociationsService/UpdateAccountAssociation', organisation.associationMap),
  'iam.v1.GroupAccountAssociations/List': lists('iam.v2.AccountAssociationsService/ListAccountAssociations', {
    filters: organisation.associationFilters,
    items: organisation.associationMap,
    idField: 'group',
  }),
  'iam.v1.GroupAccountAssociations/Delete': deletes('iam.v2.AccountAssociationsService/DeleteAccountAssociation', 'group'),
  'iam.v1.GroupAccountAssociations/Check': renames('iam.v2.AccountAssociationsService/CheckAccountAssociation', organisation.checkMaps),
  'iam.v1.GroupInvites/Create': creates('iam.v2.GroupInvitesService/CreateGroupInvite', organisation.newInviteMap, { answer: organisation.inviteMap }),
  'iam.v1.GroupInvites/List': lists('iam.v2.GroupInvitesService/ListGroupInvites', {
    filters: organisation.inviteFilters,
    items: organisation.storedInviteMap,
    parentField: 'group',
  }),
  'iam.v1.GroupInvites/Delete': deletes('iam.v2.GroupInvitesService/DeleteGroupInvite'),
  'iam.v1.ExternalGroupRoleMappings/Create': creates('iam.v2.ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping', organisation.mappingMap),
  'iam.v1.ExternalGroupRoleMappings/Get': renames('iam.v2.ExternalGroupRoleMappingsService/GetExternalGroupRoleMapping', {
    request: organisation.getMappingMap,
    answer: organisation.mappingMap,
  }),
  'iam.v1.ExternalGroupRoleMappings/List': lists('iam.v2.ExternalGroupRoleMappingsService/ListExternalGroupRoleMappings', {
    filters: organisation.mappingFilters,
    items: organisation.mappingMap,
  }),
  'iam.v1.ExternalGroupRoleMappings/Delete': deletes('iam.v2.ExternalGroupRoleMappingsService/DeleteExternalGroupRoleMapping'),
  'iam.v1.ExternalGroupRoleMappings/BatchDelete': renames(
    'iam.v2.ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings',
    organisation.batchDeleteMaps,
  ),
  'iam.v1.Terms/AcceptTerms': renames('iam.v2.TermsService/AcceptTerms', organisation.acceptMaps),
  'iam.v1.Terms/ListAccepted': lists('iam.v2.TermsService/ListTermsAcceptances', {
    filters: organisation.acceptanceFilters,
    items: organisation.acceptanceMap,
  }),
  'libraries.v1.Artifacts/List': renames('libraries.v2.ArtifactsService/ListArtifacts', artifactListMaps),
  'libraries.v1.Artifacts/ListVersions': joins('libraries.v2.ArtifactsService/ListArtifactVersions', { filters: versionFilters, items: versionMap }),
  'libraries.v1.Artifacts/GetArtifactCount': renames('libraries.v2.ArtifactsService/GetArtifactCount', artifactCountMaps),
  'ping.v1.PingService/Ping': renames('ping.v2.PingService/Ping', maps.pingMaps),
  'registry.v1.Registry/CreateRepo': createsRepo,
  'registry.v1.Registry/UpdateRepo': replacesRepo,
  'registry.v1.Registry/ListRepos': lists('registry.v2.ReposService/ListRepos', { filters: repoFilters, items: repoMap, extend: withStoredReadme }),
  'registry.v1.Registry/DeleteRepo': deletes('registry.v2.ReposService/DeleteRepo'),
  'registry.v1.Registry/GetArchs': renames('registry.v2.ImagesService/GetArchitectures', archMaps),
  'registry.v1.Registry/CreateDeployment': passes,
  'registry.v1.Registry/GetDeployment': passes,
  'registry.v1.Registry/UpdateDeployment': passes,
  'registry.v1.Registry/GetImageConfig': passes,
  'registry.v1.Registry/GetPackageVersionMetadata': passes,
  'registry.v1.Registry/GetRepoCountBySource': passes,
  'registry.v1.Registry/GetRepoTagsSummary': summarizesTags,
  'registry.v1.Registry/GetSize': renames('registry.v2.ImagesService/GetSize', sizeMaps),
  'registry.v1.Registry/GetVulnReport': renames('registry.v2.VulnReportsService/GetVulnReport', vulnReportMaps),
  'registry.v1.Registry/ListEolTags': answersWith(eolTagsMap),
  'registry.v1.Registry/ListTagHistory': passes,
  // A tag of version 2 needs a digest.
  'registry.v1.Registry/CreateTag': answersWith(tagMap),
  'registry.v1.Registry/UpdateTag': answersWith(tagMap),
  'registry.v1.Registry/ListTags': lists('registry.v2.TagsService/ListTags', { filters: tagFilters, items: tagMap }),
  'registry.v1.Registry/DeleteTag': deletes('registry.v2.TagsService/DeleteTag'),
  'registry.v1.Vulnerabilities/GetRawVulnReport': answersWith(rawVulnReportMap),
  'registry.v1.Vulnerabilities/ListCumulativeVulnCountReports': answersWith(countReportsMap, countField),
  'registry.v1.Vulnerabilities/ListVulnCountReports': answersWith(countReportsMap, countField),
  'registry.v1.Vulnerabilities/ListVulnReports': answersWith(vulnReportsMap),
  'vulnerabilities.v1.Advisories/Create': answersWith(advisoryMap),
  'vulnerabilities.v1.Advisories/List': listsAdvisories,
  'vulnerabilities.v1.Advisories/Update': answersWith(advisoryMap),
  'vulnerabilities.v1.Advisories/Delete': deletesAdvisory,
  'vulnerabilities.v1.Advisories/CreateAdvisoryEvent': answersWith(advisoryEventMap),
  'vulnerabilities.v1.Advisories/ListAdvisoryEvents': listsAdvisoryEvents,
  'vulnerabilities.v1.Advisories/UpdateAdvisoryEvent': answersWith(advisoryEventMap),
}

/** The methods of version 1 that are answered by those of version 2. */
export const mappedMethods: ReadonlyMap<MethodRow, MappedMethod> = new Map(
  Object.entries(table).map(([name, mapping]) => {
    const row = methodNamed(name)
    return [row, mapping(row)]
  }),
)

/** Wraps the pipeline: it also answers methods of version 1. */
export function withVersion1(options: Version1Options): Dispatch {
  return (call) => mappedMethods.get(call.method)?.answer(call, options) ?? options.dispatch(call)
}
