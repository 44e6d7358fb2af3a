import fc from 'fast-check'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { UpstreamError, type Upstream } from '../../../src/registry/upstream/upstream.ts'
import type { OciClient } from './oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from './test-host.ts'

let host: TestHost
let client: OciClient
/** Bytes after which blob streams fail; undefined for never. */
let breaksAfter: number | undefined

function breaking(source: Upstream): Upstream {
  return new Proxy(source, {
    get(target, name) {
      if (name === 'readBlob') {
        const readBlob: Upstream['readBlob'] = async (...call) => {
          const found = await target.readBlob(...call)
          if (found === undefined || breaksAfter === undefined) return found
          const limit = breaksAfter
          const body = Readable.from(cut(found.body, limit), { objectMode: false })
          return { size: found.size, body }
        }
        return readBlob
      }
      const method = target[name as keyof Upstream] // a cast: nothing else is asked for
      return method.bind(target)
    },
  })
}

async function* cut(body: Readable, limit: number): AsyncGenerator<Uint8Array> {
  let sent = 0
  for await (const piece of body as AsyncIterable<Uint8Array>) {
    if (sent + piece.length > limit) throw new UpstreamError('unavailable', 'broke')
    sent += piece.length
    yield piece
  }
}

beforeAll(async () => {
  host = await startTestHost({ upstream: startDiskUpstream, wrap: breaking })
  client = host.client
})

afterAll(() => host?.stop())

test('a blob that the upstream breaks off never looks complete', async () => {
  const repository = host.freshRepository()
  const digest = await client.putBlob(repository, Buffer.alloc(3_000_000, 1))
  breaksAfter = 1_000_000
  const request = client.open('GET', `/v2/${repository}/blobs/${digest}`)
  request.end()
  const [response] = (await once(request, 'response')) as [IncomingMessage] // a cast of the event's arguments
  let bytes = 0
  await expect(async () => {
    for await (const chunk of response) bytes += (chunk as Buffer).length // a cast: no encoding is set
  }).rejects.toThrow()
  expect(bytes).toBeLessThan(3_000_000)
  breaksAfter = undefined
  expect((await client.send('GET', `/v2/${repository}/blobs/${digest}`)).body.length).toBe(3_000_000)
})

test('a request with an absolute URL is answered like any other', async () => {
  const socket = connect(host.port, '127.0.0.1')
  socket.write(`GET http://registry.test/v2/?x=1 HTTP/1.1\r\nHost: registry.test\r\nAuthorization: Bearer ${host.owner}\r\nConnection: close\r\n\r\n`)
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  expect(text).toMatch(/^HTTP\/1\.1 200 /)
})

test('any unusual request gets an answer in the registry format, without an internal error', async () => {
  const repository = host.freshRepository()
  const manifest = await client.pushImage(repository, 'v1')
  const methods = ['GET', 'HEAD', 'PUT', 'POST', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND']
  const pieces = [
    repository,
    'manifests',
    'blobs',
    'uploads',
    'tags',
    'list',
    'referrers',
    'v1',
    manifest.digest,
    '',
    '.',
    '..',
    '%2e%2e',
    '_service',
    'history',
    'x'.repeat(300),
  ]
  const queries = [
    '',
    '?',
    '?n=x',
    '?n=3&last=v1',
    '?digest=x',
    `?digest=${manifest.digest}`,
    `?mount=${manifest.digest}&from=${repository}`,
    '?_state=AAAA',
    '?artifactType=%00',
    '?%',
  ]
  const headers = [
    {},
    { range: 'bytes=5-1' },
    { 'content-range': 'x' },
    { 'content-range': '0-1' },
    { 'content-type': 'text/html' },
    { 'content-type': manifest.mediaType },
    { 'if-none-match': '*' },
    { 'x-request-id': '<script>' },
    { accept: 'x' },
  ]
  const bodies = [undefined, '', '{', '{}', '[]', 'null', JSON.stringify({ schemaVersion: 2, mediaType: manifest.mediaType })]
  const paths = fc.oneof(
    fc.array(fc.constantFrom(...pieces), { maxLength: 4 }).map((parts) => `/v2/${parts.join('/')}`),
    fc
      .constantFrom('manifests/v1', 'blobs/uploads/', 'tags/list', `referrers/${manifest.digest}`, `blobs/${manifest.digest}`)
      .map((path) => `/v2/${repository}/${path}`),
  )
  const asked = fc.record({
    method: fc.constantFrom(...methods),
    path: paths,
    query: fc.constantFrom(...queries),
    headers: fc.constantFrom(...headers),
    body: fc.constantFrom(...bodies),
  })
  await fc.assert(
    fc.asyncProperty(asked, async ({ method, path, query, headers: sent, body }) => {
      const answer = await client.send(method, path + query, { headers: sent, ...(body === undefined ? {} : { body }) })
      expect(answer.status).toBeLessThan(500)
      expect([answer.headers['docker-distribution-api-version'], answer.headers['x-request-id'] !== undefined]).toEqual(['registry/2.0', true])
      if (answer.status >= 400 && method !== 'HEAD') expect(answer.codes).toHaveLength(1)
    }),
    { numRuns: 1_500 },
  )
})
