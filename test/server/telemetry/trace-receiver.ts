import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { expect } from 'vitest'

/** A span as a collector gets it. */
export interface ReceivedSpan {
  readonly name: string
  readonly kind: 'internal' | 'server' | 'client'
  readonly traceId: string
  readonly spanId: string
  /** Empty for the first span of a trace. */
  readonly parentSpanId: string
  readonly attributes: Readonly<Record<string, string | number | boolean>>
  readonly failed: boolean
  /** Trace ids of linked spans. */
  readonly links: readonly string[]
  readonly resource: Readonly<Record<string, string | number | boolean>>
}

/** A receiver of OTLP over HTTP, in this process. */
export interface TraceReceiver {
  /** The value of OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly url: string
  readonly spans: readonly ReceivedSpan[]
  /** The headers of each request. */
  readonly requests: readonly IncomingHttpHeaders[]
  /** The bodies of all requests: what must not be sent is in none of them. */
  readonly bytes: () => Buffer
  /** How it answers: by default it accepts. */
  answer: (response: ServerResponse) => void
  /** Resolves with the span for which `isWanted` is true, once it has arrived. */
  span(isWanted: (span: ReceivedSpan) => boolean): Promise<ReceivedSpan>
  stop(): Promise<void>
}

type Fields = ReadonlyMap<number, readonly (Uint8Array | bigint | number)[]>

/** The fields of a protobuf message, by number. */
function fieldsOf(bytes: Uint8Array): Fields {
  const fields = new Map<number, (Uint8Array | bigint | number)[]>()
  const reader = new BinaryReader(bytes)
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag()
    const values = fields.get(number) ?? []
    fields.set(number, values)
    if (type === WireType.LengthDelimited) values.push(reader.bytes())
    else if (type === WireType.Varint) values.push(Number(reader.int64()))
    else if (type === WireType.Bit64) values.push(BigInt(reader.fixed64()))
    else values.push(reader.fixed32())
  }
  return fields
}

function allOf(fields: Fields, number: number): readonly Uint8Array[] {
  return (fields.get(number) ?? []).filter((value) => value instanceof Uint8Array)
}

function bytesOf(fields: Fields, number: number): Buffer {
  return Buffer.from(allOf(fields, number)[0] ?? [])
}

/** Reads `repeated KeyValue`. */
function attributesOf(fields: Fields, number: number): Record<string, string | number | boolean> {
  return Object.fromEntries(
    allOf(fields, number).map((bytes) => {
      const pair = fieldsOf(bytes)
      const value = fieldsOf(bytesOf(pair, 2))
      const read = value.has(1) ? bytesOf(value, 1).toString() : value.has(2) ? value.get(2)?.[0] === 1 : Number(value.get(3)?.[0])
      return [bytesOf(pair, 1).toString(), read]
    }),
  )
}

const kinds = { 1: 'internal', 2: 'server', 3: 'client' } as const

/** Reads an ExportTraceServiceRequest of opentelemetry-proto 1. */
function spansOf(body: Uint8Array): ReceivedSpan[] {
  return allOf(fieldsOf(body), 1).flatMap((ofResource) => {
    const parts = fieldsOf(ofResource)
    const resource = attributesOf(fieldsOf(bytesOf(parts, 1)), 1)
    const spans = allOf(parts, 2).flatMap((ofScope) => allOf(fieldsOf(ofScope), 2))
    return spans.map((bytes): ReceivedSpan => {
      const span = fieldsOf(bytes)
      return {
        name: bytesOf(span, 5).toString(),
        kind: kinds[Number(span.get(6)?.[0]) as keyof typeof kinds],
        traceId: bytesOf(span, 1).toString('hex'),
        spanId: bytesOf(span, 2).toString('hex'),
        parentSpanId: bytesOf(span, 4).toString('hex'),
        attributes: attributesOf(span, 9),
        failed: Number(fieldsOf(bytesOf(span, 15)).get(3)?.[0]) === 2,
        links: allOf(span, 13).map((link) => bytesOf(fieldsOf(link), 1).toString('hex')),
        resource,
      }
    })
  })
}

/** Starts a receiver. */
export async function startTraceReceiver(): Promise<TraceReceiver> {
  const spans: ReceivedSpan[] = []
  const requests: IncomingHttpHeaders[] = []
  const bodies: Buffer[] = []
  const server: Server = createServer((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      requests.push(request.headers)
      const body = Buffer.concat(pieces)
      bodies.push(body)
      if (request.url === '/v1/traces') spans.push(...spansOf(body))
      receiver.answer(response)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo // it listens on TCP
  const receiver: TraceReceiver = {
    url: `http://127.0.0.1:${port}`,
    spans,
    requests,
    bytes: () => Buffer.concat(bodies),
    answer: (response) => response.writeHead(200, { 'Content-Type': 'application/x-protobuf' }).end(),
    async span(isWanted) {
      await expect.poll(() => spans.some(isWanted)).toBe(true)
      return spans.find(isWanted) as ReceivedSpan // the line above found it
    },
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return receiver
}
