import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'

/** `count` different TCP ports of 127.0.0.1 that nothing listens on at this moment. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(servers.map((server) => once(server, 'listening')))
  // A listening TCP server has an AddressInfo.
  const ports = servers.map((server) => (server.address() as AddressInfo).port)
  await Promise.all(servers.map((server) => once(server.close(), 'close')))
  return ports
}
