import { create } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import { fromStore } from '../engine/errors.ts'
import type { UsedLog } from '../engine/log/shared-log.ts'
import type { Context, Handler, StreamedMessage } from '../engine/services.ts'
import { EventSchema, WatchEventsResponseSchema, type WatchEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { FeedReader, type LookLimits, type Place, type ShownEvent } from './feed-reader.ts'
import { FeedWait } from './feed-wait.ts'

/** Maximum time without a message on a stream, in milliseconds. Then the stream sends its cursor, and checks the caller's token again. */
const heartbeatMs = 15_000
/** Maximum number and size of events that one stream holds in memory. */
const limits: LookLimits = { events: 16, bytes: 256 * 1024 }

/** State of a stream. */
interface Watching {
  readonly used: UsedLog
  readonly reader: FeedReader
  readonly wait: FeedWait
  readonly from: Place
}

function messageOf(cursor: string, shown?: ShownEvent): StreamedMessage {
  const event = shown?.event
  return {
    message: create(WatchEventsResponseSchema, { cursor, ...(event === undefined ? {} : { event }) }),
    cursor,
    event: event === undefined ? undefined : { type: event.type, document: event, desc: EventSchema },
  }
}

/**
 * WatchEvents: streams the events after a cursor, and then new ones. The caller's right to see an event is checked when it is sent
 * (docs/spec/events.md#streams).
 */
export const watchEvents: Handler = async (services, context, message) => {
  const request = message as WatchEventsRequest
  const used = await services.eventLog.acquire(context.signal)
  try {
    await used.log.caughtUp(context.signal)
    const reader = new FeedReader(services, context, { request, log: used.log })
    const from = await reader.placeOf(request.cursor)
    reader.assertKept(from)
    context.signal.throwIfAborted()
    const wait = new FeedWait(services, context, { used, reader, kind: 'stream' })
    // If no transport starts to read the stream, it ends with its call.
    context.signal.addEventListener('abort', () => used.release(), { once: true })
    return { message: create(WatchEventsResponseSchema), stream: watched(context, { used, reader, wait, from }) }
  } catch (error) {
    used.release()
    throw error
  }
}

async function* watched(context: Context, { used, reader, wait, from }: Watching): AsyncGenerator<StreamedMessage, never> {
  try {
    yield messageOf(reader.cursorAt(from))
    let heartbeatAtMs = performance.now() + heartbeatMs
    for (let place = from; ;) {
      wait.arm()
      await context.reauthenticate()
      const found = await reader.look(place, limits)
      for (const shown of found.events) {
        // The client may have read slowly, so its token is checked again.
        await context.reauthenticate()
        reader.view()
        if (reader.sees(shown.entry)) yield messageOf(reader.cursorAt(shown.place), shown)
      }
      place = found.place
      if (wait.isLeaving) throw new DomainError(14, 'the server is stopping: connect again with the last cursor that you received')
      if (found.events.length > 0) heartbeatAtMs = performance.now() + heartbeatMs
      if (found.more) continue
      await wait.wait(heartbeatAtMs - performance.now())
      // Timers may fire slightly early.
      if (performance.now() < heartbeatAtMs - 50) continue
      yield messageOf(reader.cursorAt(place))
      heartbeatAtMs = performance.now() + heartbeatMs
    }
  } catch (error) {
    throw fromStore(error)
  } finally {
    wait.close()
    used.release()
  }
}
