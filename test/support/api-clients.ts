import { create, fromBinary, fromJson, toBinary, type DescMessage, type JsonObject, type JsonValue, type Message } from '@bufbuild/protobuf'
import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js'
import { request, type Dispatcher } from 'undici'
import { createJsonEncoders } from '../../src/transport/json-encode.ts'
import type { MethodRow } from '../../src/base/schema/method.ts'
import { methods, registry } from '../../src/base/schema/schema.ts'
import { StatusSchema } from '../../src/gen/google/rpc/status_pb.ts'
import { mappedMethods } from '../../src/v1/index.ts'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import { toJson } from '@bufbuild/protobuf'

/** Options of a call. */
export interface Options {
  readonly token?: string | undefined
  readonly identity?: string
  readonly ifMatch?: string
  readonly ifNoneMatch?: string
  readonly idempotencyKey?: string
  readonly forceOwnership?: string
  readonly validateOnly?: boolean
  readonly requestId?: string
}

/** An answer in one form for both transports. `code` is 0 for success, else the gRPC code; `body` is the message as JSON. */
export interface Reply {
  readonly code: number
  readonly body: JsonObject
  readonly message: string
  /** Error details by their type's last name: `ErrorInfo`, `BadRequest`, `PreconditionFailure`, `ResourceInfo`, `RetryInfo`. */
  readonly details: Readonly<Record<string, JsonObject>>
  readonly httpStatus?: number
  /**
   * The whole answer, as a caller sees it, except the time of day. For REST this is status, headers and bytes; for gRPC it is status, details and metadata.
   */
  readonly raw: string
  readonly header: (name: string) => string | undefined
}

/** One transport: calls a method by its rpc name with the request as proto JSON (camelCase). */
export interface ApiClient {
  readonly name: 'rest' | 'grpc'
  call(rpc: string, request: JsonObject, options?: Options): Promise<Reply>
  close(): void
}

const encoders = createJsonEncoders()

/** True for a method of version 1 that calls those of version 2. */
export function isMapped(method: MethodRow): boolean {
  return mappedMethods.has(method)
}

const byRpcName = new Map<string, MethodRow>()

/** The method with this rpc name, e.g. `CreateGroup`; `Service/Rpc` for ambiguous names and for version 1, and `v1.Service/Rpc` if both versions have it. */
export function methodOf(rpc: string): MethodRow {
  const known = byRpcName.get(rpc)
  if (known !== undefined) return known
  const [service, name] = rpc.includes('/') ? rpc.split('/') : [undefined, rpc]
  const isOf = (method: MethodRow): boolean => (service === undefined ? !isMapped(method) : method.service.endsWith(`.${service}`))
  const named = methods.filter((method) => method.rpc === name && isOf(method))
  const found = named.length > 1 ? named.filter((method) => !isMapped(method)) : named
  if (found.length !== 1 || found[0] === undefined) throw new Error(`${found.length} methods are named ${rpc}`)
  byRpcName.set(rpc, found[0])
  return found[0]
}

function asJson(desc: DescMessage, message: Message): JsonObject {
  return JSON.parse(encoders(desc)(message) || '{}') as JsonObject
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** Fills the variables of a route from the request and removes them from it; `{group.uid=**}` is `request.group.uid`. */
function fillPath(template: string, request: JsonObject): { path: string; rest: JsonObject } {
  const rest = structuredClone(request)
  const path = template.replace(/\{([a-z_.]+)(?:=([^}]*))?\}/g, (_, variable: string, pattern = '') => {
    const steps = variable.split('.').map(camel)
    const last = steps.pop() ?? ''
    const holder = steps.reduce<JsonObject | undefined>((at, step) => at?.[step] as JsonObject | undefined, rest)
    const value = holder?.[last]
    if (holder !== undefined) delete holder[last]
    if (typeof value !== 'string') return ''
    return pattern === '*' ? encodeURIComponent(value) : value
  })
  return { path: path.replace(/\/+$/, '').replace('/:', ':'), rest }
}

/** Writes an image reference as a query does: `<repo>[:<tag>[,<tag>]]`. */
function imageReference(image: JsonValue): JsonValue {
  if (typeof image !== 'object' || image === null || Array.isArray(image)) return image
  const { repo = '', tags = [] } = image
  return Array.isArray(tags) && tags.length > 0 ? `${String(repo)}:${tags.join()}` : String(repo)
}

function toQuery(rest: JsonObject): URLSearchParams {
  const query = new URLSearchParams()
  const add = (name: string, value: JsonValue | undefined): void => {
    if (value === undefined || value === null) return
    if (Array.isArray(value)) value.forEach((item) => add(name, name === 'imageRefs' ? imageReference(item) : item))
    else if (typeof value === 'object') Object.entries(value).forEach(([key, inner]) => add(`${name}.${key}`, inner))
    else query.append(name, String(value))
  }
  for (const [key, value] of Object.entries(rest)) add(key, value)
  return query
}

function detailsOf(list: readonly JsonObject[]): Record<string, JsonObject> {
  return Object.fromEntries(list.map((detail) => [String(detail['@type']).replace(/^.*\./, ''), detail]))
}

/** The options of a call as headers or metadata. */
function headersOf(options: Options): Record<string, string> {
  const pairs: [string, string | undefined][] = [
    ['authorization', options.token && `Bearer ${options.token}`],
    ['taproot-identity', options.identity],
    ['if-match', options.ifMatch],
    ['if-none-match', options.ifNoneMatch],
    ['idempotency-key', options.idempotencyKey],
    ['force-ownership', options.forceOwnership],
    ['x-request-id', options.requestId],
  ]
  return Object.fromEntries(pairs.filter((pair): pair is [string, string] => pair[1] !== undefined))
}

/** Headers that vary between equal answers, or follow from the body. */
const ofTheMoment: ReadonlySet<string> = new Set(['date', 'content-length'])

function acceptOf({ streaming }: MethodRow): Record<string, string> {
  return { accept: streaming ? 'text/event-stream' : '*/*' }
}

/** Returns the headers of an answer by name, in the order of their names. */
function headersIn({ headers }: Dispatcher.ResponseData): [name: string, value: string][] {
  const entries = Object.entries(headers).map(([name, value = '']): [string, string] => [name, [value].flat().join(', ')])
  return entries.sort(([one], [other]) => (one < other ? -1 : 1))
}

/** Returns the text of an answer; empty for an endless stream. */
async function bodyOf({ headers, body }: Dispatcher.ResponseData): Promise<string> {
  if (headers['content-type']?.toString().startsWith('text/event-stream') !== true) return body.text()
  body.once('error', () => undefined).destroy()
  return ''
}

/** Resolves with the answer of a request. Rejects with TypeError if the connection failed, as fetch does. The cause has the code. */
async function exchange(
  url: string,
  options: Omit<Dispatcher.RequestOptions<null>, 'origin' | 'path'>,
): Promise<{ answer: Dispatcher.ResponseData; text: string }> {
  try {
    const answer = await request(url, options)
    return { answer, text: await bodyOf(answer) }
  } catch (cause) {
    throw new TypeError('the connection failed', { cause })
  }
}

/** REST over HTTP/1.1. */
export function restClient(baseUrl: string): ApiClient {
  return {
    name: 'rest',
    async call(rpc, input, options = {}) {
      const method = methodOf(rpc)
      const binding = method.http[0]
      if (binding === undefined) throw new Error(`${rpc} has no route`)
      const { path, rest } = fillPath(binding.template, input)
      const bodyField = camel(binding.body)
      const body = binding.body === '*' ? rest : binding.body === '' ? undefined : (rest[bodyField] ?? {})
      const query = toQuery(binding.body === '*' ? {} : Object.fromEntries(Object.entries(rest).filter(([key]) => key !== bodyField)))
      if (options.validateOnly === true) query.set('validateOnly', 'true')
      const headers = { ...headersOf(options), ...acceptOf(method), ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
      const suffix = query.size === 0 ? '' : `?${query}`
      const url = `${baseUrl}${path}${suffix}`
      const verb = binding.verb as Dispatcher.HttpMethod
      const { answer, text } = await exchange(url, { method: verb, headers, body: body === undefined ? null : JSON.stringify(body) })
      const parsed = (text === '' ? {} : JSON.parse(text)) as JsonObject
      const { statusCode: httpStatus } = answer
      const received = headersIn(answer)
      const header = (name: string): string | undefined => received.find(([known]) => known === name.toLowerCase())?.[1]
      const raw = JSON.stringify([httpStatus, received.filter(([name]) => !ofTheMoment.has(name)), text])
      if (httpStatus < 300) return { code: 0, body: parsed, message: '', details: {}, httpStatus, raw, header }
      const { code, message, details } = parsed as { code: number; message: string; details: JsonObject[] }
      return { code, body: parsed, message, details: detailsOf(details), httpStatus, raw, header }
    },
    close: () => undefined,
  }
}

function metadataOf(options: Options): Metadata {
  const metadata = new Metadata()
  for (const [name, value] of Object.entries(headersOf(options))) metadata.set(name, value)
  if (options.validateOnly === true) metadata.set('validate-only', 'true')
  return metadata
}

/** Converts an error of a call to an answer. */
export function grpcFailure(error: ServiceError, header: Reply['header']): Reply {
  const [bytes] = error.metadata.get('grpc-status-details-bin')
  const status = bytes === undefined ? undefined : fromBinary(StatusSchema, bytes as Buffer)
  const details = (status?.details ?? []).map((any): JsonObject => {
    const message = anyUnpack(any, registry)
    const desc = registry.getMessage(any.typeUrl.replace(/^.*\//, ''))
    if (message === undefined || desc === undefined) throw new Error(`unknown detail ${any.typeUrl}`)
    return { '@type': any.typeUrl, ...(toJson(desc, message, { registry }) as JsonObject) }
  })
  const metadata = Object.entries(error.metadata.getMap()).filter(([name]) => !name.endsWith('-bin') && !ofTheMoment.has(name))
  const raw = JSON.stringify([error.code, error.details, details, metadata.sort()])
  return { code: error.code, body: {}, message: error.details, details: detailsOf(details), raw, header }
}

/** Runs `work` so that errors have no stack: the gRPC library makes one for each call, and writes it out for each refused one. */
function withoutStacks<T>(work: () => T): T {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return work()
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Reconnects at once to a restarted server, however long it was down. */
const channelOptions = { 'grpc.initial_reconnect_backoff_ms': 100, 'grpc.max_reconnect_backoff_ms': 500 }

/** gRPC over cleartext HTTP/2. `namespace` replaces the leading `taproot` of the service names. */
export function grpcClient(address: string, serviceName: (method: MethodRow) => string = (method) => method.service): ApiClient {
  const client = new Client(address, credentials.createInsecure(), channelOptions)
  return {
    name: 'grpc',
    call(rpc, request, options = {}) {
      const method = methodOf(rpc)
      const message = Object.keys(request).length === 0 ? create(method.input) : fromJson(method.input, request, { registry })
      const { promise, resolve } = Promise.withResolvers<Reply>()
      const path = `/${serviceName(method)}/${method.rpc}`
      let seen: Metadata | undefined
      const done = (error: ServiceError | null, answer?: Message): void => {
        const header = (name: string): string | undefined => (seen ?? error?.metadata)?.get(name)[0]?.toString() ?? error?.metadata.get(name)[0]?.toString()
        if (error !== null) resolve(grpcFailure(error, header))
        else {
          const body = answer === undefined ? {} : asJson(method.output, answer)
          resolve({ code: 0, body, message: '', details: {}, raw: JSON.stringify([0, body]), header })
        }
      }
      const serialize = (value: Message): Buffer => Buffer.from(toBinary(method.input, value))
      const deserialize = (bytes: Buffer): Message => fromBinary(method.output, bytes)
      const deadline = { deadline: Date.now() + 20_000 }
      if (method.streaming) {
        const stream = client.makeServerStreamRequest(path, serialize, deserialize, message, metadataOf(options), deadline)
        // A stream is endless: its first message is enough.
        stream.once('data', () => {
          done(null)
          stream.cancel()
        })
        stream.on('error', (error: ServiceError) => done(error))
        stream.on('metadata', (metadata) => (seen = metadata))
        return promise
      }
      const call = withoutStacks(() => client.makeUnaryRequest(path, serialize, deserialize, message, metadataOf(options), deadline, done))
      call.on('metadata', (metadata) => {
        seen = metadata
      })
      return promise
    },
    close: () => client.close(),
  }
}
