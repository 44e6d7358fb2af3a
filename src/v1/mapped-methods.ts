import { clone, create, type DescMessage, type Message } from '@bufbuild/protobuf'
import { EmptySchema, FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import type { Context, Services } from '../engine/services.ts'
import type { Answer, Call, DecodedCall, Dispatch } from '../transport/calls/call.ts'
import type { FieldMap } from './field-map.ts'
import { InnerCall, methodNamed, withFieldNames } from './inner-call.ts'

/** The dependencies of methods of version 1. */
export interface Version1Options {
  /** The pipeline of version 2. */
  readonly dispatch: Dispatch
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
  { toV2, getOf, settle, pathInV1 = (path) => path }: Pick<RequestMapping, 'toV2'> & Partial<RequestMapping>,
): Promise<Answer> {
  const { call, dispatch } = outer
  try {
    return await dispatch(
      new InnerCall(call, method, async (arrived) => {
        const { message } = await call.decode(arrived)
        const get = getOf?.(message)
        if (get !== undefined) return get
        const mapped = toV2(message)
        const decoded = { message: mapped, original: message }
        return settle === undefined ? decoded : { ...decoded, complete: (context) => settle(mapped, context) }
      }),
    )
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

/** Returns the answer with its message mapped: one record, or a page. */
export function recordAnswer(map: FieldMap, { message, etag, pageTokenRestarted }: Answer): Answer {
  return { message: map.toV1(message), ...(etag === undefined ? {} : { etag }), ...(pageTokenRestarted === true ? { pageTokenRestarted } : {}) }
}

/** How requests of a method map to version 2, and names of fields back. */
export interface RequestMapping {
  readonly toV2: (request: Message) => Message
  /** Returns the Get for a list of one record; undefined for other lists. */
  readonly getOf?: (request: Message) => DecodedCall | undefined
  /** Returns the request of version 2 completed, see DecodedCall.complete. */
  readonly settle?: (request: Message, context: Context) => Message | Promise<Message>
  readonly pathInV1: (path: string) => string
}

/**
 * Returns the mapping of a create: the parent, and the resource in a field, or as the whole request. `settle` completes or refuses the record of version 2,
 * once the caller is authorized.
 */
export function createRequests(
  input: DescMessage,
  method: MethodRow,
  { map, settle }: { map: FieldMap; settle?: ((record: Message) => void) | undefined },
): RequestMapping {
  const [held, heldV2] = [input === map.v1 ? undefined : heldIn(input, map.v1), heldIn(method.input, map.v2)]
  const parent = input.fields.find((field) => field.fieldKind === 'scalar')
  if (parent === undefined) throw new TypeError(`${input.typeName} has no parent`)
  const settled = (request: Message): Message => {
    const copy = clone(method.input, request)
    const record = membersOf(copy)[heldV2] as Message | undefined // a field with a message
    if (record !== undefined) settle?.(record)
    return copy
  }
  return {
    toV2(request) {
      const members = membersOf(request)
      const given = held === undefined ? request : (members[held] as Message | undefined) // a field with a message
      const at = String(members[parent.localName])
      return create(method.input, { parent: at, ...(given === undefined ? {} : { [heldV2]: map.toV2(given) }) })
    },
    ...(settle === undefined ? {} : { settle: settled }),
    pathInV1: (path) => (path === 'parent' ? parent.name : map.pathInV1(path)),
  }
}

/** How a create differs from others: `settle` completes or refuses the record of version 2, `answer` maps the answer if it has another form. */
export interface CreateMapping {
  readonly settle?: (record: Message, services: Services) => void
  readonly answer?: FieldMap
}

/** Maps a create. */
export function creates(name: string, map: FieldMap, { settle, answer: answerMap = map }: CreateMapping = {}): MethodMapping {
  const method = methodNamed(name)
  return ({ input }) => ({
    method,
    async answer(call, { dispatch, services }) {
      const requests = createRequests(input, method, { map, settle: settle === undefined ? undefined : (record) => settle(record, services) })
      return recordAnswer(answerMap, await forwarded({ call, dispatch }, method, requests))
    },
  })
}

/** Maps a method whose request and answer are those of version 2 with other names. */
export function renames(name: string, { request, answer: answerMap }: { readonly request: RequestMapping; readonly answer: FieldMap }): MethodMapping {
  const method = methodNamed(name)
  return () => ({ method, answer: async (call, { dispatch }) => recordAnswer(answerMap, await forwarded({ call, dispatch }, method, request)) })
}

/** How an update differs from others. */
interface ReplaceMapping<Facts extends readonly unknown[]> {
  /** Fields (proto names of version 1) that keep their value if the request does not set them. */
  readonly kept?: readonly string[]
  /** Completes the record of version 2. */
  readonly settle?: (record: Message, ...facts: Facts) => void
}

/** Returns the mapping of an update, which replaces the whole record. */
export function replaceRequests(method: MethodRow, map: FieldMap, { kept = [], settle }: ReplaceMapping<[]>): RequestMapping {
  const held = heldIn(method.input, map.v2)
  const keeps = new Set(kept)
  return {
    toV2(request) {
      const record = map.toV2(request)
      settle?.(record)
      return create(method.input, { [held]: record, updateMask: create(FieldMaskSchema, { paths: map.maskOf(request, keeps) }) })
    },
    pathInV1: map.pathInV1,
  }
}

/** Maps an update. */
export function replaces(name: string, map: FieldMap, { kept = [], settle }: ReplaceMapping<[Services]> = {}): MethodMapping {
  const method = methodNamed(name)
  return () => ({
    method,
    async answer(call, { dispatch, services }) {
      const requests = replaceRequests(method, map, { kept, settle: (record) => settle?.(record, services) })
      return recordAnswer(map, await forwarded({ call, dispatch }, method, requests))
    },
  })
}

/** Maps a delete. It also succeeds if the record does not exist, or if the caller may not see it. The field `id` has the uid. */
export function deletes(name: string, id = 'id'): MethodMapping {
  const method = methodNamed(name)
  const toV2 = (request: Message): Message => create(method.input, { uid: membersOf(request)[id] })
  const pathInV1 = (path: string): string => (path === 'uid' ? id : path)
  return forgiving(method, { toV2, pathInV1 })
}

/** Maps a delete that also succeeds if the record does not exist, or if the caller may not see it. */
export function forgiving(method: MethodRow, requests: RequestMapping): MethodMapping {
  const answer: MappedMethod['answer'] = async (call, { dispatch }) => {
    try {
      return await forwarded({ call, dispatch }, method, requests)
    } catch (error) {
      if (error instanceof DomainError && error.code === 5) return { message: create(EmptySchema) }
      throw error
    }
  }
  return () => ({ method, answer })
}
