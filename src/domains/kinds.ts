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
import { ownAdvisoryKind } from '../catalogue/index.ts'
import type { AnyKind } from '../engine/kind.ts'
import { subscriptionKind } from '../events/index.ts'
import { pullPolicyKind, repoKind, tagKind } from '../registry/index.ts'

/** Every kind that is implemented. The methods of any other kind answer code 12. */
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
    pullPolicyKind,
    subscriptionKind,
  ].map((kind) => [kind.index.kind, kind]),
)

/**
 * The kinds whose records are kept in memory and removed with the records on which they depend. In addition to `kinds`, it contains records that no API method
 * returns.
 */
export const storedKinds: ReadonlyMap<string, AnyKind> = new Map([...kinds, ...[scimUserKind, ownAdvisoryKind].map((kind) => [kind.index.kind, kind] as const)])
