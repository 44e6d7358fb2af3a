import {
  createRegistry,
  getOption,
  hasOption,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescMethod,
  type DescService,
  type Registry,
} from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel, type FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import { files } from '../../gen/files.ts'
import { http as httpOption } from '../../gen/google/api/annotations_pb.ts'
import type { HttpRule } from '../../gen/google/api/http_pb.ts'
import { iam_scope, resource as resourceOption } from '../../gen/taproot/api/v1/annotations_pb.ts'
import { EventGroup, rule as ruleOption, Scope, type Event, type Rule } from '../../gen/taproot/api/v1/rule_pb.ts'
import { capabilityByEnumNumber } from '../capability.ts'
import { maxOpenRequestBytes, type HttpBinding, type MethodEvent, type MethodRow, type MethodScope, type MethodVerb } from './method.ts'

/** One kind of resource, with the annotations of its message. */
export interface ResourceRow {
  /** Name of the kind's message, e.g. `RoleBinding`; unique in the whole schema. */
  readonly kind: string
  /** The domain that the kind belongs to, e.g. `iam`. */
  readonly domain: string
  /** Proto name of the field in list responses that holds the resources, e.g. `role_bindings`. */
  readonly plural: string
  /** The REST path segment, e.g. `roleBindings`. */
  readonly collection: string
  readonly desc: DescMessage
  /** Kinds of which a resource of this kind can be a direct child; `/` if it can be a root. Empty if it is not in the tree. */
  readonly parents: readonly string[]
  /** Keys that lists can be sorted by, in their canonical spelling, e.g. `created_at`; empty if the kind has no list. */
  readonly sortable: readonly string[]
  /** Maps every accepted spelling of a sort key to the proto name of its field, e.g. `createdAt` -> `create_time`. */
  readonly sortFields: ReadonlyMap<string, string>
  /** Order of lists without `order_by`, e.g. `created_at desc`; empty if the kind has no list. */
  readonly defaultOrder: string
  /** The name of the kind in errors, e.g. `iam.taproot.dev/RoleBinding`. */
  readonly resourceType: string
  /** True if a parent has at most one such resource, whose uid is the parent's. */
  readonly singleton: boolean
  /** True if importers write the records in bulk and a catalogue file holds them, not the store. */
  readonly catalogue: boolean
  /** True if the resource has no uid and none of the other common fields. */
  readonly embedded: boolean
}

/** Suffix of resource types and error domains: `<domain>.taproot.dev` (docs/spec/resources.md#kinds). */
export const errorDomainSuffix = 'taproot.dev'

const scopeNames = {
  [Scope.PUBLIC]: 'public',
  [Scope.SCOPED]: 'scoped',
  [Scope.UNSCOPED]: 'unscoped',
  [Scope.EXTERNAL]: 'external',
} as const satisfies Record<Exclude<Scope, typeof Scope.UNSPECIFIED>, MethodScope>

const eventGroups = {
  [EventGroup.PARENT]: 'parent',
  [EventGroup.SELF]: 'self',
  [EventGroup.ROOT]: 'root',
  [EventGroup.NONE]: 'none',
} as const satisfies Record<Exclude<EventGroup, typeof EventGroup.UNSPECIFIED>, MethodEvent['group']>

/** Maps each sort key whose name differs from its field's name to that field's name. */
const sortFieldNames: Readonly<Record<string, string>> = { created_at: 'create_time', updated_at: 'update_time', group: 'uid' }

const httpVerbs = { get: 'GET', put: 'PUT', post: 'POST', delete: 'DELETE', patch: 'PATCH' } as const

/** Maximum request size by verb, in KiB. Lists accept filters with 1,000 uids. A method's annotation `max_request_kib` overrides it. */
const requestKib = { get: 8, list: 256, create: 64, update: 64, delete: 8, custom: 64 } as const satisfies Record<MethodVerb, number>

function maxRequestBytesOf(rule: Rule, { verb, scope }: Pick<MethodRow, 'verb' | 'scope'>): number {
  if (rule.maxRequestKib !== 0) return rule.maxRequestKib * 1024
  return scope === 'public' || scope === 'external' ? maxOpenRequestBytes : requestKib[verb] * 1024
}

/** Returns the table's entry for an enum number. Throws for a number without an entry, which an open enum may have. */
function lookup<T>(table: Readonly<Record<number, T>>, value: number, where: { toString(): string }): T {
  const found = table[value]
  if (found === undefined) throw new Error(`schema: ${where}: unknown enum value ${value}`)
  return found
}

/** Returns the domain of a schema file: `taproot.iam.v2` -> `iam`. */
function domainOf(file: DescFile): string {
  const domain = file.proto.package.split('.')[1]
  if (domain === undefined) throw new Error(`schema: ${file.name}: the package must be named taproot.<domain>.<version>`)
  return domain
}

function fieldNamed(message: DescMessage, name: string): DescField | undefined {
  return message.fields.find((field) => field.name === name)
}

function camelCase(snake: string): string {
  return snake.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

function sortFieldsOf(message: DescMessage, sortable: readonly string[]): ReadonlyMap<string, string> {
  const spellings = new Map<string, string>()
  for (const key of sortable) {
    const field = sortFieldNames[key] ?? key
    if (fieldNamed(message, field) === undefined) throw new Error(`schema: ${message}: no field for the sort key ${key}`)
    const names = key === 'group' ? [key] : [key, field]
    for (const name of names) spellings.set(name, field).set(camelCase(name), field)
  }
  return spellings
}

function resourceRow(message: DescMessage): ResourceRow {
  const option = getOption(message, resourceOption)
  const domain = domainOf(message.file)
  if (option.plural === '' || option.collection === '') throw new Error(`schema: ${message}: a resource needs plural and collection`)
  const sortFields = sortFieldsOf(message, option.sortable)
  if (option.defaultOrder !== '' && !sortFields.has(option.defaultOrder.split(' ')[0] ?? ''))
    throw new Error(`schema: ${message}: the default order is not a sort key`)
  return {
    kind: message.name,
    domain,
    plural: option.plural,
    collection: option.collection,
    desc: message,
    parents: option.parents,
    sortable: option.sortable,
    sortFields,
    defaultOrder: option.defaultOrder,
    resourceType: `${domain}.${errorDomainSuffix}/${message.name}`,
    singleton: option.singleton,
    catalogue: option.catalogue,
    embedded: option.embedded,
  }
}

function readResources(): ReadonlyMap<string, ResourceRow> {
  const rows = new Map<string, ResourceRow>()
  for (const message of files.flatMap((file) => file.messages).filter((message) => hasOption(message, resourceOption))) {
    if (rows.has(message.name)) throw new Error(`schema: two kinds are named ${message.name}`)
    rows.set(message.name, resourceRow(message))
  }
  for (const row of rows.values()) {
    const stranger = row.parents.find((parent) => parent !== '/' && !rows.has(parent))
    if (stranger !== undefined) throw new Error(`schema: ${row.kind}: unknown parent ${stranger}`)
  }
  return rows
}

function httpBindings(method: DescMethod, rule: HttpRule): readonly HttpBinding[] {
  const { pattern } = rule
  if (pattern.case === undefined || pattern.case === 'custom') throw new Error(`schema: ${method}: google.api.http names no path`)
  if (rule.body !== '' && rule.body !== '*' && fieldNamed(method.input, rule.body) === undefined)
    throw new Error(`schema: ${method}: the body ${rule.body} is not a field of the request`)
  const binding: HttpBinding = { verb: httpVerbs[pattern.case], template: pattern.value, body: rule.body }
  return [binding, ...rule.additionalBindings.flatMap((additional) => httpBindings(method, additional))]
}

/** Returns the path to the request field that is annotated as the scope. If that field is a message, the path continues to the annotated field of that message. */
function scopePathOf(message: DescMessage): readonly string[] {
  const marked = message.fields.filter((field) => getOption(field, iam_scope))
  if (marked.length > 1) throw new Error(`schema: ${message}: more than one field is marked as the scope`)
  const [field] = marked
  if (field === undefined) return []
  if (field.fieldKind === 'scalar') return [field.name]
  const inner = field.message === undefined ? [] : scopePathOf(field.message)
  if (inner.length === 0) throw new Error(`schema: ${field}: no field of this message is marked as the scope`)
  return [field.name, ...inner]
}

function upperCamelCase(snake: string): string {
  const camel = camelCase(snake)
  return camel.charAt(0).toUpperCase() + camel.slice(1)
}

/**
 * Returns the standard verb of a method that has the standard name for its kind, such as `GetGroup`; `custom` for all others. Methods of version 1 are
 * custom, because they call those of version 2.
 */
function verbOf(method: DescMethod, row: ResourceRow | undefined): MethodVerb {
  if (row === undefined || method.parent.file.proto.package.endsWith('.v1')) return 'custom'
  const standard: Readonly<Record<string, MethodVerb>> = {
    [`Get${row.kind}`]: 'get',
    [`List${upperCamelCase(row.plural)}`]: 'list',
    [`Create${row.kind}`]: 'create',
    [`Update${row.kind}`]: 'update',
    [`Delete${row.kind}`]: 'delete',
  }
  return standard[method.name] ?? 'custom'
}

/** True if the method answers with a stream. Throws for a method whose request is a stream, because no transport serves those. */
function isStreaming(method: DescMethod): boolean {
  if (method.methodKind !== 'unary' && method.methodKind !== 'server_streaming') throw new Error(`schema: ${method}: the request must not be a stream`)
  return method.methodKind === 'server_streaming'
}

function eventOf(method: DescMethod, event: Event | undefined): MethodEvent | undefined {
  return event && { type: event.type, group: lookup(eventGroups, event.group, method), internal: event.internal }
}

function capabilitiesOf(method: DescMethod, rule: Rule): readonly string[] {
  return rule.capabilities.map((number) => {
    const capability = capabilityByEnumNumber(number)
    if (capability === undefined) throw new Error(`schema: ${method}: unknown capability ${number}`)
    return capability.name
  })
}

/** Throws if parts of the rule do not go together. */
function assertRule(rule: Rule, method: DescMethod, { scope, scopePath }: Pick<MethodRow, 'scope' | 'scopePath'>): void {
  if (scope === 'scoped' && (scopePath.length === 0 || rule.capabilities.length === 0))
    throw new Error(`schema: ${method}: a scoped method needs a scope field and capabilities`)
  if (rule.optionalToken && scope !== 'public') throw new Error(`schema: ${method}: only a public method has an optional token`)
  if (rule.operators && scope !== 'scoped' && scope !== 'unscoped') throw new Error(`schema: ${method}: a method for operators needs signed-in callers`)
}

function methodRow(service: DescService, method: DescMethod): MethodRow {
  if (!hasOption(method, ruleOption) || !hasOption(method, httpOption))
    throw new Error(`schema: ${method}: needs the annotations google.api.http and taproot.api.v1.rule`)
  const rule = getOption(method, ruleOption)
  const row = resources.get(rule.kind)
  if (rule.kind !== '' && row === undefined) throw new Error(`schema: ${method}: unknown kind ${rule.kind}`)
  const scope = lookup(scopeNames, rule.scope, method)
  const scopePath = scope === 'scoped' ? scopePathOf(method.input) : []
  assertRule(rule, method, { scope, scopePath })
  const mutation = method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS
  if (rule.event !== undefined && !mutation) throw new Error(`schema: ${method}: a method with an event must not be marked NO_SIDE_EFFECTS`)
  const verb = verbOf(method, row)
  return {
    service: service.typeName,
    rpc: method.name,
    domain: domainOf(service.file),
    desc: method,
    input: method.input,
    output: method.output,
    http: httpBindings(method, getOption(method, httpOption)),
    verb,
    scope,
    capabilities: capabilitiesOf(method, rule),
    operators: rule.operators,
    optionalToken: rule.optionalToken,
    scopePath,
    kind: row?.kind,
    event: eventOf(method, rule.event),
    streaming: isStreaming(method),
    mutation,
    maxRequestBytes: maxRequestBytesOf(rule, { verb, scope }),
  }
}

function dependenciesFirst(roots: readonly DescFile[]): readonly DescFile[] {
  const ordered = new Set<DescFile>()
  const visit = (file: DescFile): void => {
    if (ordered.has(file)) return
    file.dependencies.forEach(visit)
    ordered.add(file)
  }
  roots.forEach(visit)
  return [...ordered]
}

const allFiles = dependenciesFirst(files)

/** All messages, enums, services and extensions of the schema and of the files that it imports. */
export const registry: Registry = createRegistry(...allFiles)

/** The file descriptors of all domains, imports before their users: the content of gRPC reflection. */
export const fileDescriptors: readonly FileDescriptorProto[] = allFiles.map((file) => file.proto)

/** Every kind of resource by its name. */
export const resources: ReadonlyMap<string, ResourceRow> = readResources()

/** Every method of every service, in schema order. Importing this module throws if the annotations contradict each other. */
export const methods: readonly MethodRow[] = files.flatMap((file) =>
  file.services.flatMap((service) => service.methods.map((method) => methodRow(service, method))),
)
