/**
 * A bare relay: passes bytes between its clients and one port on this machine, without reading them. Bytes from that port are read into
 * reused memory, in pieces as large as those of the registry host. It receives the port in a message, and sends its own port in a message.
 */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

const pieceBytes = 512 * 1024

const [{ port }] = (await once(process, 'message')) as [{ port: number }]
const free: Buffer[] = []
const memory = (): Buffer => free.pop() ?? Buffer.allocUnsafeSlow(pieceBytes)

/** Connects to the port. Passes its bytes on as fast as the client reads them. */
function connectFor(client: Socket): Socket {
  let buffer = memory()
  const callback = (length: number): boolean => {
    const full = buffer
    buffer = memory()
    if (client.write(full.subarray(0, length), () => free.push(full))) return true
    client.once('drain', () => upstream.resume())
    return false
  }
  const upstream = connect({ host: '127.0.0.1', port, noDelay: true, onread: { buffer: () => buffer, callback } })
  return upstream
}

const server = createServer({ noDelay: true }, (client) => {
  const upstream = connectFor(client)
  client.on('data', (chunk) => {
    if (upstream.write(chunk)) return
    client.pause()
    upstream.once('drain', () => client.resume())
  })
  for (const [one, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    one.on('error', () => undefined)
    one.on('close', () => other.destroy())
  }
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
// a cast: a listening TCP server has an AddressInfo
process.send?.((server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit())
