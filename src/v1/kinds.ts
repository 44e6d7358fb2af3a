import { create } from '@bufbuild/protobuf'
import { capabilityByEnumNumber, capabilityByName } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import { ListSubscriptionsRequestSchema as ListSubscriptionsV1, SubscriptionSchema as SubscriptionV1 } from '../gen/taproot/events/v1/subscriptions_pb.ts'
import { ListSubscriptionsRequestSchema, SubscriptionSchema } from '../gen/taproot/events/v2/subscriptions_pb.ts'
import {
  CheckEligibilityRequestSchema as EligibilityV1,
  CheckEligibilityResponseSchema as EligibleV1,
  GroupSchema as GroupV1,
  ListGroupsRequestSchema as ListGroupsV1,
  LookupGroupRequestSchema as LookupGroupV1,
  LookupGroupResponseSchema as FoundGroupV1,
  RequestGroupAccessRequestSchema as RequestAccessV1,
  RequestGroupAccessResponseSchema as AccessRequestedV1,
} from '../gen/taproot/iam/v1/groups_pb.ts'
import {
  Identity_AWSIdentitySchema as AwsV1,
  Identity_ClaimMatchSchema as ClaimMatchV1,
  Identity_StaticKeysSchema as StaticKeysV1,
  IdentitySchema as IdentityV1,
  ListIdentitiesRequestSchema as ListIdentitiesV1,
} from '../gen/taproot/iam/v1/identities_pb.ts'
import {
  BindingSchema as BindingV1,
  CreateRoleBindingBatchRequestSchema as BatchV1,
  ListRoleBindingsRequestSchema as ListRoleBindingsV1,
  RoleBindingBatchSchema as BatchCreatedV1,
  RoleBindingSchema as RoleBindingV1,
} from '../gen/taproot/iam/v1/role_bindings_pb.ts'
import { ListRolesRequestSchema as ListRolesV1, RoleSchema as RoleV1 } from '../gen/taproot/iam/v1/roles_pb.ts'
import {
  CheckEligibilityRequestSchema,
  CheckEligibilityResponseSchema,
  GroupSchema,
  ListGroupsRequestSchema,
  LookupGroupRequestSchema,
  LookupGroupResponseSchema,
  RequestGroupAccessRequestSchema,
  RequestGroupAccessResponseSchema,
} from '../gen/taproot/iam/v2/groups_pb.ts'
import {
  Identity_AWSIdentitySchema,
  Identity_ClaimMatchSchema,
  Identity_StaticKeysSchema,
  IdentitySchema,
  ListIdentitiesRequestSchema,
} from '../gen/taproot/iam/v2/identities_pb.ts'
import {
  BatchCreateRoleBindingsRequestSchema,
  BatchCreateRoleBindingsResponseSchema,
  CreateRoleBindingRequestSchema,
  ListRoleBindingsRequestSchema,
  RoleBindingGroupSchema,
  RoleBindingRoleSchema,
  RoleBindingSchema,
  type CreateRoleBindingRequest,
  type RoleBinding,
} from '../gen/taproot/iam/v2/role_bindings_pb.ts'
import { ListRolesRequestSchema, RoleSchema } from '../gen/taproot/iam/v2/roles_pb.ts'
import { PingRequestSchema as PingV1, ResponseSchema as PongV1 } from '../gen/taproot/ping/v1/ping_pb.ts'
import { PingRequestSchema, PingResponseSchema } from '../gen/taproot/ping/v2/ping_pb.ts'
import { defineMap, paging, unmapped, type FieldConverter, type FieldMap, type FieldRow } from './field-map.ts'

/** A group. */
export const groupMap = defineMap(GroupV1, GroupSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  resource_limits: 'resource_limits',
  verified: 'verified',
  kind: 'kind',
  status: 'status',
})

/** The filters of a list of groups. */
export const groupFilters = defineMap(ListGroupsV1, ListGroupsRequestSchema, { id: unmapped, uidp: 'uidp', name: 'name', ...paging })

/** The search for the group of the caller's e-mail domain. */
export const groupLookupMaps = {
  request: defineMap(LookupGroupV1, LookupGroupRequestSchema, {}),
  answer: defineMap(FoundGroupV1, LookupGroupResponseSchema, { group: { to: 'group', by: groupMap } }),
}

/** The request for access to that group. */
export const groupAccessMaps = {
  request: defineMap(RequestAccessV1, RequestGroupAccessRequestSchema, { group_id: 'group_uid' }),
  answer: defineMap(AccessRequestedV1, RequestGroupAccessResponseSchema, {}),
}

/** The question whether the caller can search. */
export const eligibilityMaps = {
  request: defineMap(EligibilityV1, CheckEligibilityRequestSchema, {}),
  answer: defineMap(EligibleV1, CheckEligibilityResponseSchema, { eligible: 'eligible' }),
}

const claimMatch = defineMap(ClaimMatchV1, Identity_ClaimMatchSchema, {
  issuer: 'issuer',
  issuer_pattern: 'issuer_pattern',
  subject: 'subject',
  subject_pattern: 'subject_pattern',
  audience: 'audience',
  audience_pattern: 'audience_pattern',
  claims: 'claims',
  claim_patterns: 'claim_patterns',
})

const staticKeys = defineMap(StaticKeysV1, Identity_StaticKeysSchema, {
  issuer: 'issuer',
  subject: 'subject',
  issuer_keys: 'issuer_keys',
  expiration: 'expiration_time',
  audiences: 'audiences',
})

const awsIdentity = defineMap(AwsV1, Identity_AWSIdentitySchema, {
  aws_account: 'aws_account',
  arn: 'arn',
  arn_pattern: 'arn_pattern',
  user_id: 'user_id',
  user_id_pattern: 'user_id_pattern',
})

/** An identity. */
export const identityMap = defineMap(IdentityV1, IdentitySchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  created_at: 'create_time',
  updated_at: 'update_time',
  last_seen: 'last_seen_time',
  claim_match: { to: 'claim_match', by: claimMatch },
  static: { to: 'static_keys', by: staticKeys },
  service_principal: 'service_principal',
  aws_identity: { to: 'aws_identity', by: awsIdentity },
})

/** The filters of a list of identities. */
export const identityFilters = defineMap(ListIdentitiesV1, ListIdentitiesRequestSchema, { id: unmapped, uidp: 'uidp', ...paging })

/** Converts names of capabilities, such as `groups.list`, to numbers. */
export const capabilityNames: FieldConverter = {
  toV1: (number) => capabilityByEnumNumber(Number(number))?.name ?? String(number),
  toV2(name) {
    const found = capabilityByName(String(name))
    if (found === undefined) throw DomainError.invalid('capabilities', `unknown capability "${String(name).slice(0, 120)}"`)
    return found.number
  },
}

/** A role. */
export const roleMap = defineMap(RoleV1, RoleSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  capabilities: { to: 'capabilities', by: capabilityNames },
})

/** The filters of a list of roles. The list maps `parent` itself. */
export const roleFilters = defineMap(ListRolesV1, ListRolesRequestSchema, { id: unmapped, name: 'name', parent: unmapped, uidp: 'uidp', ...paging })

/** Returns a row that reads a field of a role binding. */
function ofBinding(read: (binding: RoleBinding) => unknown, to?: string): FieldRow {
  // The record of a map of role bindings is one.
  return { read: (record) => read(record as RoleBinding), ...(to === undefined ? {} : { to }) }
}

/** A role binding by uids. */
export const roleBindingMap = defineMap(RoleBindingV1, RoleBindingSchema, {
  id: 'uid',
  identity: ofBinding(({ identity, identityUid }) => identity?.uid ?? identityUid, 'identity_uid'),
  group: ofBinding(({ group }) => group?.uid),
  role: ofBinding(({ role, roleUid }) => role?.uid ?? roleUid, 'role_uid'),
})

/** An item of a batch of role bindings. In version 2 it is the request of a create. */
const batchedBinding: FieldMap = {
  ...roleBindingMap,
  v2: CreateRoleBindingRequestSchema,
  toV2: (message) => create(CreateRoleBindingRequestSchema, { roleBinding: roleBindingMap.toV2(message) as RoleBinding }), // what the map makes
  toV1: (message) => roleBindingMap.toV1((message as CreateRoleBindingRequest).roleBinding ?? create(RoleBindingSchema)), // see v2
  pathInV1: (path) => (path === 'role_binding' ? '' : roleBindingMap.pathInV1(path.replace(/^role_binding\./, ''))),
}

/** A batch of role bindings. */
export const bindingBatchMaps = {
  request: defineMap(BatchV1, BatchCreateRoleBindingsRequestSchema, { parent: 'parent', role_bindings: { to: 'requests', by: batchedBinding } }),
  answer: defineMap(BatchCreatedV1, BatchCreateRoleBindingsResponseSchema, { role_bindings: { to: 'role_bindings', by: roleBindingMap } }),
}

const boundGroup = defineMap(GroupV1, RoleBindingGroupSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  resource_limits: unmapped,
  verified: unmapped,
  kind: unmapped,
  status: unmapped,
})

const boundRole = defineMap(RoleV1, RoleBindingRoleSchema, { id: 'uid', name: 'name', description: 'description', capabilities: unmapped })

/** A role binding in a list, with what it names. */
export const bindingMap = defineMap(BindingV1, RoleBindingSchema, {
  id: 'uid',
  group: { to: 'group', by: boundGroup },
  identity: ofBinding(({ identity, identityUid }) => identity?.uid ?? identityUid, 'identity_uid'),
  role: { to: 'role', by: boundRole },
  email: ofBinding(({ identity }) => identity?.email),
  claim_match_issuer: ofBinding(({ identity }) => identity?.issuer),
  claim_match_subject: ofBinding(({ identity }) => identity?.subject),
  created_at: 'create_time',
  email_unverified: unmapped,
})

/** The filters of a list of role bindings. */
export const roleBindingFilters = defineMap(ListRoleBindingsV1, ListRoleBindingsRequestSchema, { id: unmapped, uidp: 'uidp', ...paging })

/** A subscription. */
export const subscriptionMap = defineMap(SubscriptionV1, SubscriptionSchema, { id: 'uid', sink: 'sink' })

/** The filters of a list of subscriptions. */
export const subscriptionFilters = defineMap(ListSubscriptionsV1, ListSubscriptionsRequestSchema, { id: unmapped, uidp: 'uidp', ...paging })

/** The check of the connection. */
export const pingMaps = {
  request: defineMap(PingV1, PingRequestSchema, {}),
  answer: defineMap(PongV1, PingResponseSchema, { response: 'response' }),
}
