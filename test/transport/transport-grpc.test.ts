import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Client, credentials, loadPackageDefinition } from '@grpc/grpc-js'
import type { ServiceClientConstructor } from '@grpc/grpc-js'
import { create, createFileRegistry, fromBinary, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema, FileDescriptorSetSchema, anyUnpack } from '@bufbuild/protobuf/wkt'
import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import { methods, registry } from '../../src/base/schema/schema.ts'
import { GetGroupRequestSchema, GroupSchema, UpdateGroupRequestSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { serve } from './harness/harness.ts'
import { framed, openCall } from './harness/open-call.ts'
import type { GrpcResult, Served } from './harness/harness.ts'

const getGroup = '/taproot.iam.v2.GroupsService/GetGroup'
const request = toBinary(GetGroupRequestSchema, create(GetGroupRequestSchema, { uid: 'u' }))

let served: Served

beforeAll(async () => {
  served = await serve(async ({ call }) => ({ message: create(call.method.output), etag: 'e1', pageTokenRestarted: call.method.verb === 'list' }))
})
afterAll(() => served.close())

function lastCall(): Served['seen'][number] {
  const seen = served.seen.at(-1)
  if (seen === undefined) throw new Error('nothing was dispatched')
  return seen
}

function detailsOf(result: GrpcResult): unknown[] {
  return (result.status?.details ?? []).map((any) => anyUnpack(any, registry))
}

describe('gRPC names', () => {
  test.each(methods.map((row) => [`${row.service}/${row.rpc}`, row] as const))('%s is served', async (name, row) => {
    const { code } = await served.unary(`/${name}`, new Uint8Array())
    expect(code).toBe(0)
    expect(lastCall().call.method).toBe(row)
  })

  test.each([
    ['chainguard.platform.iam.v2.GroupsService/GetGroup', 'GetGroup'],
    ['chainguard.platform.iam.v2beta1.GroupsService/GetGroup', 'GetGroup'],
    ['chainguard.platform.registry.v2beta1.ReposService/ListRepos', 'ListRepos'],
    ['chainguard.platform.oidc.SecurityTokenService/Exchange', 'Exchange'],
    ['chainguard.platform.auth.Auth/Validate', 'Validate'],
  ])('%s is an alias', async (path, rpc) => {
    expect((await served.unary(`/${path}`, new Uint8Array())).code).toBe(0)
    expect(lastCall().call.method.rpc).toBe(rpc)
  })

  test.each([
    ['method', '/taproot.iam.v2.GroupsService/Nope'],
    ['service', '/nobody.v1.Nope/Nope'],
    ['method of the library', '/grpc.health.v1.Health/Nope'],
    ['path like a prototype', '/__proto__'],
    ['path that is long', `/nobody.v1.Nope/${'x'.repeat(2000)}`],
  ])('an unknown %s is code 12 with details', async (_, path) => {
    const result = await served.unary(path, request, { metadata: { 'x-request-id': 'r9' } })
    expect(result).toMatchObject({ code: 12, details: expect.stringContaining(path.slice(0, 200)) as unknown, status: { code: 12 } })
    expect(detailsOf(result)).toMatchObject([{ reason: 'UNIMPLEMENTED', domain: 'platform.taproot.dev', metadata: { requestId: 'r9' } }])
    expect(result.trailers.get('x-request-id')).toEqual(['r9'])
  })
})

describe('gRPC calls', () => {
  test('metadata is part of the call', async () => {
    const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`
    const metadata = {
      authorization: 'Bearer t',
      'taproot-identity': 'i',
      'if-match': '"e"',
      'if-none-match': '*',
      'idempotency-key': 'k',
      'validate-only': 'true',
      'x-request-id': 'r1',
      traceparent,
    }
    await served.unary(getGroup, request, { metadata })
    expect(lastCall().call).toMatchObject({
      transport: 'grpc',
      headers: { authorization: 'Bearer t', identity: 'i', ifMatch: 'e', ifNoneMatch: '*', idempotencyKey: 'k', requestId: 'r1', traceparent },
      validateOnly: true,
      remoteAddress: '127.0.0.1',
    })
    expect(lastCall().call.headers.userAgent).toMatch(/^grpc-node/)
    expect(lastCall().decoded.message).toMatchObject({ uid: 'u' })
  })

  test.each([
    ['0', false],
    ['false', false],
    ['', false],
    ['1', true],
  ])('the metadata validate-only %j means %j', async (text, expected) => {
    await served.unary(getGroup, request, { metadata: { 'validate-only': text } })
    expect(lastCall().call.validateOnly).toBe(expected)
  })

  test('an update has no mask derived from its body', async () => {
    await served.unary(
      '/taproot.iam.v2.GroupsService/UpdateGroup',
      toBinary(UpdateGroupRequestSchema, create(UpdateGroupRequestSchema, { group: { name: 'n' } })),
    )
    expect(lastCall().decoded.present).toBeUndefined()
    expect(lastCall().call.validateOnly).toBe(false)
  })

  test('the answer has the metadata of the handler', async () => {
    const { message, headers } = await served.unary(getGroup, request, { metadata: { 'x-request-id': 'r2' } })
    expect(fromBinary(GroupSchema, message ?? new Uint8Array())).toMatchObject({ uid: '' })
    expect(headers.get('x-request-id')).toEqual(['r2'])
    expect(headers.get('etag')).toEqual(['e1'])
    expect(headers.get('page-token-restarted')).toEqual([])
    const list = await served.unary('/taproot.iam.v2.GroupsService/ListGroups', new Uint8Array())
    expect(list.headers.get('page-token-restarted')).toEqual(['true'])
  })

  test.each([
    ['bytes that are not a message', Uint8Array.of(0xff, 0xff), {}, 'body'],
    ['a bad validate-only', request, { 'validate-only': 'perhaps' }, 'validate_only'],
    ['a message over the limit of its method', toBinary(GetGroupRequestSchema, create(GetGroupRequestSchema, { uid: 'x'.repeat(8 * 1024) })), {}, 'body'],
  ])('a call with %s is code 3', async (_, bytes, metadata, field) => {
    const result = await served.unary(getGroup, bytes, { metadata })
    expect(result.code).toBe(3)
    expect(detailsOf(result)).toMatchObject([{ reason: 'INVALID_ARGUMENT', domain: 'iam.taproot.dev' }, { fieldViolations: [{ field }] }])
  })
})

describe('gRPC errors', () => {
  test.each([
    [
      'a missing resource',
      new DomainError(5, 'no group', { details: { resource: { resourceType: 't', resourceName: 'n', owner: 'o', description: 'd' } } }),
      [{ reason: 'NOT_FOUND' }, { resourceType: 't', resourceName: 'n', owner: 'o', description: 'd' }],
    ],
    [
      'a state that forbids it',
      DomainError.precondition([{ type: 'RESOURCE_NOT_EMPTY', subject: 's', description: 'd' }]),
      [{ reason: 'FAILED_PRECONDITION' }, { violations: [{ type: 'RESOURCE_NOT_EMPTY', subject: 's', description: 'd' }] }],
    ],
    [
      'a limit',
      new DomainError(8, 'slow down', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1500 } }),
      [{ reason: 'RATE_LIMITED' }, { retryDelay: { seconds: 1n, nanos: 500_000_000 } }],
    ],
    [
      'a field',
      DomainError.invalid('name', 'is too short'),
      [{ reason: 'INVALID_ARGUMENT', metadata: { requestId: 'r' } }, { fieldViolations: [{ field: 'name' }] }],
    ],
  ])('the error for %s has the same details as over REST', async (_, error, details) => {
    const own = await serve(async () => {
      throw error
    })
    try {
      const result = await own.unary(getGroup, request, { metadata: { 'x-request-id': 'r' } })
      expect(result).toMatchObject({ code: error.code, details: error.message })
      expect(result.status).toMatchObject({ code: error.code, message: error.message })
      expect(detailsOf(result)).toMatchObject(details)
      expect(result.trailers.get('x-request-id')).toEqual(['r'])
      const rest = (await (await fetch(`${own.url}/iam/v2/groups/x`)).json()) as { details: unknown[] }
      expect(rest.details).toHaveLength(details.length)
    } finally {
      await own.close()
    }
  })

  test('an internal error shows only the request id', async () => {
    const own = await serve(async () => {
      throw new Error('secret inside')
    })
    try {
      expect(await own.unary(getGroup, request, { metadata: { 'x-request-id': 'r' } })).toMatchObject({
        code: 13,
        details: 'internal error; the request id is r',
      })
      expect(own.logged).toMatchObject([{ requestId: 'r', method: 'GroupsService.GetGroup' }])
    } finally {
      await own.close()
    }
  })

  test('hundreds of violations still reach the client', async () => {
    const own = await serve(async () => {
      throw DomainError.invalidFields(Array.from({ length: 500 }, (_, index) => ({ field: `field_${index}`, description: 'x'.repeat(200) })))
    })
    try {
      const result = await own.unary(getGroup, request)
      expect(result.code).toBe(3)
      expect(detailsOf(result)[0]).toMatchObject({ reason: 'INVALID_ARGUMENT' })
    } finally {
      await own.close()
    }
  })
})

describe('the end of a gRPC call', () => {
  async function serveHanging(): Promise<{ own: Served; reason: Promise<unknown> }> {
    let settle: (reason: unknown) => void = () => {}
    const reason = new Promise((resolve) => {
      settle = resolve
    })
    const own = await serve(({ call }) => {
      call.signal.addEventListener('abort', () => settle(call.signal.reason))
      return new Promise(() => {})
    })
    return { own, reason }
  }

  test('a deadline aborts the signal with code 4', async () => {
    const { own, reason } = await serveHanging()
    try {
      expect((await own.unary(getGroup, request, { call: { deadline: Date.now() + 1_000 } })).code).toBe(4)
      expect(await reason).toMatchObject({ code: 4 })
      await expect.poll(() => own.registry.metrics()).toMatch(/taproot_requests_in_flight\{transport="grpc"\} 0/)
    } finally {
      await own.close(50)
    }
  })

  test('a cancelled call aborts the signal with code 1', async () => {
    const { own, reason } = await serveHanging()
    try {
      const identity = (bytes: Buffer): Buffer => bytes
      const call = own.client.makeUnaryRequest(getGroup, identity, identity, Buffer.from(request), () => {})
      await expect.poll(() => own.seen.length).toBe(1)
      call.cancel()
      expect(await reason).toMatchObject({ code: 1 })
    } finally {
      await own.close(50)
    }
  })
})

function importsFirst(files: readonly FileDescriptorProto[]): FileDescriptorProto[] {
  const ordered = new Set<FileDescriptorProto>()
  const visit = (file: FileDescriptorProto): void => {
    if (ordered.has(file)) return
    files.filter(({ name }) => file.dependency.includes(name)).forEach(visit)
    ordered.add(file)
  }
  files.forEach(visit)
  return [...ordered]
}

describe('gRPC reflection and health', () => {
  interface ReflectionAnswer {
    readonly listServicesResponse?: { readonly service: readonly { readonly name: string }[] }
    readonly fileDescriptorResponse?: { readonly fileDescriptorProto: readonly Buffer[] }
    readonly errorResponse?: { readonly errorCode: number }
  }

  /** A dependency of the reflection package, not of this project. */
  interface ProtoLoader {
    loadSync(file: string, options: { readonly oneofs: boolean }): Parameters<typeof loadPackageDefinition>[0]
  }

  const require = createRequire(import.meta.url)
  const { loadSync } = createRequire(require.resolve('@grpc/reflection'))('@grpc/proto-loader') as ProtoLoader

  /** Sends one request on a stream, like grpcurl. */
  async function reflect(version: 'v1' | 'v1alpha', ask: Readonly<Record<string, string>>): Promise<ReflectionAnswer> {
    const proto = join(dirname(require.resolve('@grpc/reflection')), `../proto/grpc/reflection/${version}/reflection.proto`)
    const definition = loadSync(proto, { oneofs: true })
    const found = (loadPackageDefinition(definition) as unknown as Record<string, Record<string, Record<string, Record<string, ServiceClientConstructor>>>>)
      .grpc?.reflection?.[version]
    const Constructor = found?.ServerReflection
    if (Constructor === undefined) throw new Error('no reflection service')
    const client = new Constructor(`127.0.0.1:${served.port}`, credentials.createInsecure())
    try {
      const stream = client.makeBidiStreamRequest(
        `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
        Constructor.service.ServerReflectionInfo?.requestSerialize ?? (() => Buffer.alloc(0)),
        Constructor.service.ServerReflectionInfo?.responseDeserialize ?? (() => ({})),
      )
      return await new Promise<ReflectionAnswer>((resolve, reject) => {
        stream.on('data', resolve)
        stream.on('error', reject)
        stream.write(ask)
        stream.end()
      })
    } finally {
      client.close()
    }
  }

  test.each(['v1', 'v1alpha'] as const)('%s lists the services under all their names', async (version) => {
    const { listServicesResponse } = await reflect(version, { listServices: '*' })
    const names = listServicesResponse?.service.map(({ name }) => name)
    expect(names).toEqual(
      expect.arrayContaining([
        'taproot.events.v2.EventsService',
        'taproot.events.v2.SubscriptionsService',
        'taproot.iam.v2.GroupsService',
        'taproot.libraries.v2.ArtifactsService',
        'chainguard.platform.iam.v2.GroupsService',
        'chainguard.platform.iam.v2beta1.GroupsService',
        'chainguard.platform.oidc.SecurityTokenService',
      ]),
    )
  })

  test.each(['taproot.iam.v2.GroupsService', 'chainguard.platform.iam.v2beta1.GroupsService', 'taproot.iam.v2.Group'])(
    '%s is described with all its imports',
    async (symbol) => {
      const files = new Map<string, FileDescriptorProto>()
      const take = (answer: ReflectionAnswer): void => {
        for (const bytes of answer.fileDescriptorResponse?.fileDescriptorProto ?? []) {
          const file = fromBinary(FileDescriptorProtoSchema, bytes)
          files.set(file.name, file)
        }
      }
      take(await reflect('v1', { fileContainingSymbol: symbol }))
      expect(files.size).toBeGreaterThan(0)
      for (;;) {
        const missing = [...files.values()].flatMap((file) => file.dependency).find((name) => !files.has(name))
        if (missing === undefined) break
        take(await reflect('v1', { fileByFilename: missing }))
        expect(files.has(missing), missing).toBe(true)
      }
      // A client can build a registry from it: every reference resolves.
      const described = createFileRegistry(create(FileDescriptorSetSchema, { file: importsFirst([...files.values()]) }))
      expect([...described].map(({ typeName }) => typeName)).toContain(symbol)
    },
  )

  test.each([
    '/grpc.health.v1.Health/Check',
    '/grpc.health.v1.Health/Watch',
    '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
  ])('a malformed message to %s is code 3 with details, and the server continues', async (path) => {
    const ending = await openCall(served.url, path, framed(Buffer.from([0x0a, 0xff, 0xff])), { headers: { 'x-request-id': 'garbage' }, end: true })
    expect(ending).toMatchObject({
      code: 3,
      details: [{ reason: 'INVALID_ARGUMENT', metadata: { requestId: 'garbage' } }, { fieldViolations: [{ field: 'body' }] }],
    })
  })

  test('an unknown symbol is NOT_FOUND', async () => {
    expect((await reflect('v1', { fileContainingSymbol: 'nope.Nope' })).errorResponse?.errorCode).toBe(5)
  })

  test.each(['', 'taproot.iam.v2.GroupsService', 'chainguard.platform.iam.v2beta1.GroupsService'])('health of "%s" follows readiness', async (service) => {
    // HealthCheckRequest{1: service}, HealthCheckResponse{1: status}.
    const bytes = Buffer.concat([Buffer.of(10, service.length), Buffer.from(service)])
    const check = async (): Promise<number[]> => [...((await served.unary('/grpc.health.v1.Health/Check', bytes)).message ?? [])]
    served.setReady(false)
    expect(await check()).toEqual([8, 2])
    served.setReady(true)
    expect(await check()).toEqual([8, 1])
  })
})

test('a request for an unknown gRPC method is refused, and the server continues', async () => {
  const { connect } = await import('node:http2')
  const session = connect(served.url)
  try {
    const status = await new Promise((resolve, reject) => {
      session.on('error', reject)
      const stream = session.request({ ':path': '/taproot.iam.v2.GroupsService/GetGroup' })
      stream.on('response', (headers) => resolve(headers[':status']))
      stream.on('error', reject)
      stream.end()
    })
    expect(status).toBe(415)
  } finally {
    session.destroy()
  }
})

test('a second client on its own connection is served', async () => {
  const client = new Client(`127.0.0.1:${served.port}`, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 })
  await new Promise<void>((resolve, reject) => client.waitForReady(Date.now() + 5000, (error) => (error ? reject(error) : resolve())))
  client.close()
})
