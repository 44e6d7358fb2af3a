import {
  externalGroupRoleMappingKind,
  accountAssociationKind,
  groupInviteKind,
  groupKind,
  identityKind,
  identityProviderKind,
  roleBindingKind,
  roleKind,
  termsAcceptanceKind,
  scimUserKind,
} from '../iam/index.ts'
import type { AnyKind } from '../engine/kind.ts'
import { subscriptionKind } from '../events/index.ts'
import { repoKind, tagKind } from '../registry/index.ts'

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
    subscriptionKind,
  ].map((kind) => [kind.index.kind, kind]),
)

/** What is kept in memory, and swept: the kinds, and records that no method of the API is about. */
export const storedKinds: ReadonlyMap<string, AnyKind> = new Map([...kinds, [scimUserKind.index.kind, scimUserKind]])
