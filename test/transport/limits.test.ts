import { connect, type Socket } from 'node:net'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createConnectionLimit } from '../../src/transport/connection-limit.ts'
import { createNetworks } from '../../src/base/client-address.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { serve, type ServeOptions, type Served } from './harness/harness.ts'
import { isServed } from './is-served.ts'

interface Answer {
  readonly code: number
  readonly retryAfter: string | undefined
  readonly limit?: readonly (string | null)[]
}

/** A ping with a forwarded client address. */
async function restPing(url: string, forwardedFor: string | undefined): Promise<Answer> {
  const response = await fetch(`${url}/ping/v2/ping`, { headers: forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor } })
  const body = (await response.json()) as { readonly code?: number }
  const limit = ['ratelimit-policy', 'ratelimit'].map((name) => response.headers.get(name))
  return { code: body.code ?? 0, retryAfter: response.headers.get('retry-after') ?? undefined, limit }
}

function grpcPing(client: Client, forwardedFor: string | undefined): Promise<Answer> {
  const metadata = new Metadata()
  if (forwardedFor !== undefined) metadata.set('x-forwarded-for', forwardedFor)
  const bytes = (value: Buffer): Buffer => value
  return new Promise((resolve) => {
    client.makeUnaryRequest('/taproot.ping.v2.PingService/Ping', bytes, bytes, Buffer.alloc(0), metadata, (error) =>
      resolve({ code: error?.code ?? 0, retryAfter: undefined }),
    )
  })
}

const limits = {
  TAPROOT_RATE_LIMIT_ENABLED: 'true',
  TAPROOT_RATE_LIMIT_ADDRESS_REQUESTS_PER_SECOND: '1',
  TAPROOT_RATE_LIMIT_ADDRESS_BURST: '10',
}

describe.each([
  ['behind a trusted proxy', { TAPROOT_TRUSTED_PROXIES: '127.0.0.1,::1' }, true],
  ['without trusted addresses', {}, false],
])('a server %s', (_name, env: Record<string, string>, isTrusting) => {
  const clock = new TestClock()
  let server: TestServer
  let client: Client
  beforeAll(async () => {
    server = await startTestServer({ env: { ...limits, ...env }, clock })
    client = new Client(`127.0.0.1:${server.config.api.port}`, credentials.createInsecure())
  })
  afterAll(async () => {
    client.close()
    await server.stop()
  })
  const pings = (transport: 'rest' | 'grpc', from: (index: number) => string | undefined): Promise<Answer[]> => {
    const url = `http://127.0.0.1:${server.config.api.port}`
    return clock.hold(() =>
      Promise.all(Array.from({ length: 20 }, (_, index) => (transport === 'rest' ? restPing(url, from(index)) : grpcPing(client, from(index))))),
    )
  }

  test.each(['rest', 'grpc'] as const)('a server over %s counts requests without a credential by client address', async (transport) => {
    const block = transport === 'rest' ? '1' : '2'
    const one = await pings(transport, () => `1.2.3.4, 203.0.113.${block}`)
    expect(one.filter(({ code }) => code === 8).length).toBeGreaterThanOrEqual(8)
    if (transport === 'rest') {
      expect(Number(one.find(({ code }) => code === 8)?.retryAfter)).toBeGreaterThanOrEqual(1)
      // docs/spec/limits.md#rate-limits
      const limit = (code: number): unknown => one.filter((answer) => answer.code === code).at(-1)?.limit
      expect([limit(0), limit(8)]).toEqual(Array(2).fill(['"requests";q=10;w=10', '"requests";r=0;t=10']))
    }
    const many = await pings(transport, (index) => `203.0.113.${100 + index}`)
    expect(many.some(({ code }) => code === 8)).toBe(!isTrusting)
    const prefix = await pings(transport, (index) => `2001:db8:0:${block}::${index + 1}`)
    expect(prefix.filter(({ code }) => code === 8).length).toBeGreaterThanOrEqual(8)
  })

  // docs/spec/tokens.md#device-sign-in
  test('refuses the sign-in of a browser with a page, and that of another client with JSON', async () => {
    const url = `http://127.0.0.1:${server.config.api.port}/oauth?idp_id=none&audience=x`
    const answers = await clock.hold(() =>
      Promise.all(
        Array.from({ length: 40 }, async (_, at) => {
          const accept = at % 2 === 0 ? 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8' : 'application/json'
          const response = await fetch(url, { headers: { accept, 'x-forwarded-for': '203.0.113.77' }, redirect: 'manual' })
          const { status, headers } = response
          return { isPage: at % 2 === 0, status, type: headers.get('content-type'), retryAfter: headers.get('retry-after'), text: await response.text() }
        }),
      ),
    )
    const refused = answers.filter(({ status }) => status === 429)
    expect(refused.length).toBeGreaterThan(20)
    for (const { isPage, type, retryAfter, text } of refused) {
      expect(type).toMatch(isPage ? /^text\/html/ : /^application\/json/)
      expect(Number(retryAfter)).toBeGreaterThanOrEqual(1)
      expect(text).toContain(isPage ? '<h1>Sign in</h1>' : '"code":8')
    }
  })

  test('a server counts token requests without a credential at the registry host', async () => {
    const { port } = server.config.registry
    const ask = async (index: number): Promise<number> => {
      const response = await fetch(`http://127.0.0.1:${port}/token?scope=repository:x/y:pull`, { headers: { 'x-forwarded-for': `198.51.100.${index}` } })
      const { errors } = (await response.json()) as { errors: { code: string }[] }
      expect(errors[0]?.code).toBe(response.status === 429 ? 'TOOMANYREQUESTS' : 'UNAUTHORIZED')
      if (response.status === 429) expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
      return response.status
    }
    const same = await clock.hold(() => Promise.all(Array.from({ length: 20 }, () => ask(1))))
    expect(same.filter((status) => status === 429).length).toBeGreaterThanOrEqual(8)
    const others = await Promise.all(Array.from({ length: 20 }, (_, index) => ask(index + 2)))
    expect(others.includes(429)).toBe(!isTrusting)
  })
})

/** The data that a socket received until its close. */
function received(socket: Socket): Promise<string> {
  const chunks: Buffer[] = []
  return new Promise((resolve) => {
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.on('error', () => {})
    socket.on('close', () => resolve(Buffer.concat(chunks).toString()))
  })
}

async function served(options: ServeOptions = {}): Promise<Served> {
  const own = await serve(({ call }) => create(call.method.output), options)
  onTestFinished(() => own.close(50))
  return own
}

async function raw(own: Served, text: string): Promise<{ status: number; body: Record<string, unknown>; requestId: string | undefined }> {
  const socket = connect(own.port, '127.0.0.1')
  const all = received(socket)
  socket.write(text)
  const answer = await all
  const [head = '', body = ''] = answer.split('\r\n\r\n')
  const [, requestId] = /^x-request-id: (.+)$/im.exec(head) ?? []
  return { status: Number(head.slice(9, 12)), body: JSON.parse(body === '' ? '{}' : body) as Record<string, unknown>, requestId }
}

describe('malformed requests before routing', () => {
  const many = Array.from({ length: 101 }, (_, index) => `X-${index}: 1\r\n`).join('')
  test.each([
    ['headers over 32 KiB', `GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(33_000)}\r\n\r\n`, 431, 3],
    ['more than 100 headers', `GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${many}\r\n`, 431, 3],
    ['5000 headers', `GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${'a:\r\n'.repeat(5000)}\r\n`, 431, 3],
    ['an invalid header', 'GET /ping/v2/ping HTTP/1.1\r\nHost x\r\n\r\n', 400, 3],
    ['two hosts', 'GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n', 400, 3],
    ['one host twice', 'GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nhOST: x\r\nConnection: close\r\n\r\n', 400, 3],
    ['two hosts in HTTP/1.0', 'GET /ping/v2/ping HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n', 400, 3],
    ['two lengths', 'POST /iam/v2/groups HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab', 400, 3],
    ['a length and chunks', 'POST /iam/v2/groups HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', 400, 3],
    ['no HTTP', '\x16\x03\x01\x02\x00\r\n\r\n', 400, 3],
  ])('malformed requests before routing with %s get an answer in the common error format', async (_name, text, status, code) => {
    const own = await served()
    const answer = await raw(own, text)
    expect(answer).toMatchObject({ status, body: { code, message: expect.stringMatching(/./) as unknown } })
    expect(answer.body['details']).toMatchObject([{ metadata: { requestId: answer.requestId } }, {}])
    expect((await fetch(`${own.url}/ping/v2/ping`)).status).toBe(200)
  })

  test.each([
    ['headers', 'GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\n'],
    ['a body', 'POST /iam/v2/groups HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{'],
  ])('malformed requests before routing with %s that do not arrive lose the connection', async (_name, text) => {
    const own = await served({ apiClient: { headersTimeoutMs: 300, requestTimeoutMs: 300 } })
    const { status, body } = await raw(own, text)
    expect({ status, code: body['code'] }).toEqual({ status: 408, code: 4 })
    expect(own.seen).toEqual([])
  })

  test('malformed requests before routing lose the connection if the client does not read the answer', async () => {
    const size = 64 * 1024 * 1024
    const big = { method: 'GET', path: '/big', handle: () => ({ status: 200, headers: {}, body: Buffer.alloc(size) }) } as const
    let closed: Promise<unknown> | undefined
    const admit = (socket: Socket): boolean => {
      closed = new Promise((resolve) => socket.once('close', resolve))
      return true
    }
    const own = await served({ routes: [big], apiClient: { idleTimeoutMs: 300 }, admit })
    const socket = connect(own.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.pause()
    socket.write('GET /big HTTP/1.1\r\nHost: x\r\n\r\n')
    await expect.poll(() => closed).toBeDefined()
    await closed
    const all = received(socket)
    socket.resume()
    expect((await all).length).toBeLessThan(size)
  })
})

describe('compressed bodies', () => {
  const post = (own: Served, body: Uint8Array, encoding: string): Promise<Response> =>
    fetch(`${own.url}/iam/v2/groups`, {
      method: 'POST',
      body: Buffer.from(body),
      headers: { 'content-type': 'application/json', 'content-encoding': encoding },
    })
  const bomb = Buffer.alloc(100 * 1024 * 1024, ' ')
  test.each([
    ['gzip', gzipSync('{"name":"n"}'), 200],
    ['br', brotliCompressSync('{"name":"n"}'), 200],
    ['gzip', gzipSync(bomb), 413],
    ['br', brotliCompressSync(bomb), 413],
    ['gzip', gzipSync(gzipSync(bomb)), 413],
    ['gzip', gzipSync(gzipSync('{}')), 400],
    ['gzip', Buffer.from('{"name":"n"}'), 400],
    ['gzip, gzip', gzipSync(gzipSync('{"name":"n"}')), 415],
    ['zstd', Buffer.from('x'), 415],
  ])('compressed bodies encoded as %s, case %#: status %s', async (encoding, body, status) => {
    const own = await served()
    const response = await post(own, body, encoding)
    expect(response.status).toBe(status)
    if (status !== 200) expect(await response.json()).toMatchObject({ code: 3, details: [{}, { fieldViolations: [{ field: 'body' }] }] })
  })
})

describe('connections of one address', () => {
  test.each([
    ['that are too many are closed at once', [], [true, true, false]],
    ['are not limited for a trusted proxy', ['127.0.0.0/8'], [true, true, true]],
  ])('%s', async (_name, trusted, expected) => {
    const own = await served({ admit: createConnectionLimit({ max: 10, perAddress: 2 }, createNetworks(trusted)) })
    const sockets: Socket[] = []
    onTestFinished(() => sockets.forEach((socket) => void socket.destroy()))
    expect([await isServed(own.port, sockets), await isServed(own.port, sockets), await isServed(own.port, sockets)]).toEqual(expected)
    sockets[0]?.destroy()
    await expect.poll(() => isServed(own.port, sockets)).toBe(true)
  })
})

describe('gRPC metadata', () => {
  test.each([
    ['large', [['x-large', 'x'.repeat(200_000)]]],
    ['numerous', Array.from({ length: 2000 }, (_, index) => [`x-${index}`, '1'])],
  ])('gRPC metadata that is %s ends the call or is read, and the server continues', async (_name, entries) => {
    const own = await served()
    const metadata = Object.fromEntries(entries) as Record<string, string>
    const path = '/taproot.ping.v2.PingService/Ping'
    const refused = await own.unary(path, new Uint8Array(), { metadata, call: { deadline: Date.now() + 5000 } })
    expect(refused.code).not.toBe(0)
    expect((await own.unary(path, new Uint8Array())).code).toBe(0)
  })
})
