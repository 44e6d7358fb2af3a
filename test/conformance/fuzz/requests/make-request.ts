import type { DescMessage, JsonObject, JsonValue } from '@bufbuild/protobuf'
import { ScalarType } from '@bufbuild/protobuf'
import { httpBindings } from '../../../../src/transport/aliases.ts'
import type { MethodRow } from '../../../../src/base/schema/method.ts'
import { methods } from '../../../../src/base/schema/schema.ts'
import { caseName } from '../../walk/cases/method-case.ts'
import { bodyMutations } from '../mutations/body-mutations.ts'
import type { GrpcDraft } from './grpc-draft.ts'
import { headerMutations, streamMutation } from '../mutations/header-mutations.ts'
import { setHeader, type HttpDraft } from './http-draft.ts'
import type { HttpMutation } from '../mutations/http-mutation.ts'
import { http2Bytes, http2Mutations } from '../http2-wire.ts'
import type { ErrorForm } from '../judge-http.ts'
import { looseProto } from '../loose-proto.ts'
import { messageMutations } from '../mutations/message-mutations.ts'
import { metadataMutations } from '../mutations/metadata-mutations.ts'
import { nastyText, nastyValue } from '../nasty.ts'
import { otherDraft } from './other-draft.ts'
import { partMutations } from '../mutations/part-mutations.ts'
import { protoMutations } from '../mutations/proto-mutations.ts'
import type { Corpus } from '../protocol.ts'
import { Random } from '../random.ts'
import { restDraft } from './rest-request.ts'
import { targetMutations } from '../mutations/target-mutations.ts'
import { wireMutations } from '../mutations/wire-mutations.ts'

/** The fuzzed transport. */
export type Transport = 'rest' | 'grpc'

/** A request that can be sent. */
export type Made = {
  readonly number: number
  /** The applied mutations, in order. */
  readonly mutations: readonly string[]
  /** The request that it was made from. */
  readonly what: string
  /** True if it may change the store when accepted. */
  readonly mutating: boolean
} & (
  { readonly transport: 'rest'; readonly draft: HttpDraft; readonly forms: readonly ErrorForm[] } | { readonly transport: 'grpc'; readonly draft: GrpcDraft }
)

/** Probability of each step; otherwise the request is left unchanged. */
const chances = { other: 0.25, message: 0.6, second: 0.3, generated: 0.1, otherCaller: 0.1, anonymous: 0.03, http: 0.5, connection: 0.06 } as const

/** Mutations of an HTTP request, all equally likely. */
const httpMutations: readonly HttpMutation[] = [...bodyMutations, ...targetMutations, ...headerMutations, ...wireMutations]

/** The names of all mutations. A long enough run applies each. */
export const allMutations: readonly string[] = [...messageMutations, ...partMutations, ...httpMutations, ...protoMutations, ...metadataMutations]
  .map(({ name }) => name)
  .concat(http2Mutations.map(({ name }) => `HTTP/2: ${name}`))

/** Returns a value that the type might accept. */
function generated(desc: DescMessage, corpus: Corpus, random: Random, depth = 0): JsonObject {
  const request: JsonObject = {}
  for (const field of desc.fields) {
    if (random.chance(0.4)) continue
    const one = (): JsonValue => {
      if (field.message !== undefined && field.message.file.proto.package !== 'google.protobuf')
        return depth > 4 ? {} : generated(field.message, corpus, random, depth + 1)
      if (field.enum !== undefined) return random.pick(field.enum.values).name
      if (field.scalar === ScalarType.STRING) return random.chance(0.6) ? (random.pickMaybe(corpus.uids) ?? '') : nastyText(random)
      return nastyValue(random)
    }
    const value = field.fieldKind === 'list' ? Array.from({ length: random.below(3) }, one) : field.fieldKind === 'map' ? { key: one() } : one()
    request[field.jsonName] = value
  }
  return request
}

/** Returns a valid request of the method with its caller, or a guess from the schema, and the applied mutations. */
function baseOf(method: MethodRow, corpus: Corpus, random: Random): { request: JsonObject; token: string | undefined; mutations: string[] } {
  const name = caseName(method)
  const example = random.chance(chances.generated) ? undefined : random.pickMaybe(corpus.examples.filter((each) => each.method === name))
  const request = example === undefined ? generated(method.input, corpus, random) : structuredClone(example.request)
  const own = example?.token ?? random.pick(corpus.tokens)
  const token = random.chance(chances.anonymous) ? undefined : random.chance(chances.otherCaller) ? random.pick(corpus.tokens) : own
  const mutations: string[] = []
  while (random.chance(mutations.length === 0 ? chances.message : chances.second)) {
    const mutation = random.pick(messageMutations)
    mutation.apply(request, { input: method.input, corpus, random })
    mutations.push(mutation.name)
  }
  return { request, token, mutations }
}

function headersFor(number: number, token: string | undefined): Record<string, string> {
  return { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), 'x-request-id': requestIdOf(number) }
}

/** Returns the id of a request, unless a mutation replaces it. */
export function requestIdOf(number: number): string {
  return `fuzz-${number}`
}

function mutateHttp(draft: HttpDraft, random: Random, mutations: string[]): void {
  // The deadline of a stream replaces another one. At most one mutation decides about all bytes, and it is last.
  const rankOf = (mutation: HttpMutation): number => (wireMutations.includes(mutation) ? 2 : mutation === streamMutation ? 1 : 0)
  const chosen = Array.from({ length: random.chance(chances.second) ? 2 : 1 }, () => random.pick(httpMutations))
  chosen.sort((a, b) => rankOf(a) - rankOf(b))
  for (const mutation of chosen) {
    if (mutation.needsBody === true && draft.body === undefined) {
      draft.body = Buffer.from('{}')
      setHeader(draft, 'Content-Type', 'application/json')
    }
    mutation.apply(draft, random)
    mutations.push(mutation.name)
  }
}

const calmVerbs: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

function isMutating({ verb, wire }: HttpDraft): boolean {
  return !calmVerbs.has(verb) || wire !== undefined
}

/** Mutations after which the request may match another endpoint. */
const leadingAway: ReadonlySet<string> = new Set([...targetMutations, ...headerMutations, ...wireMutations].map(({ name }) => name))

function makeOther(number: number, corpus: Corpus, random: Random): Made {
  const { row, draft, mutations } = otherDraft(corpus, random, requestIdOf(number))
  if (random.chance(chances.http)) mutateHttp(draft, random, mutations)
  const forms: readonly ErrorForm[] = row.port === 'api' && mutations.some((name) => leadingAway.has(name)) ? [...row.forms, 'status', 'page'] : row.forms
  return { number, transport: 'rest', draft, forms, mutations, what: row.name, mutating: row.mutating === true || isMutating(draft) }
}

function makeHttp(number: number, corpus: Corpus, random: Random): Made {
  if (random.chance(chances.other)) return makeOther(number, corpus, random)
  const method = random.pick(methods)
  const { request, token, mutations } = baseOf(method, corpus, random)
  const draft = restDraft(random.pick(httpBindings(method, true)), request, headersFor(number, token))
  if (mutations.length === 0 || random.chance(chances.http)) mutateHttp(draft, random, mutations)
  return { number, transport: 'rest', draft, forms: ['status'], mutations, what: caseName(method), mutating: method.mutation || isMutating(draft) }
}

function makeGrpc(number: number, corpus: Corpus, random: Random): Made {
  const method = random.pick(methods)
  const { request, token, mutations } = baseOf(method, corpus, random)
  const draft: GrpcDraft = {
    path: `/${method.service}/${method.rpc}`,
    headers: { 'content-type': 'application/grpc', te: 'trailers', ...headersFor(number, token) },
    message: looseProto(method.input, request),
    body: undefined,
    connection: undefined,
    ending: 'end',
  }
  if (mutations.length === 0 || random.chance(0.5)) {
    for (let count = random.chance(chances.second) ? 2 : 1; count > 0; count--) {
      const mutation = random.pick(random.chance(0.5) ? protoMutations : metadataMutations)
      mutation.apply(draft, random)
      mutations.push(mutation.name)
    }
  }
  if (random.chance(chances.connection)) {
    const { name, frames, isOpen = false } = random.pick(http2Mutations)
    draft.connection = { bytes: http2Bytes(frames(draft.path, random)), isOpen }
    mutations.push(`HTTP/2: ${name}`)
  }
  // The stream continues until its client cancels it.
  if (/\/Watch(?:Events)?$/.test(draft.path)) draft.ending = 'cancel'
  return { number, transport: 'grpc', draft, mutations, what: caseName(method), mutating: method.mutation || draft.connection !== undefined }
}

/** Returns the request of this number. It follows from the seed, the number and the corpus, not from earlier requests. */
export function makeRequest(options: { readonly seed: number; readonly number: number; readonly corpus: Corpus; readonly only: Transport | undefined }): Made {
  const { seed, number, corpus, only } = options
  const random = new Random(seed, number)
  const transport = only ?? (random.chance(0.6) ? 'rest' : 'grpc')
  return transport === 'rest' ? makeHttp(number, corpus, random) : makeGrpc(number, corpus, random)
}
