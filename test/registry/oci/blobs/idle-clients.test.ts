import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { until } from '../../../store/store-harness.ts'
import { manifestOf } from '../oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../test-host.ts'

let host: TestHost
let repository: string

beforeAll(async () => {
  host = await startTestHost({ upstream: startDiskUpstream, handler: { idleMs: 300 } })
  repository = host.freshRepository()
  const large = manifestOf({ mediaType: 'application/vnd.example+json', long: 'x'.repeat(4_000_000) })
  expect((await host.client.putManifest(repository, 'large', large)).status).toBe(201)
})

afterAll(() => host?.stop())

/** A connection that sends a request and does not read the answer. */
function deafTo(asked: string, times: number): Socket {
  const socket = connect(host.port, '127.0.0.1')
  socket.on('error', () => undefined)
  onTestFinished(() => void socket.destroy())
  socket.pause()
  socket.write(`${asked} HTTP/1.1\r\nHost: registry.test\r\nAuthorization: Bearer ${host.owner}\r\n\r\n`.repeat(times))
  return socket
}

function connections(): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  host.http.getConnections((error, count) => (error ? reject(error) : resolve(count)))
  return promise
}

test.each<[string, () => string, number]>([
  ['a manifest', () => `GET /v2/${repository}/manifests/large`, 10],
  ['a list of tags', () => `GET /v2/${repository}/tags/list`, 30_000],
  ['errors', () => 'GET /v2/x', 30_000],
  ['answers without a body', () => `HEAD /v2/${repository}/manifests/large`, 30_000],
])('a client that does not read %s loses its connection', async (_, asked, times) => {
  host.client.close()
  await until(async () => (await connections()) === 0)
  deafTo(asked(), times)
  await until(async () => (await connections()) === 1)
  await until(async () => (await connections()) === 0)
})

test.each([
  ['a manifest', 'manifests/v1'],
  ['a blob', `blobs/sha256:${'0'.repeat(64)}`],
])('the DELETE of %s with a stalled body is answered with 408 like any stalled body', async (_, path) => {
  const socket = connect(host.port, '127.0.0.1')
  onTestFinished(() => void socket.destroy())
  let answer = ''
  socket.on('data', (bytes) => (answer += bytes.toString('latin1')))
  socket.write(`DELETE /v2/${repository}/${path} HTTP/1.1\r\nHost: registry.test\r\nContent-Length: 5\r\n\r\n`)
  await until(() => answer.includes('"errors"'))
  expect(answer).toMatch(/^HTTP\/1\.1 408 /)
})

test('a client that reads keeps its connection, between requests too', async () => {
  const socket = connect(host.port, '127.0.0.1')
  onTestFinished(() => void socket.destroy())
  let answers = 0
  socket.on('data', (bytes) => (answers += bytes.toString('latin1').split('HTTP/1.1 200').length - 1))
  for (let at = 1; at <= 3; at++) {
    const askedAt = performance.now()
    socket.write(`GET /v2/${repository}/tags/list HTTP/1.1\r\nHost: registry.test\r\nAuthorization: Bearer ${host.owner}\r\n\r\n`)
    await until(() => answers === at && performance.now() - askedAt > 400)
  }
  expect(socket.destroyed).toBe(false)
})
