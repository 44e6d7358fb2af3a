import { isUid } from '../../base/uid.ts'
import { ClientError, textOf, type Json } from './client-error.ts'
import { clientKinds, kindNamed, type ClientKind } from './kinds.ts'
import type { PlatformClient, ClientQuery } from './platform-client.ts'
import { UsageError } from '../exit-codes.ts'

/** A record that contains others. `kind` is undefined if it was given by its uid. */
export interface ParentPlace {
  readonly uid: string
  readonly kind: string | undefined
}

const root = '/'

/**
 * Returns the uid of a group that is given by its uid, or by a path of names such as `demo/team`. Rejects with ClientError if the caller
 * cannot see such a group.
 */
export async function findGroup(client: PlatformClient, group: string): Promise<string> {
  const { uid } = await findPlace(client, group, ['Group'])
  return uid
}

/**
 * Returns a place that is given by its uid or by a path of names. All names are of groups, except that the last one may be a record of one
 * of `kinds`: `demo/team/app` may be a repo. Rejects with ClientError if the caller cannot see such a place.
 */
export async function findPlace(client: PlatformClient, path: string, kinds: readonly string[]): Promise<ParentPlace> {
  if (isUid(path)) return { uid: path, kind: undefined }
  const names = namesOfPath(path)
  const last = names.pop() ?? ''
  let parent = root
  for (const name of names) parent = uidOf(await childNamed(client, kindNamed('Group'), { parent, name }), 'group', path)
  for (const kind of kindsOnPath(kinds)) {
    const found = await childNamed(client, kind, { parent, name: last })
    if (found !== undefined) return { uid: textOf(found['uid']), kind: kind.kind }
  }
  throw notFound(
    kindsOnPath(kinds)
      .map(({ kind }) => kind.toLowerCase())
      .join(' or '),
    path,
  )
}

/** Finds a record of a kind by its path of names. Rejects with ClientError if the caller cannot see one. */
export async function findByPath(client: PlatformClient, kind: ClientKind, path: string): Promise<Json> {
  const names = namesOfPath(path)
  const name = names.pop() ?? ''
  const parent = names.length === 0 ? root : (await findPlace(client, names.join('/'), kind.parents)).uid
  const found = await childNamed(client, kind, { parent, name })
  if (found === undefined) throw notFound(kind.kind.toLowerCase(), path)
  return found
}

/** Splits a path into names. After the last one, a tag may follow a colon. Throws UsageError. */
function namesOfPath(path: string): string[] {
  const names = path.replace(/:(?=[^/:]*$)/, '/').split('/')
  if (names.includes('')) throw new UsageError(`"${path}" is not a path: write names such as acme/team`)
  return names
}

/** Returns the kinds to look for, groups first, since most places are groups. */
function kindsOnPath(kinds: readonly string[]): readonly ClientKind[] {
  return clientKinds
    .filter(({ kind, nameFilter }) => kinds.includes(kind) && nameFilter !== undefined)
    .toSorted((one, other) => Number(other.kind === 'Group') - Number(one.kind === 'Group'))
}

/** Finds a record by its name directly below a parent (`/` for a root). Rejects with ClientError if several have the name. */
export async function childNamed(client: PlatformClient, kind: ClientKind, { parent, name }: { parent: string; name: string }): Promise<Json | undefined> {
  const query: ClientQuery = { name, 'uidp.children_of': parent, page_size: '2' }
  for await (const { records, totalCount = records.length } of client.pages(kind.listPath, kind.member, query)) {
    // Names of identities need not be unique.
    if (totalCount > 1)
      throw new ClientError(
        `${totalCount} ${kind.words} in one place are named ${name}: choose one by its uid, see "get ${kind.words.replaceAll(' ', '')} --filter name=${name}"`,
      )
    return records[0]
  }
  return undefined
}

function uidOf(record: Json | undefined, kind: string, path: string): string {
  if (record === undefined) throw notFound(kind, path)
  return textOf(record['uid'])
}

function notFound(kind: string, path: string): ClientError {
  return new ClientError(`there is no ${kind} ${path} that you may see`, { code: 5 })
}
