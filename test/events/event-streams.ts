import { fromBinary, fromJson, toBinary, toJson, type JsonObject } from '@bufbuild/protobuf'
import { Client, credentials, Metadata, type ClientReadableStream, type ServiceError } from '@grpc/grpc-js'
import { WatchEventsRequestSchema, WatchEventsResponseSchema, type WatchEventsResponse } from '../../src/gen/taproot/events/v2/events_pb.ts'
import { grpcFailure } from '../support/api-clients.ts'

/** A message of a stream, in the same form for REST and gRPC. */
export interface Streamed {
  /** Absent in a message that only moves the cursor. */
  readonly event: JsonObject | undefined
  readonly cursor: string
}

/** The end of a stream. */
export interface StreamEnd {
  /** 0 if the stream ended without an error. */
  readonly code: number
  readonly reason: string | undefined
  readonly oldestCursor: string | undefined
}

/** An open or refused stream. */
export interface EventStream {
  /** Resolves with the next event; undefined once the stream has ended. */
  next(): Promise<Streamed | undefined>
  /** Resolves with the cursor that the next message carries, with or without an event. */
  nextCursor(): Promise<string | undefined>
  /** Resolves when the server ended the stream. */
  readonly ended: Promise<StreamEnd>
  /** Reads no further message from the connection until `resume`. */
  pause(): void
  resume(): void
  close(): void
}

/** The port, transport and caller of a stream. */
export interface StreamOptions {
  readonly port: number
  readonly transport: 'rest' | 'grpc'
  readonly token: string
  /** Sent in the header over REST, in place of `cursor`. */
  readonly lastEventId?: string
}

/** The received messages, and a wait for the next one. */
class Arrivals {
  readonly #messages: Streamed[] = []
  #wake: () => void = () => undefined
  #isOver = false
  readonly end = Promise.withResolvers<StreamEnd>()

  add(message: Streamed): void {
    this.#messages.push(message)
    this.#wake()
  }

  finish(end: StreamEnd): void {
    this.#isOver = true
    this.end.resolve(end)
    this.#wake()
  }

  async next(): Promise<Streamed | undefined> {
    for (;;) {
      const first = this.#messages.shift()
      if (first !== undefined || this.#isOver) return first
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      await promise
    }
  }
}

/** Opens a stream of events. */
export async function openStream(request: JsonObject, options: StreamOptions): Promise<EventStream> {
  const arrivals = new Arrivals()
  const opened = options.transport === 'grpc' ? openGrpc(request, options, arrivals) : await openRest(request, options, arrivals)
  return {
    async next() {
      for (;;) {
        const message = await arrivals.next()
        if (message?.event !== undefined || message === undefined) return message
      }
    },
    nextCursor: async () => (await arrivals.next())?.cursor,
    ended: arrivals.end.promise,
    ...opened,
  }
}

function endOf(code: number, info: JsonObject | undefined): StreamEnd {
  const metadata = info?.['metadata'] as JsonObject | undefined
  return { code, reason: info?.['reason'] as string | undefined, oldestCursor: metadata?.['oldestCursor'] as string | undefined }
}

/** Returns the end of the stream from an error in JSON. */
function endIn(body: unknown): StreamEnd {
  const { code, details } = body as { code: number; details: readonly JsonObject[] }
  return endOf(
    code,
    details.find((detail) => String(detail['@type']).endsWith('.ErrorInfo')),
  )
}

function queryOf(request: JsonObject): URLSearchParams {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(request)) {
    if (name === 'uidp') query.set('uidp.descendants_of', String((value as JsonObject)['descendantsOf']))
    else for (const one of [value].flat()) query.append(name, String(one))
  }
  return query
}

type Opened = Pick<EventStream, 'pause' | 'resume' | 'close'>

async function openRest(request: JsonObject, { port, token, lastEventId }: StreamOptions, arrivals: Arrivals): Promise<Opened> {
  const abort = new AbortController()
  const headers = {
    accept: 'text/event-stream; charset=utf-8',
    authorization: `Bearer ${token}`,
    ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
  }
  const response = await fetch(`http://127.0.0.1:${port}/events/v2/events?${queryOf(request)}`, { headers, signal: abort.signal })
  let paused: PromiseWithResolvers<void> | undefined
  const read = async (): Promise<void> => {
    if (response.status !== 200) return arrivals.finish(endIn(await response.json()))
    if (response.headers.get('content-type') !== 'text/event-stream; charset=utf-8') throw new Error('not a stream of events')
    let text = ''
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      const records = (text + chunk).split('\n\n')
      text = records.pop() ?? ''
      for (const record of records) take(record, arrivals)
      await paused?.promise
    }
    arrivals.finish({ code: 0, reason: undefined, oldestCursor: undefined })
  }
  read().catch(() => arrivals.finish({ code: 1, reason: undefined, oldestCursor: undefined }))
  const resume = (): void => {
    paused?.resolve()
    paused = undefined
  }
  const close = (): void => {
    abort.abort()
    resume()
  }
  return { pause: () => void (paused = Promise.withResolvers()), resume, close }
}

function take(record: string, arrivals: Arrivals): void {
  const fields = new Map(record.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()] as const))
  const [type, data, cursor = ''] = [fields.get('event'), fields.get('data'), fields.get('id')]
  if (type === 'error') arrivals.finish(endIn(JSON.parse(data ?? '')))
  else arrivals.add({ event: data === undefined ? undefined : (JSON.parse(data) as JsonObject), cursor })
}

function openGrpc(request: JsonObject, { port, token }: StreamOptions, arrivals: Arrivals): Opened {
  // Its own connection, because one connection carries at most 100 streams.
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 })
  const metadata = new Metadata()
  metadata.set('authorization', `Bearer ${token}`)
  const call: ClientReadableStream<WatchEventsResponse> = client.makeServerStreamRequest(
    '/taproot.events.v2.EventsService/WatchEvents',
    (message) => Buffer.from(toBinary(WatchEventsRequestSchema, message)),
    (bytes) => fromBinary(WatchEventsResponseSchema, bytes),
    fromJson(WatchEventsRequestSchema, request),
    metadata,
  )
  call.on('data', ({ cursor, event }: WatchEventsResponse) => {
    const json = toJson(WatchEventsResponseSchema, { $typeName: WatchEventsResponseSchema.typeName, cursor, ...(event === undefined ? {} : { event }) })
    arrivals.add({ event: (json as JsonObject)['event'] as JsonObject | undefined, cursor })
  })
  call.on('error', (error: ServiceError) => {
    const { details } = grpcFailure(error, () => undefined)
    arrivals.finish(endOf(error.code, details['ErrorInfo']))
    client.close()
  })
  return { pause: () => void call.pause(), resume: () => void call.resume(), close: () => call.cancel() }
}
