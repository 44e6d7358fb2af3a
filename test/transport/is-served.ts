import { connect, type Socket } from 'node:net'

/** True if a new connection to the port, kept in `sockets`, gets an answer; false if it is closed. */
export async function isServed(port: number, sockets: Socket[]): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  socket.on('error', () => {})
  socket.write('GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\n\r\n')
  return new Promise((resolve) => {
    socket.once('data', () => resolve(true))
    socket.once('close', () => resolve(false))
  })
}
