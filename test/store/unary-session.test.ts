import { once } from 'node:events'
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { Worker } from 'node:worker_threads'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { UnarySession } from '../../src/store/etcd/unary-session.ts'
import { uncaughtErrors } from '../support/uncaught-errors.ts'

async function listen(server: { listen(port: number, host: string): unknown; address(): unknown; close(): unknown }): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server as unknown as NodeJS.EventEmitter, 'listening')
  onTestFinished(() => void server.close())
  // Cast: the server listens on TCP.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** An HTTP/2 server that counts its connections, in total and open. */
async function countingServer(): Promise<{ url: string; taken: () => number; open: () => number }> {
  const http2 = createHttp2Server()
  let taken = 0
  let open = 0
  const server = createServer((socket) => {
    taken += 1
    open += 1
    socket.on('close', () => (open -= 1))
    http2.emit('connection', socket)
  })
  return { url: await listen(server), taken: () => taken, open: () => open }
}

/** Resolves after the connections of this turn are established. */
function begun(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve))
}

const deaf = `
  const { createServer } = require('node:net')
  const { parentPort, workerData } = require('node:worker_threads')
  const server = createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    parentPort.postMessage(server.address().port)
    setImmediate(() => Atomics.wait(workerData, 0, 0))
  })`

/** The address of a server that accepts no connection and has a full backlog, so that the system drops new connections. */
async function deafServer(): Promise<string> {
  const gate = new Int32Array(new SharedArrayBuffer(4))
  const worker = new Worker(deaf, { eval: true, workerData: gate })
  onTestFinished(async () => {
    Atomics.store(gate, 0, 1)
    Atomics.notify(gate, 0)
    await worker.terminate()
  })
  // The worker's only message is its port.
  const [port] = (await once(worker, 'message')) as [number]
  for (let waiting = 0; waiting < 2; waiting++) {
    const socket = connect(port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    await once(socket, 'connect')
  }
  return `http://127.0.0.1:${port}`
}

describe('the connection to etcd for single calls', () => {
  test('a connection for unary etcd calls that is made just at its deadline is closed without an error', async () => {
    const errors = uncaughtErrors()
    const server = await countingServer()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const session = new UnarySession(server.url, undefined)
    onTestFinished(() => session.close())
    const connected = session.connected(performance.now() + 60_000)
    await begun()
    vi.advanceTimersByTime(60_000)
    expect(await connected).toBe(false)
    await vi.waitUntil(() => server.taken() === 1 && server.open() === 0)
    expect(errors).toEqual([])
  })

  test('the connection to etcd for single calls ends in time if its first packet is lost, however often the system sends it again', async () => {
    const url = await deafServer()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const session = new UnarySession(url, undefined)
    onTestFinished(() => session.close())
    const connected = session.connected(performance.now() + 60_000)
    vi.advanceTimersByTime(60_000)
    expect(await connected).toBe(false)
  })

  test('the connection to etcd for single calls ends on close while it is being established', async () => {
    const errors = uncaughtErrors()
    const server = await countingServer()
    const session = new UnarySession(server.url, undefined)
    const connected = session.connected(performance.now() + 60_000)
    await begun()
    session.close()
    expect(await connected).toBe(false)
    await vi.waitUntil(() => server.taken() === 1 && server.open() === 0)
    expect(errors).toEqual([])
  })

  test('the connection to etcd for single calls does not block later connections if it was accepted and never answered', async () => {
    const etcd = createHttp2Server()
    const held: Socket[] = []
    let isSilent = true
    const proxy = createServer((socket) => {
      socket.on('error', () => undefined)
      if (isSilent) held.push(socket)
      else etcd.emit('connection', socket)
    })
    const session = new UnarySession(await listen(proxy), undefined)
    onTestFinished(() => {
      session.close()
      for (const socket of held) socket.destroy()
    })
    expect(await session.connected(performance.now() + 300)).toBe(false)
    isSilent = false
    const deadline = performance.now() + 10_000
    let isConnected = false
    while (!isConnected && performance.now() < deadline) isConnected = await session.connected(deadline)
    expect(isConnected).toBe(true)
  })

  test('the connection to etcd for single calls fails a call whose message is not valid percent-encoding', async () => {
    const etcd = createHttp2Server()
    etcd.on('stream', (stream: ServerHttp2Stream) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '3', 'grpc-message': '100% wrong' }, { endStream: true })
    })
    const session = new UnarySession(await listen(etcd), undefined)
    onTestFinished(() => session.close())
    expect(await session.connected(performance.now() + 5_000)).toBe(true)
    const { response } = session.call('/x', Buffer.from('a'), { token: undefined, deadline: performance.now() + 5_000 })
    await expect(response).rejects.toMatchObject({ code: 3, message: '100% wrong' })
  })
})
