import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { ClientRequest, IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { until } from '../../store/store-harness.ts'
import { locationOf, readAnswer, withQuery, type Answer, type OciClient } from './oci-client.ts'
import { describeOnUpstreams } from './oci-upstreams.ts'
import { startTestHost, type TestHost } from './test-host.ts'

const idleMs = 1_000

describeOnUpstreams('slow, stalled and disconnecting clients', (upstream) => {
  let host: TestHost
  let client: OciClient
  /** Pending calls to the upstream that transfer bytes. */
  let busy = 0

  /** Counts pending calls to the upstream. */
  function counted(source: Upstream): Upstream {
    const during = async <T>(work: Promise<T>): Promise<T> => {
      busy++
      try {
        return await work
      } finally {
        busy--
      }
    }
    const methods: Partial<Upstream> = {
      appendUpload: (...call) => during(source.appendUpload(...call)),
      finishUpload: (...call) => during(source.finishUpload(...call)),
      readBlob: async (...call) => {
        const found = await source.readBlob(...call)
        if (found === undefined) return undefined
        busy++
        found.body.once('close', () => busy--)
        return found
      },
    }
    return new Proxy(source, {
      get(target, name) {
        const method = methods[name as keyof Upstream] ?? target[name as keyof Upstream] // a cast: nothing else is asked for
        return method.bind(target)
      },
    })
  }

  beforeAll(async () => {
    host = await startTestHost({ upstream, wrap: counted, handler: { idleMs } })
    client = host.client
  })

  afterAll(() => host?.stop())

  async function begun(repository: string): Promise<Answer> {
    const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
    expect(started.status).toBe(202)
    return started
  }

  /** A request that announces 1,000,000 bytes and sends 1,000. */
  function half(location: string): ClientRequest {
    const request = client.open('PATCH', location, { 'content-length': '1000000' })
    request.on('error', () => undefined)
    request.write(randomBytes(1000))
    return request
  }

  test('clients with a stalled upload are refused; they can resume after the received bytes', async () => {
    const repository = host.freshRepository()
    const started = await begun(repository)
    const request = half(locationOf(started))
    const [response] = (await once(request, 'response')) as [IncomingMessage] // a cast of the event's arguments
    expect(await readAnswer(response)).toMatchObject({ status: 408, codes: ['BLOB_UPLOAD_INVALID'] })
    await until(() => busy === 0)
    request.destroy()
    const status = await client.send('GET', locationOf(started))
    expect(status.status).toBe(204)
    const [, last = '0'] = String(status.headers['range']).split('-')
    expect(Number(last)).toBeLessThan(1000)
  })

  test('clients that disconnect end their upload at the upstream at once, and can continue later', async () => {
    const repository = host.freshRepository()
    const bytes = randomBytes(500_000)
    const started = await begun(repository)
    const request = client.open('PATCH', locationOf(started), { 'content-length': String(bytes.length) })
    request.on('error', () => undefined)
    request.write(bytes.subarray(0, 200_000))
    await until(() => busy === 1)
    request.destroy()
    await until(() => busy === 0)
    const status = await client.send('GET', locationOf(started))
    expect(status.status).toBe(204)
    const range = String(status.headers['range'])
    const offset = range === '0-0' ? 0 : Number(range.split('-')[1]) + 1
    const rest = { body: bytes.subarray(offset), headers: { 'content-range': `${offset}-${bytes.length - 1}` } }
    const done = await client.send('PUT', withQuery(locationOf(status), `digest=${digestOf(bytes)}`), rest)
    expect(done.status).toBe(201)
    expect((await client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
  })

  test('clients that disconnect during a single-request upload leave nothing behind', async () => {
    const repository = host.freshRepository()
    const bytes = randomBytes(500_000)
    const request = client.open('POST', `/v2/${repository}/blobs/uploads/?digest=${digestOf(bytes)}`, { 'content-length': String(bytes.length) })
    request.on('error', () => undefined)
    request.write(bytes.subarray(0, 200_000))
    await until(() => busy === 1)
    request.destroy()
    await until(() => busy === 0)
    expect((await client.send('HEAD', `/v2/${repository}/blobs/${digestOf(bytes)}`)).status).toBe(404)
  })

  test("clients that do not read a blob lose their connection, and the upstream's is closed", async () => {
    const repository = host.freshRepository()
    const digest = await client.putBlob(repository, randomBytes(30_000_000))
    const socket = connect(host.port, '127.0.0.1')
    socket.on('error', () => undefined)
    socket.pause()
    socket.write(`GET /v2/${repository}/blobs/${digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${host.owner}\r\n\r\n`)
    await until(() => busy === 1)
    await until(() => busy === 0)
    socket.destroy()
  })

  test('clients that leave in the middle of a blob have their connection closed at once', async () => {
    const repository = host.freshRepository()
    const digest = await client.putBlob(repository, randomBytes(30_000_000))
    const request = client.open('GET', `/v2/${repository}/blobs/${digest}`)
    request.end()
    const [response] = (await once(request, 'response')) as [IncomingMessage] // a cast of the event's arguments
    response.on('error', () => undefined)
    await once(response, 'data')
    response.destroy()
    await until(() => busy === 0)
  })

  test('clients that are slow without stalling are served to the end', async () => {
    const repository = host.freshRepository()
    const bytes = randomBytes(10)
    const started = await begun(repository)
    const request = client.open('PUT', withQuery(locationOf(started), `digest=${digestOf(bytes)}`), { 'content-length': '10' })
    const answered = once(request, 'response') as Promise<[IncomingMessage]> // a cast of the event's arguments
    const startedMs = performance.now()
    for (const byte of bytes) {
      request.write(Buffer.from([byte]))
      // Longer in total than the idle time-out, shorter for each byte.
      await once(AbortSignal.timeout(idleMs / 5), 'abort')
    }
    request.end()
    expect((await readAnswer((await answered)[0])).status).toBe(201)
    expect(performance.now() - startedMs).toBeGreaterThan(idleMs)
  })

  test('clients with a stalled manifest are refused', async () => {
    const repository = host.freshRepository()
    await client.putBlob(repository, Buffer.from('x'))
    const request = client.open('PUT', `/v2/${repository}/manifests/v1`, { 'content-length': '100' })
    request.on('error', () => undefined)
    request.write('{')
    const [response] = (await once(request, 'response')) as [IncomingMessage] // a cast of the event's arguments
    expect((await readAnswer(response)).status).toBe(408)
    request.destroy()
  })

  test('clients block no other client, even 500 of them', async () => {
    const slowHost = await startTestHost({ upstream, handler: { idleMs: 60_000 } })
    try {
      const locations = await Promise.all(Array.from({ length: 500 }, () => begunAt(slowHost, slowHost.organisation)))
      const sockets = locations.map((location) => {
        const socket = connect(slowHost.port, '127.0.0.1')
        socket.on('error', () => undefined)
        socket.write(`PATCH ${location} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${slowHost.owner}\r\nContent-Length: 1000000\r\n\r\nbytes`)
        return socket
      })
      await until(async () => (await connectionsOf(slowHost)) >= 500)
      const pushed = `${slowHost.organisation}/pushed`
      await slowHost.client.pushImage(pushed, 'v1')
      for (let at = 0; at < 100; at++) expect((await slowHost.client.send('GET', `/v2/${pushed}/manifests/v1`)).status).toBe(200)
      for (const socket of sockets) socket.destroy()
    } finally {
      await slowHost.stop()
    }
  })

  async function begunAt(at: TestHost, organisation: string): Promise<string> {
    return locationOf(await at.client.send('POST', `/v2/${organisation}/slow/blobs/uploads/`))
  }

  function connectionsOf(at: TestHost): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    at.http.getConnections((error, count) => (error === null ? resolve(count) : reject(error)))
    return promise
  }
})
