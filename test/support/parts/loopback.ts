import { once } from 'node:events'
import type { Server as HttpServer } from 'node:http'
import type { AddressInfo, Server } from 'node:net'

/** Starts a server on a free loopback port; resolves with the port. */
export async function listenOnLoopback(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  // A listening TCP server has an AddressInfo.
  return (server.address() as AddressInfo).port
}

/** Closes a server and all its connections at once; resolves when it is closed. */
export async function closeNow(server: Pick<HttpServer, 'close' | 'closeAllConnections' | 'once'> & Server): Promise<void> {
  server.closeAllConnections()
  await once(server.close(), 'close')
}
