/**
 * A bare Koa server with one middleware, which responds with a fixed JSON text. It receives the text in a message, and sends its port in a
 * message.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Koa from 'koa'

const [text] = (await once(process, 'message')) as [string]
const app = new Koa()
app.use((context) => {
  context.type = 'application/json'
  context.body = text
})
const answer = app.callback()
const server = createServer((request, response) => void answer(request, response))
server.listen(0, '127.0.0.1')
await once(server, 'listening')
// a cast: a listening TCP server has an AddressInfo
process.send?.((server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit())
