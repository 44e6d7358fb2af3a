import { InvalidArgumentError, Option, type Command } from 'commander'
import { isUid } from '../base/uid.ts'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { ClientError, textOf, type Json } from './client/client-error.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { clientKinds, findKind, type ClientKind } from './client/kinds.ts'
import { findByPath, findGroup, findPlace } from './client/places.ts'
import type { PlatformClient, ClientQuery } from './client/platform-client.ts'
import { formatOption, recordFormats, type RecordFormat, printRecord, printRecords, type RecordPrinting } from './client/records.ts'
import { withPaths } from './client/record-paths.ts'
import { UsageError } from './exit-codes.ts'

/** Limits and order of a list. */
interface ListSelection {
  readonly in?: string
  readonly descendants?: true
  /** Filters of the form `field=value`. */
  readonly filter: readonly string[]
  readonly orderBy?: string
  readonly limit?: number
  /** Only records with these uids. */
  readonly ids?: readonly string[]
}

/** A list, and what of it is asked for. */
interface ListPlace {
  readonly path: string
  readonly query: ClientQuery
  /** The uid of the group that all records are in; undefined if there is no such group, or if it is not known. */
  readonly group?: string
}

/** The records to print. */
export interface GetRequest extends ListSelection {
  /** The kind, by any of its names. */
  readonly kind: string
  /** Name, path or uid of one record; undefined for a list. */
  readonly record: string | undefined
  readonly format: RecordFormat
  /** Prints each change after the list, until `signal` aborts; without a signal for ever. */
  readonly watch?: true
  readonly signal?: AbortSignal
}

/**
 * Prints one record, or a list of the records that the caller can see. Rejects with UsageError or ClientError. A name that matches no
 * record, or several, is a ClientError.
 */
export async function get(context: ClientContext, request: GetRequest): Promise<void> {
  const { program, client, output, note, clock } = context
  const kind = findKind(request.kind, program)
  if (request.watch === true) return await watch(context, kind, request)
  const printing: RecordPrinting = { output, kind, nowMs: clock.now() }
  if (request.record !== undefined) {
    const found = await findRecord(client, kind, { ...request, record: request.record })
    const [shown = found] = isTable(request.format) ? await withPaths(client, kind, [found]) : [found]
    await printRecord(shown, request.format, printing)
    return
  }
  const { pages } = await listed(client, kind, request)
  const count = await printRecords(isTable(request.format) ? pagesWithPaths(client, kind, pages()) : pages(), request.format, printing)
  if (count === 0 && isTable(request.format)) note(`no ${kind.words} that you may see`)
}

/** Prints the records of a list, or one record, and then each change. */
async function watch(context: ClientContext, kind: ClientKind, request: GetRequest): Promise<void> {
  const { client } = context
  const { record, format, signal, limit, orderBy } = request
  if (limit !== undefined || orderBy !== undefined) throw new UsageError('--watch prints changes as they happen: remove --limit and --order-by')
  // Loaded when needed.
  const { watchedTypes, watchRecords } = await import('./inspect/watch.ts')
  const types = watchedTypes(kind)
  const one = record === undefined ? undefined : textOf((await findRecord(client, kind, { ...request, record }))['uid'])
  const { pages, group } = await listed(client, kind, one === undefined ? request : { filter: [], ids: [one] })
  const list = (): AsyncIterable<readonly Json[]> => (isTable(format) ? pagesWithPaths(client, kind, pages()) : pages())
  await watchRecords(context, { kind, types, list, group, format, ...(signal !== undefined && { signal }) })
}

function isTable(format: RecordFormat): boolean {
  return format === 'table' || format === 'wide'
}

async function* pagesWithPaths(client: PlatformClient, kind: ClientKind, pages: AsyncIterable<readonly Json[]>): AsyncGenerator<readonly Json[]> {
  for await (const page of pages) yield await withPaths(client, kind, page)
}

/** Returns what reads the pages of a list, with at most `limit` records, and the group that it is of. Rejects if its place does not exist. */
async function listed(
  client: PlatformClient,
  kind: ClientKind,
  request: ListSelection,
): Promise<{ pages: () => AsyncIterable<readonly Json[]>; group: string | undefined }> {
  const { path, query, group } = await placeOf(client, kind, request)
  const { limit = Infinity, orderBy, ids } = request
  const size: ClientQuery = limit < 200 ? { page_size: String(limit) } : {}
  const order: ClientQuery = orderBy === undefined ? {} : { order_by: orderBy }
  const only: ClientQuery = ids === undefined ? {} : { 'uidp.ids': ids }
  const whole = { ...query, ...only, ...filtersOf(kind, request.filter), ...order, ...size }
  return { pages: () => cutPages(client.pages(path, kind.member, whole), limit), group }
}

async function* cutPages(pages: ReturnType<PlatformClient['pages']>, limit: number): AsyncGenerator<readonly Json[]> {
  let left = limit
  for await (const { records } of pages) {
    yield records.slice(0, left)
    left -= records.length
    if (left <= 0) return
  }
}

/** Returns the path of a list, and the query parameters for its place. */
async function placeOf(client: PlatformClient, kind: ClientKind, { in: place, descendants }: ListSelection): Promise<ListPlace> {
  const { listPath, listVariable, parents } = kind
  if (listVariable !== undefined) {
    const [parent = ''] = parents
    const per = listVariable === 'uid' ? parent.toLowerCase() : listVariable.replaceAll('_', ' ')
    if (place === undefined) throw new UsageError(`${kind.words} are listed per ${per}: set --in to one`)
    const value = parents.includes('Group') ? await findGroup(client, place) : place
    // A variable of one segment contains its slashes escaped.
    const escaped = listPath.includes('=**}') ? value.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(value)
    return { path: listPath.replace(/\{[^}]*\}/, escaped), query: {} }
  }
  if (place === undefined) return { path: listPath, query: {} }
  const found = await findPlace(client, place, ['Group', ...parents])
  const isGroup = found.kind === 'Group' || !parents.includes('Repo')
  const group = isGroup ? { group: found.uid } : {}
  if (descendants === true) return { path: listPath, query: { 'uidp.descendants_of': found.uid }, ...group }
  if (found.kind !== undefined && !parents.includes(found.kind))
    throw new UsageError(`no ${kind.words} are directly in a group: add --descendants to list all below it`)
  return { path: listPath, query: { 'uidp.children_of': found.uid }, ...group }
}

function filtersOf(kind: ClientKind, filters: readonly string[]): ClientQuery {
  const query: Record<string, string[]> = {}
  for (const filter of filters) {
    const at = filter.indexOf('=')
    const field = filter.slice(0, at).replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    if (!kind.filters.includes(field)) {
      const known = kind.filters.length === 0 ? 'remove --filter' : `use ${kind.filters.join(', ')}`
      throw new UsageError(`${kind.words} cannot be filtered by ${filter.slice(0, at)}: ${known}`)
    }
    query[field] = [...(query[field] ?? []), filter.slice(at + 1)]
  }
  return query
}

/** Returns a record that is given by its uid, path or name. Rejects with UsageError, or with ClientError if there is none, or if several have the name. */
export async function findRecord(client: PlatformClient, kind: ClientKind, request: ListSelection & { readonly record: string }): Promise<Json> {
  const { record, limit, orderBy, filter } = request
  if (filter.length > 0 || limit !== undefined || orderBy !== undefined)
    throw new UsageError(`--filter, --order-by and --limit need a list: remove them, or the name of the record`)
  if (isUid(record)) return await getByUid(client, kind, record)
  if (kind.nameFilter === undefined || kind.listVariable !== undefined) throw new UsageError(`${kind.words} have no names: use the uid`)
  if (!/[/:]/.test(record)) return await findByName(client, kind, request)
  if (request.in !== undefined) throw new UsageError('--in needs a name: remove --in, or use a name in place of the path')
  return await findByPath(client, kind, record)
}

async function getByUid(client: PlatformClient, { getPath, words }: ClientKind, uid: string): Promise<Json> {
  if (getPath === undefined) throw new UsageError(`${words} cannot be read by uid: list them`)
  return await client.call({ method: 'GET', path: getPath.replace(/\{[^}]*\}/, uid) })
}

const shownMatches = 5

async function findByName(client: PlatformClient, kind: ClientKind, request: ListSelection & { record: string }): Promise<Json> {
  const { nameFilter = 'name' } = kind
  const { path, query } = await placeOf(client, kind, request)
  for await (const { records, totalCount = records.length } of client.pages(path, kind.member, { ...query, [nameFilter]: request.record })) {
    const [found, ...others] = records
    if (found === undefined) break
    if (others.length === 0 && totalCount === 1) return found
    const uids = records.slice(0, shownMatches).map((record) => textOf(record['uid']))
    const more = totalCount > uids.length ? ` and ${totalCount - uids.length} more` : ''
    throw new ClientError(`${totalCount} ${kind.words} are named ${request.record}: choose one by its path, with --in or by its uid: ${uids.join(', ')}${more}`)
  }
  throw new ClientError(`there is no ${kind.kind.toLowerCase()} ${request.record} that you may see`, { code: 5 })
}

type GetOptions = ConnectionOptions & ListSelection & { readonly output: RecordFormat; readonly watch?: true }

/** Creates the command `get`. `program` is `taproot` or `kubectl taproot`. */
export function getCommand(program: string): Command {
  return clientCommand('get', 'print records: one, or all of a kind that you may see')
    .argument('<kind>', 'for example groups, group or pg; all kinds are listed below')
    .argument('[record]', 'a name, a path such as acme/team/app, or a uid')
    .option('--in <place>', 'list only what is directly in this group or repo: a path or a uid')
    .option('-A, --descendants', 'with --in: at any depth below it')
    .addOption(new Option('--filter <field=value>', 'list only records with this value; may be repeated').argParser(addFilter).default([], 'none'))
    .option('--order-by <fields>', 'such as "name desc,created_at"')
    .option('--limit <number>', 'print at most this many', parseCount)
    .option('-w, --watch', 'then print each change, until the command is stopped')
    .addOption(formatOption('output format', recordFormats).default('table'))
    .addHelpText('after', () => `\n${kindList()}\n\nExamples:\n${examples(program)}`)
    .action((kind: string, record: string | undefined, options: GetOptions) =>
      runClient(program, options, (context) => get(context, { kind, record, ...options, format: options.output })),
    )
}

/** Parses a whole number of at least 1. On failure, commander adds the name of the option to the error. */
export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('Use a whole number, 1 or more.')
  return Number(text)
}

function addFilter(text: string, filters: readonly string[]): readonly string[] {
  if (text.indexOf('=') < 1) throw new InvalidArgumentError('Use field=value.')
  return [...filters, text]
}

function kindList(): string {
  const rows = clientKinds.flatMap(({ names: [plural = '', ...others], filters }) => {
    const names = `  ${plural.padEnd(width)} ${others.join(', ')}`
    return filters.length === 0 ? [names] : [names, `    --filter ${filters.join(', ')}`]
  })
  return ['Kinds, their other names, and what they can be filtered by:', ...rows].join('\n')
}

const width = Math.max(...clientKinds.map(({ names: [plural = ''] }) => plural.length))

function examples(program: string): string {
  const lines = ['get groups', 'get repos --in acme -A', 'get tag acme/team/app:1.0 -o yaml', 'get rolebindings --filter role=<uid> -o json']
  return lines.map((line) => `  ${program} ${line}`).join('\n')
}
