import { create, fromBinary, toBinary, type JsonObject, type Message } from '@bufbuild/protobuf'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js'
import { registry } from '../../../src/base/schema/schema.ts'
import { ErrorInfoSchema } from '../../../src/gen/google/rpc/error_details_pb.ts'
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts'
import { GetGroupRequestSchema, GroupSchema } from '../../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ExchangeRequestSchema, RawTokenSchema } from '../../../src/gen/taproot/oidc/v1/security_token_service_pb.ts'
import type { TestServer } from '../../support/test-server.ts'

/** An external credential for an identity. */
export interface Presented {
  readonly token: string
  readonly identity: string
  /** The group to read, if the credential is used directly. */
  readonly group: string
}

/** The answer: 0 or the error's code, its message and its ErrorInfo's reason. */
export interface Outcome {
  readonly code: number
  readonly message: string
  readonly reason: string
  /** The access token of an exchange. */
  readonly token: string | undefined
}

/** One way to sign in with an external token. */
export interface Way {
  readonly name: string
  readonly kind: 'direct' | 'exchange'
  present(server: TestServer, presented: Presented): Promise<Outcome>
}

function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}

interface RestRequest {
  readonly path: string
  readonly method?: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | URLSearchParams
}

async function rest(server: TestServer, { path, ...init }: RestRequest): Promise<Outcome> {
  const response = await fetch(`http://127.0.0.1:${server.config.api.port}${path}`, { ...init, redirect: 'error' })
  const body = (await response.json()) as { code?: number; message?: string; details?: JsonObject[]; token?: string } // a cast of the answer: as documented
  if (response.ok) return { code: 0, message: '', reason: '', token: body.token }
  return { code: body.code ?? -1, message: body.message ?? '', reason: String(body.details?.[0]?.['reason']), token: undefined }
}

function reasonOf(error: ServiceError): string {
  const [bytes] = error.metadata.get('grpc-status-details-bin')
  // A `-bin` entry is a Buffer.
  const details = bytes === undefined ? [] : fromBinary(StatusSchema, bytes as Buffer).details
  const info = details.map((detail) => anyUnpack(detail, registry)).find((message) => message?.$typeName === ErrorInfoSchema.typeName)
  return String((info as { reason?: string } | undefined)?.reason)
}

interface GrpcRequest {
  readonly path: string
  readonly metadata: Readonly<Record<string, string>>
  readonly request: Uint8Array
  readonly read: (bytes: Uint8Array) => Message
}

async function grpc(server: TestServer, { path, metadata, request, read }: GrpcRequest): Promise<Outcome> {
  const client = new Client(`127.0.0.1:${server.config.api.port}`, credentials.createInsecure())
  const sent = new Metadata()
  for (const [name, value] of Object.entries(metadata)) sent.set(name, value)
  const { promise, resolve } = Promise.withResolvers<Outcome>()
  client.makeUnaryRequest<Uint8Array, Message>(
    path,
    (bytes) => Buffer.from(bytes),
    read,
    request,
    sent,
    { deadline: Date.now() + 20_000 },
    (error, answer) => {
      if (error !== null) resolve({ code: error.code, message: error.details, reason: reasonOf(error), token: undefined })
      else resolve({ code: 0, message: '', reason: '', token: (answer as { token?: string } | undefined)?.token })
    },
  )
  const outcome = await promise
  client.close()
  return outcome
}

function getGroup(group: string): Pick<GrpcRequest, 'path' | 'request' | 'read'> {
  return {
    path: '/taproot.iam.v2.GroupsService/GetGroup',
    request: toBinary(GetGroupRequestSchema, create(GetGroupRequestSchema, { uid: group })),
    read: (bytes) => fromBinary(GroupSchema, bytes),
  }
}

/** Every way to sign in with an external token as an identity (docs/spec/tokens.md#token-exchange). */
export const ways: readonly Way[] = [
  {
    name: 'REST bearer with header taproot-identity',
    kind: 'direct',
    present: (server, { token, identity, group }) =>
      rest(server, { path: `/iam/v2/groups/${group}`, headers: { authorization: `Bearer ${token}`, 'taproot-identity': identity } }),
  },
  {
    name: 'REST Basic uid:token',
    kind: 'direct',
    present: (server, { token, identity, group }) => rest(server, { path: `/iam/v2/groups/${group}`, headers: { authorization: basic(identity, token) } }),
  },
  {
    name: 'gRPC bearer with metadata taproot-identity',
    kind: 'direct',
    present: (server, { token, identity, group }) =>
      grpc(server, { ...getGroup(group), metadata: { authorization: `Bearer ${token}`, 'taproot-identity': identity } }),
  },
  {
    name: 'gRPC Basic uid:token',
    kind: 'direct',
    present: (server, { token, identity, group }) => grpc(server, { ...getGroup(group), metadata: { authorization: basic(identity, token) } }),
  },
  {
    name: 'GET /sts/exchange',
    kind: 'exchange',
    present: (server, { token, identity }) => rest(server, { path: `/sts/exchange?identity=${identity}`, headers: { authorization: `Bearer ${token}` } }),
  },
  {
    name: 'POST /sts/exchange with a form',
    kind: 'exchange',
    present: (server, { token, identity }) =>
      rest(server, { path: '/sts/exchange', method: 'POST', headers: { authorization: `Bearer ${token}` }, body: new URLSearchParams({ identity }) }),
  },
  {
    name: 'gRPC SecurityTokenService/Exchange',
    kind: 'exchange',
    present: (server, { token, identity }) =>
      grpc(server, {
        path: '/taproot.oidc.v1.SecurityTokenService/Exchange',
        metadata: { authorization: `Bearer ${token}` },
        request: toBinary(ExchangeRequestSchema, create(ExchangeRequestSchema, { identity })),
        read: (bytes) => fromBinary(RawTokenSchema, bytes),
      }),
  },
  {
    name: 'gRPC Exchange under the alias package',
    kind: 'exchange',
    present: (server, { token, identity }) =>
      grpc(server, {
        path: '/chainguard.platform.oidc.SecurityTokenService/Exchange',
        metadata: { authorization: `Bearer ${token}` },
        request: toBinary(ExchangeRequestSchema, create(ExchangeRequestSchema, { identity })),
        read: (bytes) => fromBinary(RawTokenSchema, bytes),
      }),
  },
]
