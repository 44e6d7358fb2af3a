import { create } from '@bufbuild/protobuf'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DomainError } from '../../../src/base/errors.ts'
import { emptyAnswer, jsonAnswer, redirect, textAnswer } from '../../../src/transport/web/web-answers.ts'
import { bearerToken, cookieOf, readFields, setCookie } from '../../../src/transport/web/web-request.ts'
import type { WebRoute } from '../../../src/transport/web/web-routes.ts'
import { serve, type Served } from '../harness/harness.ts'
import { sendTo } from '../harness/send.ts'

let served: Served
let isLimited = false
/** Handled paths. */
const handled: string[] = []

const limit = (): void => {
  if (isLimited) throw new DomainError(8, 'too many requests', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1500 } })
}
/** The pieces of a streamed answer: as many as there are, or an error after them. */
async function* piecesOf(end: string | undefined): AsyncGenerator<Uint8Array, undefined, undefined> {
  try {
    handled.push('first')
    yield Buffer.from('one ')
    yield Buffer.from('two')
    if (end === 'error') throw new TypeError('a secret')
    return undefined
  } finally {
    handled.push('end')
  }
}

const routes: readonly WebRoute[] = [
  { method: 'GET', path: '/web/pieces/:end', handle: ({ params }) => ({ headers: { 'Content-Type': 'text/plain' }, pieces: piecesOf(params['end']) }) },
  { method: 'GET', path: '/web/accepts', handle: (request) => jsonAnswer(200, request.accepts(['a/b', 'c/d']) ?? null) },
  { method: 'GET', path: '/web/text', handle: () => textAnswer(200, 'text') },
  { method: 'GET', path: '/web/away', handle: () => redirect(303, 'https://example.com/?token=secret') },
  { method: 'GET', path: '/web/below/*rest', handle: ({ params }) => jsonAnswer(200, params) },
  { method: 'GET', path: '/web/tree{/*rest}', handle: ({ params }) => jsonAnswer(200, params) },
  {
    method: 'GET',
    path: '/web/headers',
    handle: (request) => jsonAnswer(200, { bearer: bearerToken(request), cookie: cookieOf(request, 'a.*') ?? null }),
  },
  {
    method: 'POST',
    path: '/web/form',
    limit,
    errors: (error, requestId) => textAnswer(error.code === 8 ? 429 : (error.httpStatus ?? 400), `${error.code} ${error.message} ${requestId}`),
    async handle(request) {
      handled.push(request.path)
      return jsonAnswer(200, await readFields(request, ['a', 'b']))
    },
  },
  { method: 'DELETE', path: '/web/form', handle: () => emptyAnswer(204) },
  {
    method: 'GET',
    path: '/web/broken',
    handle() {
      throw new TypeError('a secret')
    },
  },
]

beforeAll(async () => {
  served = await serve(({ call }) => create(call.method.output), { routes })
})
beforeEach(() => {
  isLimited = false
  handled.length = 0
})
afterAll(() => served.close())

function ask(path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${served.url}${path}`, { redirect: 'manual', ...init })
}

function post(body: NonNullable<RequestInit['body']>, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return ask('/web/form', { method: 'POST', body, headers: { 'content-type': 'application/x-www-form-urlencoded', 'x-request-id': 'r1', ...headers } })
}

describe('paths of web routes', () => {
  test.each([
    ['/web/text', 200],
    ['/web/text/', 200],
    ['/WEB/text', 404],
    ['/web/text/more', 404],
    ['/web/below', 404],
    ['/web/tree', 200],
    ['/web', 404],
  ])('GET %s is status %i', async (path, status) => {
    expect((await ask(path)).status).toBe(status)
  })

  test('variables are decoded, including slashes; a malformed escape stays unchanged', async () => {
    expect(await (await ask('/web/below/a%2Fb/c%zz')).json()).toEqual({ rest: 'a%2Fb/c%zz' })
    expect(await (await ask('/web/below/a%2Fb/c')).json()).toEqual({ rest: 'a/b/c' })
    expect(await (await ask('/web/tree')).json()).toEqual({})
  })

  test('HEAD returns the headers of GET', async () => {
    const head = await ask('/web/text', { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '4', ''])
  })

  test('OPTIONS and 405 list all verbs of a path', async () => {
    const options = await ask('/web/form', { method: 'OPTIONS' })
    expect([options.status, options.headers.get('allow')]).toEqual([204, 'POST, DELETE, OPTIONS'])
    const put = await ask('/web/text', { method: 'PUT' })
    expect([put.status, put.headers.get('allow')]).toEqual([405, 'HEAD, GET, OPTIONS'])
  })
})

describe('answers of web routes', () => {
  test('an answer in pieces is sent as they are made', async () => {
    expect(await (await ask('/web/pieces/whole')).text()).toBe('one two')
    expect(handled).toEqual(['first', 'end'])
  })

  test('HEAD makes no pieces', async () => {
    const head = await ask('/web/pieces/whole', { method: 'HEAD' })
    expect([head.status, head.headers.get('content-type'), await head.text(), handled]).toEqual([200, 'text/plain', '', []])
  })

  test('an error after the first piece breaks the answer off, and is logged', async () => {
    await expect(ask('/web/pieces/error').then((response) => response.text())).rejects.toThrow()
    expect(handled).toEqual(['first', 'end'])
    await expect.poll(() => served.logged.at(-1)).toMatchObject({ method: 'GET /web/pieces/:end' })
  })

  test.each([
    ['*/*', 'a/b'],
    ['a/b;q=0.1, c/d', 'c/d'],
    ['c/d; charset=utf-8', 'c/d'],
    ['C/D;Charset="utf-8, a/b;q=1" ; q=0.5, a/b ;v=1;q=0.1', 'c/d'],
    ['a/*;level=1;q=0, c/d;x', 'c/d'],
    ['a/b; charset=utf-8;q=0', null],
    ['text/html; a/b', null],
    ['text/html', null],
  ])('a route sees what the client accepts: %s', async (accept, found) => {
    expect(await (await ask('/web/accepts', { headers: { accept } })).json()).toBe(found)
  })

  test('every answer has the common headers; a redirect does not send its address as referrer', async () => {
    const { headers } = await ask('/web/away')
    expect(Object.fromEntries(headers)).toMatchObject({
      location: 'https://example.com/?token=secret',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'x-request-id': expect.stringMatching(/./) as string,
    })
  })

  test('an unexpected error is logged with its route, and the answer does not contain it', async () => {
    const answer = await ask('/web/broken')
    const text = await answer.text()
    expect(answer.status).toBe(500)
    expect(JSON.parse(text)).toMatchObject({ code: 13, details: [{ domain: 'platform.taproot.dev' }] })
    expect(text).not.toContain('secret')
    expect(served.logged.at(-1)).toMatchObject({ method: 'GET /web/broken' })
  })

  test('a path has one error format, also for other verbs and for refusals before routing', async () => {
    expect(await (await post('a=1&a=2')).text()).toMatch(/^3 .* r1$/)
    const put = await ask('/web/form', { method: 'PUT' })
    expect([put.status, await put.text()]).toEqual([405, expect.stringMatching(/^12 PUT is not served at this path /)])
    // With `Host` and `Connection`, one header over the limit.
    const many = Object.fromEntries(Array.from({ length: 99 }, (_, index) => [`x-${index}`, '1']))
    expect(await sendTo(served.port, { verb: 'DELETE', path: '/web/form', headers: many })).toMatchObject({
      status: 431,
      text: expect.stringMatching(/^3 /) as string,
    })
  })
})

describe('limits of web routes', () => {
  test('a limit refuses a request before the handler runs and before the body arrives', async () => {
    isLimited = true
    const endless = new ReadableStream({ start: (stream) => stream.enqueue(Buffer.from('a=')) })
    // Cast: the type lacks `duplex`, which a stream needs.
    const answer = await ask('/web/form', { method: 'POST', body: endless, duplex: 'half' } as RequestInit)
    expect([answer.status, handled]).toEqual([429, []])
    await answer.body?.cancel()
  })

  test.each([
    ['8 KiB', 'a='.padEnd(8192, 'x'), {}, 200],
    ['more than 8 KiB', 'a='.padEnd(8193, 'x'), {}, 413],
    ['a small form that is large when decompressed', gzipSync('a='.padEnd(100_000, 'x')), { 'content-encoding': 'gzip' }, 413],
    ['a compressed form', gzipSync('a=1'), { 'content-encoding': 'gzip' }, 200],
    ['an unknown encoding', 'a=1', { 'content-encoding': 'zstd' }, 415],
  ] as const)('a form with %s is refused', async (_name, body, headers, status) => {
    expect((await post(body, headers)).status).toBe(status)
  })
})

describe('requests to web routes', () => {
  test('a form returns named fields only, no empty ones, and equal ones once', async () => {
    expect(await (await post('a=1&a=1&b=&c=3')).json()).toEqual({ a: '1' })
    expect(await (await post('a=%3C%F0%9F%8C%B1&__proto__=1')).json()).toEqual({ a: '<🌱' })
    expect(await (await post('a=1', { 'content-type': 'Application/X-WWW-Form-urlencoded; charset=UTF-8' })).json()).toEqual({ a: '1' })
    expect(await (await post('a=1', { 'content-type': 'text/plain' })).text()).toMatch(/^3 .*content type/)
  })

  test('bearer tokens and cookies are found; the name of a cookie is not a pattern', async () => {
    const of = async (headers: Readonly<Record<string, string>>): Promise<unknown> => (await ask('/web/headers', { headers })).json()
    expect(await of({})).toEqual({ bearer: '', cookie: null })
    expect(await of({ authorization: 'bearer  t', cookie: 'ab=1; a.*=2; a.*=3' })).toEqual({ bearer: 't', cookie: '2' })
    expect(await of({ authorization: 'Basic t', cookie: 'ab=1' })).toEqual({ bearer: '', cookie: null })
  })

  test.each([
    [true, 'n=v; Path=/; Max-Age=5; HttpOnly; SameSite=Lax; Secure'],
    [false, 'n=v; Path=/; Max-Age=5; HttpOnly; SameSite=Lax'],
  ])('a cookie is hidden from scripts; secure: %s', (secure, expected) => {
    expect(setCookie({ name: 'n', value: 'v', maxAgeSeconds: 5, sameSite: 'Lax', secure })).toBe(expected)
  })
})
