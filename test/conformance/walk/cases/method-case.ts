import type { DescMessage, JsonObject } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../../src/base/schema/method.ts'
import { methods, resources } from '../../../../src/base/schema/schema.ts'
import type { Options } from '../../../support/api-clients.ts'
import type { World } from '../world.ts'

/** What of a call is sent otherwise than the schema says. */
export interface RawChange {
  /** The REST path, where it is not the one that the request's route makes. */
  readonly path?: string
  /** The REST body. */
  readonly body?: string
  readonly contentType?: string
  /** Added to the REST query. */
  readonly query?: Readonly<Record<string, string>>
  /** The gRPC message. */
  readonly bytes?: Uint8Array
  readonly metadata?: Readonly<Record<string, string>>
}

/** A request that must be refused, and how. */
export interface BadInput {
  /** What is wrong with it. */
  readonly what: string
  /** Constraints of the schema that it breaks, see constraintsOf; none where the fault is of another sort. */
  readonly breaks?: readonly string[]
  /** Only over this transport: the other one can't carry it. */
  readonly only?: 'rest' | 'grpc'
  /** The valid request made bad, as proto JSON. The valid one where absent. */
  readonly request?: (valid: JsonObject, world: World) => JsonObject | Promise<JsonObject>
  /** The bearer, where it is not the one that the valid request is made with. */
  readonly caller?: (world: World) => Promise<string> | string
  /** What else goes along with the call. */
  readonly options?: Options
  /** Sent unchanged, outside the schema: bytes, headers, query. */
  readonly raw?: RawChange
  /** 3 where absent. */
  readonly code?: number
  /** All fields that BadRequest names, in order, indexes of lists and keys of maps left out. Not looked at where absent. */
  readonly fields?: readonly string[]
  readonly httpStatus?: number
}

/** What a list can be tried with. */
export interface ListCase {
  /** Makes a record directly below this group, as an operator. */
  readonly item: (world: World, parent: string) => Promise<unknown>
  /** Exact filters that each find something of `world.group`, besides `uidp`. */
  readonly filters: (world: World) => readonly JsonObject[]
}

/** What a method is tried with that verifies its credential itself. */
export interface ExternalCase {
  /** What of an answer is secret, and never logged. */
  readonly secretIn: (body: JsonObject) => string
  /** A well-formed credential that is refused. */
  readonly stranger: (world: World) => Promise<string>
  /** Two calls, about something of another tenant and about something that is not there, that are refused alike; `about` is what each names. */
  readonly alike: (world: World) => Promise<readonly { readonly request: JsonObject; readonly token: string; readonly about: string }[]>
  /** True where a refused credential ends what it belongs to: that is stored. */
  readonly refusalEnds?: true
  /** How a JWT without a signature, the stranger's credential and an access token of this server are refused. */
  readonly codes: { readonly unsigned: number; readonly stranger: number; readonly ours: number }
}

/** One method of the walk: a row of `cases`. */
export interface MethodCase {
  /** A request that succeeds, made again for each call; its record is in `world.group`. */
  readonly request: (world: World) => JsonObject | Promise<JsonObject>
  /** The bearer that succeeds, where that is not an identity with just the capabilities needed. */
  readonly caller?: (world: World) => Promise<string>
  /** What the request grants: the caller must hold it too (docs/spec/iam.md#no-escalation). */
  readonly grants?: readonly string[]
  /** What a signed-in caller without any standing is answered, for methods that ask for no capability; code 0 where absent. */
  readonly outsider?: { readonly code: number; readonly body?: JsonObject }
  /** Required of methods that verify their credential themselves. */
  readonly external?: ExternalCase
  /** What a list is tried with; required of lists. */
  readonly list?: ListCase
  /** Bad inputs of this method alone; those that follow from its shape are added by `badInputsOf`. */
  readonly badInputs: readonly BadInput[]
}

/** How a method decides who may call it:
 * - `scoped`: by capabilities at a place that the request names
 * - `operators`: by capabilities at a place that the request names, and only for operators
 * - `list`: by capabilities, record by record
 * - `signedIn`: any caller with a valid token
 * - `external`: by a token of another issuer
 * - `public`: anyone
 */
export type Access = 'scoped' | 'operators' | 'list' | 'signedIn' | 'external' | 'public'

/** See Access. */
export function accessOf(method: MethodRow): Access {
  if (method.scope === 'public' || method.scope === 'external') return method.scope
  if (method.capabilities.length === 0) return 'signedIn'
  if (method.operators) return 'operators'
  return method.scope === 'unscoped' && method.verb === 'list' ? 'list' : 'scoped'
}

/** `GroupsService/CreateGroup`: how the table names a method. */
export function caseName(method: MethodRow): string {
  return `${method.service.slice(method.service.lastIndexOf('.') + 1)}/${method.rpc}`
}

/** The method that a row is about. */
export function methodNamed(name: string): MethodRow {
  const found = methods.filter((method) => caseName(method) === name)
  if (found.length !== 1 || found[0] === undefined) throw new Error(`${found.length} methods are named ${name}`)
  return found[0]
}

/** `claim_match` -> `claimMatch` */
export function camelCase(snake: string): string {
  return snake.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** The field at the end of a path of proto names, with the message that it is of: `common.v2.UIDPFilter.ids` for `['uidp', 'ids']`. */
export function fieldNameAt(desc: DescMessage, [name = '', ...rest]: readonly string[]): string {
  const field = desc.fields.find((one) => one.name === name)
  if (field === undefined) throw new Error(`${desc.typeName} has no field ${name}`)
  return field.message === undefined || rest.length === 0 ? `${desc.typeName.replace(/^taproot\./, '')}.${name}` : fieldNameAt(field.message, rest)
}

/** The key of list answers that holds the resources: `roleBindings`. */
export function pluralOf(method: MethodRow): string {
  const row = method.kind === undefined ? undefined : resources.get(method.kind)
  if (row === undefined) throw new Error(`${method.rpc} is about no kind`)
  return camelCase(row.plural)
}

/** Where a request names its place, in proto names: `['group', 'uid']`, `['parent']`; undefined where it names none. */
export function placeOf(method: MethodRow): readonly string[] | undefined {
  if (method.scopePath.length > 0) return method.scopePath
  const names = method.verb === 'get' ? 'uid' : method.verb === 'create' ? 'parent' : undefined
  return names === undefined ? undefined : [names]
}

/** The uid at `placeOf` in a request. */
export function placeIn(method: MethodRow, request: JsonObject): string {
  let at: unknown = request
  // Every step of the path but the last is an object of the request.
  for (const name of placeOf(method) ?? []) at = (at as JsonObject | undefined)?.[camelCase(name)]
  return typeof at === 'string' ? at : ''
}

/** The request about another place. */
export function movedTo(method: MethodRow, request: JsonObject, uid: string): JsonObject {
  const copy = structuredClone(request)
  const path = (placeOf(method) ?? []).map(camelCase)
  const last = path.pop()
  let at = copy
  for (const name of path) at = (at[name] ??= {}) as JsonObject // see placeIn
  if (last !== undefined) at[last] = uid
  return copy
}
