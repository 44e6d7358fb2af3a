import type { DescMessage, JsonObject } from '@bufbuild/protobuf'
import type { MethodRow, MethodVerb } from '../../../../src/base/schema/method.ts'
import { methods, resources } from '../../../../src/base/schema/schema.ts'
import { isMapped, type Options } from '../../../support/api-clients.ts'
import type { World } from '../world.ts'

/** Parts of a call that replace those of the schema. */
export interface RawChange {
  /** The REST path, if it differs from that of the route. */
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

/** A request that must be refused, and the expected refusal. */
export interface BadInput {
  /** The fault in the request. */
  readonly what: string
  /** Constraints of the schema that it breaks, see constraintsOf; absent for faults of another kind. */
  readonly breaks?: readonly string[]
  /** The only transport that can carry it. */
  readonly only?: 'rest' | 'grpc'
  /** Returns the invalid request as proto JSON. If absent, the valid request is sent. */
  readonly request?: (valid: JsonObject, world: World) => JsonObject | Promise<JsonObject>
  /** Returns the bearer token, if it differs from that of the valid request. */
  readonly caller?: (world: World) => Promise<string> | string
  /** What else goes along with the call. */
  readonly options?: Options
  /** Sent unchanged, outside the schema: bytes, headers, query. */
  readonly raw?: RawChange
  /** 3 where absent. */
  readonly code?: number
  /** All fields in BadRequest, in order, without indexes and map keys. Not checked if absent. */
  readonly fields?: readonly string[]
  readonly httpStatus?: number
}

/** Records and filters for testing a list. */
export interface ListCase {
  /** Makes a record directly below this group, as an operator. */
  readonly item: (world: World, parent: string) => Promise<unknown>
  /** Returns exact filters that each find a record of `world.group`, in addition to `uidp`. */
  readonly filters: (world: World) => readonly JsonObject[]
}

/** Credentials for a method that verifies its credential itself. */
export interface ExternalCase {
  /** Returns the secret part of an answer, which is never logged. */
  readonly secretIn: (body: JsonObject) => string
  /** A well-formed credential that is refused. */
  readonly stranger: (world: World) => Promise<string>
  /** Two calls that must be refused in the same way, about a foreign and a missing record. `about` is the name in each. */
  readonly alike: (world: World) => Promise<readonly { readonly request: JsonObject; readonly token: string; readonly about: string }[]>
  /** True if a refused credential ends its family in the store. */
  readonly refusalEnds?: true
  /** The codes for an unsigned JWT, the stranger's credential and an access token of this server. */
  readonly codes: { readonly unsigned: number; readonly stranger: number; readonly ours: number }
}

/** A row of `cases`: the test data of one method. */
export interface MethodCase {
  /** Creates a request that succeeds, for each call. Its record is in `world.group`. */
  readonly request: (world: World) => JsonObject | Promise<JsonObject>
  /** Returns the bearer that succeeds, if that is not an identity with exactly the needed capabilities. */
  readonly caller?: (world: World) => Promise<string>
  /** Capabilities that the request grants, which the caller must hold too (docs/spec/iam.md#no-escalation). */
  readonly grants?: readonly string[]
  /** The answer for a signed-in caller without any role, for methods without a needed capability; code 0 if absent. */
  readonly outsider?: { readonly code: number; readonly body?: JsonObject }
  /** Required of methods that verify their credential themselves. */
  readonly external?: ExternalCase
  /** What a list is tried with; required of lists. */
  readonly list?: ListCase
  /** Bad inputs of this method alone; those that follow from its shape are added by `badInputsOf`. */
  readonly badInputs: readonly BadInput[]
}

/**
 * How a method decides who may call it:
 * - `scoped`: by capabilities at a place in the request
 * - `operators`: by capabilities at a place in the request, and only for operators
 * - `list`: by capabilities, record by record
 * - `anywhere`: by capabilities in any group: all organisations share the records
 * - `signedIn`: any caller with a valid token; the answer has only what the caller may see
 * - `external`: by a token of another issuer
 * - `public`: anyone
 */
export type Access = 'scoped' | 'operators' | 'list' | 'anywhere' | 'signedIn' | 'external' | 'public'

/** Methods of every caller whose requests name places: the path to the first one. */
const listedPlaces: Readonly<Record<string, readonly string[]>> = {
  'SecurityAdvisory/ListResolvedVulnsReports': ['image_refs', '0', 'repo'],
  'SecurityAdvisoryService/ListResolvedVulnsReports': ['image_refs', '0', 'repo'],
  'VulnReportsService/ListVulnCountReports': ['image_refs', '0', 'repo'],
  'VulnReportsService/ListCumulativeVulnCountReports': ['image_refs', '0', 'repo'],
  'Vulnerabilities/ListVulnReports': ['repo_id'],
  'Vulnerabilities/ListVulnCountReports': ['repo'],
  'Vulnerabilities/ListCumulativeVulnCountReports': ['repo'],
}

/** Methods of every caller that look for a digest in all places. */
const findsByDigest: ReadonlySet<string> = new Set(['Vulnerabilities/GetRawVulnReport'])

/** Returns the effect of a method. The schema has none for methods of version 1. */
export function effectOf(method: MethodRow): MethodVerb {
  const effects: Readonly<Record<string, MethodVerb>> = { List: 'list', Create: 'create', Update: 'update', Delete: 'delete' }
  if (method.rpc === 'Get') return 'get'
  // Reports are no records.
  return isMapped(method) && method.kind !== undefined ? (effects[/^[A-Z][a-z]+/.exec(method.rpc)?.[0] ?? ''] ?? 'custom') : method.verb
}

/** True for a delete that also succeeds if the caller sees no such record: that of version 1. */
export function isForgiving(method: MethodRow): boolean {
  return isMapped(method) && effectOf(method) === 'delete'
}

/** True if a method reads a catalogue of all organisations. Version 1 has one that answers no kind of record. */
function readsCatalogue(method: MethodRow): boolean {
  return caseName(method) === 'Registry/GetPackageVersionMetadata' || resources.get(method.kind ?? '')?.catalogue === true
}

/** True if a method looks in all places that the caller may see, or in those of a filter. */
function isEverywhere(method: MethodRow): boolean {
  return findsByDigest.has(caseName(method)) || method.input.fields.some(({ name }) => name === 'uidp')
}

/** Returns the access of a method, see Access. */
export function accessOf(method: MethodRow): Access {
  if (method.scope === 'public' || method.scope === 'external') return method.scope
  if (method.capabilities.length === 0) return 'signedIn'
  if (method.operators) return 'operators'
  const hasPlaces = isEverywhere(method)
  if (method.scope === 'unscoped' && method.kind === undefined && hasPlaces) return 'signedIn'
  if (method.scope === 'unscoped' && readsCatalogue(method) && !hasPlaces) return 'anywhere'
  return method.scope === 'unscoped' && effectOf(method) === 'list' ? 'list' : 'scoped'
}

/** The names of methods: suites ask for them several times in each call. */
const caseNames = new Map<MethodRow, string>()

/** Returns the name of a method in the table, such as `GroupsService/CreateGroup`. It has the version if both have a service with this name. */
export function caseName(method: MethodRow): string {
  let name = caseNames.get(method)
  if (name === undefined) caseNames.set(method, (name = nameOf(method)))
  return name
}

function nameOf({ service, rpc }: MethodRow): string {
  const named = service === 'taproot.ping.v1.PingService' ? /\w+\.\w+$/ : /\w+$/
  return `${named.exec(service)?.[0] ?? ''}/${rpc}`
}

const byCaseName = Map.groupBy(methods, caseName)

/** Returns the method of a row. */
export function methodNamed(name: string): MethodRow {
  const found = byCaseName.get(name) ?? []
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
  if (isMapped(method)) return 'items'
  const row = method.kind === undefined ? undefined : resources.get(method.kind)
  if (row === undefined) throw new Error(`${method.rpc} is about no kind`)
  return camelCase(row.plural)
}

/** Returns the path of the field with the place of a request, as proto names: `['group', 'uid']`, `['parent']`; undefined if there is none. */
export function placeOf(method: MethodRow): readonly string[] | undefined {
  if (method.scopePath.length > 0) return method.scopePath
  const names = method.verb === 'get' ? 'uid' : effectOf(method) === 'create' ? 'parent' : undefined
  return names === undefined ? undefined : [names]
}

function pathToPlace(method: MethodRow): string[] {
  return (placeOf(method) ?? listedPlaces[caseName(method)] ?? []).map(camelCase)
}

/** Returns the uid at `placeOf` in a request. */
export function placeIn(method: MethodRow, request: JsonObject): string {
  let at: unknown = request
  // Every step of the path except the last is an object of the request.
  for (const name of pathToPlace(method)) at = (at as JsonObject | undefined)?.[name]
  return typeof at === 'string' ? at : ''
}

/** Returns the request with another place. */
export function movedTo(method: MethodRow, request: JsonObject, uid: string): JsonObject {
  const copy = structuredClone(request)
  const path = pathToPlace(method)
  const last = path.pop()
  let at = copy
  for (const name of path) at = (at[name] ??= {}) as JsonObject // see placeIn
  if (last !== undefined) at[last] = uid
  return copy
}
