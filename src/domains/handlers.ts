import { create } from '@bufbuild/protobuf'
import { listAuditEvents } from '../audit/index.ts'
import { methodName, type MethodRow, type MethodVerb } from '../base/schema/method.ts'
import { methods } from '../base/schema/schema.ts'
import { kinds } from './kinds.ts'
import {
  getAdvisory,
  getArtifactCount,
  listAdvisories,
  listArtifactVersions,
  listArtifacts,
  listCatalogues,
  listDocuments,
  listFeeds,
  listResolvedVulnsReports,
  listVulnerabilityMetadata,
  pruneCatalogues,
  runFeed,
  useCatalogue,
} from '../catalogue/index.ts'
import type { AnyKind } from '../engine/kind.ts'
import { getHandler, listHandler } from '../engine/read.ts'
import type { Handler } from '../engine/services.ts'
import { createHandler, deleteHandler, updateHandler } from '../engine/write.ts'
import {
  createSubscription,
  getSubscription,
  listDeliveries,
  listSubscriptions,
  pauseSubscription,
  pullEvents,
  watchEvents,
  redeliverEvents,
  replayEvents,
  resumeSubscription,
  rotateSubscriptionSecret,
  testSubscription,
  updateSubscription,
} from '../events/index.ts'
import { PingResponseSchema } from '../gen/taproot/ping/v2/ping_pb.ts'
import {
  batchDeleteMappings,
  listAccess,
  explain,
  checkEligibility,
  createGroup,
  joinGroup,
  lookupGroup,
  requestGroupAccess,
  deleteSelf,
  checkAccountAssociation,
  createGroupInvite,
  lookupIdentity,
  createIdentityProvider,
  updateIdentityProvider,
  getGroupUsage,
  releaseGroupName,
  resumeGroup,
  setGroupLimits,
  suspendGroup,
  generateScimToken,
  regenerateScimToken,
  revokeScimToken,
  setScimEnabled,
  batchCreateRoleBindings,
  acceptTerms,
} from '../iam/index.ts'
import {
  getRawVulnReport,
  getRawVulnReportV1,
  getVulnReport,
  listCumulativeVulnCountReports,
  listCumulativeVulnCountReportsV1,
  listEolTags,
  listEolTagsV1,
  listPackageImages,
  listPackages,
  listVulnCountReports,
  listVulnCountReportsV1,
  listVulnReports,
  listVulnReportsV1,
  listVulnerabilities,
} from '../contents/index.ts'
import {
  getRepoReadme,
  updateRepoReadme,
  getArchitectures,
  getImageConfig,
  getRepoCountBySource,
  listTagHistoryV1,
  summarizeTags,
  getSize,
  endMirror,
  listMirrors,
  listTagHistory,
  restoreTag,
  createTag,
  createTagV1,
  deleteTag,
  updateTag,
} from '../registry/index.ts'

/** Handles Ping, which shows that the service answers. */
const ping: Handler = () => Promise.resolve({ message: create(PingResponseSchema, { response: 'pong' }) })

/** For each standard verb, the function that creates the handler for a kind. */
const standard = {
  get: getHandler,
  list: listHandler,
  create: createHandler,
  update: updateHandler,
  delete: deleteHandler,
} satisfies Record<Exclude<MethodVerb, 'custom'>, (kind: AnyKind) => Handler>

/** Handlers of custom methods, by `<service>/<rpc>`. */
const own: Readonly<Record<string, Handler>> = {
  'taproot.advisory.v2.SecurityAdvisoryService/ListDocuments': listDocuments,
  'taproot.advisory.v2.SecurityAdvisoryService/ListResolvedVulnsReports': listResolvedVulnsReports,
  'taproot.advisory.v2.SecurityAdvisoryService/ListVulnerabilityMetadata': listVulnerabilityMetadata,
  'taproot.audit.v2.AuditService/ListAuditEvents': listAuditEvents,
  'taproot.auth.v1.Auth/Delete': deleteSelf,
  'taproot.catalogue.v2.CataloguesService/ListCatalogues': listCatalogues,
  'taproot.catalogue.v2.CataloguesService/ListFeeds': listFeeds,
  'taproot.catalogue.v2.CataloguesService/PruneCatalogues': pruneCatalogues,
  'taproot.catalogue.v2.CataloguesService/RunFeed': runFeed,
  'taproot.catalogue.v2.CataloguesService/UseCatalogue': useCatalogue,
  'taproot.events.v2.EventsService/PullEvents': pullEvents,
  'taproot.events.v2.EventsService/WatchEvents': watchEvents,
  'taproot.events.v2.SubscriptionsService/ListDeliveries': listDeliveries,
  'taproot.events.v2.SubscriptionsService/RedeliverEvents': redeliverEvents,
  'taproot.events.v2.SubscriptionsService/ReplayEvents': replayEvents,
  'taproot.events.v2.SubscriptionsService/CreateSubscription': createSubscription,
  'taproot.events.v2.SubscriptionsService/GetSubscription': getSubscription,
  'taproot.events.v2.SubscriptionsService/ListSubscriptions': listSubscriptions,
  'taproot.events.v2.SubscriptionsService/PauseSubscription': pauseSubscription,
  'taproot.events.v2.SubscriptionsService/ResumeSubscription': resumeSubscription,
  'taproot.events.v2.SubscriptionsService/RotateSubscriptionSecret': rotateSubscriptionSecret,
  'taproot.events.v2.SubscriptionsService/TestSubscription': testSubscription,
  'taproot.events.v2.SubscriptionsService/UpdateSubscription': updateSubscription,
  'taproot.iam.v2.AccessService/Explain': explain,
  'taproot.iam.v2.AccessService/ListAccess': listAccess,
  'taproot.iam.v2.AccountAssociationsService/CheckAccountAssociation': checkAccountAssociation,
  'taproot.iam.v2.GroupsService/CreateGroup': createGroup,
  'taproot.iam.v2.GroupsService/LookupGroup': lookupGroup,
  'taproot.iam.v2.GroupsService/RequestGroupAccess': requestGroupAccess,
  'taproot.iam.v2.GroupsService/CheckEligibility': checkEligibility,
  'taproot.iam.v2.GroupsService/GetGroupUsage': getGroupUsage,
  'taproot.iam.v2.GroupsService/SetGroupLimits': setGroupLimits,
  'taproot.iam.v2.GroupsService/SuspendGroup': suspendGroup,
  'taproot.iam.v2.GroupsService/ReleaseGroupName': releaseGroupName,
  'taproot.iam.v2.GroupsService/ResumeGroup': resumeGroup,
  'taproot.iam.v2.GroupsService/JoinGroup': joinGroup,
  'taproot.iam.v2.GroupInvitesService/CreateGroupInvite': createGroupInvite,
  'taproot.iam.v2.IdentitiesService/LookupIdentity': lookupIdentity,
  'taproot.iam.v2.RoleBindingsService/BatchCreateRoleBindings': batchCreateRoleBindings,
  'taproot.iam.v2.IdentityProvidersService/CreateIdentityProvider': createIdentityProvider,
  'taproot.iam.v2.IdentityProvidersService/UpdateIdentityProvider': updateIdentityProvider,
  'taproot.iam.v2.IdentityProvidersService/GenerateScimToken': generateScimToken,
  'taproot.iam.v2.IdentityProvidersService/RegenerateScimToken': regenerateScimToken,
  'taproot.iam.v2.IdentityProvidersService/RevokeScimToken': revokeScimToken,
  'taproot.iam.v2.IdentityProvidersService/SetScimEnabled': setScimEnabled,
  'taproot.iam.v2.ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings': batchDeleteMappings,
  'taproot.iam.v2.TermsService/AcceptTerms': acceptTerms,
  'taproot.libraries.v2.ArtifactsService/GetArtifactCount': getArtifactCount,
  'taproot.libraries.v2.ArtifactsService/ListArtifacts': listArtifacts,
  'taproot.libraries.v2.ArtifactsService/ListArtifactVersions': listArtifactVersions,
  'taproot.ping.v2.PingService/Ping': ping,
  'taproot.registry.v2.ReposService/GetRepoReadme': getRepoReadme,
  'taproot.registry.v2.ReposService/UpdateRepoReadme': updateRepoReadme,
  'taproot.registry.v2.ReposService/ListMirrors': listMirrors,
  'taproot.registry.v2.ReposService/EndMirror': endMirror,
  'taproot.registry.v2.ContentsService/ListPackageImages': listPackageImages,
  'taproot.registry.v2.ContentsService/ListPackages': listPackages,
  'taproot.registry.v2.ContentsService/ListVulnerabilities': listVulnerabilities,
  'taproot.registry.v2.VulnReportsService/ListCumulativeVulnCountReports': listCumulativeVulnCountReports,
  'taproot.registry.v2.EolTagsService/ListEolTags': listEolTags,
  'taproot.registry.v2.VulnReportsService/GetRawVulnReport': getRawVulnReport,
  'taproot.registry.v2.VulnReportsService/GetVulnReport': getVulnReport,
  'taproot.registry.v2.VulnReportsService/ListVulnReports': listVulnReports,
  'taproot.registry.v2.VulnReportsService/ListVulnCountReports': listVulnCountReports,
  'taproot.registry.v2.ImagesService/GetArchitectures': getArchitectures,
  'taproot.registry.v2.ImagesService/GetSize': getSize,
  'taproot.registry.v2.TagHistoryService/ListTagHistory': listTagHistory,
  'taproot.registry.v2.TagHistoryService/RestoreTag': restoreTag,
  'taproot.registry.v1.Registry/GetImageConfig': getImageConfig,
  'taproot.registry.v1.Registry/GetRepoCountBySource': getRepoCountBySource,
  'taproot.registry.v1.Registry/GetRepoTagsSummary': summarizeTags,
  'taproot.registry.v1.Registry/ListEolTags': listEolTagsV1,
  'taproot.registry.v1.Registry/ListTagHistory': listTagHistoryV1,
  'taproot.registry.v1.Registry/CreateTag': createTagV1,
  'taproot.registry.v1.Registry/UpdateTag': updateTag,
  'taproot.registry.v1.Vulnerabilities/GetRawVulnReport': getRawVulnReportV1,
  'taproot.registry.v1.Vulnerabilities/ListCumulativeVulnCountReports': listCumulativeVulnCountReportsV1,
  'taproot.registry.v1.Vulnerabilities/ListVulnCountReports': listVulnCountReportsV1,
  'taproot.registry.v1.Vulnerabilities/ListVulnReports': listVulnReportsV1,
  'taproot.registry.v2.TagsService/CreateTag': createTag,
  'taproot.registry.v2.TagsService/DeleteTag': deleteTag,
  'taproot.vulnerabilities.v2.AdvisoriesService/GetAdvisory': getAdvisory,
  'taproot.vulnerabilities.v2.AdvisoriesService/ListAdvisories': listAdvisories,
}

function standardHandler(method: MethodRow): Handler | undefined {
  const kind = method.kind === undefined ? undefined : kinds.get(method.kind)
  return kind === undefined || method.verb === 'custom' ? undefined : standard[method.verb](kind)
}

/** The handlers of all methods that act on stored records. */
export const handlers: ReadonlyMap<MethodRow, Handler> = new Map(
  methods.flatMap((method): [MethodRow, Handler][] => {
    const handler = own[methodName(method)] ?? standardHandler(method)
    return handler === undefined ? [] : [[method, handler]]
  }),
)
