/**
 * An HTTPS sink that answers every event with 200, but never answers those for `/silent`. It receives a certificate in a message, and
 * sends its port in a message. After that, it answers each number that it receives once it has received that many events.
 */
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { SinkReport } from './sinks.ts'

const [identity] = (await once(process, 'message')) as [{ readonly cert: string; readonly key: string }]
let events = 0
let wanted = Infinity
let last: Omit<SinkReport, 'events'> = { headers: [], body: '' }

function report(): void {
  if (events < wanted) return
  wanted = Infinity
  process.send?.({ events, ...last } satisfies SinkReport)
}

const server = createServer({ ...identity, keepAliveTimeout: 60_000 }, (request, response) => {
  if (request.url === '/silent') {
    request.resume()
    return
  }
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    events += 1
    response.writeHead(200).end()
    if (events < wanted) return
    last = { headers: request.rawHeaders, body: Buffer.concat(chunks).toString() }
    report()
  })
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
process.on('message', (count: number) => {
  wanted = count
  report()
})
// a cast: a listening TCP server has an AddressInfo
process.send?.((server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit())
