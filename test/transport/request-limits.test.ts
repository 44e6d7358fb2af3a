import { once } from 'node:events'
import { request } from 'node:http'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { create, type JsonObject } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { Client, compressionAlgorithms, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createEndpoints, type EndpointOptions } from '../../src/iam/signin/web/endpoints.ts'
import type { MethodRow } from '../../src/base/schema/method.ts'
import { methods } from '../../src/base/schema/schema.ts'
import { methodName } from '../../src/base/schema/method.ts'
import { handlers } from '../../src/domains/handlers.ts'
import { ListDocumentsRequestSchema } from '../../src/gen/taproot/advisory/v1/advisory_pb.ts'
import { readQuery } from '../../src/transport/http/query.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { caseName } from '../conformance/walk/cases/method-case.ts'
import { serve, type GrpcResult, type Served } from './harness/harness.ts'
import { sendTo, type Sent } from './harness/send.ts'

const KiB = 1024
const bytes = (value: Buffer): Buffer => value
const uid = 'a'.repeat(40)

/** The first REST path of a method, for a missing resource. */
function pathOf(method: MethodRow): { verb: string; path: string; body: string } {
  const { verb, template, body } = method.http.at(-1) ?? { verb: '', template: '', body: '' }
  return { verb, path: template.replaceAll(/\{[^}]*\}/g, uid), body }
}

/** The body of a request with one unknown member, of exactly `length` bytes. */
function bodyOf({ input }: MethodRow, bodyField: string, length: number): string {
  const [start, end] = input.fields.some(({ name, fieldKind }) => name === bodyField && fieldKind === 'list') ? ['[{"x":"', '"}]'] : ['{"x":"', '"}']
  return `${start}${'x'.repeat(length - start.length - end.length)}${end}`
}

/** A message of exactly `length` bytes, at least 10: one string in a field unknown to all types. */
function messageOf(length: number): Uint8Array {
  const made = (text: number): Uint8Array => new BinaryWriter().tag(2000, WireType.LengthDelimited).string('x'.repeat(text)).finish()
  return made(length - (made(length - 4).length - (length - 4)))
}

const withBody = methods.filter((method) => pathOf(method).body !== '')
const forms = methods.filter((method) => method.scope === 'external' && pathOf(method).body === '')

describe('the maximum size of a request', () => {
  let served: Served
  beforeAll(async () => {
    served = await serve(({ call }) => create(call.method.output))
  })
  afterAll(() => served.close(50))

  test('the maximum size of a request is set for every method: 64 KiB for most, 8 KiB for public ones without a list of ids', () => {
    const open = methods.filter(({ scope }) => scope === 'public')
    const lists = open.filter(({ maxRequestBytes }) => maxRequestBytes > 8 * KiB).map(({ rpc }) => rpc)
    expect(new Set(lists)).toEqual(new Set(['ListDocuments', 'ListVulnerabilityMetadata']))
    const large = methods.filter(({ maxRequestBytes, verb, service }) => service.includes('.v2.') && maxRequestBytes > 64 * KiB && verb !== 'list')
    expect(large.map(({ rpc }) => rpc).toSorted()).toEqual([
      'BatchDeleteExternalGroupRoleMappings',
      'CreateIdentity',
      'CreateRepo',
      'UpdateIdentity',
      'UpdateRepo',
      'UpdateRepoReadme',
    ])
  })

  test.each(withBody.map((method) => ({ name: caseName(method), method })))('$name accepts a body of its limit, and no larger one', async ({ method }) => {
    const { verb, path, body } = pathOf(method)
    const headers = { prefer: 'handling=lenient' }
    const send = (length: number): Promise<Sent> => sendTo(served.port, { verb, path, headers, body: bodyOf(method, body, length) })
    expect((await send(method.maxRequestBytes)).status).toBe(200)
    expect((await send(method.maxRequestBytes + 1)).status).toBe(413)
  })

  test.each(forms.map((method) => ({ name: caseName(method), method })))('$name accepts a form of its limit, and no larger one', async ({ method }) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const send = (length: number): Promise<Sent> => sendTo(served.port, { ...pathOf(method), headers, body: `x=${'x'.repeat(length - 2)}` })
    expect((await send(method.maxRequestBytes)).status).toBe(200)
    expect((await send(method.maxRequestBytes + 1)).status).toBe(413)
  })

  test.each(methods.map((method) => ({ name: caseName(method), method })))(
    '$name accepts a gRPC message of its limit, and no larger one',
    async ({ method }) => {
      const send = (length: number): Promise<GrpcResult> => served.unary(`/${method.service}/${method.rpc}`, messageOf(length))
      expect((await send(method.maxRequestBytes)).code).toBe(0)
      expect(await send(method.maxRequestBytes + 1)).toMatchObject({
        code: 3,
        details: `Invalid argument: body: must not be larger than ${method.maxRequestBytes} bytes`,
      })
    },
  )

  const { verb, path } = { verb: 'POST', path: '/auth/v1/register' }
  test.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ] as const)('the maximum size of a request counts decompressed bytes of %s', async (encoding, compress) => {
    const send = (length: number): Promise<Sent> =>
      sendTo(served.port, { verb, path, body: compress(`{"x":"${'x'.repeat(length - 8)}"}`), headers: { 'content-encoding': encoding } })
    expect((await send(8 * KiB)).status).toBe(200)
    expect((await send(8 * KiB + 1)).status).toBe(413)
  })

  test('the maximum size of a request counts compressed bytes too, as they may decompress to nothing', async () => {
    const body = Buffer.concat(Array.from({ length: 500 }, () => gzipSync('')))
    expect((await sendTo(served.port, { verb, path, body, headers: { 'content-encoding': 'gzip' } })).status).toBe(413)
  })

  test('the maximum size of a request counts decompressed bytes of a gRPC message', async () => {
    const client = new Client(`127.0.0.1:${served.port}`, credentials.createInsecure(), { 'grpc.default_compression_algorithm': compressionAlgorithms.gzip })
    const send = (length: number): Promise<number> =>
      new Promise((resolve) => {
        client.makeUnaryRequest('/taproot.auth.v1.Auth/Register', bytes, bytes, Buffer.from(messageOf(length)), (error) => resolve(error?.code ?? 0))
      })
    try {
      expect(await send(8 * KiB)).toBe(0)
      expect(await send(8 * KiB + 1)).toBe(3)
    } finally {
      client.close()
    }
  })
})

describe('the error for a request with very many faults', () => {
  let served: Served
  beforeAll(async () => {
    served = await serve(({ call }) => create(call.method.output))
  })
  afterAll(() => served.close(50))

  interface Refused {
    readonly fields: readonly string[]
    readonly descriptions: readonly string[]
  }
  async function refused(path: string, body: JsonObject): Promise<Refused> {
    const { status, text } = await sendTo(served.port, { verb: 'POST', path, body })
    expect(status).toBe(400)
    const { details } = JSON.parse(text) as { details: { fieldViolations?: { field: string; description: string }[] }[] }
    const violations = details.flatMap(({ fieldViolations = [] }) => fieldViolations)
    return { fields: violations.map(({ field }) => field), descriptions: violations.map(({ description }) => description) }
  }

  test('the error for a request with very many faults contains the first 20', async () => {
    const capabilities = Array.from({ length: 900 }, () => 'CAP_NOPE')
    const { fields } = await refused(`/iam/v2/roles/${uid}`, { name: 5, capabilities })
    expect(fields).toEqual(['name', ...Array.from({ length: 19 }, (_, index) => `capabilities[${index}]`)])
  })

  test('the error for a request with very many faults names the length of a list, before its items are checked', async () => {
    const requests = Array.from({ length: 26 }, () => 'no object')
    expect(await refused('/iam/v2/roleBindings:batchCreate', { requests })).toEqual({ fields: ['requests'], descriptions: ['must have at most 25 items'] })
  })

  test('the error for a request with very many faults names the length of a map, before its entries are checked', async () => {
    const claims = Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`claim${index}`, {}]))
    const { fields } = await refused(`/iam/v2/identities/${uid}`, { claimMatch: { claims } })
    expect(fields).toEqual(['claimMatch.claims'])
  })
})

describe('a request without a credential', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer()
  })
  afterAll(() => server.stop())

  /** Sends only the head of a request, and waits for the answer. */
  async function headOnly(method: MethodRow, headers: Readonly<Record<string, string>> = {}): Promise<number | undefined> {
    const { verb, path } = pathOf(method)
    const sent = request({
      host: '127.0.0.1',
      port: server.config.api.port,
      method: verb,
      path,
      headers: { 'content-length': '100', 'content-type': 'application/json', ...headers },
    })
    sent.on('error', () => undefined)
    sent.flushHeaders()
    const [response] = (await once(sent, 'response')) as [{ statusCode?: number }]
    sent.destroy()
    return response.statusCode
  }

  // Handlers are closures over their options: this test reads only their names.
  const apiClients = createEndpoints({} as EndpointOptions)
  const closed = methods
    .filter((method) => method.scope !== 'public' && method.mutation && (handlers.has(method) || apiClients.has(methodName(method))))
    .map((method) => ({ name: caseName(method), method }))

  test.each(closed)('a request without a credential to $name is refused before its body is read', async ({ method }) => {
    expect(await headOnly(method)).toBe(401)
    expect(await headOnly(method, { authorization: 'Nonsense of three words' })).toBe(401)
  })

  test.each(closed)('a request without a credential to $name is refused over gRPC before its message is read', async ({ method }) => {
    const client = new Client(`127.0.0.1:${server.config.api.port}`, credentials.createInsecure())
    try {
      const call = client.makeClientStreamRequest(`/${method.service}/${method.rpc}`, bytes, bytes, () => undefined)
      // No message is sent.
      const [status] = (await once(call, 'status')) as [{ code: number }]
      expect(status.code).toBe(16)
    } finally {
      client.close()
    }
  })

  test('a request without a credential costs little, whatever the body', async () => {
    const bomb = gzipSync('['.repeat(512 * KiB) + ']'.repeat(512 * KiB))
    const send = (): Promise<Sent> =>
      sendTo(server.config.api.port, { verb: 'POST', path: '/auth/v1/register', body: bomb, headers: { 'content-encoding': 'gzip' } })
    for (let warm = 0; warm < 5; warm++) await send()
    const before = cpuTimeMs()
    for (let sent = 0; sent < 50; sent++) expect((await send()).status).toBe(401)
    expect((cpuTimeMs() - before) / 50).toBeLessThan(6 * slowness())
  })
})

test('unknown parameters that version 1 ignores cost little', () => {
  const query = new URLSearchParams(Array.from({ length: 600 }, (_, at) => [`${'unknown'.repeat(10)}${at}`, 'x']))
  const read = () => readQuery(ListDocumentsRequestSchema, query, { bodyField: '', lenient: true })
  for (let warm = 0; warm < 5; warm++) read()
  const before = cpuTimeMs()
  for (let time = 0; time < 20; time++) expect(read()).toEqual({ json: {}, violations: [] })
  // On the reference machine. Comparing each name with all parameters takes 0.8 ms there.
  expect((cpuTimeMs() - before) / 20).toBeLessThan(0.4 * slowness())
})
