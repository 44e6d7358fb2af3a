import { isSuspended } from '../../authz/access.ts'
import { DomainError } from '../../base/errors.ts'
import { lineage, rootParent, rootOf, type Uid } from '../../base/uid.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { MutationDraft, Planning } from '../../engine/kind.ts'
import type { Repo } from '../../gen/taproot/registry/v2/repos_pb.ts'

/** Returns the organisation whose content is public: the one with the name `publicOrganization`, unless it is suspended. */
export function publicRoot(tables: RecordTables, publicOrganization: string | undefined): Uid | undefined {
  if (publicOrganization === undefined) return undefined
  const root = tables.table('Group').child(rootParent, publicOrganization)
  return root === undefined || isSuspended(tables, root.uid) ? undefined : root.uid
}

/** Returns true if anyone may pull from the repo, because it belongs to the public organisation. */
export function isPublicRepo(tables: RecordTables, publicOrganization: string | undefined, repo: Uid): boolean {
  return rootOf(repo) === publicRoot(tables, publicOrganization)
}

/** A repo as it is stored. */
export type RepoRecord = Repo & Resource

/** Maximum length of a repository name, in characters: for upstreams, and for paths at the registry host (docs/spec/registry.md#repo-paths). */
const maxRepositoryLength = 255

/** Throws code 3 if the new uid or the path is longer than a registry accepts. */
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
