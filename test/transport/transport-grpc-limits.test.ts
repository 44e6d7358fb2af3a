import { connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import { create, toBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import { GetGroupRequestSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { serve } from './harness/harness.ts'
import type { ServeOptions, Served } from './harness/harness.ts'
import { framed, openCall } from './harness/open-call.ts'

const getGroup = '/taproot.iam.v2.GroupsService/GetGroup'
const request = toBinary(GetGroupRequestSchema, create(GetGroupRequestSchema, { uid: 'u' }))
const mebibyte = 1024 * 1024
/** The client's preface and an empty SETTINGS frame. */
const preface = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from('000000040000000000', 'hex')])

async function serveEmpty(options: ServeOptions = {}): Promise<Served> {
  const served = await serve(({ call }) => create(call.method.output), options)
  onTestFinished(() => served.close(50))
  return served
}

describe('a whole server', () => {
  let server: TestServer
  let url: string
  beforeAll(async () => {
    server = await startTestServer()
    url = `http://127.0.0.1:${server.config.api.port}`
  })
  afterAll(() => server.stop())

  test('answers a text cut inside a character, and continues', async () => {
    const reply = await server.grpc.call('GetGroup', { uid: `${'a'.repeat(299)}\u{1f600}` }, { token: await server.operatorToken() })
    expect(reply.code).toBe(5)
    expect(reply.details['ErrorInfo']).toMatchObject({ reason: 'NOT_FOUND' })
    expect((await server.grpc.call('Ping', {})).code).toBe(0)
  })

  test.each([
    ['without a token', {}],
    ['with a token of an unknown caller', { authorization: 'Bearer unknown' }],
  ])('refuses a call %s before its message is read', async (_, headers: Record<string, string>) => {
    const ending = await openCall(url, getGroup, framed(Buffer.alloc(1000), mebibyte), { headers })
    expect(ending).toMatchObject({ code: 16, details: [{ reason: 'UNAUTHENTICATED', domain: 'iam.taproot.dev' }] })
  })
})

describe('gRPC messages', () => {
  test.each([
    ['is too large', framed(Buffer.alloc(10), mebibyte + 1), {}],
    ['is far too large', framed(Buffer.alloc(10), 2 ** 32 - 1), {}],
    ['is too large once decompressed', framed(gzipSync(Buffer.alloc(2 * mebibyte)), undefined, true), { 'grpc-encoding': 'gzip' }],
    ['cannot be decompressed', framed(Buffer.alloc(100, 1), undefined, true), { 'grpc-encoding': 'gzip' }],
  ])('a message that %s is code 3 with details, in metrics too', async (_, bytes, headers: Record<string, string>) => {
    const served = await serveEmpty()
    const ending = await openCall(served.url, getGroup, bytes, { headers: { ...headers, 'x-request-id': 'r' }, end: true })
    expect(ending).toMatchObject({ code: 3, details: [{ reason: 'INVALID_ARGUMENT', metadata: { requestId: 'r' } }, { fieldViolations: [{ field: 'body' }] }] })
    await expect
      .poll(() => served.registry.metrics())
      .toMatch(/taproot_requests_total\{method="GroupsService.GetGroup",transport="grpc",code="INVALID_ARGUMENT"\} 1/)
  })

  test('a message in an unknown compression is code 12 with details', async () => {
    const served = await serveEmpty()
    const ending = await openCall(served.url, getGroup, framed(request, undefined, true), { headers: { 'grpc-encoding': 'snappy' }, end: true })
    expect(ending).toMatchObject({ code: 12, details: [{ reason: 'UNIMPLEMENTED' }] })
  })

  test.each([
    ['none', new Uint8Array()],
    ['two', Buffer.concat([framed(request), framed(request)])],
  ])('a unary call with %s messages is code 12 with details', async (_, bytes) => {
    const served = await serveEmpty()
    expect(await openCall(served.url, getGroup, bytes, { end: true })).toMatchObject({ code: 12, details: [{ reason: 'UNIMPLEMENTED' }] })
  })

  test('a message that does not arrive is code 4 with details', async () => {
    const served = await serveEmpty({ limits: { messageTimeoutMs: 100 } })
    expect(await openCall(served.url, getGroup, framed(request, 100))).toMatchObject({ code: 4, details: [{ reason: 'DEADLINE_EXCEEDED' }] })
  })

  test('a deadline that passes during a message is code 4 with details', async () => {
    const served = await serveEmpty()
    const ending = await openCall(served.url, getGroup, framed(request, 100), { headers: { 'grpc-timeout': '100m' } })
    expect(ending).toMatchObject({ code: 4, details: [{ reason: 'DEADLINE_EXCEEDED' }] })
  })

  test('an invalid timeout is code 3 with details', async () => {
    const served = await serveEmpty()
    const ending = await openCall(served.url, getGroup, framed(request, 100), { headers: { 'grpc-timeout': 'soon' } })
    expect(ending).toMatchObject({ code: 3, details: [{ reason: 'INVALID_ARGUMENT' }, { fieldViolations: [{ field: 'grpc-timeout' }] }] })
  })
})

describe('gRPC calls of an unknown method', () => {
  test.each([
    ['whose message does not come', Buffer.alloc(0), {}],
    ['whose message is far too large', framed(Buffer.alloc(10), 2 ** 32 - 1), {}],
    ['with an invalid timeout', framed(request), { 'grpc-timeout': 'soon' }],
  ])('a call %s is code 12 with details', async (_, bytes, headers: Record<string, string>) => {
    const served = await serveEmpty()
    const ending = await openCall(served.url, '/nobody.v1.Nope/Nope', bytes, { headers: { ...headers, 'x-request-id': 'r' } })
    expect(ending).toMatchObject({ code: 12, details: [{ reason: 'UNIMPLEMENTED', metadata: { requestId: 'r' } }] })
  })
})

describe('gRPC faults', () => {
  test('an error that can not be serialised is code 13, and the server continues', async () => {
    let failing = true
    const served = await serve(async ({ call }) => {
      if (!failing) return { message: create(call.method.output) }
      const details = {
        get metadata(): never {
          throw new Error('no details')
        },
      }
      throw new DomainError(5, 'no', { details })
    })
    onTestFinished(() => served.close(50))
    expect(await served.unary(getGroup, request)).toMatchObject({ code: 13, details: 'internal error' })
    expect(served.logged).toMatchObject([{ requestId: 'generated-1', method: 'GroupsService.GetGroup', error: expect.any(Error) as unknown }])
    failing = false
    expect((await served.unary(getGroup, request)).code).toBe(0)
  })

  test('messages of grpc-js about bad metadata are not printed', async () => {
    const printed = vi.spyOn(console, 'error').mockImplementation(() => undefined)
    onTestFinished(() => printed.mockRestore())
    const served = await serveEmpty()
    const ending = await openCall(served.url, getGroup, framed(request), { headers: { 'x-secret': 'caf\u00e9' }, end: true })
    expect(ending.code).toBe(0)
    expect(printed).not.toHaveBeenCalled()
  })
})

describe('gRPC connections', () => {
  test('gRPC connections carry 100 concurrent calls', async () => {
    const served = await serveEmpty()
    const session = connectHttp2(served.url)
    onTestFinished(() => session.destroy())
    const settings = await new Promise<{ maxConcurrentStreams?: number }>((resolve) => session.once('remoteSettings', resolve))
    expect(settings.maxConcurrentStreams).toBe(100)
  })

  test('gRPC connections without calls are closed after a while', async () => {
    const served = await serveEmpty({ limits: { idleMs: 200 } })
    const socket = connect(served.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.write(preface)
    socket.resume()
    await new Promise((resolve) => socket.once('close', resolve))
  })

  test('gRPC connections are checked for a live peer with pings', async () => {
    const served = await serveEmpty({ limits: { pingMs: 100 } })
    const socket = connect(served.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    let received = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk])
    })
    socket.write(preface)
    // A PING frame: 8 bytes, type 6, no flags, stream 0.
    await expect.poll(() => received.includes(Buffer.from('000008060000000000', 'hex'))).toBe(true)
  })
})
