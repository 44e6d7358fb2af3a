import { create } from '@bufbuild/protobuf'
import { durationMs, type Duration } from '@bufbuild/protobuf/wkt'
import { sealCursor } from '../base/page-token.ts'
import { DomainError } from '../base/errors.ts'
import { errorText } from '../base/error-text.ts'
import { isUid } from '../base/uid.ts'
import { Alarm } from '../base/timing.ts'
import { Slices } from '../cache/slices.ts'
import type { EventLog } from '../engine/log/event-log.ts'
import type { LogEntry, Position } from '../engine/log/log-index.ts'
import { eventLifeMs, outboxTimeMs } from '../engine/log/outbox-keys.ts'
import { openPage } from '../engine/read.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../engine/services.ts'
import { EventSchema, PullEventsResponseSchema, type Event, type PullEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { eventOf, withoutForeignEmail } from './records/event-form.ts'
import { assertTypes } from './records/event-types.ts'
import { viewOf, type FeedFilter } from './records/feed-view.ts'

const defaultEvents = 100
const maxEvents = 500
/** Size of the stored events of one answer, in bytes; an answer has at least one event. */
const maxBytes = 4 * 2 ** 20
/** Events that one answer looks at. An answer that saw so many, and none for the caller, is empty. */
const maxLooked = 50_000
const entriesPerLook = 256
/** Binds a cursor to this method. */
const queryHash = 'events'

/** Where a reader is in the log. */
interface Place extends Position {
  /** Every event that was committed before this time, in milliseconds since 1970, was seen. */
  readonly seenMs: number
}

/** Returns the filter of a request. Throws code 3 for filters that events do not have. */
function filterOf({ uidp, types, includePulls }: PullEventsRequest): FeedFilter {
  assertTypes(types, 'types')
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = uidp ?? {}
  if (childrenOf !== '' || ancestorsOf !== '' || inRoot || ids.length > 0) throw DomainError.invalid('uidp', 'events are filtered by descendants_of only')
  if (descendantsOf !== '' && !isUid(descendantsOf)) throw DomainError.invalid('uidp.descendants_of', 'must be the uid of a group')
  return { place: descendantsOf, types, includePulls }
}

function waitMsOf(wait: Duration | undefined): number {
  return wait === undefined ? 0 : durationMs(wait)
}

function sealed({ pageKeys, random, clock }: Services, { revision, key, seenMs }: Place): string {
  return sealCursor({ key: [revision, key, seenMs], queryHash, issuedMs: clock.now() }, pageKeys.current(), random)
}

/** Returns where a request starts. Throws code 3 for a cursor of another kind, and code 11 for one that is older than what is kept. */
async function placeOf(services: Services, context: Context, { cursor, log }: { cursor: string; log: EventLog }): Promise<Place> {
  const nowMs = services.clock.now()
  if (cursor === 'now') return { ...log.last, seenMs: nowMs }
  if (cursor === '') return { revision: 0, key: '', seenMs: nowMs }
  const { key, restarted } = await openPage(services, context, { text: cursor, queryHash }).catch((error: unknown) => {
    throw error instanceof DomainError && error.code === 3 ? DomainError.invalid('cursor', 'is not a cursor of this method') : error
  })
  const [revision, outboxKey, seenMs] = key ?? []
  const isPlace = typeof revision === 'number' && typeof outboxKey === 'string' && typeof seenMs === 'number'
  if (restarted || !isPlace || nowMs - seenMs > eventLifeMs) {
    const oldestCursor = sealed(services, { revision: 0, key: '', seenMs: nowMs })
    throw new DomainError(11, 'the cursor is older than the events that are kept: continue with oldestCursor, and expect a gap', {
      reason: 'CURSOR_EXPIRED',
      details: { metadata: { oldestCursor } },
    })
  }
  return { revision, key: outboxKey, seenMs }
}

/** What one look at the log found. */
interface Found {
  readonly events: readonly Event[]
  readonly place: Place
  /** True if the look ended before the end of the log. */
  readonly more: boolean
}

/** Collects the events after a place that the caller sees. */
class Reader {
  readonly #services: Services
  readonly #context: Context
  readonly #filter: FeedFilter
  readonly #log: EventLog
  readonly #slices = new Slices()

  constructor(services: Services, context: Context, { filter, log }: { filter: FeedFilter; log: EventLog }) {
    this.#services = services
    this.#context = context
    this.#filter = filter
    this.#log = log
  }

  /** Looks from a place on. Rejects with StoreError, or the signal's reason. */
  async look(from: Place, limit: number): Promise<Found> {
    const { clock } = this.#services
    const startMs = clock.now()
    const events: Event[] = []
    let place: Position = from
    let [looked, bytes] = [0, 0]
    let sees = this.#view()
    for (const entry of this.#log.after(from)) {
      if (events.length >= limit || bytes >= maxBytes || looked >= maxLooked)
        return { events, place: { ...place, seenMs: seenMsOf(place, startMs) }, more: true }
      looked += 1
      if (looked % entriesPerLook === 0 && this.#slices.isOver) {
        await this.#slices.pause()
        this.#context.signal.throwIfAborted()
        sees = this.#view()
      }
      place = { revision: entry.revision, key: entry.key }
      if (!sees(entry)) continue
      const shown = await this.#shown(entry)
      // Time may have passed, and the right to see the event with it.
      sees = this.#view()
      if (shown === undefined || !sees(entry)) continue
      events.push(shown.event)
      bytes += shown.bytes
    }
    return { events, place: { ...place, seenMs: startMs }, more: false }
  }

  #view(): (entry: LogEntry) => boolean {
    this.#context.authorize()
    return viewOf(this.#services, callerOf(this.#context), this.#filter)
  }

  /** Returns undefined for an event that has expired, or that cannot be read. */
  async #shown(entry: LogEntry): Promise<{ readonly event: Event; readonly bytes: number } | undefined> {
    const logged = await this.#log.read(entry, this.#context.signal)
    if (logged === undefined) return undefined
    try {
      const event = eventOf(withoutForeignEmail(logged.event, this.#services.replica.snapshot))
      return { event, bytes: logged.event.body.length + entry.key.length }
    } catch (error) {
      this.#services.log.error('an event can not be shown as it is stored', { event: entry.key, error: errorText(error) })
      return undefined
    }
  }
}

/** Returns how far a reader who stopped in the middle of the log has seen: up to the time of the last event. */
function seenMsOf({ key }: Position, nowMs: number): number {
  return key === '' ? nowMs : outboxTimeMs(key)
}

/** PullEvents: the events after a cursor that the caller may see as of now. Waits for one if none is there (docs/spec/events.md#feed). */
export const pullEvents: Handler = async (services, context, message) => {
  const request = message as PullEventsRequest
  const filter = filterOf(request)
  const limit = Math.min(request.pageSize === 0 ? defaultEvents : request.pageSize, maxEvents)
  const { clock, eventLog } = services
  const endMs = clock.now() + waitMsOf(request.wait)
  const alarm = new Alarm()
  const { log, ended, release } = await eventLog.acquire(context.signal)
  const forget = log.onAppend((entry) => {
    if (filter.place === '' || entry.group.startsWith(filter.place)) alarm.ring()
  })
  // A log that ends wakes the reader, who fails at the next look.
  ended.catch(alarm.ring)
  try {
    await log.caughtUp(context.signal)
    const reader = new Reader(services, context, { filter, log })
    let place = await placeOf(services, context, { cursor: request.cursor, log })
    for (;;) {
      alarm.arm()
      const found = await reader.look(place, limit)
      place = found.place
      if (found.events.length > 0 || found.more || clock.now() >= endMs) return answerOf(services, found)
      await alarm.until(endMs, { clock, signal: context.signal })
      context.signal.throwIfAborted()
    }
  } finally {
    forget()
    release()
  }
}

function answerOf(services: Services, { events, place }: Found): HandlerAnswer {
  const nextCursor = sealed(services, place)
  return {
    message: create(PullEventsResponseSchema, { events: [...events], nextCursor }),
    document: {
      contentType: 'application/cloudevents-batch+json; charset=utf-8',
      items: events,
      itemDesc: EventSchema,
      headers: { 'Next-Cursor': nextCursor },
    },
  }
}
