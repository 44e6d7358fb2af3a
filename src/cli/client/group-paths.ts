import { isUid, lineage } from '../../base/uid.ts'
import { textOf } from './client-error.ts'
import { kindNamed, type ClientKind } from './kinds.ts'
import type { PlatformClient } from './platform-client.ts'

/** Maximum number of uids per request, since uids are long and the length of a URL is limited. */
const uidsAtOnce = 50

/** Returns the names of records of a kind by uid. Records that the caller may not see are missing. Rejects with ClientError. */
export async function namesOf(client: PlatformClient, kind: ClientKind, uids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const wanted = [...new Set(uids)].toSorted()
  const names = new Map<string, string>()
  for (let at = 0; at < wanted.length; at += uidsAtOnce) {
    for await (const record of client.list(kind.listPath, kind.member, { 'uidp.ids': wanted.slice(at, at + uidsAtOnce) }))
      names.set(textOf(record['uid']), textOf(record['name']))
  }
  return names
}

/** Returns the names of groups by uid. Groups that the caller may not see are missing. Rejects with ClientError. */
export function groupNames(client: PlatformClient, uids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  return namesOf(client, kindNamed('Group'), uids)
}

/**
 * Returns the paths of groups by uid. A path has the names of the group and of the groups above it, starting at the topmost one that the
 * caller may see. Groups that the caller may not see are missing. Rejects with ClientError.
 */
export async function groupPaths(client: PlatformClient, groups: Iterable<string>): Promise<ReadonlyMap<string, string>> {
  const lines = new Map([...groups].filter(isUid).map((uid) => [uid, [...lineage(uid)].toReversed()]))
  const names = await groupNames(client, [...lines.values()].flat())
  const visible = [...lines].filter(([uid]) => names.has(uid))
  return new Map(visible.map(([uid, line]) => [uid, line.flatMap((one) => names.get(one) ?? []).join('/')]))
}
