import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { readBody, RequestBody } from '../../../../src/registry/oci/blobs/request-body.ts'
import type { Upstream } from '../../../../src/registry/upstream/upstream.ts'
import { uncaughtErrors } from '../../../support/uncaught-errors.ts'
import { startDiskUpstream, startTestHost } from '../test-host.ts'

/** A client that announces ten bytes and sends five. */
function unfinished(port: number, path: string, identity = ''): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  onTestFinished(() => void socket.destroy())
  socket.write(`PATCH ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${identity}\r\nContent-Length: 10\r\n\r\n12345`)
  return socket
}

test('a client that disconnects before its body is read does not end the process, and a later reader gets the reason', async () => {
  const errors = uncaughtErrors()
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const asked = once(server, 'request') as Promise<[IncomingMessage]>
  // A listening TCP server has an AddressInfo.
  const client = unfinished((server.address() as AddressInfo).port, '/')
  const [request] = await asked
  const body = new RequestBody(request, { idleMs: 60_000, length: 10 })
  client.resetAndDestroy()
  await vi.waitUntil(() => body.closed)
  await expect(body.toArray()).rejects.toMatchObject({ code: 'BLOB_UPLOAD_INVALID', message: 'the client went away' })
  expect(errors).toEqual([])
})

test('a body that does not arrive in time is refused with 408', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const asked = once(server, 'request') as Promise<[IncomingMessage]>
  // A listening TCP server has an AddressInfo.
  unfinished((server.address() as AddressInfo).port, '/')
  const [request] = await asked
  await expect(readBody(request, { idleMs: 60_000, maxBytes: 10, wholeMs: 100 })).rejects.toMatchObject({ status: 408, message: 'the body took too long' })
})

test('a request that is answered but can not be audited does not end the process', async () => {
  const errors = uncaughtErrors()
  let seen = 0
  const observe = (): void => {
    seen += 1
    throw new Error('no metrics')
  }
  const host = await startTestHost({ upstream: startDiskUpstream, handler: { observe } })
  onTestFinished(() => host.stop())
  expect((await host.client.send('GET', '/v2/')).status).toBe(200)
  await vi.waitUntil(() => seen === 1)
  expect((await host.client.send('GET', '/v2/')).status).toBe(200)
  expect(errors).toEqual([])
})

test('a client that disconnects while its chunk waits for the previous one does not end the process', async () => {
  const errors = uncaughtErrors()
  let appends = 0
  const counted = (upstream: Upstream): Upstream => {
    const append = upstream.appendUpload.bind(upstream)
    return Object.assign(upstream, {
      appendUpload: (...call: Parameters<Upstream['appendUpload']>) => {
        appends += 1
        return append(...call)
      },
    })
  }
  const host = await startTestHost({ upstream: startDiskUpstream, wrap: counted })
  onTestFinished(() => host.stop())
  const { headers } = await host.client.send('POST', `/v2/${host.freshRepository()}/blobs/uploads/`)
  unfinished(host.port, headers.location ?? '', host.owner)
  await vi.waitUntil(() => appends === 1)
  const accepted = once(host.http, 'connection') as Promise<[Socket]>
  const second = unfinished(host.port, headers.location ?? '', host.owner)
  await vi.waitUntil(() => appends === 2)
  second.resetAndDestroy()
  const [socket] = await accepted
  await vi.waitUntil(() => socket.closed)
  expect((await host.client.send('GET', '/v2/')).status).toBe(200)
  expect(errors).toEqual([])
})
