import { create } from '@bufbuild/protobuf'
import { durationMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import { rootOf } from '../base/uid.ts'
import { Alarm } from '../base/timing.ts'
import type { UsedLog } from '../engine/log/shared-log.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../engine/services.ts'
import { EventSchema, PullEventsResponseSchema, type PullEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { StoreError } from '../store/store.ts'
import { FeedReader, type Found, type LookLimits, type Place } from './feed-reader.ts'

const defaultEvents = 100
const maxEvents = 500
/** Size of the stored events of one answer, in bytes; an answer has at least one event. */
const maxBytes = 4 * 2 ** 20
/** When a request that found no place to wait may come again, in milliseconds. */
const retryAfterMs = 5_000

/** PullEvents: the events after a cursor that the caller may see as of now. Waits for one if none is there (docs/spec/events.md#feed). */
export const pullEvents: Handler = async (services, context, message) => {
  const request = message as PullEventsRequest
  const limits = { events: Math.min(request.pageSize === 0 ? defaultEvents : request.pageSize, maxEvents), bytes: maxBytes }
  const endMs = services.clock.now() + (request.wait === undefined ? 0 : durationMs(request.wait))
  const used = await services.eventLog.acquire(context.signal)
  const { log } = used
  try {
    await log.caughtUp(context.signal)
    const reader = new FeedReader(services, context, { request, log })
    const found = await reader.look(await reader.placeOf(request.cursor), limits)
    const isDone = found.events.length > 0 || found.more || services.clock.now() >= endMs
    return answerOf(reader, isDone ? found : await nextFound(services, context, { used, reader, from: found.place, limits, endMs }))
  } finally {
    used.release()
  }
}

/** A reader that waits. */
interface Waiting {
  readonly used: UsedLog
  readonly reader: FeedReader
  readonly from: Place
  readonly limits: LookLimits
  readonly endMs: number
}

/** Waits for an event that the caller sees, and looks again when time is up. Throws code 8 if too many requests of the organisation wait, and code 14 if the log ends. */
async function nextFound(services: Services, context: Context, { used, reader, from, limits, endMs }: Waiting): Promise<Found> {
  const { clock, eventLog } = services
  const { signal } = context
  const free = eventLog.readers.take([rootOf(callerOf(context).identity)])
  if (free === undefined)
    throw new DomainError(8, 'too many requests of this organisation wait for events', { reason: 'RATE_LIMITED', details: { retryAfterMs } })
  const alarm = new Alarm()
  // An event that the caller did not see at the last look wakes no one: it costs one comparison. The look at the end counts rights that came since.
  const forget = used.log.onAppend((entry) => {
    if (reader.sees(entry)) alarm.ring()
  })
  let hasEnded = false
  used.ended.catch(() => {
    hasEnded = true
    alarm.ring()
  })
  try {
    for (let place = from; ;) {
      alarm.arm()
      const found = await reader.look(place, limits)
      if (found.events.length > 0 || found.more || clock.now() >= endMs) return found
      await alarm.until(endMs, { clock, signal })
      signal.throwIfAborted()
      // An empty page would say that there is no event.
      if (hasEnded) throw new StoreError('unavailable', 'the watch on the outbox ended')
      place = found.place
    }
  } finally {
    forget()
    free()
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
