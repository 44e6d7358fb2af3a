import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { describe, expect, onTestFinished, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { createHttpUpstream, type HttpUpstreamOptions } from '../../../src/registry/upstream/http/http-upstream.ts'
import { parseChallenge } from '../../../src/registry/upstream/http/registry-credentials.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { bodyOf, drain, failureOf, freshBytes, freshRepo, never } from './content.ts'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

const repo = freshRepo()
const bytes = freshBytes(1000)
const digest = digestOf(bytes)
const uploads = `/v2/${repo}/blobs/uploads`

interface Scripted {
  readonly url: string
  /** The requests as `METHOD path`, in order. */
  readonly asked: readonly string[]
  readonly requests: readonly IncomingMessage[]
}

/** A scripted server, for answers that a real registry can not be made to give. */
async function scripted(answer: (request: IncomingMessage, response: ServerResponse, index: number) => void): Promise<Scripted> {
  const asked: string[] = []
  const requests: IncomingMessage[] = []
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`)
    requests.push(request)
    answer(request, response, asked.length - 1)
  })
  const port = await listenOnLoopback(server)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${port}`, asked, requests }
}

function connected(url: string, options: Partial<HttpUpstreamOptions> = {}): Upstream {
  const upstream = createHttpUpstream({ url, clock: Date, ...options })
  onTestFinished(() => upstream.close())
  return upstream
}

/** Answers, once the request has been read. */
function respond(
  request: IncomingMessage,
  response: ServerResponse,
  [status, headers = {}, body = '']: readonly [number, Record<string, string>?, string?],
): void {
  request.resume().once('end', () => response.writeHead(status, headers).end(body))
}

const envelope = (code: string): string => JSON.stringify({ errors: [{ code, message: 'x' }] })

describe('the status of an answer of the registry', () => {
  test.for([
    [429, 'TOOMANYREQUESTS', 'unavailable'],
    [500, 'UNKNOWN', 'unavailable'],
    [502, '<html>', 'unavailable'],
    [503, 'UNAVAILABLE', 'unavailable'],
    [504, '', 'unavailable'],
    [408, '', 'unavailable'],
    [507, '', 'exhausted'],
    [413, 'SIZE_INVALID', 'exhausted'],
    [403, 'DENIED', 'refused'],
    [405, 'UNSUPPORTED', 'refused'],
    [400, 'NAME_INVALID', 'refused'],
    [300, '', 'refused'],
  ] as const)('%i %s means %s', async ([status, code, kind]) => {
    const { url, asked } = await scripted((request, response) => respond(request, response, [status, {}, code.startsWith('<') ? code : envelope(code)]))
    const upstream = connected(url)
    expect(await failureOf(upstream.readBlob(repo, { digest }, never))).toBe(kind)
    expect(await failureOf(upstream.startUpload(repo, never))).toBe(kind)
    expect(await failureOf(upstream.putManifest(repo, { digest, mediaType: 'x/y', bytes }, never))).toBe(kind)
    // No request is retried.
    expect(asked).toHaveLength(3)
  })

  test.for([
    [404, 'no failure'],
    [416, 'range_invalid'],
    [500, 'unavailable'],
    [403, 'refused'],
  ] as const)('%i with an interrupted body means %s', async ([status, kind]) => {
    const { url } = await scripted((request, response) => {
      request.resume().once('end', () => {
        response.writeHead(status, { 'content-length': '100' })
        response.write('{"errors":[{"code":"TOOMANYREQUESTS', () => void request.socket.destroy())
      })
    })
    const upstream = connected(url)
    expect(await failureOf(upstream.getManifest(repo, digest, never))).toBe(kind)
    expect(await failureOf(upstream.readBlob(repo, { digest }, never))).toBe(kind)
    if (status !== 404) expect(await failureOf(upstream.startUpload(repo, never))).toBe(kind)
  })

  test('the client of an upstream registry does not wait for the end of an error page if the caller has enough bytes', async () => {
    const reason = new Error('enough')
    const controller = new AbortController()
    const { url } = await scripted((_, response) => {
      response.writeHead(500).write('{', () => void setTimeout(() => controller.abort(reason), 50))
    })
    await expect(connected(url).getManifest(repo, digest, controller.signal)).rejects.toBe(reason)
  })

  test('the client of an upstream registry does not read an endless error page to its end', async () => {
    const { url } = await scripted((request, response) => {
      response.writeHead(500)
      const write = (): void => {
        while (!response.destroyed && response.write('x'.repeat(65_536)));
      }
      response.on('drain', write)
      write()
    })
    expect(await failureOf(connected(url).ready(never))).toBe('unavailable')
  })
})

describe('after a connection breaks before the answer', () => {
  test.for([
    ['a read', (upstream: Upstream) => upstream.hasManifest(repo, digest, never)],
    ['a manifest', (upstream: Upstream) => upstream.putManifest(repo, { digest, mediaType: 'x/y', bytes }, never)],
    ['the start of an upload', (upstream: Upstream) => upstream.startUpload(repo, never)],
    ['a delete', (upstream: Upstream) => upstream.deleteBlob(repo, digest, never)],
  ] as const)('%s is sent again, once', async ([, call]) => {
    const good = await scripted((request, response, index) => {
      if (index === 0) return void request.socket.destroy()
      const status = { HEAD: 200, PUT: 201, POST: 202, DELETE: 202 }[request.method ?? ''] ?? 500
      respond(request, response, [status, { location: `${uploads}/1` }])
    })
    await call(connected(good.url))
    expect(good.asked).toHaveLength(2)
    const bad = await scripted((request) => void request.socket.destroy())
    expect(await failureOf(Promise.resolve(call(connected(bad.url))))).toBe('unavailable')
    expect(bad.asked).toHaveLength(2)
  })

  test('a chunk is not sent again', async () => {
    const { url, asked } = await scripted((request, response) => {
      if (request.method === 'PATCH') return void request.socket.destroy()
      respond(request, response, request.method === 'POST' ? [202, { location: `${uploads}/1` }] : [200])
    })
    const upstream = connected(url)
    const { state } = await upstream.startUpload(repo, never)
    expect(await failureOf(upstream.appendUpload(repo, { state, chunk: { body: bodyOf(bytes), length: 1000 } }, never))).toBe('unavailable')
    expect(asked.filter((line) => line.startsWith('PATCH'))).toHaveLength(1)
  })
})

describe('a redirect of the registry', () => {
  test("a redirect of the registry to its storage is followed for a blob, without sending the registry's credentials", async () => {
    const storage = await scripted((request, response) => {
      const part = request.headers.range === 'bytes=10-19'
      respond(
        request,
        response,
        part ? [206, { 'content-range': 'bytes 10-19/1000', 'content-length': '10' }, 'x'.repeat(10)] : [200, { 'content-length': '1000' }],
      )
    })
    const registry = await scripted((request, response) => {
      if (request.headers.authorization === undefined) return respond(request, response, [401, { 'www-authenticate': 'Basic realm="x"' }])
      respond(request, response, [307, { location: `${storage.url}/bucket/blob?signature=1` }])
    })
    const upstream = connected(registry.url, { username: 'user', password: () => 'secret' })
    const found = await upstream.readBlob(repo, { digest, range: { first: 10, last: 19 } }, never)
    expect((await drain(found!.body)).toString()).toBe('x'.repeat(10))
    expect(await upstream.statBlob(repo, digest, never)).toBe(1000)
    expect(storage.asked).toEqual(['GET /bucket/blob?signature=1', 'HEAD /bucket/blob?signature=1'])
    for (const { headers } of storage.requests) expect(Object.keys(headers)).not.toContain('authorization')
  })

  test.for([
    ['to itself', '/v2/again'],
    ['to an invalid URL', 'http://'],
    ['without a location', undefined],
  ] as const)('%s is refused', async ([, location]) => {
    const { url, asked } = await scripted((request, response) => respond(request, response, [302, location === undefined ? {} : { location }]))
    expect(await failureOf(connected(url).readBlob(repo, { digest }, never))).toBe('refused')
    expect(asked.length).toBeLessThan(6)
  })

  describe('for clients', () => {
    const located = async (location: string, options: Partial<HttpUpstreamOptions>): Promise<string | undefined> => {
      const { url } = await scripted((request, response) => {
        if (request.headers.authorization === undefined) return respond(request, response, [401, { 'www-authenticate': 'Basic realm="x"' }])
        respond(request, response, [307, { location: location.replace('<registry>', url) }])
      })
      return connected(url, { username: 'user', password: () => 'secret', ...options }).locateBlob(repo, digest, never)
    }
    const storage = 'https://storage.example.com/bucket/blob?signature=1'
    const inTheClear = storage.replace('https', 'http')

    test.for([
      ['is passed if requested', storage, { passRedirects: 'https' }, storage],
      ['is not passed unless requested', storage, {}, undefined],
      ['is not passed to storage without TLS', inTheClear, { passRedirects: 'https' }, undefined],
      ['is passed to storage without TLS if requested', inTheClear, { passRedirects: 'any' }, inTheClear],
      ['is never passed if it leads to the registry itself', '<registry>/elsewhere', { passRedirects: 'any' }, undefined],
      ['is never passed if it leads to a path of the registry', '/elsewhere', { passRedirects: 'any' }, undefined],
      [
        'is never passed if it leads to another name of the registry',
        `https://registry.example.com/v2/${repo}/blobs/${digest}`,
        { passRedirects: 'any' },
        undefined,
      ],
    ] as const)('%s', async ([, location, options, expected]) => {
      expect(await located(location, options)).toBe(expected)
    })

    test('a redirect of the registry for clients does not exist if the registry answers itself, from which at most one byte is requested', async () => {
      const { url, requests } = await scripted((request, response) => respond(request, response, [206, { 'content-length': '1' }, 'x']))
      expect(await connected(url, { passRedirects: 'any' }).locateBlob(repo, digest, never)).toBeUndefined()
      expect(requests.map(({ headers }) => headers.range)).toEqual(['bytes=0-0'])
    })

    test('a redirect for clients to an invalid URL is refused', async () => {
      expect(await failureOf(located('http://', { passRedirects: 'any' }))).toBe('refused')
    })
  })

  test('a redirect of an upload is not followed', async () => {
    const { url, asked } = await scripted((request, response) => respond(request, response, [307, { location: '/v2/elsewhere' }]))
    expect(await failureOf(connected(url).startUpload(repo, never))).toBe('refused')
    expect(asked).toHaveLength(1)
  })
})

describe('an upload continues at the location of the registry', () => {
  test.for([
    ['a path', `${uploads}/1?_state=a`, `${uploads}/1?_state=a`],
    ['a URL with another name of the host', `https://registry.example.com${uploads}/1?a=b&c=d`, `${uploads}/1?a=b&c=d`],
  ] as const)('an upload continues at the location of the registry given as %s', async ([, location, path]) => {
    const { url, asked } = await scripted((request, response) =>
      respond(request, response, [request.method === 'POST' ? 202 : 204, { location, range: '0-4' }]),
    )
    const upstream = connected(url)
    const upload = await upstream.startUpload(repo, never)
    expect(await upstream.uploadStatus(repo, upload.state, never)).toMatchObject({ offset: 5 })
    expect(asked).toEqual([`POST ${uploads}/`, `GET ${path}`])
  })

  test.for([
    ['in another repo', `/v2/${freshRepo()}/blobs/uploads/1`],
    ['outside the repo', `${uploads}/../../../../v2/_catalog`],
    ['that is missing', ''],
    ['longer than allowed', `${uploads}/${'x'.repeat(2048)}`],
  ])('an upload at a location of the registry %s is refused', async ([, location = '']) => {
    const { url } = await scripted((request, response) => respond(request, response, [202, { location }]))
    expect(await failureOf(connected(url).startUpload(repo, never))).toBe('refused')
  })

  test.for([
    ['0-999', 1000],
    ['bytes=0-999', 1000],
    ['0--1', 0],
    ['0-0', 0],
  ] as const)('the header `Range: %s` of a new upload means %i bytes', async ([range, offset]) => {
    const { url } = await scripted((request, response) =>
      respond(request, response, [request.method === 'POST' ? 202 : 204, { location: `${uploads}/1`, range }]),
    )
    const upstream = connected(url)
    const { state } = await upstream.startUpload(repo, never)
    expect(await upstream.uploadStatus(repo, state, never)).toMatchObject({ offset })
  })

  test('an upload continues at the location of the registry with chunks that contain their position, also the last one', async () => {
    const { url, requests } = await scripted((request, response) =>
      respond(request, response, [request.method === 'PUT' ? 201 : 202, { location: `${uploads}/1?a=b` }]),
    )
    const upstream = connected(url)
    let { state } = await upstream.startUpload(repo, never)
    ;({ state } = await upstream.appendUpload(repo, { state, chunk: { body: bodyOf(bytes.subarray(0, 600)), length: 600 } }, never))
    const chunk = { body: bodyOf(bytes.subarray(600)), length: 400 }
    expect(await upstream.finishUpload(repo, { state, digest, chunk }, never)).toEqual({ size: 1000, digest })
    expect(requests.slice(1).map(({ method, url: path, headers }) => [method, path, headers['content-range'], headers['content-length']])).toEqual([
      ['PATCH', `${uploads}/1?a=b`, '0-599', '600'],
      ['PUT', `${uploads}/1?a=b&digest=${encodeURIComponent(digest)}`, '600-999', '400'],
    ])
  })
})

describe('an impossible answer of the registry', () => {
  test.for([
    ['a manifest with other bytes', 'corrupt', [200, { 'content-type': 'x/y' }, 'other'], (upstream: Upstream) => upstream.getManifest(repo, digest, never)],
    [
      'a manifest put under another digest',
      'refused',
      [201, { 'docker-content-digest': digestOf(Buffer.from('x')) }],
      (upstream: Upstream) => upstream.putManifest(repo, { digest, mediaType: 'x/y', bytes }, never),
    ],
    ['a blob without a length', 'refused', [200, { 'transfer-encoding': 'chunked' }, 'x'], (upstream: Upstream) => upstream.readBlob(repo, { digest }, never)],
    [
      'the whole blob in place of a range',
      'refused',
      [200, { 'content-length': '1' }, 'x'],
      (upstream: Upstream) => upstream.readBlob(repo, { digest, range: { first: 1, last: 2 } }, never),
    ],
    [
      'another range',
      'refused',
      [206, { 'content-length': '1', 'content-range': 'bytes 0-0/9' }, 'x'],
      (upstream: Upstream) => upstream.readBlob(repo, { digest, range: { first: 1, last: 2 } }, never),
    ],
  ] as const)('an impossible answer of the registry is refused: %s is %s', async ([, kind, answer, call]) => {
    const { url } = await scripted((request, response) => respond(request, response, answer))
    expect(await failureOf(call(connected(url)))).toBe(kind)
  })

  test('an answer of the registry with a blob that ends too early breaks the read', async () => {
    const { url } = await scripted((request, response) => {
      response.writeHead(200, { 'content-length': '1000' }).write(bytes.subarray(0, 500), () => response.socket?.destroy())
    })
    const found = await connected(url).readBlob(repo, { digest }, never)
    expect(await failureOf(drain(found!.body))).toBe('unavailable')
  })
})

describe('credentials for a registry', () => {
  test.for([
    [undefined, { scheme: 'none' }],
    ['Negotiate', { scheme: 'none' }],
    ['Basic realm="x"', { scheme: 'basic' }],
    ['basic', { scheme: 'basic' }],
    ['Bearer realm="https://a/b",service="c",scope="d"', { scheme: 'bearer', realm: 'https://a/b', service: 'c' }],
    ['bearer  Realm=https://a/b', { scheme: 'bearer', realm: 'https://a/b' }],
    ['Basic realm="x", Bearer realm="https://a/b?c=\\"d\\"", service="e, f"', { scheme: 'bearer', realm: 'https://a/b?c="d"', service: 'e, f' }],
  ] as const)('credentials for a registry answer the challenge %s', ([header, challenge]) => {
    expect(parseChallenge(header)).toEqual(challenge)
  })

  test.for(['Bearer service="x"', 'Bearer realm="nowhere"'])('credentials for a registry can not answer the challenge %s', (header) => {
    expect(() => parseChallenge(header)).toThrow(expect.objectContaining({ kind: 'refused' }))
  })

  test('credentials for a registry are renewed once the old token is refused', async () => {
    let [fetched, good] = [0, 1]
    const { url } = await scripted((request, response) => {
      if (request.url?.startsWith('/token')) return respond(request, response, [200, {}, JSON.stringify({ access_token: `t${++fetched}` })])
      if (request.headers.authorization === `Bearer t${good}`) return respond(request, response, [200, { 'content-length': '7' }])
      respond(request, response, [401, { 'www-authenticate': `Bearer realm="http://${request.headers.host}/token"` }])
    })
    const upstream = connected(url)
    expect(await upstream.statBlob(repo, digest, never)).toBe(7)
    good = 2
    const sizes = await Promise.all(Array.from({ length: 20 }, () => upstream.statBlob(repo, digest, never)))
    expect(new Set(sizes)).toEqual(new Set([7]))
    expect(fetched).toBe(2)
    good = 9
    expect(await failureOf(upstream.statBlob(repo, digest, never))).toBe('refused')
  })

  test('credentials for a registry are still fetched for others if one waiting call is aborted', async () => {
    const gate = Promise.withResolvers<void>()
    const { url, asked } = await scripted((request, response) => {
      if (request.url?.startsWith('/token')) return void gate.promise.then(() => respond(request, response, [200, {}, JSON.stringify({ token: 't' })]))
      const isGood = request.headers.authorization === 'Bearer t'
      respond(request, response, isGood ? [404] : [401, { 'www-authenticate': `Bearer realm="http://${request.headers.host}/token"` }])
    })
    const upstream = connected(url)
    const controller = new AbortController()
    const reason = new Error('enough')
    const first = upstream.statBlob(repo, digest, controller.signal)
    await expect.poll(() => asked.length).toBe(2)
    const second = upstream.statBlob(repo, digest, never)
    controller.abort(reason)
    await expect(first).rejects.toBe(reason)
    gate.resolve()
    expect(await second).toBeUndefined()
    expect(asked.filter((line) => line.includes('/token'))).toHaveLength(1)
  })
})

test.for(['ftp://x', 'http://x/path', 'nothing'])('%s is an invalid upstream URL', (url) => {
  expect(() => createHttpUpstream({ url, clock: Date })).toThrow(TypeError)
})

test.for(['/x', 'x//y', 'X', '../x', 'x/..', 'x y', 'x?'])('%s is an invalid prefix', (prefix) => {
  expect(() => createHttpUpstream({ url: 'http://x', prefix, clock: Date })).toThrow(TypeError)
})
