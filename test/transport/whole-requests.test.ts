import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { http2Bytes, open, sendHttp2Bytes, types } from '../conformance/fuzz/http2-wire.ts'
import { serve, type Served } from './harness/harness.ts'

async function served(): Promise<Served> {
  const own = await serve(({ call }) => create(call.method.output))
  onTestFinished(() => own.close(50))
  return own
}

interface Answer {
  readonly status: number
  readonly requestId: string
  readonly body: Record<string, unknown>
}

/** Sends the text, closes this side if `ends`, and reads all answers until the server closes the connection. */
async function exchanged(port: number, request: string, { ends = false } = {}): Promise<Answer[]> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  socket.write(request)
  if (ends) socket.end()
  const all = await text(socket)
  socket.destroy()
  return all.split(/(?=HTTP\/1\.1 \d{3} )/).map((answer) => {
    const [head = '', body = ''] = answer.split('\r\n\r\n')
    return {
      status: Number(head.slice(9, 12)),
      requestId: /^x-request-id: (.+)$/im.exec(head)?.[1] ?? '',
      body: JSON.parse(body === '' ? '{}' : body) as Answer['body'],
    }
  })
}

const uid = 'a'.repeat(40)
const close = 'Connection: close\r\n'
const ping = (more = ''): string => `GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\n${more}\r\n`

describe('a request over HTTP/1.1', () => {
  test('a request over HTTP/1.1 without a host is refused in the common error format', async () => {
    const { port } = await served()
    const [answer] = await exchanged(port, `GET /ping/v2/ping HTTP/1.1\r\n${close}\r\n`)
    expect(answer).toMatchObject({ status: 400, body: { code: 3, message: 'Invalid argument: headers: send exactly one Host header' } })
    expect(answer?.body['details']).toMatchObject([{ metadata: { requestId: answer?.requestId } }, {}])
  })

  test('a request of HTTP/1.0 needs no host', async () => {
    const { port } = await served()
    expect(await exchanged(port, 'GET /ping/v2/ping HTTP/1.0\r\n\r\n')).toMatchObject([{ status: 200 }])
  })

  test('a request over HTTP/1.1 with an unknown expectation is answered like any other', async () => {
    const { port } = await served()
    const [answer] = await exchanged(port, ping(`Expect: nonsense\r\nX-Request-Id: expecting\r\n${close}`))
    expect(answer).toMatchObject({ status: 200, requestId: 'expecting' })
  })

  test('a request over HTTP/1.1 gets its own answer, even if the following bytes are malformed', async () => {
    const { port, seen } = await served()
    const answers = await exchanged(port, `${ping('X-Request-Id: first\r\n')}${ping('X-Request-Id: second\r\n')}GET / HT\r\n\r\n`)
    expect(answers).toMatchObject([{ status: 200, requestId: 'first' }, { status: 200, requestId: 'second' }, { status: 400 }])
    expect(seen.length).toBe(2)
  })

  test.each([
    ['a length that is too large', 'Content-Length: 10\r\n\r\n{}'],
    ['a chunk that is cut off', 'Transfer-Encoding: chunked\r\n\r\n5\r\nab'],
    ['an invalid chunk', 'Transfer-Encoding: chunked\r\n\r\nzz\r\n'],
  ])('a request over HTTP/1.1 with %s is refused as unreadable and not executed, even for a method without a body', async (_what, rest) => {
    const { port, seen } = await served()
    const answers = await exchanged(port, `DELETE /iam/v2/groups/${uid} HTTP/1.1\r\nHost: x\r\n${rest}`, { ends: true })
    expect(answers).toMatchObject([{ status: 400, body: { message: 'Invalid argument: request: is not readable HTTP/1.1' } }])
    expect(seen).toEqual([])
  })

  test.each([
    ['exceeds its limit once decompressed', 'Content-Encoding: br\r\nContent-Type: application/json', 413],
    ['has an unknown encoding', 'Content-Encoding: x\r\nContent-Type: application/json', 415],
    ['has another type', 'Content-Type: text/plain', 415],
  ])('a request over HTTP/1.1 with a large body that %s does not end the connection', async (_what, headers, status) => {
    const { port } = await served()
    const body = 'x'.repeat(3 * 1024 * 1024)
    const request = `POST /iam/v2/groups HTTP/1.1\r\nHost: x\r\n${headers}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    expect(await exchanged(port, `${request}${ping(close)}`)).toMatchObject([{ status }, { status: 200 }])
  })

  test('a request over HTTP/1.1 that is unreadable is answered, however many bytes follow', async () => {
    const { port } = await served()
    expect(await exchanged(port, `GET / x\r\n\r\n${'x'.repeat(8 * 1024 * 1024)}`)).toMatchObject([{ status: 400, body: { code: 3 } }])
  })

  test('a request over HTTP/1.1 may have a body for a method without one, up to the common limit', async () => {
    const { port, seen } = await served()
    const sent = (body: string): string => `DELETE /iam/v2/groups/${uid} HTTP/1.1\r\nHost: x\r\n${close}Content-Length: ${body.length}\r\n\r\n${body}`
    expect(await exchanged(port, sent('{}'))).toMatchObject([{ status: 200 }])
    expect(await exchanged(port, sent('x'.repeat(2 * 1024 * 1024)))).toMatchObject([{ status: 413, body: { code: 3 } }])
    expect(seen.length).toBe(1)
  })
})

describe('a connection over HTTP/2', () => {
  test.each([
    ['of an unknown method', open('/nobody/knows')],
    ['of a method', open('/taproot.ping.v2.PingService/Ping')],
    // The first header that is not a pseudo-header of HTTP/2.
    [
      'of another content type',
      { ...open('/x'), payload: Buffer.from(open('/x').payload?.toString('latin1').replace('application/grpc', 'application/json') ?? '', 'latin1') },
    ],
  ])('a connection over HTTP/2 may cancel a call %s at once, and both connection and server continue', async (_what, call) => {
    const { port, url, logged } = await served()
    const frames = Array.from({ length: 50 }, (_, at) => [
      { ...call, stream: 2 * at + 1 },
      { type: types.reset, stream: 2 * at + 1, payload: Buffer.from([0, 0, 0, 8]) },
    ])
    expect(await sendHttp2Bytes(http2Bytes(frames.flat()), { port, boundMs: 20_000, isOpen: false })).toBe('goes on')
    expect((await fetch(`${url}/ping/v2/ping`)).status).toBe(200)
    expect(logged).toEqual([])
  })
})

describe('the registry host', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer()
  })
  afterAll(() => server.stop())

  test.each([
    ['an invalid request line', 'GET /v2/ x\r\n\r\n', 400],
    ['headers that are too large', `GET /v2/ HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`, 431],
    ['no host', `GET /v2/ HTTP/1.1\r\n${close}\r\n`, 400],
    ['an unknown expectation', `GET /v2/ HTTP/1.1\r\nHost: x\r\nExpect: x\r\n${close}\r\n`, 401],
  ])('the registry host answers %s in the registry format, with a request id', async (_what, request, status) => {
    const [answer] = await exchanged(server.config.registry.port, request)
    expect(answer).toMatchObject({
      status,
      requestId: expect.stringMatching(/./) as unknown,
      body: { errors: [{ message: expect.stringMatching(/./) as unknown }] },
    })
  })

  test('the registry host executes no delete of an unreadable request', async () => {
    const path = `/v2/nobody/app/manifests/sha256:${'a'.repeat(64)}`
    const answers = await exchanged(server.config.registry.port, `DELETE ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab`, { ends: true })
    expect(answers).toMatchObject([{ status: 400, body: { errors: [{ message: 'the request is not valid HTTP/1.1' }] } }])
  })
})
