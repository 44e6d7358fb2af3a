import {
  AccountAssociations_AmazonSchema as AmazonV1,
  AccountAssociations_AzureSchema as AzureV1,
  AccountAssociations_GitHubAppInstallationsSchema as InstallationsV1,
  AccountAssociations_GitHubInstallationSchema as InstallationV1,
  AccountAssociations_GitHubSchema as GitHubV1,
  AccountAssociations_GoogleSchema as GoogleV1,
  AccountAssociations_PlatformSchema as PlatformV1,
  AccountAssociationsSchema as AssociationV1,
  AccountAssociationsStatusSchema as CheckedV1,
  CheckAccountAssociationsRequestSchema as CheckV1,
  ListAccountAssociationsRequestSchema as ListAssociationsV1,
} from '../gen/taproot/iam/v1/account_associations_pb.ts'
import {
  BatchDeleteExternalGroupRoleMappingsRequestSchema as BatchDeleteV1,
  BatchDeleteExternalGroupRoleMappingsResponseSchema as BatchDeletedV1,
  ExternalGroupRoleMappingSchema as MappingV1,
  GetExternalGroupRoleMappingRequestSchema as GetMappingV1,
  ListExternalGroupRoleMappingsRequestSchema as ListMappingsV1,
} from '../gen/taproot/iam/v1/external_group_role_mappings_pb.ts'
import {
  CreateGroupInviteRequestSchema as NewInviteV1,
  GroupInviteSchema as InviteV1,
  ListGroupInvitesRequestSchema as ListInvitesV1,
  StoredGroupInviteSchema as StoredInviteV1,
} from '../gen/taproot/iam/v1/group_invites_pb.ts'
import {
  GenerateScimTokenRequestSchema as GenerateV1,
  GenerateScimTokenResponseSchema as GeneratedV1,
  IdentityProvider_OIDCSchema as OidcV1,
  IdentityProvider_SCIMSchema as ScimV1,
  IdentityProviderSchema as ProviderV1,
  ListIdentityProvidersRequestSchema as ListProvidersV1,
  RegenerateScimTokenRequestSchema as RegenerateV1,
  RegenerateScimTokenResponseSchema as RegeneratedV1,
  RevokeScimTokenRequestSchema as RevokeV1,
  RevokeScimTokenResponseSchema as RevokedV1,
  SetScimEnabledRequestSchema as SetEnabledV1,
  SetScimEnabledResponseSchema as EnabledSetV1,
} from '../gen/taproot/iam/v1/identity_providers_pb.ts'
import { RoleSchema as RoleV1 } from '../gen/taproot/iam/v1/roles_pb.ts'
import {
  AcceptedTermsSchema as AcceptanceV1,
  AcceptTermsRequestSchema as AcceptV1,
  AcceptTermsResponseSchema as AcceptedV1,
  ListAcceptedTermsRequestSchema as ListAcceptedV1,
} from '../gen/taproot/iam/v1/terms_pb.ts'
import {
  AccountAssociation_AmazonSchema,
  AccountAssociation_AzureSchema,
  AccountAssociation_GitHubAppInstallationsSchema,
  AccountAssociation_GitHubInstallationSchema,
  AccountAssociation_GitHubSchema,
  AccountAssociation_GoogleSchema,
  AccountAssociation_PlatformSchema,
  AccountAssociationSchema,
  CheckAccountAssociationRequestSchema,
  CheckAccountAssociationResponseSchema,
  ListAccountAssociationsRequestSchema,
} from '../gen/taproot/iam/v2/account_associations_pb.ts'
import {
  BatchDeleteExternalGroupRoleMappingsRequestSchema,
  BatchDeleteExternalGroupRoleMappingsResponseSchema,
  ExternalGroupRoleMappingSchema,
  GetExternalGroupRoleMappingRequestSchema,
  ListExternalGroupRoleMappingsRequestSchema,
} from '../gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import { GroupInviteRoleSchema, GroupInviteSchema, ListGroupInvitesRequestSchema } from '../gen/taproot/iam/v2/group_invites_pb.ts'
import {
  GenerateScimTokenRequestSchema,
  GenerateScimTokenResponseSchema,
  IdentityProvider_OIDCSchema,
  IdentityProvider_SCIMSchema,
  IdentityProviderSchema,
  ListIdentityProvidersRequestSchema,
  RegenerateScimTokenRequestSchema,
  RegenerateScimTokenResponseSchema,
  RevokeScimTokenRequestSchema,
  RevokeScimTokenResponseSchema,
  SetScimEnabledRequestSchema,
  SetScimEnabledResponseSchema,
} from '../gen/taproot/iam/v2/identity_providers_pb.ts'
import {
  AcceptTermsRequestSchema,
  AcceptTermsResponseSchema,
  ListTermsAcceptancesRequestSchema,
  TermsAcceptanceSchema,
} from '../gen/taproot/iam/v2/terms_pb.ts'
import { defineMap, paging, unmapped } from './field-map.ts'
import { capabilityNames } from './kinds.ts'

const oidc = defineMap(OidcV1, IdentityProvider_OIDCSchema, {
  issuer: 'issuer',
  client_id: 'client_id',
  client_secret: 'client_secret',
  additional_scopes: 'additional_scopes',
  groups_claim: 'groups_claim',
  correlation_rule: 'correlation_rule',
  pkce_enabled: 'pkce_enabled',
})

const scim = defineMap(ScimV1, IdentityProvider_SCIMSchema, {
  enabled: 'enabled',
  endpoint_url: 'endpoint_url',
  token_expire_time: 'token_expire_time',
  previous_token_expire_time: 'previous_token_expire_time',
  credential_state: 'credential_state',
  etag: 'etag',
})

/** An identity provider. */
export const providerMap = defineMap(ProviderV1, IdentityProviderSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  default_role: 'default_role',
  oidc: { to: 'oidc', by: oidc },
  scim: { to: 'scim', by: scim },
})

/** The filters of a list of identity providers. */
export const providerFilters = defineMap(ListProvidersV1, ListIdentityProvidersRequestSchema, { id: unmapped, name: 'name', uidp: 'uidp', ...paging })

const provider = { identity_provider_id: 'identity_provider_uid' }
const issued = { ...provider, token: 'token', endpoint_url: 'endpoint_url', expire_time: 'expire_time', etag: 'etag' }
const life = { ...provider, expire_time: 'expire_time', never_expires: 'never_expires' }

/** The requests and answers about SCIM credentials. */
export const scimMaps = {
  generate: { request: defineMap(GenerateV1, GenerateScimTokenRequestSchema, life), answer: defineMap(GeneratedV1, GenerateScimTokenResponseSchema, issued) },
  regenerate: {
    request: defineMap(RegenerateV1, RegenerateScimTokenRequestSchema, { ...life, overlap: 'overlap', etag: 'etag' }),
    answer: defineMap(RegeneratedV1, RegenerateScimTokenResponseSchema, {
      ...issued,
      previous_token_expire_time: 'previous_token_expire_time',
      requested_overlap: 'requested_overlap',
    }),
  },
  revoke: {
    request: defineMap(RevokeV1, RevokeScimTokenRequestSchema, provider),
    answer: defineMap(RevokedV1, RevokeScimTokenResponseSchema, { ...provider, etag: 'etag', enabled: 'enabled', revoke_time: 'revoke_time' }),
  },
  setEnabled: {
    request: defineMap(SetEnabledV1, SetScimEnabledRequestSchema, { ...provider, enabled: 'enabled', etag: 'etag' }),
    answer: defineMap(EnabledSetV1, SetScimEnabledResponseSchema, { ...provider, enabled: 'enabled', etag: 'etag' }),
  },
}

const amazon = defineMap(AmazonV1, AccountAssociation_AmazonSchema, { account: 'account' })
const google = defineMap(GoogleV1, AccountAssociation_GoogleSchema, { project_id: 'project_id', project_number: 'project_number' })
const platform = defineMap(PlatformV1, AccountAssociation_PlatformSchema, { service_bindings: 'service_bindings' })
const azure = defineMap(AzureV1, AccountAssociation_AzureSchema, { tenant_id: 'tenant_id', client_ids: 'client_ids' })
const installation = defineMap(InstallationV1, AccountAssociation_GitHubInstallationSchema, { installation_id: 'installation_id', name: 'name' })
const installations = defineMap(InstallationsV1, AccountAssociation_GitHubAppInstallationsSchema, {
  installations: { to: 'installations', by: installation },
})
const github = defineMap(GitHubV1, AccountAssociation_GitHubSchema, { app_installations: { to: 'app_installations', by: installations } })

/** An account association. Its uid is that of the group. */
export const associationMap = defineMap(AssociationV1, AccountAssociationSchema, {
  group: 'uid',
  amazon: { to: 'amazon', by: amazon },
  google: { to: 'google', by: google },
  name: 'name',
  description: 'description',
  platform: { to: 'platform', by: platform },
  azure: { to: 'azure', by: azure },
  github: { to: 'github', by: github },
})

/** The filters of a list of account associations. */
export const associationFilters = defineMap(ListAssociationsV1, ListAccountAssociationsRequestSchema, { group: unmapped, name: 'name', ...paging })

/** The check of an account association. */
export const checkMaps = {
  request: defineMap(CheckV1, CheckAccountAssociationRequestSchema, { group: 'uid', account_type: 'provider_type' }),
  answer: defineMap(CheckedV1, CheckAccountAssociationResponseSchema, { ready: 'status', reason: 'reason', message: 'message' }),
}

/** A new invite, as the request of its create has it. The create maps `group` itself. */
export const newInviteMap = defineMap(NewInviteV1, GroupInviteSchema, {
  group: unmapped,
  ttl: 'ttl',
  role: 'role_uid',
  email: 'email',
  single_use: 'single_use',
})

const invitedRole = defineMap(RoleV1, GroupInviteRoleSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  capabilities: { to: 'capabilities', by: capabilityNames },
})

/** An invite in the answer of its create. */
export const inviteMap = defineMap(InviteV1, GroupInviteSchema, {
  id: 'uid',
  expiration: 'expiration_time',
  key_id: 'key_id',
  role: { to: 'role', by: invitedRole },
  code: 'code',
})

/** An invite in a list. */
export const storedInviteMap = defineMap(StoredInviteV1, GroupInviteSchema, {
  id: 'uid',
  expiration: 'expiration_time',
  key_id: 'key_id',
  role: { to: 'role', by: invitedRole },
  email: 'email',
  created_at: 'create_time',
  single_use: 'single_use',
})

/** The filters of a list of invites. */
export const inviteFilters = defineMap(ListInvitesV1, ListGroupInvitesRequestSchema, { group: unmapped, id: unmapped, key_id: 'key_id', ...paging })

/** A mapping of a group at an identity provider. */
export const mappingMap = defineMap(MappingV1, ExternalGroupRoleMappingSchema, {
  id: 'uid',
  identity_provider_uidp: 'identity_provider_uid',
  external_group_id: 'external_group_id',
  role_uidp: 'role_uid',
  scope: 'scope',
  created_at: 'create_time',
})

/** The filters of a list of mappings. */
export const mappingFilters = defineMap(ListMappingsV1, ListExternalGroupRoleMappingsRequestSchema, {
  uidp: 'uidp',
  identity_provider_uidp: 'identity_provider_uid',
  ...paging,
})

/** The request for one mapping. */
export const getMappingMap = defineMap(GetMappingV1, GetExternalGroupRoleMappingRequestSchema, { uid: 'uid' })

/** The delete of many mappings. */
export const batchDeleteMaps = {
  request: defineMap(BatchDeleteV1, BatchDeleteExternalGroupRoleMappingsRequestSchema, { parent_id: 'parent', ids: 'names' }),
  answer: defineMap(BatchDeletedV1, BatchDeleteExternalGroupRoleMappingsResponseSchema, {
    parent_id: 'parent',
    items: { to: 'external_group_role_mappings', by: mappingMap },
  }),
}

/** The acceptance of terms. */
export const acceptMaps = {
  request: defineMap(AcceptV1, AcceptTermsRequestSchema, { group: 'group', document_ids: 'document_ids' }),
  answer: defineMap(AcceptedV1, AcceptTermsResponseSchema, { group: 'group', document_ids: 'document_ids' }),
}

/** An accepted document. */
export const acceptanceMap = defineMap(AcceptanceV1, TermsAcceptanceSchema, { doc_id: 'doc_id', accepted_by: 'accepted_by', accepted_at: 'create_time' })

/** The filters of a list of accepted documents. */
export const acceptanceFilters = defineMap(ListAcceptedV1, ListTermsAcceptancesRequestSchema, { group: 'group', ...paging })
