import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { get as httpsGet } from 'node:https'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as tlsConnect } from 'node:tls'
import { Client, credentials } from '@grpc/grpc-js'
import { create, toBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createOnePort } from '../../src/transport/one-port.ts'
import { GetGroupRequestSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { serve } from './harness/harness.ts'
import type { Served } from './harness/harness.ts'
import { isServed } from './is-served.ts'

const getGroup = '/taproot.iam.v2.GroupsService/GetGroup'
const message = toBinary(GetGroupRequestSchema, create(GetGroupRequestSchema, { uid: 'u' }))
const silent = { accept: () => {}, beginDrain: () => {}, drain: () => {} }

/** The data that a socket received until its close. */
function received(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = []
  return new Promise((resolve) => {
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.on('error', () => {})
    socket.on('close', () => resolve(Buffer.concat(chunks)))
  })
}

/** Writes each piece as a separate packet. */
async function writePieces(socket: Socket, pieces: readonly (string | Buffer)[]): Promise<void> {
  socket.setNoDelay(true)
  for (const piece of pieces) {
    await new Promise<void>((resolve) => socket.write(piece, () => resolve()))
    await new Promise((resolve) => setImmediate(resolve))
  }
}

describe('one port for HTTP/1.1 and HTTP/2', () => {
  let served: Served

  beforeAll(async () => {
    served = await serve(({ call }) => create(call.method.output), { sniffTimeoutMs: 300 })
  })
  afterAll(() => served.close())

  test.each([
    ['complete', ['GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n']],
    [
      'byte by byte',
      [...'POST /iam/v2/groups HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"name":"n"}'],
    ],
    ['with the first bytes of the HTTP/2 preface', ['PR', 'OPFIND /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n']],
    ['pipelined', ['GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\n\r\nGET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n']],
  ])('the port serves HTTP/1.1 that arrives %s', async (how, pieces) => {
    const socket = connect(served.port, '127.0.0.1')
    const all = received(socket)
    await writePieces(socket, pieces)
    const text = (await all).toString()
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(
      how === 'pipelined' ? ['HTTP/1.1 200', 'HTTP/1.1 200'] : [how.startsWith('with') ? 'HTTP/1.1 404' : 'HTTP/1.1 200'],
    )
  })

  test('the port still answers a client that half-closes after the request', async () => {
    const socket = connect({ port: served.port, host: '127.0.0.1', allowHalfOpen: true })
    const all = received(socket)
    socket.end('GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    socket.on('end', () => socket.destroy())
    expect((await all).toString()).toMatch(/^HTTP\/1\.1 200/)
  })

  test.each([
    ['http://x/ping/v2/ping', 200],
    ['http://[', 400],
    ['*', 400],
    ['x', 400],
    ['/\\..', 404],
  ])('the port answers the request target %s with %s', async (target, status) => {
    const socket = connect(served.port, '127.0.0.1')
    const all = received(socket)
    socket.write(`GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
    expect((await all).toString().slice(0, 12)).toBe(`HTTP/1.1 ${status}`)
  })

  test.each([
    ['complete', [24]],
    ['in two parts', [3]],
    ['byte by byte', Array.from({ length: 23 }, (_, index) => index + 1)],
  ])('the port serves an HTTP/2 preface that arrives %s', async (_, cuts) => {
    const preface = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from('000000040000000000', 'hex')])
    const pieces = [0, ...cuts].map((from, index) => preface.subarray(from, cuts[index] ?? preface.length))
    const socket = connect(served.port, '127.0.0.1')
    const first = new Promise<Buffer>((resolve) => socket.once('data', resolve))
    await writePieces(socket, pieces)
    // The server's first frame is SETTINGS (type 4) on stream 0.
    expect((await first)[3]).toBe(4)
    socket.destroy()
  })

  test.each([
    ['sends nothing', []],
    ['stops inside the preface', ['PRI * HTT']],
  ])('the port disconnects a client that %s', async (_, pieces) => {
    const socket = connect(served.port, '127.0.0.1')
    const all = received(socket)
    await writePieces(socket, pieces)
    expect((await all).length).toBe(0)
  })

  test.each(['\x16\x03\x01\x02\x00', 'PRI * HTTP/1.1\r\n\r\n', '\r\n\r\n\r\n', 'GET'])('the port continues after %j', async (bytes) => {
    const socket = connect(served.port, '127.0.0.1')
    const all = received(socket)
    socket.end(bytes)
    await all
    expect((await fetch(`${served.url}/ping/v2/ping`)).status).toBe(200)
  })

  test('the port continues after a reset right after connecting', async () => {
    const socket = connect(served.port, '127.0.0.1')
    await new Promise((resolve) => socket.once('connect', resolve))
    socket.resetAndDestroy()
    expect((await fetch(`${served.url}/ping/v2/ping`)).status).toBe(200)
  })

  test('the port serves many requests on one connection', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const ports = new Set<number | undefined>()
    for (let index = 0; index < 5; index++) {
      await new Promise<void>((resolve, reject) => {
        const sent = request(
          {
            host: '127.0.0.1',
            port: served.port,
            path: '/iam/v2/groups',
            agent,
            method: index % 2 === 0 ? 'GET' : 'POST',
            headers: { 'content-type': 'application/json' },
          },
          (response) => {
            ports.add(response.socket.localPort)
            expect(response.statusCode).toBe(200)
            response.resume()
            response.on('end', resolve)
          },
        )
        sent.on('error', reject)
        sent.end(index % 2 === 0 ? undefined : '{}')
      })
    }
    agent.destroy()
    expect(ports.size).toBe(1)
  })

  test('the port keeps a connection after a too large body', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const statuses: (number | undefined)[] = []
    for (const body of ['x'.repeat(3 * 1024 * 1024), '{}']) {
      await new Promise<void>((resolve, reject) => {
        const sent = request(
          { host: '127.0.0.1', port: served.port, path: '/iam/v2/groups', agent, method: 'POST', headers: { 'content-type': 'application/json' } },
          (response) => {
            statuses.push(response.statusCode)
            response.resume()
            response.on('end', resolve)
          },
        )
        sent.on('error', reject)
        sent.end(body)
      })
    }
    agent.destroy()
    expect(statuses).toEqual([413, 200])
  })

  test('the port serves 100 connections of both kinds at once', async () => {
    const unhurried = await serve(({ call }) => create(call.method.output))
    onTestFinished(() => unhurried.close(50))
    const grpc = async (): Promise<boolean> => {
      const client = new Client(`127.0.0.1:${unhurried.port}`, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 })
      const identity = (bytes: Buffer): Buffer => bytes
      try {
        return await new Promise((resolve) => client.makeUnaryRequest(getGroup, identity, identity, Buffer.from(message), (error) => resolve(error === null)))
      } finally {
        client.close()
      }
    }
    const rest = async (): Promise<boolean> => {
      const socket = connect(unhurried.port, '127.0.0.1')
      const all = received(socket)
      socket.write('GET /iam/v2/groups/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
      return (await all).toString().startsWith('HTTP/1.1 200')
    }
    const results = await Promise.all(Array.from({ length: 100 }, (_, index) => (index % 2 === 0 ? rest() : grpc())))
    expect(results.filter(Boolean)).toHaveLength(100)
  })

  test('the port closes connections beyond its maximum at once', async () => {
    const own = await serve(({ call }) => create(call.method.output), { maxConnections: 2 })
    const sockets: Socket[] = []
    try {
      expect([await isServed(own.port, sockets), await isServed(own.port, sockets), await isServed(own.port, sockets)]).toEqual([true, true, false])
      sockets[0]?.destroy()
      await expect.poll(() => isServed(own.port, sockets)).toBe(true)
    } finally {
      for (const socket of sockets) socket.destroy()
      await own.close(50)
    }
  })

  test('the port reports a port in use as the plain error', async () => {
    const second = createOnePort({ http: silent, grpc: silent })
    await expect(second.listen('127.0.0.1', served.port)).rejects.toMatchObject({ code: 'EADDRINUSE' })
    await second.close(10)
  })
})

describe('closing the port', () => {
  test('closing the port ends running calls of both kinds, closes idle connections, and refuses new ones', async () => {
    let release: () => void = () => {}
    const gate = new Promise<void>((resolve) => {
      release = resolve
    })
    const own = await serve(async ({ call }) => {
      await gate
      return { message: create(call.method.output) }
    })
    const idle = connect(own.port, '127.0.0.1')
    const idleClosed = received(idle)
    await writePieces(idle, ['GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n'])
    await new Promise((resolve) => idle.once('data', resolve))
    const rest = fetch(`${own.url}/iam/v2/groups/x`)
    const grpc = own.unary(getGroup, message)
    await expect.poll(() => own.seen.length).toBe(2)
    const startedAt = Date.now()
    const closed = (async () => {
      await idleClosed
      await expect(fetch(`${own.url}/ping/v2/ping`)).rejects.toThrow()
      release()
    })()
    await Promise.all([own.close(5000), closed, rest.then((response) => expect(response.status).toBe(200)), grpc.then(({ code }) => expect(code).toBe(0))])
    expect(Date.now() - startedAt).toBeLessThan(4_500)
  })

  test('closing the port cuts off calls that do not end within the grace time', async () => {
    const own = await serve(() => new Promise(() => {}))
    const rest = fetch(`${own.url}/iam/v2/groups/x`).then(
      () => 'answered',
      () => 'cut',
    )
    const grpc = own.unary(getGroup, message)
    await expect.poll(() => own.seen.length).toBe(2)
    const startedAt = Date.now()
    await own.close(200)
    expect(Date.now() - startedAt).toBeLessThan(10_000)
    expect(await rest).toBe('cut')
    expect((await grpc).code).not.toBe(0)
  })
})

/** Certificates need openssl, which is required in CI. */
const canMakeCertificates = process.env.REQUIRE_ALL_PARTS === '1' || spawnSync('openssl', ['version']).status === 0
if (!canMakeCertificates) console.warn('openssl is not installed: the TLS tests are skipped')

describe.skipIf(!canMakeCertificates)('the port with TLS', () => {
  let served: Served
  let folder: string
  let cert: Buffer

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'one-port-'))
    const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
    const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']
    execFileSync(
      'openssl',
      ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', keyFile, '-out', certFile, ...subject],
      { stdio: 'ignore' },
    )
    cert = readFileSync(certFile)
    served = await serve(({ call }) => create(call.method.output), { tls: { key: readFileSync(keyFile), cert }, sniffTimeoutMs: 500 })
  })
  afterAll(async () => {
    await served.close()
    rmSync(folder, { recursive: true })
  })

  test('the port with TLS serves REST', async () => {
    const status = await new Promise((resolve, reject) => {
      httpsGet({ host: '127.0.0.1', port: served.port, path: '/iam/v2/groups', ca: cert, agent: false }, (response) => {
        response.resume()
        resolve(response.statusCode)
      }).on('error', reject)
    })
    expect(status).toBe(200)
  })

  test('the port with TLS serves gRPC', async () => {
    const client = new Client(`localhost:${served.port}`, credentials.createSsl(cert))
    const identity = (bytes: Buffer): Buffer => bytes
    const code = await new Promise((resolve) =>
      client.makeUnaryRequest(getGroup, identity, identity, Buffer.from(message), (error) => resolve(error?.code ?? 0)),
    )
    client.close()
    expect(code).toBe(0)
  })

  test.each([
    [['h2', 'http/1.1'], 'http/1.1'],
    [['http/1.1'], 'http/1.1'],
    [['h2'], 'h2'],
  ])('the port with TLS selects for a client that offers %j the protocol %s', async (offered, chosen) => {
    const socket = tlsConnect({ host: '127.0.0.1', port: served.port, ca: cert, ALPNProtocols: offered })
    await new Promise((resolve, reject) => {
      socket.once('secureConnect', resolve)
      socket.once('error', reject)
    })
    expect(socket.alpnProtocol).toBe(chosen)
    socket.destroy()
  })

  test('the port with TLS disconnects a client without TLS', async () => {
    const socket = connect(served.port, '127.0.0.1')
    const all = received(socket)
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    expect((await all).toString()).not.toContain('HTTP/1.1 200')
  })
})
