import { externalGroupRoleMappingKind } from './iam/external-group-role-mappings.ts'
import { accountAssociationKind } from './iam/account-associations.ts'
import { groupInviteKind } from './iam/group-invites.ts'
import { groupKind } from './iam/groups.ts'
import { identityKind } from './iam/identities.ts'
import { identityProviderKind } from './iam/identity-providers.ts'
import { roleBindingKind } from './iam/role-bindings.ts'
import { roleKind } from './iam/roles.ts'
import { termsAcceptanceKind } from './iam/terms.ts'
import type { AnyKind } from './kind.ts'
import { repoKind } from './registry/repos.ts'
import { tagKind } from './registry/tags.ts'
import { scimUserKind } from './scim/scim-users.ts'

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
