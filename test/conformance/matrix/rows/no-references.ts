/** Texts that name no record, by message or field. */
export const noReferences: readonly string[] = [
  ...['page_token', 'order_by', 'name', 'description', 'etag', 'capability'].map((field) => `*.${field}`),
  ...['iam.v2.Identity.*', 'iam.v2.AccountAssociation.Amazon.*', 'iam.v2.AccountAssociation.Google.*', 'iam.v2.AccountAssociation.Azure.*'],
  ...['iam.v2.AccountAssociation.GitHub.*', 'iam.v2.IdentityProvider.OIDC.*', 'iam.v2.LookupIdentityRequest.*'],
  ...[
    'iam.v1.IdentityProvider.OIDC.*',
    'iam.v1.IdentityProvider.SCIM.*',
    'iam.v1.AccountAssociations.*',
    'iam.v1.AcceptTermsRequest.document_ids',
    'iam.v1.ListGroupInvitesRequest.key_id',
  ],
  ...['iam.v1.CreateGroupInviteRequest.email', 'iam.v1.ExternalGroupRoleMapping.external_group_id'],
  // A create ignores the id of its resource.
  ...['Group', 'Role', 'RoleBinding', 'IdentityProvider', 'ExternalGroupRoleMapping'].map((kind) => `iam.v1.${kind}.id`),
  ...[
    'registry.v1.Repo.*',
    'registry.v1.HelmChart.*',
    'registry.v1.GetImageConfigRequest.arch',
    'registry.v1.GetPackageVersionMetadataRequest.package',
    'registry.v1.GetSizeRequest.arch',
    'registry.v1.CustomOverlay.*',
    'registry.v1.Tag.id',
    'registry.v1.Tag.bundles',
  ],
  ...['google', 'amazon', 'azure'].map((cloud) => `registry.v1.SyncConfig.${cloud}`),
  ...[
    'events.v1.Subscription.id',
    'events.v1.Subscription.sink',
    'iam.v1.Role.capabilities',
    'iam.v2.TestCapabilitiesRequest.capabilities',
    'iam.v1.Identity.*',
    'iam.v1.LookupIdentityRequest.*',
  ],
  // A catalogue is in no group.
  'catalogue.v2.UseCatalogueRequest.digest',
  // The name of a group at a foreign provider, an address, a random id.
  ...['events.v2.Subscription.sink', 'events.v2.Subscription.types', 'events.v2.PullEventsRequest.types', 'events.v2.PullEventsRequest.cursor'],
  ...['events.v2.WatchEventsRequest.types', 'events.v2.WatchEventsRequest.cursor'],
  // Filters by the content of events: no record is looked up.
  ...['actor', 'resource', 'method'].map((field) => `audit.v2.ListAuditEventsRequest.${field}`),
  // Event ids, which are looked up within one subscription.
  ...['events.v2.RedeliverEventsRequest.event_id', 'events.v2.ReplayEventsRequest.from_event_id'],
  ...['iam.v2.ExternalGroupRoleMapping.external_group_id', 'iam.v2.GroupInvite.email', 'iam.v2.ListGroupInvitesRequest.key_id'],
  // Names of limits, and numbers.
  'iam.v2.SetGroupLimitsRequest.resource_limits',
  // A public key.
  'auth.v1.GetHeadlessSessionRequest.code',
  // Names of the platform itself: audiences, capabilities.
  ...['Exchange', 'ExchangeRefreshToken'].flatMap((rpc) => [`oidc.v1.${rpc}Request.aud`, `oidc.v1.${rpc}Request.cap`]),
  // Documents in the configuration.
  'iam.v2.AcceptTermsRequest.document_ids',
  // Names within the repo of the request, and its other fields.
  ...['registry.v2.ListTagHistoryRequest.tag', 'registry.v2.RestoreTagRequest.tag', 'registry.v2.GetSizeRequest.architecture', 'registry.v2.Tag.bundles'],
  ...['registry.v2.Repo.*', 'registry.v2.RepoReadme.content', 'registry.v2.CustomOverlay.*', 'registry.v2.ProductRule.*'],
  ...['advisory.v2.ImageRef.tags', 'advisory.v1.ImageRef.tags'],
  // A repo below the group of the policy, a digest, the id of a vulnerability: texts, which are compared at each pull. No record is looked up.
  'registry.v2.PullPolicy.Exception.*',
  // Public keys, and texts of certificates.
  ...['registry.v2.PullPolicy.SignatureRequirement.keys', 'registry.v2.PullPolicy.Identity.*'],
  // A tag of the repo of the request.
  'registry.v2.ListVulnReportsRequest.tag',
  ...['ListVulnReportsRequest.tag', 'ListVulnCountReportsRequest.tag', 'Scanner.version'].map((field) => `registry.v1.${field}`),
  // Only gRPC carries these. They are the same as `repo` and `tag` of the request: test/conformance/spec/registry/vulnerability-counts.test.ts.
  'registry.v1.RepoTagReference.*',
  // Filters of the packages and reports of one image.
  'registry.v2.ListScannerReportsRequest.report_digests',
  'registry.v2.ListVulnerabilitiesRequest.platform',
  ...['platform', 'names', 'types', 'query'].map((field) => `registry.v2.ListPackagesRequest.${field}`),
  // A package, which no record names.
  'registry.v2.ListPackageImagesRequest.purl',
  // Values of imported advisories and vulnerabilities.
  ...['vulnerabilities.v2.ListAdvisoriesRequest.*', 'advisory.v2.ListDocumentsRequest.*', 'advisory.v2.ListVulnerabilityMetadataRequest.*'],
  ...[
    'vulnerabilities.v1.ListAdvisoriesRequest.*',
    'vulnerabilities.v1.Advisory.*',
    'vulnerabilities.v1.AdvisoryEvent.*',
    'advisory.v1.ListDocumentsRequest.*',
    'advisory.v1.ListVulnerabilityMetadataRequest.*',
  ],
  // Values of imported artifacts, which all organisations share.
  ...['libraries.v2.ListArtifactsRequest.*', 'libraries.v2.ListArtifactVersionsRequest.artifact_id'],
  ...['libraries.v1.ListArtifactsRequest.*', 'libraries.v1.ListArtifactVersionsRequest.id'],
  // Cloud identities of a sync.
  ...['registry.v2.SyncConfig.google', 'registry.v2.SyncConfig.amazon', 'registry.v2.SyncConfig.azure'],
]
