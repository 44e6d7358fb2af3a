import { isUid, lineage, type Uid } from '../../base/uid.ts'
import { objectOf, textOf, type Json } from './client-error.ts'
import { columnsOf } from './columns.ts'
import { namesOf } from './group-paths.ts'
import { kindNamed, type ClientKind } from './kinds.ts'
import type { PlatformClient } from './platform-client.ts'

/** Stands for groups that the caller may not see. */
const hidden = '…'

/**
 * Adds `path` to records: the names from the root group down to the record, such as `acme/web/app:1.0`. `…` stands for groups that the caller may not see. Records
 * without a name have the path of their group. Records of kinds whose tables show no path are returned as they are. Rejects with ClientError.
 */
export async function withPaths(client: PlatformClient, kind: Pick<ClientKind, 'kind' | 'parents'>, records: readonly Json[]): Promise<readonly Json[]> {
  if (!columnsOf(kind.kind).some(({ at }) => at.includes('path'))) return records
  const isInRepo = kind.parents.includes('Repo')
  const above = new Map(records.map((record) => [record, ancestorsOf(record)]))
  const groups = [...above.values()].flatMap((line) => (isInRepo ? line.slice(1) : line))
  const repos = isInRepo ? [...above.values()].flatMap((line) => line.slice(0, 1)) : []
  // A role binding contains the name of its group, which its reader may not be able to list.
  const own = records.map(({ group }) => objectOf(group)).map(({ uid, name }) => [textOf(uid), textOf(name)] as const)
  const known = own.filter(([, name]) => name !== '')
  const names = new Map([...known, ...(await namesOf(client, kindNamed('Group'), groups)), ...(await namesOf(client, kindNamed('Repo'), repos))])
  return records.map((record) => {
    const all = (above.get(record) ?? []).toReversed().map((uid) => names.get(uid) ?? hidden)
    const place = all.filter((one, at) => one !== hidden || all[at - 1] !== hidden)
    const name = textOf(record['name'])
    return { ...record, path: [place.join('/'), name].filter((text) => text !== '').join(isInRepo ? ':' : '/') }
  })
}

/** Returns the uids above a record, nearest first. */
function ancestorsOf(record: Json): readonly Uid[] {
  const uid = textOf(record['uid'])
  return isUid(uid) ? [...lineage(uid)].slice(1) : []
}
