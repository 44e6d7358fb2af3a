import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createSafeFetch, type SafeFetch } from '../../src/auth/safe-fetch.ts'
import { readSource, type FeedRequest } from '../../src/catalogue/feeds/feed-source.ts'
import { systemClock } from '../../src/server/runtime.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { temporaryFolder } from './documents.ts'

const digestOf = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`
const entry = (text: string, more: object = {}): object => ({ mediaType: 'application/json', digest: digestOf(text), size: text.length, ...more })
const manifestOf = (...layers: object[]): string => JSON.stringify({ schemaVersion: 2, layers })

type Answer = (request: IncomingMessage, response: ServerResponse) => void

async function startServer(answer: Answer): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  await new Promise((resolve) => server.once('listening', resolve))
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** A registry with these texts by path below `/v2/acme/feed/`. Requests need a token that the account gets, if there is one. */
async function startRegistry(texts: Readonly<Record<string, string>>, account?: string, onToken: () => void = () => undefined): Promise<string> {
  const host: string = await startServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', `http://${host}`)
    if (pathname === '/token') {
      const isKnown = request.headers.authorization === `Basic ${Buffer.from(account ?? '').toString('base64')}`
      const isScoped = searchParams.get('scope') === 'repository:acme/feed:pull'
      response.writeHead(isKnown && isScoped ? 200 : 401).end(JSON.stringify({ token: 'a-token', expires_in: 60 }))
      onToken()
    } else if (account !== undefined && request.headers.authorization !== 'Bearer a-token') {
      response.writeHead(401, { 'www-authenticate': `Bearer realm="http://${host}/token",service="test"` }).end()
    } else {
      const text = texts[pathname.replace('/v2/acme/feed/', '')]
      response.writeHead(text === undefined ? 404 : 200).end(text)
    }
  })
  return host
}

async function read(request: Partial<FeedRequest> & { readonly source: string }, signal = AbortSignal.timeout(20_000), fetch: SafeFetch = createSafeFetch()) {
  onTestFinished(() => fetch.close())
  const folder = await temporaryFolder()
  const temporary = join(folder, 'one.part')
  const whole = { known: undefined, temporary, credential: undefined, ca: undefined, allowPrivate: true, clock: systemClock, ...request }
  const content = await readSource(fetch, whole, signal).catch(async (error: unknown) => {
    // A failure leaves no file.
    expect(await readdir(folder)).toEqual([])
    throw error
  })
  return { content, folder }
}

const [one, two] = ['{"id":"A-1"}', '{"id":"A-2"}']
const manifest = manifestOf(
  entry(one, { annotations: { 'org.opencontainers.image.title': 'python.json' } }),
  entry('{}', { mediaType: 'application/vnd.oci.empty.v1+json' }),
  entry(two, { annotations: { 'org.opencontainers.image.title': '../../two.json' } }),
)
const blobs = { [`blobs/${digestOf(one)}`]: one, [`blobs/${digestOf(two)}`]: two }

test('an artifact gives its layers as files, and is not read again while its digest is the same', async () => {
  const host = await startRegistry({ ...blobs, 'manifests/v1': manifest, [`manifests/${digestOf(manifest)}`]: manifest }, 'robot:secret')
  const request = { source: `oci+http://${host}/acme/feed:v1`, credential: 'robot:secret' }
  const { content, folder } = await read(request)
  expect(content.version).toEqual({ manifest: digestOf(manifest) })
  expect(content.paths).toEqual([join(folder, 'one.part', '0', 'python.json'), join(folder, 'one.part', '1', 'layer')])
  expect(await Promise.all((content.paths ?? []).map((path) => readFile(path, 'utf8')))).toEqual([one, two])
  await content.remove()
  expect(await readdir(folder)).toEqual([])
  expect((await read({ ...request, known: content.version })).content.paths).toBeUndefined()
  expect((await read({ ...request, source: `oci+http://${host}/acme/feed@${digestOf(manifest)}` })).content.version).toEqual(content.version)
  await expect(read({ ...request, credential: 'robot:wrong' })).rejects.toMatchObject({ status: 401 })
  await expect(read({ ...request, credential: 'other-token' })).rejects.toMatchObject({ status: 401 })
  expect((await read({ ...request, credential: 'a-token' })).content.version).toEqual(content.version)
})

const index = (...manifests: object[]): string => JSON.stringify({ schemaVersion: 2, manifests })

test('an index with one manifest is that manifest', async () => {
  const host = await startRegistry({ ...blobs, 'manifests/v1': index(entry(manifest)), [`manifests/${digestOf(manifest)}`]: manifest })
  expect((await read({ source: `oci+http://${host}/acme/feed:v1` })).content.version).toEqual({ manifest: digestOf(manifest) })
})

test.each<[string, Record<string, string>, string, object | string]>([
  ['an index of several manifests', { 'manifests/v1': index(entry(manifest), entry(one)) }, ':v1', 'index of 2 manifests'],
  ['a manifest with another digest', { [`manifests/${digestOf(one)}`]: manifest }, `@${digestOf(one)}`, 'the registry sent other bytes than sha256:'],
  ['a layer with another digest', { ...blobs, [`blobs/${digestOf(two)}`]: one, 'manifests/v1': manifest }, ':v1', 'the registry sent other bytes than sha256:'],
  ['a layer that is longer than its size', { ...blobs, 'manifests/v1': manifestOf(entry(one, { size: 3 })) }, ':v1', { reason: 'too_large' }],
  ['layers larger than the disk', { ...blobs, 'manifests/v1': manifestOf(entry(one, { size: 2 ** 52 })) }, ':v1', { reason: 'too_large' }],
  ['a digest that leads elsewhere', { 'manifests/v1': manifestOf({ digest: '../../x', size: 1 }) }, ':v1', 'an entry without digest and size'],
  ['too many layers', { 'manifests/v1': manifestOf(...Array.from({ length: 101 }, () => entry(one))) }, ':v1', 'more than 100 entries'],
  ['no layers', { 'manifests/v1': manifestOf() }, ':v1', 'the artifact has no files'],
  ['a manifest that is no JSON', { 'manifests/v1': '<html>' }, ':v1', 'not valid JSON'],
  ['a manifest that is null', { 'manifests/v1': 'null' }, ':v1', 'the artifact has no files'],
  ['a huge manifest', { 'manifests/v1': ' '.repeat(5 * 1024 * 1024) }, ':v1', { reason: 'too_large' }],
  ['a missing tag', {}, ':v2', { status: 404 }],
  ['a reference without tag', {}, '', 'no reference of an artifact'],
])('%s is refused, and leaves no file', async (_, texts, version, error) => {
  const host = await startRegistry(texts)
  const reading = read({ source: `oci+http://${host}/acme/feed${version}` })
  await (typeof error === 'string' ? expect(reading).rejects.toThrow(error) : expect(reading).rejects.toMatchObject(error))
})

test('a token is used until it expires', async () => {
  for (const [secondsLater, expected] of [
    [1, 1],
    [120, 3],
  ] as const) {
    const clock = new TestClock()
    let tokens = 0
    const host = await startRegistry({ 'manifests/v1': manifest, ...blobs }, 'me:secret', () => {
      tokens += 1
      clock.advance(secondsLater * 1_000)
    })
    await read({ source: `oci+http://${host}/acme/feed:v1`, credential: 'me:secret', clock })
    expect(tokens).toBe(expected)
  }
})

test('a registry with a private address, and one with http, need a setting', async () => {
  const host = await startRegistry({ 'manifests/v1': manifest })
  await expect(read({ source: `oci://${host}/acme/feed:v1`, allowPrivate: false })).rejects.toMatchObject({ reason: 'refused_address' })
  await expect(read({ source: `oci+http://${host}/acme/feed:v1`, allowPrivate: false })).rejects.toMatchObject({ reason: 'refused_url' })
})

test('a source that sends nothing ends with a timeout, and one that trickles ends with its limit', async () => {
  const silent = await startServer((_, response) => void response.writeHead(200).write('{'))
  await expect(read({ source: `http://${silent}/all.json` }, undefined, createSafeFetch({ timeoutMs: 200 }))).rejects.toMatchObject({ reason: 'timeout' })
  const stop = new AbortController()
  let sent = 0
  const trickling = await startServer((_, response) => {
    response.writeHead(200)
    const timer = setInterval(() => {
      response.write(' ')
      if (++sent === 20) stop.abort(new Error('the run took longer than two hours'))
    }, 5)
    response.on('close', () => clearInterval(timer))
  })
  await expect(read({ source: `http://${trickling}/all.json` }, stop.signal)).rejects.toThrow('longer than two hours')
})
