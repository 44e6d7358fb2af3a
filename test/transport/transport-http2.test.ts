import { once } from 'node:events'
import { connect, type ClientHttp2Session, type OutgoingHttpHeaders } from 'node:http2'
import { create } from '@bufbuild/protobuf'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toJson } from '@bufbuild/protobuf'
import { serve, type Served } from './harness/harness.ts'

const root = 'a'.repeat(40)

interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly json: JsonObject
}

describe('REST over cleartext HTTP/2', () => {
  let served: Served
  let session: ClientHttp2Session
  const warnings: string[] = []
  const onWarning = ({ name }: Error): void => void warnings.push(name)
  beforeAll(async () => {
    process.on('warning', onWarning)
    served = await serve(({ call }) => create(call.method.output), { apiClient: { headersTimeoutMs: 500, requestTimeoutMs: 500 } })
    session = connect(served.url)
    await once(session, 'connect')
  })
  afterAll(async () => {
    process.off('warning', onWarning)
    session.destroy()
    await served.close(50)
  })

  /** Sends a request; `pieces` are the frames of its body, without a length unless `headers` have one. */
  async function send(headers: OutgoingHttpHeaders, pieces: readonly string[] = []): Promise<Answered> {
    const stream = session.request(headers, { endStream: pieces.length === 0 })
    for (const piece of pieces) stream.write(piece)
    if (pieces.length > 0) stream.end()
    const [answer] = (await once(stream, 'response')) as [Record<string, unknown>]
    let text = ''
    for await (const chunk of stream) text += String(chunk)
    return { status: Number(answer[':status']), headers: answer, json: (text === '' ? {} : JSON.parse(text)) as JsonObject }
  }

  function lastRequest(): unknown {
    const { call, decoded } = served.seen.at(-1) ?? {}
    return call === undefined || decoded === undefined ? undefined : toJson(call.method.input, decoded.message)
  }

  test('a read has the same query, headers and answer as over HTTP/1.1', async () => {
    const answer = await send({ ':path': '/iam/v2/groups?page_size=7', 'x-request-id': 'over-h2', authorization: 'Bearer x' })
    expect(answer).toMatchObject({
      status: 200,
      json: { groups: [] },
      headers: { 'x-request-id': 'over-h2', 'content-type': 'application/json; charset=utf-8' },
    })
    expect(lastRequest()).toEqual({ pageSize: 7 })
    expect(served.seen.at(-1)?.call.headers.authorization).toBe('Bearer x')
  })

  test.each([
    ['with a length', { 'content-length': 12 }, ['{"name":"n"}']],
    ['in frames without a length', {}, ['{"name"', ':"n"}']],
  ])('a request with a body %s is served', async (_, headers, pieces) => {
    const answer = await send({ ':method': 'POST', ':path': `/iam/v2/groups/${root}`, 'content-type': 'application/json', ...headers }, pieces)
    expect(answer.status).toBe(200)
    expect(lastRequest()).toEqual({ parent: root, group: { name: 'n' } })
  })

  test('errors have their body: an unknown path, another verb, a wrong type, a too large body', async () => {
    expect(await send({ ':path': '/nothing' })).toMatchObject({ status: 404, json: { code: 5 } })
    expect(await send({ ':method': 'PUT', ':path': `/iam/v2/groups/${root}` })).toMatchObject({ status: 405, json: { code: 12 } })
    const post = { ':method': 'POST', ':path': `/iam/v2/groups/${root}` }
    expect(await send({ ...post, 'content-type': 'text/xml' }, ['<a/>'])).toMatchObject({ status: 415, json: { code: 3 } })
    expect(await send(post, ['{"name":"', 'x'.repeat(64 * 1024), '"}'])).toMatchObject({ status: 413, json: { code: 3 } })
  })

  test('many concurrent REST requests share one connection with gRPC', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, (_, at) => send({ ':path': `/iam/v2/groups/${root}/${String(at).padStart(16, '0')}` })))
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => 200))
    expect((await served.unary('/taproot.ping.v2.PingService/Ping', new Uint8Array())).code).toBe(0)
    expect(warnings).toEqual([])
  })

  test('a body that does not arrive in time ends the stream, not the connection', async () => {
    const stream = session.request({ ':method': 'POST', ':path': `/iam/v2/groups/${root}`, 'content-type': 'application/json' })
    stream.write('{"name":')
    stream.on('error', () => undefined)
    await once(stream, 'close')
    expect(stream.rstCode).not.toBe(0)
    expect((await send({ ':path': '/iam/v2/groups' })).status).toBe(200)
  })

  test('a client that disconnects causes no error', async () => {
    const stream = session.request({ ':path': '/iam/v2/groups' })
    stream.on('error', () => undefined)
    stream.close(8)
    await once(stream, 'close')
    expect((await send({ ':path': '/iam/v2/groups' })).status).toBe(200)
    expect(served.logged).toEqual([])
  })
})
