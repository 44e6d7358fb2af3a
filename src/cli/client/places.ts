import { kindsWithPaths, pathPrefix } from '../../base/schema/uid-fields.ts'
import { isUid } from '../../base/uid.ts'
import { ClientError, textOf, type Json } from './client-error.ts'
import { clientKinds, type ClientKind } from './kinds.ts'
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
 * of `kinds`: `demo/team/app` may be a repo. Rejects with ClientError if the caller cannot see such a place, and with UsageError if it can see several.
 */
export async function findPlace(client: PlatformClient, path: string, kinds: readonly string[]): Promise<ParentPlace> {
  if (isUid(path)) return { uid: path, kind: undefined }
  const names = namesOfPath(path, '/')
  const candidates = kindsOnPath(kinds)
  const records = await Promise.all(candidates.map(async (kind) => ({ kind, record: await recordAt(client, kind, names) })))
  const [found, another] = records.filter(({ record }) => record !== undefined)
  const words = candidates.map(({ kind }) => kind.toLowerCase())
  if (found === undefined) throw notFound(words.join(' or '), path)
  if (another !== undefined) throw new UsageError(`${path} is the path of a ${words.join(' and of a ')}: use the uid`)
  return { uid: textOf(found.record?.['uid']), kind: found.kind.kind }
}

/** Finds a record of a kind by its path of names. Rejects with ClientError if the caller cannot see one. */
export async function findByPath(client: PlatformClient, kind: ClientKind, path: string): Promise<Json> {
  const found = await recordAt(client, kind, namesOfPath(path, kind.parents.includes('Repo') ? ':' : '/'))
  if (found === undefined) throw notFound(kind.kind.toLowerCase(), path)
  return found
}

/** Returns the record of a kind at a path; undefined if the caller cannot see one. The caller needs no rights at the groups above. */
async function recordAt(client: PlatformClient, kind: ClientKind, names: readonly string[]): Promise<Json | undefined> {
  if (kind.getPath === undefined || !kindsWithPaths.includes(kind.kind)) {
    const above = names.slice(0, -1)
    return await childNamed(client, kind, { parent: above.length === 0 ? root : pathText(above), name: names.at(-1) ?? '' })
  }
  try {
    return await client.call({ method: 'GET', path: kind.getPath.replace(/\{[^}]*\}/, encodeURIComponent(pathText(names))) })
  } catch (error) {
    if (error instanceof ClientError && error.code === 5) return undefined
    throw error
  }
}

function pathText(names: readonly string[]): string {
  return `${pathPrefix}${names.join('/')}`
}

/** Splits a path into names. `last` is what is before the last one: a colon before a tag. Throws UsageError. */
function namesOfPath(path: string, last: '/' | ':'): readonly string[] {
  const names = (last === ':' ? path.replace(/:(?=[^/:]*$)/, '/') : path).split('/')
  if (names.some((name) => name === '' || name.includes(':'))) throw new UsageError(`"${path}" is not a path: write names such as acme/team`)
  return names
}

/** Returns the kinds to look for, groups first, since most places are groups. */
function kindsOnPath(kinds: readonly string[]): readonly ClientKind[] {
  return clientKinds
    .filter(({ kind, nameFilter }) => kinds.includes(kind) && nameFilter !== undefined)
    .toSorted((one, other) => Number(other.kind === 'Group') - Number(one.kind === 'Group'))
}

/** Finds a record by its name directly below a parent: a uid, a path as the API takes it, or `/` for a root. Rejects with ClientError if several have the name. */
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

function notFound(kind: string, path: string): ClientError {
  return new ClientError(`there is no ${kind} ${path} that you may see`, { code: 5 })
}
