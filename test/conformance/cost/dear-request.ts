import { gzipSync } from 'node:zlib'
import type { DescField, DescMessage, JsonObject, JsonValue } from '@bufbuild/protobuf'
import { isJsonObject } from '../../../src/transport/http/json-shape.ts'
import { fieldAccess } from '../../../src/base/schema/field-behavior.ts'
import { maxItemsOf } from '../../../src/base/schema/list-limit.ts'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import type { Example } from '../fuzz/protocol.ts'
import type { Random } from '../fuzz/random.ts'
import { camelCase } from '../walk/cases/method-case.ts'
import { routedRequest } from '../walk/routed-request.ts'
import { dearScalar, isWorkedOn, type Dear } from './dear-values.ts'

/** The input for an expensive request. */
export interface Making extends Dear {
  readonly method: MethodRow
  /** A request that the server accepts; absent for methods without a handler. */
  readonly example: Pick<Example, 'request'> | undefined
}

/** The same input with an approximate maximum of bytes. */
interface Sized extends Making {
  readonly bytes: number
}

/** A field of a request, as the path of fields to it. */
type Spot = readonly DescField[]

function isOwn(message: DescMessage | undefined): message is DescMessage {
  return message !== undefined && message.file.proto.package !== 'google.protobuf'
}

/** Returns all fields that clients may set in a message, at any depth. */
function spotsOf(desc: DescMessage, above: Spot = []): readonly Spot[] {
  return desc.fields.flatMap((field) => {
    if (fieldAccess(field).outputOnly) return []
    const spot = [...above, field]
    // Stops at a message that contains its own type.
    const isAround = above.some(({ message }) => message === field.message)
    return isOwn(field.message) && !isAround ? [spot, ...spotsOf(field.message, spot)] : [spot]
  })
}

/** Repeats fields with expensive processing, so that they are chosen more often. */
function weighted(spot: Spot): readonly Spot[] {
  const last = spot.at(-1)
  if (last === undefined || !isWorkedOn(last)) return [spot]
  return Array.from({ length: last.fieldKind === 'list' || last.fieldKind === 'map' ? 12 : 4 }, () => spot)
}

const spots = new Map<MethodRow, readonly Spot[]>()

function spotsIn(method: MethodRow): readonly Spot[] {
  const known = spots.get(method) ?? spotsOf(method.input).flatMap(weighted)
  spots.set(method, known)
  return known
}

/** Returns a number of items or pairs, in most cases the maximum. */
function countFor(field: DescField, bytes: number, random: Random): number {
  const limit = Math.min(maxItemsOf(field), Math.max(1, Math.floor(bytes / 8)))
  if (random.chance(0.1)) return limit + 1
  return random.chance(0.7) ? limit : 1 + random.below(limit)
}

/** Returns a message with all its fields, and one member of each oneof. */
function fullMessage(desc: DescMessage, bytes: number, making: Making, depth = 0): JsonObject {
  const fields = desc.fields.filter((field) => !fieldAccess(field).outputOnly)
  const taken = new Set<unknown>()
  const chosen = fields.filter(({ oneof }) => oneof === undefined || (!taken.has(oneof) && taken.add(oneof)))
  return Object.fromEntries(chosen.map((field) => [field.jsonName, dearValue(field, Math.floor(bytes / chosen.length), { ...making, depth: depth + 1 })]))
}

/** Returns an expensive value for a field: for lists and maps the maximum number of items, all equal or all different. */
function dearValue(field: DescField, bytes: number, making: Making & { readonly depth?: number; readonly sample?: JsonValue }): JsonValue {
  const { random, salt, depth = 0, sample } = making
  const one = (share: number, at: number): JsonValue => {
    if (isJsonObject(sample) && random.chance(0.7)) return sample
    const dear = { ...making, salt: `${salt}${at}` }
    if (!isOwn(field.message)) return dearScalar(field, share, dear)
    return depth > 3 ? {} : fullMessage(field.message, share, dear, depth)
  }
  if (field.fieldKind !== 'list' && field.fieldKind !== 'map') return one(bytes, 0)
  const count = countFor(field, bytes, random)
  const share = Math.max(1, Math.floor(bytes / count) - 12)
  const isAlike = random.chance(0.4)
  const first = one(share, 0)
  const items = Array.from({ length: count }, (_, at) => (isAlike ? first : one(share, at)))
  return field.fieldKind === 'list' ? items : Object.fromEntries(items.map((item, at) => [`k${at}${salt}`, item]))
}

/** Sets the field at `spot`, in each item of lists on the path. Other members of oneofs on the path are removed. */
function setAt(holder: JsonObject, [field, ...rest]: Spot, value: (field: DescField, sample: JsonValue | undefined) => JsonValue): void {
  if (field === undefined) return
  for (const other of field.oneof?.fields ?? []) if (other !== field) Reflect.deleteProperty(holder, other.jsonName)
  const held = holder[field.jsonName]
  if (rest.length === 0) {
    holder[field.jsonName] = value(field, Array.isArray(held) ? held[0] : undefined)
    return
  }
  const inner = isJsonObject(held) ? held : {}
  const items = Array.isArray(held) ? held.filter(isJsonObject) : [inner]
  for (const item of items) setAt(item, rest, value)
  holder[field.jsonName] = field.fieldKind === 'list' ? items : field.fieldKind === 'map' ? { k: inner } : inner
}

/** Returns the object that becomes the body. */
function bodyIn(request: JsonObject, method: MethodRow): JsonObject {
  const inner = request[camelCase(method.http[0]?.body ?? '')]
  return isJsonObject(inner) ? inner : request
}

/** Named ways to make a request expensive. All but the first change the whole request. */
const shapes: Readonly<Record<string, (request: JsonObject, making: Sized) => string | undefined>> = {
  'one field': (request, making) => {
    const { method, random } = making
    const spot = random.pickMaybe(spotsIn(method))
    if (spot === undefined) return undefined
    setAt(request, spot, (field, sample) => dearValue(field, making.bytes, { ...making, ...(sample === undefined ? {} : { sample }) }))
    return spot.map(({ name }) => name).join('.')
  },
  'whole resource': (request, making) => {
    const { method } = making
    const field = method.input.fields.find(({ message, fieldKind }) => fieldKind === 'message' && message?.name === method.kind) ?? method.input.fields[0]
    if (!isOwn(field?.message)) return undefined
    request[field.jsonName] = { ...fullMessage(field.message, making.bytes, making), ...(request[field.jsonName] as JsonObject | undefined) }
    return field.name
  },
  'unknown keys': (request, { method, salt, bytes }) => {
    const count = Math.min(16_000, Math.floor(bytes / 20))
    Object.assign(bodyIn(request, method), Object.fromEntries(Array.from({ length: count }, (_, at) => [`u${at}${salt}`, at])))
    return undefined
  },
  'many small lists': (request, { method, bytes }) => {
    bodyIn(request, method)['x'] = Array.from({ length: Math.min(16_000, Math.floor(bytes / 3)) }, () => [])
    return undefined
  },
  'deep nesting': (request, { method }) => {
    let value: JsonValue = 'end'
    for (let level = 0; level < 60; level++) value = level % 2 === 0 ? [value] : { a: value }
    bodyIn(request, method)['x'] = value
    return undefined
  },
}

const wholeShapes = Object.keys(shapes).slice(1)

/** Returns an expensive request. Its texts follow from the salt, all else from the random numbers. */
export function dearRequest(making: Making): { readonly shape: string; readonly request: JsonObject } {
  const { random, example, method } = making
  // A request above the size limit of the method is created again, smaller.
  for (let bytes = method.maxRequestBytes * 0.9; ; bytes /= 3) {
    const request = structuredClone(example?.request ?? routedRequest(method))
    const shape = random.chance(0.8) ? 'one field' : random.pick(wholeShapes)
    const where = shapes[shape]?.(request, { ...making, bytes })
    if (JSON.stringify(request).length <= method.maxRequestBytes || bytes < 64) return { shape: where === undefined ? shape : `${shape} ${where}`, request }
  }
}

let muchCompressed: Buffer | undefined

/** Named encodings of a JSON body, in most cases unchanged. The result has as many bytes as the method accepts. */
export const bodyForms: Readonly<Record<string, (body: Buffer, maxBytes: number) => { readonly body: Buffer; readonly encoding?: string }>> = {
  plain: (body) => ({ body }),
  compressed: (body) => ({ body: gzipSync(body), encoding: 'gzip' }),
  'compressed nested lists': (_, maxBytes) => ({ body: gzipSync('['.repeat(maxBytes / 2) + ']'.repeat(maxBytes / 2)), encoding: 'gzip' }),
  'compressed small lists': (_, maxBytes) => ({ body: gzipSync(`{"x":[${'[],'.repeat(maxBytes / 3 - 4)}[]]}`), encoding: 'gzip' }),
  'much that is compressed': () => ({ body: (muchCompressed ??= gzipSync(Buffer.alloc(16 * 1024 * 1024, '['))), encoding: 'gzip' }),
  escaped: (body, maxBytes) => ({
    body: Buffer.from(`{"name":"${'\\u0041'.repeat(Math.max(0, (maxBytes - body.length) / 6 - 4))}",${body.toString().slice(1)}`),
  }),
  padded: (body, maxBytes) => ({ body: Buffer.concat([Buffer.alloc(Math.max(0, maxBytes - body.length), ' '), body]) }),
}

/** Named encodings of a message, in most cases unchanged. */
export const messageForms: Readonly<Record<string, (message: Buffer, maxBytes: number) => Buffer>> = {
  plain: (message) => message,
  // Protobuf merges the fields of a message that occurs several times.
  'many times': (message, maxBytes) => Buffer.concat(Array.from({ length: Math.floor(maxBytes / Math.max(16, message.length)) }, () => message)),
  'unknown fields': (message, maxBytes) => Buffer.concat([message, Buffer.alloc(Math.max(0, maxBytes - message.length) & ~1, Buffer.from([0x78, 0x01]))]),
  'nested groups': (message, maxBytes) => Buffer.concat([message, Buffer.alloc(Math.max(0, maxBytes - message.length) / 2, 0x7b)]),
}

/** Bodies that are expensive to parse or to search. */
const bodies: readonly ((bytes: number) => string)[] = [
  (bytes) => '['.repeat(bytes / 2) + ']'.repeat(bytes / 2),
  (bytes) => `{"x":[${'[],'.repeat(bytes / 3 - 4)}[]]}`,
  (bytes) => `{${Array.from({ length: bytes / 16 }, (_, index) => `"k${index}":${index}`).join(',')}}`,
  (bytes) => `{"schemas":["${'\\u0041'.repeat(bytes / 6 - 4)}"]}`,
  (bytes) => `{"mediaType":"application/x+json","x":[${'{"digest":"sha256:0","size":1},'.repeat(bytes / 31 - 2)}{}]}`,
  (bytes) => `${'a=b&'.repeat(bytes / 4)}`,
  (bytes) => `grant_type=${'%41'.repeat(bytes / 3 - 8)}`,
]

/** Returns an expensive body of up to `bytes` for an endpoint outside the API methods. */
export function dearBody(random: Random, bytes: number): Buffer {
  const length = random.pick([8 * 1024, 64 * 1024, bytes])
  return Buffer.from(random.pick(bodies)(length).slice(0, length))
}
