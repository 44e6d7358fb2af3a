import { once } from 'node:events'
import type { IncomingMessage, Server as HttpServer } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { Server } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { createServer as createTlsServer } from 'node:tls'
import { selfSigned } from '../../auth/certificate.ts'

/** An event that a receiver read. */
export type ReceivedEvent = Readonly<Record<string, unknown>>

/** A receiver of audit events, on 127.0.0.1. */
export interface Receiver {
  readonly received: ReceivedEvent[]
  /** The raw data received. */
  readonly raw: string[]
  close(): Promise<void>
}

/** The self-signed certificate of all receivers. */
export const receiverTls = selfSigned('receiver.example')

const tls = { cert: receiverTls.certificate, key: receiverTls.key }

async function closeServer(server: Server | HttpServer): Promise<void> {
  server.close()
  if ('closeAllConnections' in server) server.closeAllConnections()
  await once(server, 'close')
}

/** Reads the frames of RFC 5425: length in bytes, space, message. Throws on other data. */
export function readFrames(bytes: Buffer): string[] {
  const messages: string[] = []
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(32, at)
    const length = Number(bytes.toString('ascii', at, space))
    if (!Number.isInteger(length) || length <= 0 || space + 1 + length > bytes.length) throw new Error(`no frame at ${at}`)
    messages.push(bytes.toString('utf8', space + 1, space + 1 + length))
    at = space + 1 + length
  }
  return messages
}

/** RFC 5424: priority, version, timestamp, host, application, process, message id, structured data, message. */
const syslogLine = /^<(?<priority>\d{1,3})>1 (?<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?<host>[\x21-\x7e]{1,255}) taproot - audit - (?<json>\{.*\})$/

/** A syslog server over TLS. It ends the first `closesEarly` connections without reading them. */
export async function startSyslog(port: number, { closesEarly = 0 } = {}): Promise<Receiver> {
  const received: ReceivedEvent[] = []
  const raw: string[] = []
  let connections = 0
  const server = createTlsServer(tls, (socket) => {
    connections += 1
    socket.on('error', () => undefined)
    if (connections <= closesEarly) {
      socket.destroy()
      return
    }
    const chunks: Buffer[] = []
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.on('end', () => {
      for (const message of readFrames(Buffer.concat(chunks))) {
        raw.push(message)
        const { priority, json = '' } = syslogLine.exec(message)?.groups ?? {}
        received.push({ ...(JSON.parse(json) as ReceivedEvent), priority: Number(priority) })
      }
    })
  })
  await once(server.listen(port, '127.0.0.1'), 'listening')
  return { received, raw, close: () => closeServer(server) }
}

/** The answer of an HTTPS receiver to a body: status and JSON. */
export type HttpAnswerOf = (body: string) => { readonly status: number; readonly json?: unknown }

async function startHttps(port: number, read: (request: IncomingMessage, body: string) => ReceivedEvent[], answerOf: HttpAnswerOf): Promise<Receiver> {
  const received: ReceivedEvent[] = []
  const raw: string[] = []
  const server = createHttpsServer(tls, (request, response) => {
    void buffer(request).then((bytes) => {
      const body = bytes.toString('utf8')
      const { status, json = {} } = answerOf(body)
      if (status === 200) {
        raw.push(body)
        received.push(...read(request, body))
      }
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(json))
    })
  })
  await once(server.listen(port, '127.0.0.1'), 'listening')
  return { received, raw, close: () => closeServer(server) }
}

/** An HTTPS server that takes JSON lines. */
export function startJsonLines(port: number, answerOf: HttpAnswerOf = () => ({ status: 200 })): Promise<Receiver> {
  return startHttps(
    port,
    ({ method, headers }, body) => {
      if (method !== 'POST' || headers['content-type'] !== 'application/x-ndjson') throw new Error(`unexpected ${method} ${headers['content-type']}`)
      const { authorization } = headers
      return body
        .trimEnd()
        .split('\n')
        .map((line) => ({ ...(JSON.parse(line) as ReceivedEvent), ...(authorization === undefined ? {} : { authorization }) }))
    },
    answerOf,
  )
}

interface OtlpAttribute {
  readonly key: string
  readonly value: { readonly stringValue?: string; readonly boolValue?: boolean; readonly intValue?: string }
}

interface OtlpRecord {
  readonly timeUnixNano: string
  readonly severityNumber: number
  readonly attributes: readonly OtlpAttribute[]
}

interface OtlpLogs {
  readonly resourceLogs: readonly {
    readonly resource: { readonly attributes: readonly OtlpAttribute[] }
    readonly scopeLogs: readonly { readonly logRecords: readonly OtlpRecord[] }[]
  }[]
}

function plain(attributes: readonly OtlpAttribute[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.boolValue ?? Number(value.intValue)]))
}

/** An OTLP/HTTP receiver of logs. */
export function startOtlp(port: number, answerOf: HttpAnswerOf = () => ({ status: 200 })): Promise<Receiver> {
  return startHttps(
    port,
    ({ url, headers }, body) => {
      if (url !== '/v1/logs' || headers['content-type'] !== 'application/json') throw new Error(`unexpected ${url} ${headers['content-type']}`)
      const { resourceLogs } = JSON.parse(body) as OtlpLogs
      return resourceLogs.flatMap(({ resource, scopeLogs }) => {
        if (plain(resource.attributes)['service.name'] !== 'taproot') throw new Error('the resource has no name')
        return scopeLogs.flatMap(({ logRecords }) =>
          logRecords.map(({ timeUnixNano, severityNumber, attributes }) => ({
            ...plain(attributes),
            severityNumber,
            time: new Date(Number(BigInt(timeUnixNano) / 1_000_000n)).toISOString(),
          })),
        )
      })
    },
    answerOf,
  )
}
