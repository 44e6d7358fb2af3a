import { isUid, lineage, rootParent, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'

/** The repo at a path, or the place where a push would create it. */
export type RepoTarget =
  | { readonly kind: 'repo'; readonly uid: Uid; readonly parent: Uid; readonly name: string }
  /** `parent` is the last existing group on the path. `groups` are the names of the missing groups below it, outermost first. */
  | { readonly kind: 'absent'; readonly parent: Uid; readonly groups: readonly string[]; readonly name: string }

/** Maximum length of a path, in characters. Many clients limit host and name together to 255 (OCI distribution specification). */
const longestPath = 255

const namePattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/

/**
 * Returns true for a valid repository name of the OCI distribution specification: components separated by slashes, at most 255 characters.
 * Groups and repos with other names have no path (docs/spec/registry.md#repo-paths).
 */
export function isRepositoryName(path: string): boolean {
  return path.length <= longestPath && path.split('/').every((name) => namePattern.test(name))
}

/**
 * Returns a root group by its uid or its name (docs/spec/registry.md#repo-paths). The uid takes precedence. Otherwise a tenant could take
 * over another's paths with a group whose name is that uid.
 */
function organisation(tables: RecordTables, segment: string): CachedRecord | undefined {
  const identified = isUid(segment) ? tables.get('Group', segment) : undefined
  return identified ?? tables.table('Group').child(rootParent, segment)
}

/** Returns the existing groups on a path. */
function groupsOn(tables: RecordTables, names: readonly string[]): CachedRecord[] {
  const [first = '', ...rest] = names
  const root = organisation(tables, first)
  if (root === undefined) return []
  const groups = [root]
  for (const name of rest) {
    const group = tables.table('Group').child((groups.at(-1) ?? root).uid, name)
    if (group === undefined) break
    groups.push(group)
  }
  return groups
}

/**
 * Resolves the path `<organisation>/<group>.../<repo>` as of `tables`: the organisation by name or uid, the rest by names. Returns
 * undefined if the path is not a valid OCI name, is only an organisation, or names an unknown organisation.
 */
export function findRepository(tables: RecordTables, path: string): RepoTarget | undefined {
  if (!isRepositoryName(path)) return undefined
  const names = path.split('/')
  const name = names.pop() ?? ''
  const groups = groupsOn(tables, names)
  const parent = groups.at(-1)
  if (parent === undefined) return undefined
  const missing = names.slice(groups.length)
  if (missing.length > 0) return { kind: 'absent', parent: parent.uid, groups: missing, name }
  const repo = tables.hasKind('Repo') ? tables.table('Repo').child(parent.uid, name) : undefined
  return repo === undefined ? { kind: 'absent', parent: parent.uid, groups: missing, name } : { kind: 'repo', uid: repo.uid, parent: parent.uid, name }
}

/** Returns the last existing group on a path, below which the rest would be created. Undefined if not even the organisation exists. */
export function nearestGroup(tables: RecordTables, path: string): Uid | undefined {
  return isRepositoryName(path) ? groupsOn(tables, path.split('/').slice(0, -1)).at(-1)?.uid : undefined
}

/** Returns the path of a repo, by names. Returns undefined if the repo is gone, or if its names make no valid OCI name, so that no path leads to it. */
export function pathOf(tables: RecordTables, repo: Uid): string | undefined {
  const [, ...groups] = lineage(repo)
  const records = [tables.get('Repo', repo), ...groups.map((group) => tables.get('Group', group))]
  const path = records
    .map((record) => record?.name ?? '')
    .reverse()
    .join('/')
  return isRepositoryName(path) ? path : undefined
}
