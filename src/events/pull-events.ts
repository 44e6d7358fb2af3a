import { create } from '@bufbuild/protobuf'
import { durationMs } from '@bufbuild/protobuf/wkt'
import type { Handler, HandlerAnswer } from '../engine/services.ts'
import { EventSchema, PullEventsResponseSchema, type PullEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { FeedReader, type Found, type LookLimits, type Place } from './feed-reader.ts'
import { FeedWait } from './feed-wait.ts'

const defaultEvents = 100
const maxEvents = 500
/** Maximum size of the stored events in one response, in bytes. One event is always allowed. */
const maxBytes = 4 * 2 ** 20
/**
 * PullEvents: returns the events after a cursor that the caller may currently see. If there is none, waits for one
 * (docs/spec/events.md#feed).
 */
export const pullEvents: Handler = async (services, context, message) => {
  const request = message as PullEventsRequest
  const limits = { events: Math.min(request.pageSize === 0 ? defaultEvents : request.pageSize, maxEvents), bytes: maxBytes }
  const endMs = performance.now() + (request.wait === undefined ? 0 : durationMs(request.wait))
  const used = await services.eventLog.acquire(context.signal)
  const { log } = used
  try {
    await log.caughtUp(context.signal)
    const reader = new FeedReader(services, context, { request, log })
    const found = await reader.look(await reader.placeOf(request.cursor), limits)
    const isDone = found.events.length > 0 || found.more || performance.now() >= endMs
    if (isDone) return answerOf(reader, found)
    const wait = new FeedWait(services, context, { used, reader, kind: 'poll' })
    return answerOf(reader, await nextFound({ wait, reader, from: found.place, limits, endMs }))
  } finally {
    used.release()
  }
}

/** State of a reader that waits. */
interface Waiting {
  readonly wait: FeedWait
  readonly reader: FeedReader
  readonly from: Place
  readonly limits: LookLimits
  /** End of the wait, on the monotonic clock, in milliseconds. */
  readonly endMs: number
}

/**
 * Waits for an event that the caller can see, then reads again. Also reads again when the time is over. Rejects with StoreError if the log
 * ends.
 */
async function nextFound({ wait, reader, from, limits, endMs }: Waiting): Promise<Found> {
  try {
    for (let place = from; ;) {
      wait.arm()
      const found = await reader.look(place, limits)
      const leftMs = endMs - performance.now()
      if (found.events.length > 0 || found.more || leftMs <= 0 || wait.isLeaving) return found
      await wait.wait(leftMs)
      place = found.place
    }
  } finally {
    wait.close()
  }
}

function answerOf(reader: FeedReader, { events: shown, place }: Found): HandlerAnswer {
  const nextCursor = reader.cursorAt(place)
  const events = shown.map(({ event }) => event)
  return {
    message: create(PullEventsResponseSchema, { events, nextCursor }),
    document: {
      contentType: 'application/cloudevents-batch+json; charset=utf-8',
      items: events,
      itemDesc: EventSchema,
      headers: { 'Next-Cursor': nextCursor },
    },
  }
}
