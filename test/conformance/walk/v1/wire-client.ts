import { fromBinary, fromJson, toBinary, toJson, type DescMessage, type JsonObject, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js'
import { camel, v1Message } from './descriptors.ts'
import type { WireMethod } from './wire-advisories.ts'
import { wireMethods } from './wire-v1.ts'

/** A client that knows version 1 alone, from the table of its messages. It fails on an answer with anything else in it. */
export interface WireClient {
  /** Calls a method, such as `Groups/List`, with a request as JSON. Rejects with WireError if it is refused. */
  call(name: string, request: JsonObject, token?: string): Promise<JsonObject>
  close(): void
}

/** A refused call. */
export class WireError extends Error {
  override readonly name = 'WireError'
  /** The gRPC code. */
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }
}

/** Field numbers from here on are Taproot's own; clients of the API family skip them. */
const firstOwnNumber = 1000

/** Returns field numbers of the API family, at any depth, that the descriptors do not contain. */
export function unknownNumbers(desc: DescMessage, message: Message): number[] {
  const reflected = reflect(desc, message)
  const inner = desc.fields.flatMap((field) => {
    if (field.fieldKind === 'message' && reflected.isSet(field)) return unknownNumbers(field.message, reflected.get(field).message)
    if (field.fieldKind !== 'list' || field.listKind !== 'message') return []
    return [...reflected.get(field)].flatMap((item) => unknownNumbers(field.message, (item as { message: Message }).message))
  })
  return [...(message.$unknown ?? []).map(({ no }) => no).filter((number) => number < firstOwnNumber), ...inner]
}

const domains: Readonly<Record<string, string>> = {
  Advisories: 'vulnerabilities',
  Artifacts: 'libraries',
  Auth: 'auth',
  PingService: 'ping',
  Registry: 'registry',
  SecurityAdvisory: 'advisory',
  SecurityTokenService: 'oidc',
  Subscriptions: 'events',
  Vulnerabilities: 'registry',
}

/** Returns the domain of a method. */
function domainOf(name: string): string {
  return domains[name.split('/')[0] ?? ''] ?? 'iam'
}

function methodOf(name: string): WireMethod {
  const method = wireMethods[name]
  if (method === undefined) throw new TypeError(`version 1 has no method ${name}`)
  return method
}

/** The name of a package by its domain, for clients of the API family. Only one has a version in it. */
export const familyPackage = (domain: string): string => `chainguard.platform.${domain}${domain === 'vulnerabilities' ? '.v1' : ''}`

/** Creates a client over gRPC. `packageOf` returns the name of a package by its domain. */
export function createGrpcWireClient(port: number, packageOf: (domain: string) => string = familyPackage): WireClient {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure())
  const same = (value: Buffer): Buffer => value
  const unary = (path: string, bytes: Uint8Array, token: string | undefined): Promise<Buffer> => {
    const metadata = new Metadata()
    if (token !== undefined) metadata.set('authorization', `Bearer ${token}`)
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
    const done = (error: ServiceError | null, value?: Buffer): void =>
      error === null && value !== undefined ? resolve(value) : reject(new WireError(error?.code ?? -1, error?.details ?? 'no message'))
    client.makeUnaryRequest(path, same, same, Buffer.from(bytes), metadata, { deadline: Date.now() + 20_000 }, done)
    return promise
  }
  return {
    async call(name, request, token) {
      const { input, output } = methodOf(name)
      const bytes = toBinary(v1Message(input), fromJson(v1Message(input), request))
      const answer = fromBinary(v1Message(output), await unary(`/${packageOf(domainOf(name))}.${name}`, bytes, token))
      const unknown = unknownNumbers(v1Message(output), answer)
      if (unknown.length > 0) throw new TypeError(`${name} answered unknown fields ${unknown.join(', ')}`)
      return toJson(v1Message(output), answer) as JsonObject // a message is an object
    },
    close: () => client.close(),
  }
}

/** Fields of Taproot that are texts or flags in JSON. */
const ownNames: ReadonlySet<string> = new Set(['emailVerified'])

/** Returns the answer of a REST call in the form of the table. Throws for a key that the table does not have. */
function readAnswer(output: string, text: string): JsonObject {
  const json = JSON.parse(text, (key, value: unknown) => (ownNames.has(key) ? undefined : value)) as JsonObject
  return toJson(v1Message(output), fromJson(v1Message(output), json)) as JsonObject // a message is an object
}

/** Creates a client over REST. */
export function createRestWireClient(port: number): WireClient {
  return {
    async call(name, given, token) {
      const { input, output, http = '', body } = methodOf(name)
      const [verb = '', template = ''] = http.split(' ')
      const request = toJson(v1Message(input), fromJson(v1Message(input), given)) as JsonObject // a message is an object
      const rest = { ...request }
      const path = template.replaceAll(/\{(\w+)=\*\*?\}/g, (_, variable: string) => {
        const value = String(rest[camel(variable)] ?? '')
        delete rest[camel(variable)]
        return encodeURIComponent(value)
      })
      const query = new URLSearchParams(
        body === undefined || body === '*' ? [] : Object.entries(rest).flatMap(([key, value]) => (key === camel(body) ? [] : [[key, String(value)]])),
      )
      const add = (key: string, value: unknown): void => {
        if (key === 'imageRefs') (value as { repo: string; tags: string[] }[]).forEach(({ repo, tags }) => query.append(key, `${repo}:${tags.join(',')}`))
        else if (Array.isArray(value)) value.forEach((one) => add(key, one))
        else if (typeof value === 'object' && value !== null) Object.entries(value).forEach(([inner, one]) => add(`${key}.${inner}`, one))
        else query.append(key, String(value))
      }
      if (body === undefined) Object.entries(rest).forEach(([key, value]) => add(key, value))
      const response = await fetch(`http://127.0.0.1:${port}${path.replace(/\/$/, '')}${query.size === 0 ? '' : `?${query}`}`, {
        method: verb,
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body === '*' ? request : (request[camel(body)] ?? {})) }),
      })
      const text = await response.text()
      if (response.ok) return readAnswer(output, text)
      const { code, message } = JSON.parse(text) as { code: number; message: string } // the form of each error
      throw new WireError(code, message)
    },
    close: () => undefined,
  }
}
