/**
 * A bare grpc-js server that responds to every unary call with the same bytes. It receives the bytes (base64) and the path in a message,
 * and sends its port in a message.
 */
import { once } from 'node:events'
import { Server, ServerCredentials } from '@grpc/grpc-js'

const [{ path, answer }] = (await once(process, 'message')) as [{ path: string; answer: string }]
const bytes = Buffer.from(answer, 'base64')
const server = new Server()
const same = (value: Buffer): Buffer => value
const definition = {
  path,
  requestStream: false,
  responseStream: false,
  requestSerialize: same,
  requestDeserialize: same,
  responseSerialize: same,
  responseDeserialize: same,
}
server.addService({ call: definition }, { call: (_call: unknown, callback: (error: null, value: Buffer) => void) => callback(null, bytes) })
const { promise, resolve, reject } = Promise.withResolvers<number>()
server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => (error === null ? resolve(port) : reject(error)))
process.send?.(await promise)
process.on('disconnect', () => process.exit())
