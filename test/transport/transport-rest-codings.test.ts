import { randomBytes } from 'node:crypto'
import { request, type IncomingMessage } from 'node:http'
import { connect } from 'node:http2'
import { promisify } from 'node:util'
import { brotliDecompress, gunzip } from 'node:zlib'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { serve, type Served } from './harness/harness.ts'
import { sendTo } from './harness/send.ts'

const root = 'a'.repeat(40)
const page = 'https://portal.example'
const path = `/iam/v2/groups/${root}`
const long = 'text '.repeat(1000)

interface Whole {
  readonly status: number | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: Buffer
}

let served: Served
let description = long

beforeAll(async () => {
  const html = { method: 'GET', path: '/page', handle: () => ({ status: 200, headers: { 'Content-Type': 'text/html' }, body: long }) } as const
  const fixed = Buffer.from(long)
  const document = {
    method: 'GET',
    path: '/document',
    handle: () => ({ status: 200, headers: { 'Content-Type': 'application/json', ETag: '"e"' }, body: fixed }),
  } as const
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < 100; at++) yield Buffer.from(long)
  }
  const streamed = {
    method: 'GET',
    path: '/streamed',
    handle: () => ({ headers: { 'Content-Type': 'application/json', Vary: 'Authorization' }, pieces: pieces() }),
  } as const
  async function* noEnd(): AsyncGenerator<Uint8Array> {
    for (;;) yield randomBytes(64 * 1024)
  }
  const endless = { method: 'GET', path: '/endless', handle: () => ({ headers: { 'Content-Type': 'application/json' }, pieces: noEnd() }) } as const
  const parts = {
    method: 'GET',
    path: '/parts',
    handle: () => ({ status: 200, headers: { 'Content-Type': 'application/json', Vary: 'Accept' }, body: [fixed, fixed] }),
  } as const
  served = await serve(
    ({ call: { method } }) => {
      if (method.verb === 'list') return create(method.output, { groups: [create(GroupSchema, { uid: root })], nextPageToken: 'a+b=' })
      return Promise.resolve({ message: create(GroupSchema, { uid: root, description }), etag: 'e1' })
    },
    { routes: [html, document, parts, streamed, endless], origins: [page] },
  )
})
afterAll(() => served.close())

function get(at: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Whole> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port: served.port, path: at, method, headers }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) }))
    })
    sent.on('error', reject)
    sent.end()
  })
}

const decoders = { br: promisify(brotliDecompress), gzip: promisify(gunzip) }

describe('compressed answers', () => {
  // docs/spec/conventions.md#compression
  test.each([
    ['gzip, deflate, br', 'br'],
    ['gzip', 'gzip'],
    ['*', 'br'],
    ['br;q=0, gzip;q=0.5', 'gzip'],
  ] as const)('a client that accepts %s gets %s', async (accepted, coding) => {
    const plain = await get(path)
    const { status, headers, body } = await get(path, { 'accept-encoding': accepted })
    expect([status, headers['content-encoding'], headers['vary'], headers['etag']]).toEqual([200, coding, 'Origin, Accept-Encoding', 'W/"e1"'])
    expect(headers['content-length']).toBe(String(body.length))
    expect(body.length).toBeLessThan(plain.body.length / 10)
    expect(await decoders[coding](body)).toEqual(plain.body)
  })

  // docs/spec/conventions.md#compression
  test('an answer that depends on other headers names them too', async () => {
    for (const [at, vary] of [
      ['/parts', 'Accept, Origin, Accept-Encoding'],
      ['/streamed', 'Authorization, Origin, Accept-Encoding'],
    ] as const) {
      const [coded, plain] = [await get(at, { 'accept-encoding': 'br' }), await get(at)]
      expect([coded.headers['content-encoding'], coded.headers['vary'], plain.headers['vary']]).toEqual(['br', vary, vary])
      expect(await decoders.br(coded.body)).toEqual(plain.body)
    }
  })

  test('streams beyond a number are sent as they are, and an end makes room', async () => {
    const stalled = Array.from({ length: 16 }, () => {
      const sent = request({ host: '127.0.0.1', port: served.port, path: '/endless', headers: { 'accept-encoding': 'gzip' } }).end()
      return new Promise<IncomingMessage>((resolve) => sent.on('response', resolve))
    })
    const answers = await Promise.all(stalled)
    expect(answers.map(({ headers }) => headers['content-encoding'])).toEqual(answers.map(() => 'gzip'))
    expect((await get('/streamed', { 'accept-encoding': 'gzip' })).headers['content-encoding']).toBeUndefined()
    for (const answer of answers) answer.destroy()
    await expect.poll(async () => (await get('/streamed', { 'accept-encoding': 'gzip' })).headers['content-encoding']).toBe('gzip')
  })

  test.each([
    ['identity', path],
    ['br;q=0, gzip;q=0', path],
    ['br', '/page'],
  ])('with Accept-Encoding %s, %s is sent as it is', async (accepted, at) => {
    const { headers, body } = await get(at, { 'accept-encoding': accepted })
    expect(headers['content-encoding']).toBeUndefined()
    expect(body.toString()).toContain(long)
  })

  test('a small answer, and that of a HEAD, are sent as they are', async () => {
    description = 'short'
    const { headers } = await get(path, { 'accept-encoding': 'br' })
    description = long
    expect([headers['content-encoding'], headers['etag']]).toEqual([undefined, '"e1"'])
    expect((await get('/document', { 'accept-encoding': 'br' }, 'HEAD')).headers['content-length']).toBe(String(long.length))
  })

  test('documents and answers in pieces are compressed', async () => {
    for (let time = 0; time < 2; time++) expect(String(await decoders.gzip((await get('/document', { 'accept-encoding': 'gzip' })).body))).toBe(long)
    const { headers, body } = await get('/streamed', { 'accept-encoding': 'br' })
    expect(headers['content-encoding']).toBe('br')
    expect(String(await decoders.br(body))).toBe(long.repeat(100))
  })

  test('requests at the same time get whole answers', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => get(path, { 'accept-encoding': 'gzip' })))
    for (const { headers, body } of answers) {
      const text = headers['content-encoding'] === 'gzip' ? await decoders.gzip(body) : body
      expect(JSON.parse(text.toString())).toMatchObject({ description: long })
    }
  })

  test('answers over HTTP/2 are compressed', async () => {
    const client = connect(served.url)
    const stream = client.request({ ':path': path, 'accept-encoding': 'br' })
    const chunks: Buffer[] = []
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    stream.on('response', (headers) => resolve(headers['content-encoding']))
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    expect(await promise).toBe('br')
    await new Promise((ended) => stream.on('end', ended))
    client.close()
    expect(JSON.parse(String(await decoders.br(Buffer.concat(chunks))))).toMatchObject({ description: long })
  })
})

describe('pages of other origins', () => {
  // docs/spec/conventions.md#cross-origin-requests
  test('a browser learns what it may send', async () => {
    const asked = {
      verb: 'OPTIONS',
      path,
      headers: { origin: page, 'access-control-request-method': 'PATCH', 'access-control-request-headers': 'authorization' },
    }
    const { status, headers } = await sendTo(served.port, asked)
    expect(status).toBe(204)
    expect(headers).toMatchObject({
      'access-control-allow-origin': page,
      'access-control-max-age': '600',
      vary: 'Origin',
      'x-request-id': expect.stringMatching(/./) as unknown,
    })
    expect(headers['access-control-allow-methods']).toContain('PATCH')
    expect(headers['access-control-allow-headers']).toMatch(/\bAuthorization\b.*\bIf-Match\b/)
    expect(headers['access-control-allow-credentials']).toBeUndefined()
  })

  test('scripts of an allowed origin read answers and errors, those of others do not', async () => {
    for (const [at, status] of [
      [path, 200],
      ['/nowhere', 404],
    ] as const) {
      const { headers, status: answered } = await get(at, { origin: page })
      expect([answered, headers['access-control-allow-origin']]).toEqual([status, page])
      expect(headers['access-control-expose-headers']).toMatch(/\bETag\b.*\bLink\b/)
    }
    for (const origin of ['https://portal.example.evil.example', 'null', 'http://portal.example', ''])
      expect((await get(path, { origin })).headers['access-control-allow-origin'], origin).toBeUndefined()
  })

  test('without configuration, no origin may read answers', async () => {
    const closed = await serve(() => create(GroupSchema))
    const { headers } = await sendTo(closed.port, { verb: 'GET', path, headers: { origin: page } })
    const { status } = await sendTo(closed.port, { verb: 'OPTIONS', path, headers: { origin: page, 'access-control-request-method': 'GET' } })
    await closed.close()
    expect([headers['access-control-allow-origin'], status]).toEqual([undefined, 204])
  })
})

describe('links to the next page', () => {
  // docs/spec/conventions.md#page-tokens
  test('a list links to its next page with the same filters', async () => {
    const { headers } = await get('/iam/v2/groups?pageSize=1&skip=3&page_token=x&name=a%20b')
    expect(headers['link']).toBe('</iam/v2/groups?pageSize=1&name=a+b&pageToken=a%2Bb%3D>; rel="next"')
  })

  test('a list that a form asks for has no link', async () => {
    const { headers, status } = await sendTo(served.port, {
      ...{ verb: 'POST', path: '/vulnerabilities/v2/advisories', body: 'pageSize=1' },
      headers: { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '10' },
    })
    expect([status, headers['link']]).toEqual([200, undefined])
  })
})
