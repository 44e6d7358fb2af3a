import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Network, type LinkState } from './network.ts'

/** The received bytes of one end of a connection, and whether it is open. */
interface End {
  readonly socket: Socket
  readonly text: () => string
}

function endOf(socket: Socket): End {
  let text = ''
  socket.on('error', () => undefined)
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
  onTestFinished(() => void socket.destroy())
  return { socket, text: () => text }
}

/** A connection from `a` to `b` through a proxy. */
async function connection(network = new Network()): Promise<{ network: Network; a: End; b: End }> {
  onTestFinished(() => network.close())
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  // A listening TCP server has an AddressInfo.
  const port = await network.proxy({ from: 'a', to: 'b', targetPort: (server.address() as AddressInfo).port })
  const accepted = once(server, 'connection') as Promise<[Socket]>
  const a = endOf(connect(port, '127.0.0.1'))
  const b = endOf((await accepted)[0])
  a.socket.write('hello ')
  await vi.waitUntil(() => b.text() === 'hello ')
  return { network, a, b }
}

/** Resolves once it is closed, also after a reset. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()))
}

test.each(['stalled', 'dropping'] satisfies LinkState[])('a %s link delays what is sent, and delivers it in order once the link is open', async (state) => {
  const { network, a, b } = await connection()
  network.set('a', 'b', { state })
  a.socket.write('one ')
  a.socket.write('two ')
  b.socket.write('back ')
  // The opposite direction is open, so earlier bytes have reached the proxy.
  await vi.waitUntil(() => a.text() === 'back ')
  expect(b.text()).toBe('hello ')
  network.set('a', 'b', { state: 'open' })
  await vi.waitUntil(() => b.text() === 'hello one two ')
})

test.each([
  ['an orderly end', (socket: Socket) => void socket.end('last ')],
  ['a reset', (socket: Socket) => void socket.resetAndDestroy()],
])('a dropping link also delays %s: the other end stays connected until the link is open', async (_, end) => {
  const { network, a, b } = await connection()
  network.setBoth('a', 'b', { state: 'dropping' })
  const gone = closed(a.socket)
  end(a.socket)
  a.socket.destroySoon()
  await gone
  b.socket.write('anybody? ')
  await new Promise<void>((resolve) => b.socket.write('still? ', () => resolve()))
  expect(b.socket.readyState).toBe('open')
  network.heal()
  await closed(b.socket)
})

test('the firewall drops packets for the ports of dropping links, and for no others', async () => {
  const asked: unknown[] = []
  const network = new Network((packets) => asked.push(packets))
  onTestFinished(() => network.close())
  const port = await network.proxy({ from: 'a', to: 'b', targetPort: 1 })
  const other = await network.proxy({ from: 'a', to: 'c', targetPort: 1 })
  network.set('a', 'b', { state: 'dropping' })
  network.set('c', 'a', { state: 'dropping' })
  network.heal()
  expect(asked).toEqual([[{ to: port }], [{ to: port }, { from: other }], []])
})
