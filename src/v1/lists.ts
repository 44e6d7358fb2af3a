import { clone, create, type Message } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { methods, resources } from '../base/schema/schema.ts'
import { CooperativeScheduler } from '../cache/cooperative-task.ts'
import type { Shown, ShownPage } from '../engine/services.ts'
import type { UIDPFilter } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import { UIDPFilterSchema } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import type { Answer, Call, DecodedCall, Dispatch } from '../transport/calls/call.ts'
import { isUnset, type FieldMap } from './field-map.ts'
import { InnerCall, methodNamed } from './inner-call.ts'
import { forwarded, type MappedMethod, type MethodMapping } from './mapped-methods.ts'

/** Lets lists of many pages take turns, one page each, so that other calls run in between. */
const longLists = new CooperativeScheduler()

/** Number of records that a list reads at once, the maximum. */
const recordsAtOnce = 200

/** Number of records on a page if the request names a page, and no size. */
const defaultPageSize = 50

/** The largest number of records that version 2 skips. */
const maxSkip = 2 ** 31 - 1

/** The part of a list that a request asks for: the first `limit` records after `skip`. */
interface Section {
  readonly skip: number
  readonly limit: number
}

/** Returns the section of a request, by its offset or by the number of its page. Throws code 3 for values that do not go together. */
function sectionOf(request: Message): Section {
  // Lists that have no such fields are never cut.
  const { offset = 0, page = 0, pageSize = 0 } = request as Message & { readonly offset?: number; readonly page?: number; readonly pageSize?: number }
  for (const [field, value] of Object.entries({ offset, page, page_size: pageSize })) if (value < 0) throw DomainError.invalid(field, 'must not be negative')
  if (offset > 0 && page > 0) throw DomainError.invalid('page', 'cannot be set together with `offset`')
  const size = pageSize === 0 ? defaultPageSize : pageSize
  return { skip: page > 0 ? Math.min((page - 1) * size, maxSkip) : offset, limit: page === 0 && pageSize === 0 ? Infinity : size }
}

/** Stands for no record. No uid has this form. */
const nothing = '-'

/** Returns the filter with the filters by id and parent added. Empty texts add nothing. */
export function narrowed(given: UIDPFilter | undefined, { id, parent = '' }: { readonly id: string; readonly parent?: string }): UIDPFilter | undefined {
  if (id === '' && parent === '') return given
  const uidp = clone(UIDPFilterSchema, given ?? create(UIDPFilterSchema))
  if (id !== '') uidp.ids = [uidp.ids.length === 0 || uidp.ids.includes(id) ? id : nothing]
  if (parent !== '') uidp.childrenOf = uidp.childrenOf === '' || uidp.childrenOf === parent ? parent : nothing
  return uidp
}

/** Returns the name in version 1 of a filter. A uid that is not valid may be the `id` or one of `uidp.ids`. */
function filterInV1(map: FieldMap, path: string): string {
  return path.startsWith('uidp') ? path : map.pathInV1(path)
}

/** The parts of a list that differ by kind. */
export interface ListMapping {
  /** Maps the filters, except `id` and that by parent. */
  readonly filters: FieldMap
  readonly items: FieldMap
  /** The local name of the filter by uid, if it is not `id`. */
  readonly idField?: string
  /** The local name of a filter by parent, which version 2 has in `uidp`. */
  readonly parentField?: string
  /** Adds to the record of a list by `id` what lists of version 2 do not have. */
  readonly complete?: CompleteItem
  /** Adds to the record of a list by `id` what neither lists nor Gets of version 2 have. */
  readonly extend?: CompleteItem
}

/** Returns the record of a list with more of its fields. */
type CompleteItem = (call: Call, dispatch: Dispatch, item: Message) => Promise<Message>

/** Returns the text in a field of a message; empty if the message has no such field. */
function textIn(message: Message, field: string): string {
  return String((message as unknown as Record<string, unknown>)[field] ?? '') // a message has a member for each field
}

/** Completes the record of a list by `id` with a get of version 2, for kinds whose lists show less than a get. */
export function completedBy(name: string, map: FieldMap): CompleteItem {
  const get = methodNamed(name)
  return async (call, dispatch, item) => {
    const request = create(get.input, { uid: textIn(item, 'id') })
    return map.toV1((await dispatch(new InnerCall(call, get, request))).message)
  }
}

/** The Get of the kind of a list, which answers a list of one record. */
type GetOfList = (request: Message, list: () => Message) => DecodedCall | undefined

/** Returns the Get for lists that have only the filter by uid; undefined if the kind has no Get with the same rights. */
function getOfList(list: MethodRow, idField: string): GetOfList | undefined {
  const get = methods.find(({ verb, kind }) => verb === 'get' && kind === list.kind)
  if (get === undefined || get.capabilities.join() !== list.capabilities.join()) return undefined
  return (request, toV2) => {
    const members = request as unknown as Readonly<Record<string, unknown>> // a message has a member for each field
    for (const name in members) if (name !== idField && name !== '$typeName' && !isUnset(members[name])) return undefined
    return { message: create(get.input, { uid: textIn(request, idField) }), instead: { get, list: toV2 } }
  }
}

/** Resolves with a list of the record; of none if it was deleted since it was found. */
async function unlessGone(record: Promise<Message>): Promise<Message[]> {
  try {
    return [await record]
  } catch (error) {
    if (error instanceof DomainError && error.code === 5) return []
    throw error
  }
}

/** Maps a list, which returns all records that the caller may see, or a section of them. */
export function lists(name: string, mapping: ListMapping): MethodMapping {
  const { filters, items, idField = 'id', parentField = '', complete, extend } = mapping
  const method = methodNamed(name)
  const row = resources.get(method.kind ?? '')
  const isInUidOrder = row?.defaultOrder.startsWith('uid') === true || row?.sortFields.has('uid') !== true
  const hasPlace = method.input.fields.some((field) => field.name === 'uidp')
  const toV2 = (request: Message, { skip, limit }: Section): Message => {
    const found = filters.toV2(request)
    const { uidp } = request as Message & { readonly uidp?: UIDPFilter } // not every list has the field
    const narrow = narrowed(uidp, { id: textIn(request, idField), parent: textIn(request, parentField) })
    const order = isInUidOrder ? {} : { orderBy: 'uid' }
    return Object.assign(found, { skip, pageSize: Math.min(recordsAtOnce, limit), ...order }, hasPlace ? { uidp: narrow } : {})
  }
  const shownIn = createShown(items.toV1)
  const getOf = getOfList(method, idField)
  return ({ output }) => {
    const field = output.fields.find((candidate) => candidate.name === 'items')
    if (field === undefined) throw new TypeError(`${output.typeName} has no items`)
    const pageOf = (page: ShownPage | undefined, limit: number): ShownPage => ({ field, items: (page?.items ?? []).slice(0, limit).map(shownIn) })
    async function* following(first: Answer, limit: number): AsyncGenerator<ShownPage> {
      let left = limit
      for (let next = first.next; next !== undefined && left > 0;) {
        await longLists.next()
        const answer = await next()
        const page = pageOf(answer.page, left)
        left -= page.items.length
        yield page
        next = answer.next
      }
    }
    const listOf = (records: readonly Message[]): Message => create(output, { [field.localName]: records })
    const oneShown = createShown((record) => listOf([items.toV1(record)]))
    const pathInV1 = (path: string): string => filterInV1(filters, path)
    const answer: MappedMethod['answer'] = async (call, { dispatch }) => {
      let [isOne, limit] = [false, Infinity]
      const mapped = (request: Message): Message => {
        const section = sectionOf(request)
        limit = section.limit
        return toV2(request, section)
      }
      const mappedGet = (request: Message): DecodedCall | undefined =>
        (isOne = textIn(request, idField) !== '') ? getOf?.(request, () => mapped(request)) : undefined
      const first = await forwarded({ call, dispatch }, method, { toV2: mapped, getOf: mappedGet, pathInV1 })
      const finished = async (item: Message, finish: CompleteItem): Promise<Answer> => ({ message: listOf(await unlessGone(finish(call, dispatch, item))) })
      // Only a Get has no page.
      if (first.page === undefined) {
        if (extend !== undefined) return finished(items.toV1(first.message), extend)
        const shown = oneShown(first.shown ?? { message: first.message as Shown['message'] }) // the answer of a Get is a record
        return { message: shown.message, shown }
      }
      const page = pageOf(first.page, limit)
      const [one] = page.items
      const finish = isOne ? (extend ?? complete) : undefined
      if (finish !== undefined && one !== undefined) return finished(one.message, finish)
      const message = listOf(page.items.map((item) => item.message))
      const left = limit - page.items.length
      return { message, page, ...(first.next === undefined || left <= 0 ? {} : { more: following(first, left) }) }
    }
    return { method, answer }
  }
}

/** The members of an answer with one page, whatever its kind. */
interface PageMembers {
  readonly nextPageToken: string
  readonly [plural: string]: unknown
}

/** Maps a list to one of version 2 whose pages have tokens and no rendered records. It reads all pages. */
export function joins(name: string, { filters, items }: Pick<ListMapping, 'filters' | 'items'>): MethodMapping {
  const method = methodNamed(name)
  const plural = method.output.fields.find(({ message }) => message === items.v2)?.localName
  if (plural === undefined) throw new TypeError(`${method.output.typeName} has no ${items.v2.typeName}`)
  return ({ output }) => {
    const field = output.fields.find((candidate) => candidate.name === 'items')
    if (field === undefined) throw new TypeError(`${output.typeName} has no items`)
    const membersOf = ({ message }: Answer): PageMembers => message as Message & PageMembers // the answer of a list with pages
    const pageOf = (answer: Answer): ShownPage => {
      const records = membersOf(answer)[plural] as readonly Message[] // see `plural`
      return { field, items: records.map((record) => ({ message: items.toV1(record) as Shown['message'] })) } // see createShown
    }
    async function* following({ call, dispatch }: { call: Call; dispatch: Dispatch }, request: Message, first: string): AsyncGenerator<ShownPage> {
      for (let pageToken = first; pageToken !== '';) {
        await longLists.next()
        const answer = await dispatch(new InnerCall(call, method, Object.assign(clone(method.input, request), { pageToken })))
        yield pageOf(answer)
        pageToken = membersOf(answer).nextPageToken
      }
    }
    const answer: MappedMethod['answer'] = async (call, { dispatch }) => {
      let asked = create(method.input)
      const toV2 = (request: Message): Message => (asked = Object.assign(filters.toV2(request), { pageSize: recordsAtOnce }))
      const first = await forwarded({ call, dispatch }, method, { toV2, pathInV1: filters.pathInV1 })
      const page = pageOf(first)
      const token = membersOf(first).nextPageToken
      const message = create(output, { [field.localName]: page.items.map((item) => item.message) })
      return { message, page, ...(token === '' ? {} : { more: following({ call, dispatch }, asked, token) }) }
    }
    return { method, answer }
  }
}

/** Returns a function that maps rendered records, and keeps the result, with its encodings, as long as the record of version 2 is kept. */
function createShown(toV1: (record: Message) => Message): (shown: Shown) => Shown {
  const known = new WeakMap<Shown, Shown>()
  return (shown) => {
    let mapped = known.get(shown)
    if (mapped === undefined) {
      // Encoders take any message; only records of version 2 have a uid and an etag.
      mapped = { message: toV1(shown.message) as Shown['message'] }
      known.set(shown, mapped)
    }
    return mapped
  }
}
