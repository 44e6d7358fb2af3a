import { clone, create, type DescMessage, type Message } from '@bufbuild/protobuf'
import { EmptySchema, FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { CooperativeScheduler } from '../cache/cooperative-task.ts'
import type { Services, Shown, ShownPage } from '../engine/services.ts'
import type { UIDPFilter } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import { UIDPFilterSchema } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import type { Answer, Call, Dispatch } from '../transport/call.ts'
import type { FieldMap } from './field-map.ts'
import { InnerCall, methodNamed, withFieldNames } from './inner-call.ts'

/** The dependencies of methods of version 1. */
export interface Version1Options {
  /** The pipeline of version 2. */
  readonly dispatch: Dispatch
  readonly services: Services
}

/** What is known when a create maps its record. The caller is not authorized yet. */
export interface NewRecordFacts {
  readonly parent: string
  readonly services: Services
}

/** A method of version 1. */
export interface MappedMethod {
  /** The method of version 2 whose rights, limits and event it has. */
  readonly method: MethodRow
  /** Answers a call with calls of version 2. */
  readonly answer: (call: Call, options: Version1Options) => Promise<Answer>
}

/** Creates the function for a method of version 1 whose row it gets. */
export type MethodMapping = (row: MethodRow) => MappedMethod

type Members = Record<string, unknown>

function membersOf(message: Message): Members {
  return message // a message has a member for each field
}

/** Calls a method of version 2 with the mapped request of the outer call. Errors name fields as the client does. */
export async function forwarded(
  outer: { readonly call: Call; readonly dispatch: Dispatch },
  method: MethodRow,
  { toV2, pathInV1 = (path) => path }: Pick<RequestMapping, 'toV2'> & Partial<RequestMapping>,
): Promise<Answer> {
  const { call, dispatch } = outer
  try {
    return await dispatch(new InnerCall(call, method, async (arrived) => toV2((await call.decode(arrived)).message)))
  } catch (error) {
    throw withFieldNames(error, pathInV1)
  }
}

/** Returns the local name of the request field that contains a resource. */
function heldIn(input: DescMessage, resource: DescMessage): string {
  const field = input.fields.find(({ message }) => message === resource)
  if (field === undefined) throw new TypeError(`${input.typeName} contains no ${resource.typeName}`)
  return field.localName
}

/** Returns the answer with one record. */
export function recordAnswer(map: FieldMap, { message, etag }: Answer): Answer {
  return { message: map.toV1(message), ...(etag === undefined ? {} : { etag }) }
}

/** How requests of a method map to version 2, and names of fields back. */
export interface RequestMapping {
  readonly toV2: (request: Message) => Message
  readonly pathInV1: (path: string) => string
}

/** Returns the mapping of a create: the parent, and the resource in a field. `settle` completes or refuses the record of version 2. */
export function createRequests(
  input: DescMessage,
  method: MethodRow,
  { map, settle }: { map: FieldMap; settle?: (record: Message, parent: string) => void },
): RequestMapping {
  const [held, heldV2] = [heldIn(input, map.v1), heldIn(method.input, map.v2)]
  const parent = input.fields.find((field) => field.fieldKind === 'scalar')
  if (parent === undefined) throw new TypeError(`${input.typeName} has no parent`)
  return {
    toV2(request) {
      const members = membersOf(request)
      const given = members[held] as Message | undefined // a field with a message
      const at = String(members[parent.localName])
      const record = given === undefined ? undefined : map.toV2(given)
      if (record !== undefined) settle?.(record, at)
      return create(method.input, { parent: at, ...(record === undefined ? {} : { [heldV2]: record }) })
    },
    pathInV1: (path) => (path === 'parent' ? parent.name : map.pathInV1(path)),
  }
}

/** Maps a create. `settle` completes or refuses the record of version 2. */
export function creates(name: string, map: FieldMap, settle?: (record: Message, facts: NewRecordFacts) => void): MethodMapping {
  const method = methodNamed(name)
  return ({ input }) => ({
    method,
    async answer(call, { dispatch, services }) {
      const requests = createRequests(input, method, { map, settle: (record, parent) => settle?.(record, { parent, services }) })
      return recordAnswer(map, await forwarded({ call, dispatch }, method, requests))
    },
  })
}

/** Returns the mapping of an update, which replaces the whole record. Fields in `kept` keep their value if the request does not set them. */
export function replaceRequests(method: MethodRow, map: FieldMap, kept: readonly string[]): RequestMapping {
  const held = heldIn(method.input, map.v2)
  const keeps = new Set(kept)
  return {
    toV2: (request) => create(method.input, { [held]: map.toV2(request), updateMask: create(FieldMaskSchema, { paths: map.maskOf(request, keeps) }) }),
    pathInV1: map.pathInV1,
  }
}

/** Maps an update. Fields in `kept` (proto names of version 1) keep their value if the request does not set them. */
export function replaces(name: string, map: FieldMap, kept: readonly string[] = []): MethodMapping {
  const method = methodNamed(name)
  const requests = replaceRequests(method, map, kept)
  return () => ({ method, answer: async (call, { dispatch }) => recordAnswer(map, await forwarded({ call, dispatch }, method, requests)) })
}

/** Maps a delete. It also succeeds if the record does not exist, or if the caller may not see it. */
export function deletes(name: string): MethodMapping {
  const method = methodNamed(name)
  const toV2 = (request: Message): Message => create(method.input, { uid: membersOf(request)['id'] })
  const pathInV1 = (path: string): string => (path === 'uid' ? 'id' : path)
  const answer: MappedMethod['answer'] = async (call, { dispatch }) => {
    try {
      return await forwarded({ call, dispatch }, method, { toV2, pathInV1 })
    } catch (error) {
      if (error instanceof DomainError && error.code === 5) return { message: create(EmptySchema) }
      throw error
    }
  }
  return () => ({ method, answer })
}

/** Lets lists of many pages take turns, one page each, so that other calls run in between. */
const longLists = new CooperativeScheduler()

/** Number of records that a list reads at once, the maximum. */
const pageSize = 200

/** Stands for no record. No uid has this form. */
const nothing = '-'

/** Returns the filter with the filters by id and parent added. Empty texts add nothing. */
function narrowed(given: UIDPFilter | undefined, { id, parent }: { readonly id: string; readonly parent: string }): UIDPFilter | undefined {
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
  /** Maps the filters, except `id`. */
  readonly filters: FieldMap
  readonly items: FieldMap
  /** The local name of a filter by parent, which version 2 has in `uidp`. */
  readonly parentField?: string
  /** Adds to the record of a list by `id` what its record of version 2 does not have. */
  readonly complete?: (call: Call, dispatch: Dispatch, item: Shown) => Promise<Message>
}

/** Maps a list, which returns all records that the caller may see. */
export function lists(name: string, { filters, items, parentField, complete }: ListMapping): MethodMapping {
  const method = methodNamed(name)
  const toV2 = (request: Message): Message => {
    const found = filters.toV2(request)
    const [members, from] = [membersOf(found), membersOf(request)]
    members['pageSize'] = pageSize
    // Each list of version 1 has the fields `id` and `uidp`.
    const { id, uidp } = from as { readonly id: string; readonly uidp?: UIDPFilter }
    const parent = parentField === undefined ? '' : String(from[parentField])
    members['uidp'] = narrowed(uidp, { id, parent })
    return found
  }
  const shownIn = createShown(items)
  return ({ output }) => {
    const field = output.fields.find((candidate) => candidate.name === 'items')
    if (field === undefined) throw new TypeError(`${output.typeName} has no items`)
    const pageOf = (page: ShownPage | undefined): ShownPage => ({ field, items: (page?.items ?? []).map(shownIn) })
    async function* following(first: Answer): AsyncGenerator<ShownPage> {
      for (let next = first.next; next !== undefined;) {
        await longLists.next()
        const answer = await next()
        yield pageOf(answer.page)
        next = answer.next
      }
    }
    const answer: MappedMethod['answer'] = async (call, { dispatch }) => {
      let isOne = false
      const mapped = (request: Message): Message => {
        isOne = membersOf(request)['id'] !== ''
        return toV2(request)
      }
      const first = await forwarded({ call, dispatch }, method, { toV2: mapped, pathInV1: (path) => filterInV1(filters, path) })
      const page = pageOf(first.page)
      const [one] = page.items
      if (isOne && complete !== undefined && one !== undefined) return { message: create(output, { [field.localName]: [await complete(call, dispatch, one)] }) }
      const message = create(output, { [field.localName]: page.items.map((item) => item.message) })
      return { message, page, ...(first.next === undefined ? {} : { more: following(first) }) }
    }
    return { method, answer }
  }
}

/** Returns a function that maps rendered records, and keeps the result, with its encodings, as long as the record of version 2 is kept. */
function createShown(map: FieldMap): (shown: Shown) => Shown {
  const known = new WeakMap<Shown, Shown>()
  return (shown) => {
    let mapped = known.get(shown)
    if (mapped === undefined) {
      // Encoders take any message; only records of version 2 have a uid and an etag.
      mapped = { message: map.toV1(shown.message) as Shown['message'] }
      known.set(shown, mapped)
    }
    return mapped
  }
}
