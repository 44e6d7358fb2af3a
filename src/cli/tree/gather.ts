import { isBelow, rootOf, trustedUid } from '../../base/uid.ts'
import { isJson, textOf, type Json } from '../client/client-error.ts'
import { groupNames } from '../client/group-paths.ts'
import { kindNamed } from '../client/kinds.ts'
import type { Page, PlatformClient, ClientQuery } from '../client/platform-client.ts'
import { closedBranch, leafKinds, type Branch, type Forest, type Leaf, type LeafKind } from './branch.ts'

/** Limits for reading a tree. */
export interface TreeBounds {
  /** Number of levels of groups to open. */
  readonly depth: number
  /** Maximum number of records of each kind to list in a group; 200 at most. */
  readonly limit: number
  /** Maximum number of groups to open, since each takes several requests. */
  readonly opened: number
}

/** Number of groups, and of repos in a group, to read in parallel. */
const groupsAtOnce = 4
const reposAtOnce = 5

/** How to request and read the records of each kind. */
const leaves: Readonly<Record<LeafKind, { readonly kind: string; readonly query: ClientQuery; readonly read: (record: Json) => Leaf }>> = {
  identities: { kind: 'Identity', query: { order_by: 'name asc' }, read: named },
  roles: { kind: 'Role', query: { order_by: 'name asc' }, read: named },
  // Role bindings cannot be sorted by name on the server. So a full page is read, and sorted here.
  roleBindings: { kind: 'RoleBinding', query: { order_by: 'uid asc', page_size: '200' }, read: binding },
  repos: { kind: 'Repo', query: { order_by: 'name asc' }, read: named },
}

/** Reads the tree below one group. Rejects with ClientError, also if the caller cannot see the group. */
export async function gatherBelow(client: PlatformClient, uid: string, bounds: TreeBounds): Promise<Forest> {
  const group = await client.call({ method: 'GET', path: `${kindNamed('Group').listPath}/${uid}` })
  const branch = closedBranch({ uid, name: textOf(group['name']) })
  await openAll(client, [branch], bounds)
  return { count: 1, groups: [branch] }
}

/**
 * Reads all trees that the caller can see. They start at root groups, and at groups where the caller has a role but cannot see the group
 * above. Rejects with ClientError.
 */
export async function gatherAll(client: PlatformClient, bounds: TreeBounds): Promise<Forest> {
  const roots = await firstPage(client, 'Group', { 'uidp.in_root': 'true', order_by: 'name asc', page_size: String(bounds.limit) })
  const { capabilities } = await client.call({ method: 'GET', path: '/auth/v1/ok' })
  const held = topmost(heldGroups(capabilities)).filter((uid) => uid.includes('/'))
  // If the caller can see the root group, these groups are part of its tree.
  const visibleRoots = await groupNames(client, [...new Set(held.map((uid) => rootOf(trustedUid(uid))))])
  const apart = await groupNames(
    client,
    held.filter((uid) => !visibleRoots.has(rootOf(trustedUid(uid)))),
  )
  const tops = [...roots.records.map(branchOf), ...[...apart].map(([uid, name]) => closedBranch({ uid, name }))].toSorted(byName)
  const groups = tops.slice(0, bounds.limit)
  await openAll(client, groups, bounds)
  return { count: (roots.totalCount ?? roots.records.length) + apart.size, groups }
}

/** Opens groups level by level, so that the limit leaves out the deepest groups. */
async function openAll(client: PlatformClient, tops: readonly Branch[], bounds: TreeBounds): Promise<void> {
  let level: readonly Branch[] = tops
  let opened = 0
  for (let depth = 0; depth < bounds.depth && level.length > 0; depth += 1) {
    const open = level.slice(0, bounds.opened - opened)
    opened += open.length
    await inBatches(open, groupsAtOnce, (branch) => openBranch(client, branch, bounds))
    level = open.flatMap(({ groups }) => groups)
  }
}

async function openBranch(client: PlatformClient, branch: Branch, { limit }: TreeBounds): Promise<void> {
  const place = { 'uidp.children_of': branch.uid, page_size: String(limit) }
  const [subgroups, ...pages] = await Promise.all([
    firstPage(client, 'Group', { ...place, order_by: 'name asc' }),
    ...leafKinds.map((leafKind) => firstPage(client, leaves[leafKind].kind, { ...place, ...leaves[leafKind].query })),
  ])
  const lists = Object.fromEntries(leafKinds.map((leafKind, at) => [leafKind, (pages[at]?.records ?? []).map(leaves[leafKind].read)])) as Record<
    LeafKind,
    Leaf[]
  > // a cast: one list per kind
  const totals = Object.fromEntries(leafKinds.map((leafKind, at) => [leafKind, pages[at]?.totalCount ?? lists[leafKind].length])) as Record<LeafKind, number> // a cast: one count per kind
  branch.opened = true
  branch.counts = { ...totals, groups: subgroups.totalCount ?? subgroups.records.length }
  branch.groups = subgroups.records.map(branchOf)
  branch.identities = lists.identities
  branch.roles = lists.roles
  branch.roleBindings = lists.roleBindings.toSorted(byRole).slice(0, limit)
  branch.repos = await inBatches(lists.repos, reposAtOnce, (repo) => withTags(client, repo))
}

/** Calls `work` for each item, for `size` items at a time. Returns the results in the order of the items. */
async function inBatches<Item, Result>(items: readonly Item[], size: number, work: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = []
  for (let at = 0; at < items.length; at += size) results.push(...(await Promise.all(items.slice(at, at + size).map(work))))
  return results
}

async function withTags(client: PlatformClient, repo: Leaf): Promise<Leaf> {
  const { totalCount, records } = await firstPage(client, 'Tag', { 'uidp.children_of': repo.uid, page_size: '1' })
  return { ...repo, tags: totalCount ?? records.length }
}

async function firstPage(client: PlatformClient, kind: string, query: ClientQuery): Promise<Page> {
  const { listPath, member } = kindNamed(kind)
  for await (const page of client.pages(listPath, member, query)) return page
  return { records: [], totalCount: 0, answer: {} }
}

function branchOf(record: Json): Branch {
  return closedBranch({ uid: textOf(record['uid']), name: textOf(record['name']) })
}

function named(record: Json): Leaf {
  return { uid: textOf(record['uid']), name: textOf(record['name']) }
}

function binding(record: Json): Leaf {
  const { role, identity } = record
  return { uid: textOf(record['uid']), role: isJson(role) ? textOf(role['name']) : '', identity: isJson(identity) ? identityLabel(identity) : '' }
}

/** Returns the text that shows an identity, since people may have no name. */
function identityLabel(identity: Json): string {
  return ['name', 'email', 'subject', 'uid'].map((member) => textOf(identity[member])).find((text) => text !== '') ?? ''
}

function heldGroups(held: unknown): string[] {
  if (!Array.isArray(held)) return []
  return held.filter(isJson).flatMap(({ group }) => (isJson(group) ? [textOf(group['id'])] : []))
}

/** Returns the uids that are not below another one, without duplicates. */
function topmost(uids: readonly string[]): string[] {
  const kept: string[] = []
  // In sorted order, a uid comes directly before the uids below it.
  for (const uid of [...new Set(uids)].toSorted()) if (!isBelow(uid, kept.at(-1) ?? '/')) kept.push(uid)
  return kept
}

function byName(one: Branch, other: Branch): number {
  return compareTexts([one.name, one.uid], [other.name, other.uid])
}

function byRole(one: Leaf, other: Leaf): number {
  return compareTexts([one.role ?? '', one.identity ?? '', one.uid], [other.role ?? '', other.identity ?? '', other.uid])
}

function compareTexts(one: readonly string[], other: readonly string[]): number {
  const at = one.findIndex((text, index) => text !== other[index])
  if (at < 0) return 0
  return (one[at] ?? '') < (other[at] ?? '') ? -1 : 1
}
