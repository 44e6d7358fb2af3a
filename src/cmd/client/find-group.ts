import { isUid } from '../../core/uid.ts'
import { ClientError, textOf, type PlatformClient } from './platform-client.ts'

/** The uid of a group that is named by its uid, or by the names on the way to it: `demo/team`. Rejects with ClientError where there is no such group within reach. */
export async function findGroup(client: PlatformClient, group: string): Promise<string> {
  if (isUid(group)) return group
  let parent = '/'
  for (const name of group.split('/')) parent = await childGroup(client, { parent, name, group })
  return parent
}

async function childGroup(client: PlatformClient, { parent, name, group }: { parent: string; name: string; group: string }): Promise<string> {
  for await (const found of client.list('/iam/v2/groups', 'groups', { name, 'uidp.children_of': parent })) return textOf(found['uid'])
  throw new ClientError(`there is no group ${group} that you may see`, 5)
}
