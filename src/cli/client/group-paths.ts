import { isUid, lineage } from '../../base/uid.ts'
import { textOf } from './client-error.ts'
import { kindNamed } from './kinds.ts'
import type { PlatformClient } from './platform-client.ts'

/** Uids are long, and a request's line is not. */
const uidsAtOnce = 50

/** The names of groups, by uid. A group that the caller may not see is absent. Rejects with ClientError. */
export async function groupNames(client: PlatformClient, uids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const { listPath, member } = kindNamed('Group')
  const names = new Map<string, string>()
  for (let at = 0; at < uids.length; at += uidsAtOnce) {
    for await (const group of client.list(listPath, member, { 'uidp.ids': uids.slice(at, at + uidsAtOnce) }))
      names.set(textOf(group['uid']), textOf(group['name']))
  }
  return names
}

/**
 * The paths of groups, by uid: the names of the group and of those above it, from the topmost one that the caller may see. A group that the caller may not see is absent. Rejects with ClientError.
 */
export async function groupPaths(client: PlatformClient, groups: Iterable<string>): Promise<ReadonlyMap<string, string>> {
  const lines = new Map([...groups].filter(isUid).map((uid) => [uid, [...lineage(uid)].toReversed()]))
  const names = await groupNames(client, [...new Set([...lines.values()].flat())].toSorted())
  const visible = [...lines].filter(([uid]) => names.has(uid))
  return new Map(visible.map(([uid, line]) => [uid, line.flatMap((one) => names.get(one) ?? []).join('/')]))
}
