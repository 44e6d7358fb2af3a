import type { Subscription } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import type { AccountAssociation } from '../../gen/taproot/iam/v2/account_associations_pb.ts'
import type { ExternalGroupRoleMapping } from '../../gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { GroupInvite } from '../../gen/taproot/iam/v2/group_invites_pb.ts'
import type { Group } from '../../gen/taproot/iam/v2/groups_pb.ts'
import type { Identity } from '../../gen/taproot/iam/v2/identities_pb.ts'
import type { IdentityProvider } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { RoleBinding } from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { Role } from '../../gen/taproot/iam/v2/roles_pb.ts'
import type { TermsAcceptance } from '../../gen/taproot/iam/v2/terms_pb.ts'
import type { PullPolicy } from '../../gen/taproot/registry/v2/pull_policies_pb.ts'
import type { Repo } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { Tag } from '../../gen/taproot/registry/v2/tags_pb.ts'
import type { Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { ScimUser } from '../../gen/taproot/store/v1/scim_pb.ts'
import type { CachedRecord, Resource } from './cached-record.ts'

/** The message type of each kind's records. */
export interface RecordTypes {
  readonly AccountAssociation: AccountAssociation
  readonly Advisory: Advisory
  readonly ExternalGroupRoleMapping: ExternalGroupRoleMapping
  readonly Group: Group
  readonly GroupInvite: GroupInvite
  readonly Identity: Identity
  readonly IdentityProvider: IdentityProvider
  readonly PullPolicy: PullPolicy
  readonly Repo: Repo
  readonly Role: Role
  readonly RoleBinding: RoleBinding
  readonly ScimUser: ScimUser
  readonly Subscription: Subscription
  readonly Tag: Tag
  readonly TermsAcceptance: TermsAcceptance
}

/** A cached record of a kind. Its message has the type for that kind, if the kind is known when compiling. */
export type RecordOf<Kind extends string> = Kind extends keyof RecordTypes ? CachedRecord & { readonly message: RecordTypes[Kind] } : CachedRecord

/** Returns the message of a record of this kind. Throws TypeError for a record of another kind. Never change the message: all readers share it. */
export function messageOf<Kind extends keyof RecordTypes>(record: CachedRecord, kind: Kind): Resource & RecordTypes[Kind] {
  if (record.kind !== kind) throw new TypeError(`a record of kind ${record.kind} is not of kind ${kind}`)
  return record.message as Resource & RecordTypes[Kind] // The kind determines the type of the message.
}
