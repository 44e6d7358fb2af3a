import { externalGroupRoleMappingKind } from '../iam/records/external-group-role-mappings.ts'
import { accountAssociationKind } from '../iam/records/account-associations.ts'
import { groupInviteKind } from '../iam/records/group-invites.ts'
import { groupKind } from '../iam/records/groups.ts'
import { identityKind } from '../iam/records/identities.ts'
import { identityProviderKind } from '../iam/records/identity-providers.ts'
import { roleBindingKind } from '../iam/records/role-bindings.ts'
import { roleKind } from '../iam/records/roles.ts'
import { termsAcceptanceKind } from '../iam/records/terms.ts'
import type { AnyKind } from '../engine/kind.ts'
import { repoKind } from '../registry/records/repos.ts'
import { tagKind } from '../registry/records/tags.ts'
import { scimUserKind } from '../iam/scim/scim-users.ts'

/** Every kind that has rules: one row each. The methods of a kind without a row answer code 12. */
export const kinds: ReadonlyMap<string, AnyKind> = new Map(
  [
    groupKind,
    identityKind,
    roleKind,
    roleBindingKind,
    groupInviteKind,
    identityProviderKind,
    externalGroupRoleMappingKind,
    accountAssociationKind,
    termsAcceptanceKind,
    repoKind,
    tagKind,
  ].map((kind) => [kind.index.kind, kind]),
)

/** What is kept in memory, and swept: the kinds, and records that no method of the API is about. */
export const storedKinds: ReadonlyMap<string, AnyKind> = new Map([...kinds, [scimUserKind.index.kind, scimUserKind]])
