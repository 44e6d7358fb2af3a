import { ScalarType, type DescField, type DescMessage, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { isJsonObject } from '../../src/api/http/json-shape.ts'
import { maxItemsOf } from '../../src/core/list-limit.ts'
import type { MethodRow } from '../../src/core/method.ts'
import { messageMutations } from '../fuzz/message-mutations.ts'
import { nastyValue } from '../fuzz/nasty.ts'
import type { Corpus } from '../fuzz/protocol.ts'
import type { Random } from '../fuzz/random.ts'
import { caseName } from '../walk/method-case.ts'
import { routedRequest } from '../walk/routed-request.ts'

/** What a dear request is made of. */
interface Making {
  readonly method: MethodRow
  readonly corpus: Corpus
  readonly random: Random
}

/** Texts that are dear for whoever compiles, compares, folds or escapes them. */
const texts: readonly ((length: number) => string)[] = [
  (length) => 'a'.repeat(length),
  (length) => '\\pL'.repeat(Math.ceil(length / 3)),
  (length) => `(?i)${'[B-\u{1e943}]'.repeat(Math.ceil(length / 6))}`,
  (length) => '(a?){9}'.repeat(Math.ceil(length / 7)),
  (length) => '"\\'.repeat(Math.ceil(length / 2)),
  (length) => '/'.repeat(length),
  (length) => 'a.'.repeat(Math.ceil(length / 2)),
  (length) => ' or a eq'.repeat(Math.ceil(length / 8)),
  (length) => `{"keys":[${'[],'.repeat(Math.ceil(length / 3))}[]]}`,
  (length) => '\u{1f600}'.repeat(Math.ceil(length / 4)),
]

/** A value that fills about so many bytes; beyond the limit of a list only where that is wanted. */
function filled(field: DescField, bytes: number, making: Making, depth = 0): JsonValue {
  const { random } = making
  const one = (share: number): JsonValue => {
    if (random.chance(0.02)) return nastyValue(random)
    if (field.message !== undefined && field.message.file.proto.package !== 'google.protobuf') {
      return depth > 3 ? {} : filledMessage(field.message, share, making, depth + 1)
    }
    if (field.enum !== undefined) return random.chance(0.8) ? random.pick(field.enum.values).name : 'NONE'
    if (field.scalar === ScalarType.STRING)
      return random.chance(0.2) ? (random.pickMaybe(making.corpus.uids) ?? '') : random.pick(texts)(random.chance(0.5) ? share : 8)
    return nastyValue(random)
  }
  if (field.fieldKind !== 'list' && field.fieldKind !== 'map') return one(bytes)
  const limit = Math.min(maxItemsOf(field), 20_000) + (random.chance(0.1) ? 1 : 0)
  const count = random.chance(0.5) ? limit : 1 + random.below(limit)
  const items = Array.from({ length: Math.min(count, Math.ceil(bytes / 4)) }, () => one(Math.floor(bytes / count)))
  return field.fieldKind === 'list' ? items : Object.fromEntries(items.map((item, index) => [`k${index}`, item]))
}

function filledMessage(desc: DescMessage, bytes: number, making: Making, depth = 0): JsonObject {
  const { random } = making
  const chosen = random.chance(0.5) ? desc.fields.filter(() => random.chance(0.5)) : random.some(desc.fields, 1)
  return Object.fromEntries(chosen.map((field) => [field.jsonName, filled(field, Math.floor(bytes / chosen.length), making, depth)]))
}

/** A request that the server takes, without its changes; else one that only has what its path needs. */
function exampleOf({ method, corpus, random }: Making): JsonObject {
  return structuredClone(random.pickMaybe(corpus.examples.filter((example) => example.method === caseName(method)))?.request ?? routedRequest(method))
}

/** The object that the body is made of. */
function bodyIn(request: JsonObject, method: MethodRow): JsonObject {
  const field = method.http[0]?.body ?? ''
  const inner = request[field.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())]
  return isJsonObject(inner) ? inner : request
}

/** Ways to be dear, by their names. Each has the limit of the method in bytes to go by. */
export const shapes: Readonly<Record<string, (making: Making) => JsonObject>> = {
  'full fields': (making) => {
    const request = exampleOf(making)
    const whole = filledMessage(making.method.input, making.method.maxRequestBytes * 0.8, making)
    // What the path needs stays, so that the rest is looked at.
    return { ...whole, ...request }
  },
  'full resource': (making) => {
    const request = exampleOf(making)
    const field = making.method.input.fields.find(({ message, fieldKind }) => fieldKind === 'message' && message?.name === making.method.kind)
    if (field?.message === undefined) return shapes['full fields']?.(making) ?? request
    return {
      ...request,
      [field.jsonName]: { ...(request[field.jsonName] as JsonObject), ...filledMessage(field.message, making.method.maxRequestBytes * 0.8, making) },
    }
  },
  'unknown keys': (making) => {
    const request = exampleOf(making)
    const count = Math.min(16_000, Math.floor(making.method.maxRequestBytes / 16))
    Object.assign(bodyIn(request, making.method), Object.fromEntries(Array.from({ length: count }, (_, index) => [`unknown${index}`, index])))
    return request
  },
  'many small lists': (making) => {
    const request = exampleOf(making)
    bodyIn(request, making.method)['x'] = Array.from({ length: Math.min(16_000, Math.floor(making.method.maxRequestBytes / 4)) }, () => [])
    return request
  },
  mutated: (making) => {
    const request = exampleOf(making)
    for (let count = 0; count < 3; count++) making.random.pick(messageMutations).apply(request, { ...making, input: making.method.input })
    return request
  },
}

/** A request that is made to be dear: it follows from the random numbers. */
export function dearRequest(making: Making): { readonly shape: string; readonly request: JsonObject } {
  const shape = making.random.pick(Object.keys(shapes))
  return { shape, request: shapes[shape]?.(making) ?? {} }
}

/** Bytes of a body that is dear to parse, or to look through. */
const bodies: readonly ((bytes: number) => string)[] = [
  (bytes) => '['.repeat(bytes / 2) + ']'.repeat(bytes / 2),
  (bytes) => `{"x":[${'[],'.repeat(bytes / 3 - 4)}[]]}`,
  (bytes) => `{${Array.from({ length: bytes / 16 }, (_, index) => `"k${index}":${index}`).join(',')}}`,
  (bytes) => `{"schemas":["${'\\u0041'.repeat(bytes / 6 - 4)}"]}`,
  (bytes) => `{"mediaType":"application/x+json","x":[${'{"digest":"sha256:0","size":1},'.repeat(bytes / 31 - 2)}{}]}`,
  (bytes) => `${'a=b&'.repeat(bytes / 4)}`,
  (bytes) => `grant_type=${'%41'.repeat(bytes / 3 - 8)}`,
]

/** A body for what is no method: of any size up to `bytes`, or one that others may have. */
export function dearBody(random: Random, bytes: number): Buffer {
  const length = random.pick([8 * 1024, 64 * 1024, bytes])
  const text = random.pick(bodies)(length).slice(0, length)
  return Buffer.from(text)
}
