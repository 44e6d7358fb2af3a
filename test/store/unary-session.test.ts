import { once } from 'node:events'
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { UnarySession } from '../../src/store/etcd/unary-session.ts'

async function listen(server: { listen(port: number, host: string): unknown; address(): unknown; close(): unknown }): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server as unknown as NodeJS.EventEmitter, 'listening')
  onTestFinished(() => void server.close())
  // A cast: it listens on TCP.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

describe('the lean connection to etcd', () => {
  test('one that was taken and never answered does not keep later ones away', { timeout: 20_000 }, async () => {
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

  test('a message that is not percent-encoded properly is an error of its call', async () => {
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
