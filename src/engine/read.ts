import { create, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { visibilityOf } from '../authz/effective-permissions.ts'
import { isSuspended } from '../authz/access.ts'
import { setOf, type CapabilitySet } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import { hashQuery, openCursor, pageTokenKeyId, pageTokenLifeMs, sealCursor, type Cursor, type CursorKey } from '../base/page-token.ts'
import { resources, type ResourceRow } from '../base/schema/schema.ts'
import { isWithin, rootOf, rootParent, type Uid } from '../base/uid.ts'
import type { UIDPFilter } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import { listRecords, type ListQuery, type ListResult } from '../cache/lists/list.ts'
import type { UidFilter, Visibility } from '../cache/lists/places.ts'
import { cursorKeyOf, parseOrder, sortKeyOf, type Order, type SortKey } from '../cache/lists/order.ts'
import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import { CooperativeTask } from '../cache/cooperative-task.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { notFound } from './errors.ts'
import { leavesOut } from './membership.ts'
import { renderedAlone, shownOf } from './shown.ts'
import type { AnyKind } from './kind.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from './services.ts'

const defaultPageSize = 50
const maxPageSize = 200
/** Fields of a list request that are not exact filters. */
const pagingFields: ReadonlySet<string> = new Set(['uidp', 'page_size', 'page_token', 'order_by', 'skip'])

/** Creates the handler of Get: it returns the record with the request's uid, or throws code 5. */
export function getHandler(kind: AnyKind): Handler {
  return async (services, context, message) => {
    // Every Get request of the schema has a uid.
    const { uid } = message as Message & { uid: string }
    const found = (): CachedRecord => {
      const record = services.cache.tables.get(kind.index.kind, uid)
      if (record === undefined) throw notFound(kind.index.kind, uid)
      return record
    }
    let record = found()
    const ready = whenShowable(kind, services, [record])
    if (ready !== undefined) {
      await ready
      // Check again, because a permission may have ended during a wait.
      context.authorize()
      record = found()
    }
    if (kind.renderAlone !== undefined) return recordAnswer(kind, services, record.message)
    const shown = shownOf(kind, services, record)
    return { message: shown.message, shown, etag: shown.message.etag }
  }
}

/** The fields that every list request has, as test/base/schema.test.ts checks. */
interface ListRequest extends Message {
  uidp?: UIDPFilter
  pageSize: number
  pageToken: string
  orderBy: string
  skip: number
}

/** Returns the `uidp` filter of a list request. */
export function uidFilterOf(uidp: UIDPFilter | undefined): UidFilter {
  return {
    descendantsOf: uidp?.descendantsOf ?? '',
    childrenOf: uidp?.childrenOf ?? '',
    ancestorsOf: uidp?.ancestorsOf ?? '',
    inRoot: uidp?.inRoot ?? false,
    ids: uidp?.ids ?? [],
  }
}

/** Returns the exact filters that a request sets: its scalar fields except those for paging. */
function filtersOf(kind: AnyKind, context: Context, request: ListRequest): [string, string][] {
  const reflected = reflect(context.method.input, request)
  const found: [string, string][] = []
  for (const field of context.method.input.fields) {
    if (pagingFields.has(field.name) || kind.listFilters?.fields.has(field.name) === true || !reflected.isSet(field)) continue
    // Exact filters are texts or enums. The kind's index contains their text form.
    if (field.fieldKind === 'scalar' || field.fieldKind === 'enum') {
      const value = String(reflected.get(field))
      if (value !== '') found.push([field.name, value])
    }
  }
  return found
}

/** The position in a page token, and whether the list starts again because the token expired. */
interface Continuation {
  readonly after: SortKey | undefined
  readonly restarted: boolean
}

/** Returns the position at which a list continues. Throws code 3 for the page token of another list, and for one that is not valid. */
export async function continuationOf(services: Services, context: Context, token: { text: string; queryHash: string; order: Order }): Promise<Continuation> {
  const { key, restarted } = await openPage(services, context, token)
  if (key === undefined) return { after: undefined, restarted }
  const after = sortKeyOf(token.order, key)
  if (after === undefined) throw invalidPageToken()
  return { after, restarted }
}

function invalidPageToken(): DomainError {
  return DomainError.invalid('page_token', 'belongs to another list: send the same filters and order with the same credential, or start again without it')
}

/** Decodes a page token. For an empty or expired token, returns the start of the list. Throws code 3 for the token of another list. */
export async function openPage(
  services: Services,
  context: Context,
  token: { text: string; queryHash: string },
): Promise<{ readonly key: CursorKey | undefined; readonly restarted: boolean }> {
  if (token.text === '') return { key: undefined, restarted: false }
  const id = pageTokenKeyId(token.text)
  if (id === undefined) throw invalidPageToken()
  const key = await services.pageKeys.find(id, context.signal)
  // The key of an expired token may have been removed, so an unknown key means that the token expired (docs/spec/conventions.md#page-tokens).
  if (key === undefined) return { key: undefined, restarted: true }
  const cursor: Cursor | undefined = openCursor(token.text, key)
  if (cursor === undefined) throw invalidPageToken()
  if (services.clock.now() - cursor.issuedMs > pageTokenLifeMs) return { key: undefined, restarted: true }
  if (cursor.queryHash !== token.queryHash) throw invalidPageToken()
  return { key: cursor.key, restarted: false }
}

/** Returns the page size for a list request (docs/spec/conventions.md#page-size). */
export function pageLimit(pageSize: number): number {
  return Math.min(pageSize === 0 ? defaultPageSize : pageSize, maxPageSize)
}

/**
 * Returns where the caller may see records of the kind. Omits suspended organisations. Without `uidp`, also omits those that the caller did not join. Callers
 * who may list roles in any group also see the built-in roles.
 */
export function visibility(
  kind: string,
  { tables, context, uidp }: { tables: RecordTables; context: Context; uidp: UidFilter },
  needed: CapabilitySet,
): Visibility {
  const caller = callerOf(context)
  const open = without(visibilityOf(caller.permissions(), needed), (group) => isSuspended(tables, group))
  const seen = isScoped(uidp) ? open : without(open, leavesOut(tables, caller))
  return kind === 'Role' && open.groups.length > 0 ? { ...seen, roots: true } : seen
}

/** True if the filter names a place in the tree, or records. The list then also shows records of organisations that the caller did not join. */
function isScoped({ descendantsOf, childrenOf, ancestorsOf, ids }: UidFilter): boolean {
  return [descendantsOf, childrenOf, ancestorsOf].some((uid) => uid !== '' && uid !== rootParent) || ids.length > 0
}

/** Minimum number of grants that are indexed in a separate turn of the event loop before the list is read. The index is kept until the grants change. */
const manyGrants = 1_000

/** Indexes the caller's grants in a turn of their own if there are many. */
export async function prepared(context: Context, needed: CapabilitySet): Promise<void> {
  const caller = callerOf(context)
  if (caller.permissions().grants.length <= manyGrants) return
  const task = new CooperativeTask()
  await task.pause()
  visibilityOf(caller.permissions(), needed)
  await task.pause()
}

/**
 * Removes the organisations for whose groups `isOut` returns true. Returns the same object if there are none, because it is the key of cached results for
 * callers who see many groups.
 */
function without(visibility: Visibility, isOut: (group: Uid) => boolean): Visibility {
  const out = new Set<string>()
  let root = ''
  for (const group of visibility.groups) {
    // The groups are in uid order, so this group is below the last one that was removed.
    if (isWithin(group, root)) continue
    root = rootOf(group)
    if (isOut(group)) out.add(root)
  }
  return out.size === 0 ? visibility : { ...visibility, groups: visibility.groups.filter((group) => !out.has(rootOf(group))) }
}

function resourceRow(kind: AnyKind): ResourceRow {
  const row = resources.get(kind.index.kind)
  if (row === undefined) throw new TypeError(`${kind.index.kind} is not a resource of the schema`)
  return row
}

/** Creates the handler of List: it returns one page of the records that the caller may see (docs/spec/conventions.md#lists). */
export function listHandler(kind: AnyKind): Handler {
  const resource = resourceRow(kind)
  let needed: CapabilitySet | undefined
  let usualOrder: Order | undefined
  const handler: Handler = async (services, context, input) => {
    const seen = (needed ??= setOf(context.method.capabilities))
    const request = input as ListRequest
    const order = request.orderBy.trim() === '' ? (usualOrder ??= parseOrder(resource.defaultOrder, resource)) : parseOrder(request.orderBy, resource)
    const uidp = uidFilterOf(request.uidp)
    const filters = filtersOf(kind, context, request)
    const more = kind.listFilters?.read(request) ?? {}
    // Most lists fit on one page, and need no hash.
    const queryHash = (): string => hashQuery([context.method.rpc, uidp, filters, order.id, callerOf(context).identity, ...Object.values(more)])
    const { after, restarted } =
      request.pageToken === ''
        ? { after: undefined, restarted: false }
        : await continuationOf(services, context, { text: request.pageToken, queryHash: queryHash(), order })
    const limit = pageLimit(request.pageSize)
    const query = (): ListQuery => {
      // This visibility depends on the place where the method is authorized, so check that again.
      if (more.visibility !== undefined) context.authorize()
      return {
        kind: kind.index.kind,
        uidp,
        filters,
        visibility: visibility(kind.index.kind, { tables: services.cache.tables, context, uidp }, seen),
        ...more,
        order,
        ...(after === undefined ? {} : { after }),
        skip: request.skip,
        // One extra record shows whether another page follows.
        limit: limit + 1,
      }
    }
    await prepared(context, seen)
    const answer = ({ records, total }: ListResult): RecordListAnswer => {
      const page = records.slice(0, limit)
      const last = page.at(-1)
      const next = records.length > limit && last !== undefined ? nextToken(services, { order, record: last, queryHash: queryHash() }) : ''
      return envelope(services, { kind, context, resource }, { page, total, next, skip: request.skip })
    }
    const { nextPageToken, ...answered } = await listShown(kind, services, { query, answer })
    const next = async (): Promise<HandlerAnswer> => {
      await context.reauthenticate()
      return handler(services, context, { ...request, pageToken: nextPageToken, skip: 0 } as Message)
    }
    return { ...answered, ...(nextPageToken === '' ? {} : { next }), ...(restarted ? { pageTokenRestarted: true } : {}) }
  }
  return handler
}

/** A list's query in the current snapshot, and the function that builds the answer from a page. */
interface Listing<T> {
  readonly query: () => ListQuery
  readonly answer: (result: ListResult) => T
}

/** Maximum number of times that a page is read again after a wait for the grants on which its records depend. */
const maxPasses = 3

/** Returns the answer of a list once all grants on which its records depend are cached. */
export async function listShown<T>(kind: AnyKind, services: Services, { query, answer }: Listing<T>): Promise<T> {
  for (let pass = 1; ; pass++) {
    const found = await listRecords(
      () => ({ tables: services.cache.tables, query: query() }),
      (result): { ready: Promise<void> } | { answer: T } => {
        const ready = pass > maxPasses ? undefined : whenShowable(kind, services, result.records)
        return ready === undefined ? { answer: answer(result) } : { ready }
      },
    )
    if ('answer' in found) return found.answer
    await found.ready
  }
}

/** Resolves when the grants that decide how these records are shown are cached; undefined if there is nothing to wait for. */
function whenShowable(kind: AnyKind, services: Services, records: readonly CachedRecord[]): Promise<void> | undefined {
  const { asksAbout, render } = kind
  if (asksAbout === undefined || render === undefined) return undefined
  const { tables } = services.cache
  return services.grants.prepareAmong(records.flatMap((record) => asksAbout(tables, record)))
}

/** Returns the token for the page that starts after `record`. */
export function nextToken(services: Services, place: { order: Order; record: SortKey; queryHash: string }): string {
  const cursor = { key: cursorKeyOf(place.order, place.record), queryHash: place.queryHash, issuedMs: services.clock.now() }
  return sealCursor(cursor, services.pageKeys.current(), services.random)
}

interface RecordListAnswer extends Required<Pick<HandlerAnswer, 'message' | 'page'>> {
  readonly nextPageToken: string
}

function envelope(
  services: Services,
  of: { kind: AnyKind; context: Context; resource: ResourceRow },
  result: { page: readonly CachedRecord[]; total: number; next: string; skip: number },
): RecordListAnswer {
  const plural = of.context.method.output.fields.find((field) => field.name === of.resource.plural)
  if (plural?.fieldKind !== 'list') throw new TypeError(`${of.context.method.output.typeName} has no field ${of.resource.plural}`)
  const message = create(of.context.method.output, {})
  // The schema gives every list response these fields, as test/base/schema.test.ts checks.
  const fields = message as Message & { nextPageToken: string; totalCount: bigint; skipped: number } & Record<string, unknown>
  const items = result.page.map((record) => shownOf(of.kind, services, record))
  fields[plural.localName] = items.map((item) => item.message)
  fields.nextPageToken = result.next
  fields.totalCount = BigInt(result.total)
  fields.skipped = result.skip
  return { message, page: { field: plural, items }, nextPageToken: result.next }
}

/** Returns the answer that contains a single record. */
export function recordAnswer(kind: AnyKind, services: Services, record: Resource): HandlerAnswer {
  const message = renderedAlone(kind, services, record)
  return { message, etag: record.etag, subject: record.uid }
}
