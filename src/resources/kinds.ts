import { groupKind } from './iam/groups.ts'
import { identityKind } from './iam/identities.ts'
import { roleBindingKind } from './iam/role-bindings.ts'
import { roleKind } from './iam/roles.ts'
import type { AnyKind } from './kind.ts'
import { repoKind } from './registry/repos.ts'
import { tagKind } from './registry/tags.ts'

/** Every kind that has rules: one row each. The methods of a kind without a row answer code 12. */
export const kinds: ReadonlyMap<string, AnyKind> = new Map(
  [groupKind, identityKind, roleKind, roleBindingKind, repoKind, tagKind].map((kind) => [kind.index.kind, kind]),
)
