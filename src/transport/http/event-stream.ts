import type { Log } from '../../base/log.ts'
import type { StreamedMessage } from '../../engine/services.ts'
import { sendStream } from '../answer-stream.ts'
import { toDomainError } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import type { JsonEncoders } from '../json-encode.ts'
import { beginAnswer, drained, preferredType, type HttpContext } from './http-context.ts'

const eventStream = 'text/event-stream'
/** The content types of answers that are not streams. A client that accepts any type gets one of these. */
const otherTypes = ['application/json', 'application/cloudevents-batch+json']

/** True if the client prefers Server-Sent Events to all other answers. */
export function acceptsEventStream(context: HttpContext): boolean {
  return context.method === 'GET' && preferredType(context, [...otherTypes, eventStream]) === eventStream
}

/** Returns a message as a Server-Sent Events record. A message without an event, which only has a new cursor, becomes a comment with an id. */
function recordOf({ event, cursor }: StreamedMessage, encoders: JsonEncoders): string {
  if (event === undefined) return `:\nid: ${cursor}\n\n`
  // Neither JSON texts nor event types contain line breaks.
  return `id: ${cursor}\nevent: ${event.type}\ndata: ${encoders(event.desc)(event.document)}\n\n`
}

/** The dependencies and options of an event stream. */
export interface EventStreamOptions {
  readonly encoders: JsonEncoders
  readonly log: Log
}

/** Answers with Server-Sent Events. The last record is `error`; its data is the same as the body of any error answer. Never rejects. */
export async function sendEventStream(context: HttpContext, stream: AsyncIterable<StreamedMessage>, options: EventStreamOptions): Promise<void> {
  const { res, state } = context
  const { signal } = state.call
  // X-Accel-Buffering tells proxies not to collect the records.
  beginAnswer(context, { 'Content-Type': `${eventStream}; charset=utf-8`, 'X-Accel-Buffering': 'no' })
  try {
    await sendStream(stream, { signal, send: (message) => (res.write(recordOf(message, options.encoders)) ? undefined : drained(res, signal)) })
  } catch (thrown) {
    const { domain, method } = state
    const { requestId } = state.headers
    const error = toDomainError(thrown, { requestId, method, signal, log: options.log })
    if (!res.closed) res.end(`event: error\ndata: ${JSON.stringify(httpError(error, { requestId, domain }).body)}\n\n`)
  }
}
