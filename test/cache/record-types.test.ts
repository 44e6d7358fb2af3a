import type { GenMessage } from '@bufbuild/protobuf/codegenv2'
import { expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { messageOf, type RecordTypes } from '../../src/cache/records/record-types.ts'
import { recordOfEnvelope } from '../../src/cache/records/record-factory.ts'
import { storedKinds } from '../../src/domains/kinds.ts'
import { envelopeOf } from '../../src/engine/record-codec.ts'
import { PullPolicySchema } from '../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import { SubscriptionSchema } from '../../src/gen/taproot/events/v2/subscriptions_pb.ts'
import { AccountAssociationSchema } from '../../src/gen/taproot/iam/v2/account_associations_pb.ts'
import { ExternalGroupRoleMappingSchema } from '../../src/gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import { GroupInviteSchema } from '../../src/gen/taproot/iam/v2/group_invites_pb.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { IdentityProviderSchema } from '../../src/gen/taproot/iam/v2/identity_providers_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { TermsAcceptanceSchema } from '../../src/gen/taproot/iam/v2/terms_pb.ts'
import { RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { TagSchema } from '../../src/gen/taproot/registry/v2/tags_pb.ts'
import { AdvisorySchema } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { ScimUserSchema } from '../../src/gen/taproot/store/v1/scim_pb.ts'
import { storeRevision } from '../../src/store/store.ts'
import { create } from '@bufbuild/protobuf'

/** The compiler checks that each schema has the type of its kind. */
const schemas: { readonly [Kind in keyof RecordTypes]: GenMessage<RecordTypes[Kind]> } = {
  AccountAssociation: AccountAssociationSchema,
  Advisory: AdvisorySchema,
  ExternalGroupRoleMapping: ExternalGroupRoleMappingSchema,
  Group: GroupSchema,
  GroupInvite: GroupInviteSchema,
  Identity: IdentitySchema,
  IdentityProvider: IdentityProviderSchema,
  PullPolicy: PullPolicySchema,
  Repo: RepoSchema,
  Role: RoleSchema,
  RoleBinding: RoleBindingSchema,
  ScimUser: ScimUserSchema,
  Subscription: SubscriptionSchema,
  Tag: TagSchema,
  TermsAcceptance: TermsAcceptanceSchema,
}

test('the record types are exactly the stored kinds', () => {
  expect(Object.fromEntries([...storedKinds].map(([name, { desc }]) => [name, desc.typeName]).sort())).toEqual(
    Object.fromEntries(Object.entries(schemas).map(([name, { typeName }]) => [name, typeName])),
  )
})

test('messageOf returns the message of a record of this kind, and refuses a record of another kind', () => {
  const index = storedKinds.get('Group')?.index
  if (index === undefined) throw new Error('no kind Group')
  const facts = { etag: '', createMs: 1, updateMs: 1, managedBy: '' }
  const envelope = envelopeOf(GroupSchema, create(GroupSchema, { name: 'a' }), facts)
  const record = recordOfEnvelope(index, { uid: trustedUid('a'.repeat(40)), envelope, revision: storeRevision(1) })
  expect(messageOf(record, 'Group').name).toBe('a')
  expect(() => messageOf(record, 'Role')).toThrow('a record of kind Group is not of kind Role')
})
