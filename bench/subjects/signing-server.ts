/**
 * A bare node:http server that responds to every request with a newly signed token. It receives the shape of the token in a message, and
 * sends its port in a message.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createJwtSigner, type JwtShape } from '../load/jwt-signer.ts'

const [shape] = (await once(process, 'message')) as [JwtShape]
const signJwt = createJwtSigner(shape)
const server = createServer((_request, response) => {
  const token = signJwt()
  const body = JSON.stringify({ token, access_token: token, expires_in: 600, issued_at: new Date().toISOString() })
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body)
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
// a cast: a listening TCP server has an AddressInfo
process.send?.((server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit())
