import { createSocket } from 'node:dgram'
import { promises } from 'node:dns'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { LookupFunction } from 'node:net'
import { createResolverLookup } from '../../src/auth/resolver-lookup.ts'
import { createAuthority } from '../support/parts/sign-in/authority.ts'
import { closeNow, listenOnLoopback } from '../support/parts/loopback.ts'
import { sinkAuthority } from './sink.ts'

/** The domain of the sinks' names. */
const domain = 'sinks.example.com'
const trusted = sinkAuthority.issue({ name: `*.${domain}` })
const untrusted = createAuthority('strangers').issue({ name: `*.${domain}` })

/** Answers a request until the sink recovers. It must not answer 2xx unless its row says so. */
type Misbehaviour = (response: ServerResponse, sink: CountingSink) => void

/** A kind of failing sink, and the number of events that it accepts before it recovers. */
export interface BadSink {
  readonly what: string
  readonly misbehave: Misbehaviour
  /** The address of its name until it recovers: loopback if absent, no address if empty. */
  readonly address?: string
  readonly isUntrusted?: boolean
  /** `lastError` of its subscription; any if absent. Empty if it accepts events. */
  readonly lastError?: string
}

const chunk = Buffer.alloc(64 * 1024)
const gigabyte = 2 ** 30

/** Sends a gigabyte, as long as it is read, and never holds more than one chunk. */
function sendGigabyte(response: ServerResponse, sink: CountingSink): void {
  let sent = 0
  const more = (): void => {
    while (sent < gigabyte && !response.destroyed) {
      sent += chunk.length
      sink.sentBytes += chunk.length
      if (!response.write(chunk)) {
        response.once('drain', more)
        return
      }
    }
    response.end()
  }
  more()
}

const status =
  (code: number, headers: Readonly<Record<string, string>> = {}): Misbehaviour =>
  (response) =>
    void response.writeHead(code, headers).end()

/** Each way in which a sink fails. */
export const badSinks: readonly BadSink[] = [
  { what: 'refuses every event', misbehave: status(500), lastError: 'the sink answered 500' },
  { what: 'refuses every third event', misbehave: (response, sink) => (sink.requests % 3 === 0 ? status(500)(response, sink) : sink.accept(response)) },
  { what: 'answers 429 with Retry-After', misbehave: status(429, { 'retry-after': '30' }), lastError: 'the sink answered 429' },
  {
    what: 'answers 503 with the date of a Retry-After',
    misbehave: (response, sink) => status(503, { 'retry-after': new Date(Date.now() + 30_000).toUTCString() })(response, sink),
    lastError: 'the sink answered 503',
  },
  { what: 'never answers', misbehave: () => undefined },
  { what: 'answers slowly', misbehave: (response, sink) => void setTimeout(() => sink.accept(response), 20), lastError: '' },
  { what: 'closes connections without an answer', misbehave: (response) => void response.socket?.destroy() },
  {
    what: 'closes connections in the middle of an answer',
    misbehave(response, sink) {
      sink.note(response)
      response.writeHead(200, { 'content-length': '1000' })
      response.write('{', () => response.socket?.destroy())
    },
  },
  { what: 'redirects', misbehave: (response, sink) => status(307, { location: sink.elsewhere })(response, sink), lastError: 'the sink answered 307' },
  {
    what: 'has a private address',
    misbehave: status(500),
    address: '10.1.2.3',
    lastError: 'the sink has a private address that the configuration does not allow',
  },
  { what: 'has no address', misbehave: status(500), address: '', lastError: 'the name of the sink does not resolve' },
  { what: 'has a certificate of a stranger', misbehave: status(500), isUntrusted: true, lastError: 'the certificate of the sink is not trusted' },
  {
    what: 'sends a gigabyte with an error',
    misbehave: (response, sink) => sendGigabyte(response.writeHead(500), sink),
    lastError: 'the sink answered 500',
  },
  {
    what: 'sends a gigabyte after one event in fifty',
    misbehave(response, sink) {
      if (sink.requests % 50 !== 1) sink.accept(response)
      else {
        sink.note(response)
        sendGigabyte(response.writeHead(200), sink)
      }
    },
    lastError: '',
  },
  { what: 'answers 410', misbehave: status(410) },
]

/** An HTTPS server that counts the accepted events, and stores nothing else of them. */
export interface CountingSink {
  readonly url: string
  /** How often each event was accepted, by id. */
  readonly accepted: ReadonlyMap<string, number>
  /** Requests so far. */
  requests: number
  sentBytes: number
  /** The URL that a redirecting sink redirects to. */
  elsewhere: string
  /** Accepts the event in the request of `response`. */
  accept(response: ServerResponse): void
  /** Counts the event as accepted: the caller answers 2xx. */
  note(response: ServerResponse): void
  /** Accepts all events from now on, and ends the requests that wait. */
  recover(): void
  close(): Promise<void>
}

/** Starts a sink under a name of its own. */
export async function startCountingSink(names: Map<string, string>, bad?: BadSink): Promise<CountingSink> {
  const accepted = new Map<string, number>()
  const name = `sink-${names.size}.${domain}`
  names.set(name, bad?.address ?? '127.0.0.1')
  let misbehave = bad?.misbehave
  /** Answers that have not ended. */
  const open = new Set<ServerResponse>()
  const context = ({ certificate, key }: typeof trusted) => ({ cert: certificate, key })
  const server = createServer(context(bad?.isUntrusted === true ? untrusted : trusted), (request: IncomingMessage, response) => {
    request.resume().once('end', () => {
      sink.requests += 1
      open.add(response)
      response.once('close', () => open.delete(response))
      if (misbehave === undefined) sink.accept(response)
      else misbehave(response, sink)
    })
  })
  const port = await listenOnLoopback(server)
  const sink: CountingSink = {
    url: `https://${name}:${port}/events`,
    accepted,
    requests: 0,
    sentBytes: 0,
    elsewhere: '',
    accept(response) {
      if (response.destroyed) return
      sink.note(response)
      response.writeHead(200).end()
    },
    note(response) {
      const id = String(response.req.headers['ce-id'])
      accepted.set(id, (accepted.get(id) ?? 0) + 1)
    },
    recover() {
      misbehave = undefined
      names.set(name, '127.0.0.1')
      server.setSecureContext(context(trusted))
      for (const response of open) if (!response.headersSent) response.destroy()
    },
    close: () => closeNow(server),
  }
  return sink
}

/** A name server on the loopback address, and a lookup that asks it alone. `names` may change. */
export async function startNameServer(names: ReadonlyMap<string, string>): Promise<{ readonly lookup: LookupFunction; close(): void }> {
  const socket = createSocket('udp4')
  socket.on('message', (query, from) => socket.send(answerTo(query, names), from.port, from.address))
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  const resolver = new promises.Resolver()
  resolver.setServers([`127.0.0.1:${socket.address().port}`])
  return { lookup: createResolverLookup(resolver), close: () => void socket.close() }
}

/** Answers a DNS query for one name (RFC 1035). Only queries for IPv4 addresses have an answer. A name without an address does not exist. */
function answerTo(query: Buffer, names: ReadonlyMap<string, string>): Buffer {
  const labels: string[] = []
  let at = 12
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length).toLowerCase())
    at += length + 1
  }
  const question = query.subarray(12, at + 5)
  const address = names.get(labels.join('.')) ?? ''
  const isForAddress = query.readUInt16BE(at + 1) === 1
  const header = Buffer.from(query.subarray(0, 12))
  header.writeUInt16BE(address === '' ? 0x8183 : 0x8180, 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(address !== '' && isForAddress ? 1 : 0, 6)
  header.fill(0, 8)
  if (address === '' || !isForAddress) return Buffer.concat([header, question])
  const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ...address.split('.').map(Number)])
  return Buffer.concat([header, question, answer])
}
