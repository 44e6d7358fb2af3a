import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../support/test-server.ts'
import { missingIn, noDigest, nowhere } from './asking.ts'
import type { Codes, ReferenceRow } from './rows/reference-row.ts'
import { registryReferences } from './rows/registry-references.ts'
import { countsV1 } from './rows/v1-methods.ts'
import { grantedRole, type Things } from './world.ts'

const nothing: Codes = [3, 3, 3, 3, 3, 3]
/** References upwards, to records in the group or above it, if the caller has reach there. */
const upwards = { root: [0, 0, 3, 3, 3, 3], subgroup: [0, 3, 3, 3, 3, 3] } as const satisfies Pick<ReferenceRow, 'root' | 'subgroup'>
const custom = {
  names: 'role',
  ...upwards,
  because: 'docs/spec/iam.md#custom-roles: a custom role is bound at or below its own group; docs/spec/iam.md#references-in-bodies',
} as const
const member = {
  names: 'identity',
  ...upwards,
  because: 'docs/spec/iam.md#role-bindings: the group lies at or below the identity’s own; docs/spec/iam.md#references-in-bodies',
} as const
const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret' }
const person = 'd'.repeat(40)

const mappedRole = {
  names: 'role',
  root: [3, 0, 3, 3, 3, 3],
  subgroup: nothing,
  because: 'docs/spec/identities.md#group-mappings: the scope is the root, so the role is one of the root',
} as const
const mappedScope = {
  names: 'place',
  root: [3, 0, 3, 3, 3, 3],
  // Every uid shows the root; a missing right there is code 7.
  subgroup: [3, 7, 3, 3, 3, 3],
  because: 'docs/spec/identities.md#group-mappings: the root, for now',
} as const
const batched = {
  names: 'mapping',
  root: [0, 3, 3, 3, 0, 3],
  subgroup: [0, 3, 3, 3, 0, 3],
  because: 'docs/spec/identities.md#mapping-batches: those that are gone are skipped, those under another parent refused',
} as const
/** Returns a create of a mapping in version 1 with another value of a field. */
function mappingV1(field: string): (value: string, own: Things) => JsonObject {
  return (value, own) => ({
    parentId: own.provider,
    mapping: { externalGroupId: freshName('group'), roleUidp: grantedRole, scope: own.place.slice(0, 40), [field]: value },
  })
}

/** A repo whose reports are asked for. */
const reported = {
  names: 'repo',
  root: [0, 0, 0, 5, 5, 5],
  subgroup: [0, 5, 5, 5, 5, 5],
  because: 'docs/spec/version-1.md#vulnerability-reports: who may see what images contain',
} as const

/** Fields that name a second record besides the subject of the request. */
export const references: readonly ReferenceRow[] = [
  {
    field: 'advisory.v2.ImageRef.repo',
    method: 'SecurityAdvisoryService/ListResolvedVulnsReports',
    names: 'repo',
    request: (name, own) => ({
      imageRefs: [own.repo, name].map((one) => ({ repo: one, tags: ['none'] })),
      startTime: '2026-01-01T00:00:00.000Z',
      endTime: '2026-01-02T00:00:00.000Z',
    }),
    root: [0, 0, 0, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'docs/spec/vulnerability-metadata.md#resolved-reports: who may see what images contain',
  },
  { ...reported, field: 'registry.v1.ListVulnReportsRequest.repo_id', method: 'Vulnerabilities/ListVulnReports', request: (repoId) => ({ repoId }) },
  { ...reported, field: 'registry.v1.ListVulnCountReportsRequest.repo', method: 'Vulnerabilities/ListVulnCountReports', request: countsV1 },
  {
    field: 'registry.v1.ListVulnReportsRequest.digest',
    method: 'Vulnerabilities/ListVulnReports',
    names: 'digest',
    missing: noDigest,
    request: (digest) => ({ digest }),
    root: [0, 0, 0, 0, 0, 0],
    subgroup: [0, 0, 0, 0, 0, 0],
    because: 'docs/spec/version-1.md#vulnerability-reports: the list is empty if no repo in reach has it',
  },
  {
    field: 'advisory.v1.ImageRef.repo',
    method: 'SecurityAdvisory/ListResolvedVulnsReports',
    names: 'repo',
    request: (name, own) => ({
      imageRefs: [own.repo, name].map((one) => ({ repo: one, tags: ['none'] })),
      from: '2026-01-01T00:00:00.000Z',
      to: '2026-01-02T00:00:00.000Z',
    }),
    root: [0, 0, 0, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'docs/spec/vulnerability-metadata.md#resolved-reports: who may see what images contain',
  },
  {
    field: 'iam.v2.RoleBinding.identity_uid',
    method: 'RoleBindingsService/CreateRoleBinding',
    request: (identityUid, own) => ({ parent: own.group, roleBinding: { identityUid, roleUid: grantedRole } }),
    ...member,
  },
  {
    field: 'iam.v1.RoleBinding.identity',
    method: 'RoleBindings/Create',
    request: (identity, own) => ({ parent: own.group, roleBinding: { identity, role: grantedRole } }),
    ...member,
  },
  { field: 'iam.v1.RoleBinding.role', method: 'RoleBindings/Update', request: (role, own) => ({ id: own.binding, identity: own.identity, role }), ...custom },
  {
    field: 'iam.v1.CreateGroupInviteRequest.role',
    method: 'GroupInvites/Create',
    request: (role, own) => ({ group: own.place, role, ttl: '3600s' }),
    ...custom,
  },
  {
    field: 'iam.v1.IdentityProvider.default_role',
    method: 'IdentityProviders/Create',
    request: (defaultRole, own) => ({ parentId: own.place, identityProvider: { name: freshName('idp'), defaultRole, oidc } }),
    ...custom,
  },
  { ...mappedRole, field: 'iam.v1.ExternalGroupRoleMapping.role_uidp', method: 'ExternalGroupRoleMappings/Create', request: mappingV1('roleUidp') },
  { ...mappedScope, field: 'iam.v1.ExternalGroupRoleMapping.scope', method: 'ExternalGroupRoleMappings/Create', request: mappingV1('scope') },
  {
    ...batched,
    field: 'iam.v1.BatchDeleteExternalGroupRoleMappingsRequest.ids',
    method: 'ExternalGroupRoleMappings/BatchDelete',
    request: (id, own) => ({ parentId: own.mappedProvider, ids: [id] }),
  },
  {
    field: 'iam.v2.RoleBinding.identity_uid',
    method: 'RoleBindingsService/UpdateRoleBinding',
    request: (identityUid, own) => ({ roleBinding: { uid: own.binding, identityUid } }),
    ...member,
  },
  {
    field: 'iam.v2.RoleBinding.identity_uid',
    method: 'RoleBindingsService/BatchCreateRoleBindings',
    request: (identityUid, own) => ({ parent: own.group, requests: [{ roleBinding: { identityUid, roleUid: grantedRole } }] }),
    ...member,
  },
  {
    field: 'iam.v2.RoleBinding.identity_uid',
    method: 'RoleBindingsService/CreateRoleBinding',
    names: 'person',
    request: (identityUid, own) => ({ parent: own.group, roleBinding: { identityUid, roleUid: grantedRole } }),
    root: [0, 0, 0, 0, 0, 0],
    subgroup: [0, 0, 0, 0, 0, 0],
    because: 'docs/spec/iam.md#role-bindings: a person may be bound before they are registered, so no person is refused for being missing',
  },
  {
    field: 'iam.v2.RoleBinding.role_uid',
    method: 'RoleBindingsService/CreateRoleBinding',
    request: (roleUid, own) => ({ parent: own.place, roleBinding: { identityUid: person, roleUid } }),
    ...custom,
  },
  {
    field: 'iam.v2.RoleBinding.role_uid',
    method: 'RoleBindingsService/UpdateRoleBinding',
    request: (roleUid, own) => ({ roleBinding: { uid: own.binding, roleUid } }),
    ...custom,
  },
  {
    field: 'iam.v2.RoleBinding.role_uid',
    method: 'RoleBindingsService/BatchCreateRoleBindings',
    request: (roleUid, own) => ({ parent: own.place, requests: [{ roleBinding: { identityUid: person, roleUid } }] }),
    ...custom,
  },
  {
    field: 'iam.v2.BatchCreateRoleBindingsRequest.role_uid',
    method: 'RoleBindingsService/BatchCreateRoleBindings',
    request: (roleUid, own) => ({ parent: own.place, roleUid, requests: [{ roleBinding: { identityUid: person } }] }),
    ...custom,
  },
  {
    field: 'iam.v2.CreateRoleBindingRequest.parent',
    method: 'RoleBindingsService/BatchCreateRoleBindings',
    names: 'place',
    request: (parent, own) => ({ parent: own.place, requests: [{ parent, roleBinding: { identityUid: person, roleUid: grantedRole } }] }),
    root: [0, 3, 3, 3, 3, 3],
    subgroup: [0, 3, 3, 3, 3, 3],
    because: 'docs/spec/iam.md#role-binding-batches: the item’s parent is that of the batch',
  },
  {
    field: 'iam.v2.GroupInvite.role_uid',
    method: 'GroupInvitesService/CreateGroupInvite',
    request: (roleUid, own) => ({ parent: own.place, groupInvite: { roleUid, ttl: '3600s' } }),
    ...custom,
  },
  {
    field: 'iam.v2.IdentityProvider.default_role',
    method: 'IdentityProvidersService/CreateIdentityProvider',
    request: (defaultRole, own) => ({ parent: own.place, identityProvider: { name: freshName('idp'), defaultRole, oidc } }),
    ...custom,
  },
  {
    field: 'iam.v2.IdentityProvider.default_role',
    method: 'IdentityProvidersService/UpdateIdentityProvider',
    request: (defaultRole, own) => ({ identityProvider: { uid: own.provider, defaultRole } }),
    ...custom,
  },
  {
    field: 'iam.v2.ExternalGroupRoleMapping.role_uid',
    method: 'ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping',
    request: (roleUid, own) => ({
      parent: own.provider,
      externalGroupRoleMapping: { externalGroupId: freshName('group'), roleUid, scope: own.place.slice(0, 40) },
    }),
    ...mappedRole,
  },
  {
    field: 'iam.v2.ExternalGroupRoleMapping.scope',
    method: 'ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping',
    request: (scope, own) => ({ parent: own.provider, externalGroupRoleMapping: { externalGroupId: freshName('group'), roleUid: grantedRole, scope } }),
    ...mappedScope,
  },
  {
    field: 'iam.v2.BatchDeleteExternalGroupRoleMappingsRequest.names',
    method: 'ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings',
    request: (name, own) => ({ parent: own.mappedProvider, names: [name] }),
    ...batched,
  },
  {
    field: 'iam.v2.AccountAssociation.Platform.service_bindings',
    method: 'AccountAssociationsService/CreateAccountAssociation',
    names: 'identity',
    request: (identity, own) => ({ parent: own.group, accountAssociation: { name: 'made', platform: { serviceBindings: { INGESTER: identity } } } }),
    root: nothing,
    subgroup: nothing,
    because: 'docs/spec/iam.md#account-associations: an identity directly in the group that is a service principal, of which there is none',
  },
  {
    field: 'iam.v2.AccountAssociation.Platform.service_bindings',
    method: 'AccountAssociationsService/UpdateAccountAssociation',
    names: 'identity',
    request: (identity, own) => ({ accountAssociation: { uid: own.association, platform: { serviceBindings: { INGESTER: identity } } } }),
    root: nothing,
    subgroup: nothing,
    because: 'docs/spec/iam.md#account-associations',
  },
  {
    field: 'iam.v2.ExplainRequest.identity',
    method: 'AccessService/Explain',
    names: 'identity',
    request: (identity, own) => ({ resource: own.repo, capability: 'repo.list', identity }),
    root: [0, 0, 0, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'docs/spec/iam.md#explain-and-access: an identity that the asker can know nothing of',
  },
  {
    field: 'iam.v2.ExplainRequest.identity',
    method: 'AccessService/Explain',
    names: 'person',
    request: (identity, own) => ({ resource: own.repo, capability: 'repo.list', identity }),
    root: [0, 0, 0, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'docs/spec/iam.md#explain-and-access: people are known by their bindings',
  },
  {
    field: 'iam.v2.CreateGroupRequest.parent',
    method: 'GroupsService/CreateGroup',
    names: 'placeName',
    request: (parent) => ({ parent, group: { name: freshName('made') } }),
    missing: () => freshName('nothing'),
    root: [0, 0, 0, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'docs/spec/iam.md#groups: the name of a group in scope',
  },
  ...registryReferences,
]

/** Returns the value of the reference row in each place, in the order of Codes. */
export function valuesOf(row: ReferenceRow, things: Readonly<Record<'own' | 'ancestor' | 'sibling' | 'other', Things>>): string[] {
  const { own, ancestor, sibling, other } = things
  const there = [own, ancestor, sibling, other].map((one) => one[row.names])
  const { missing } = row
  const absent = missing === undefined ? [missingIn(own.place, own[row.names]), nowhere(own[row.names])] : [missing(), missing()]
  return [...there, ...absent]
}
