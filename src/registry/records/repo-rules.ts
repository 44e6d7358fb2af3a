import { isSuspended } from '../../authz/access.ts'
import { DomainError } from '../../base/errors.ts'
import { lineage, rootParent, rootOf, type Uid } from '../../base/uid.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { MutationDraft, Planning } from '../../engine/kind.ts'
import type { Repo } from '../../gen/taproot/registry/v2/repos_pb.ts'

/** Whether anybody may pull from the repo: it is one of the public organisation, which `publicOrganization` names. */
export function isPublicRepo(tables: RecordTables, publicOrganization: string | undefined, repo: Uid): boolean {
  if (publicOrganization === undefined) return false
  const root = tables.table('Group').child(rootParent, publicOrganization)
  return root !== undefined && rootOf(repo) === root.uid && !isSuspended(tables, root.uid)
}

/** A repo as it is kept. */
export type RepoRecord = Repo & Resource

/** The longest name of a repository, in characters: an upstream's, and that of a path at the registry host (docs/spec/registry.md#repo-paths). */
const maxRepositoryLength = 255

/** Throws code 3 where the new uid or the path is longer than a registry takes. */
export function assertReachable(planning: Planning, draft: MutationDraft<RepoRecord>): void {
  const { services, tables } = planning
  const prefix = services.settings.registry?.upstreamPrefixLength ?? 0
  if (prefix + draft.uid.length > maxRepositoryLength)
    throw DomainError.invalid('parent', 'exceeds the maximum depth of the tree for a repo: choose a group closer to the root')
  let path = draft.record.name
  if (draft.parent !== rootParent) for (const group of lineage(draft.parent)) path = `${tables.get('Group', group)?.name ?? ''}/${path}`
  if (path.length > maxRepositoryLength)
    throw DomainError.invalid('name', `makes the path longer than ${maxRepositoryLength} characters: choose a shorter name`)
}
