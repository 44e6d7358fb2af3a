import { create } from '@bufbuild/protobuf'
import { durationMs, type Duration } from '@bufbuild/protobuf/wkt'
import { sealCursor } from '../base/page-token.ts'
import { DomainError } from '../base/errors.ts'
import { errorText } from '../base/error-text.ts'
import { isUid, rootOf, trustedUid } from '../base/uid.ts'
import { Alarm } from '../base/timing.ts'
import { CooperativeTask } from '../cache/cooperative-task.ts'
import type { EventLog } from '../engine/log/event-log.ts'
import type { LogEntry, Position } from '../engine/log/log-index.ts'
import type { UsedLog } from '../engine/log/shared-log.ts'
import { eventLifeMs, outboxTimeMs } from '../engine/log/outbox-keys.ts'
import { openPage } from '../engine/read.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../engine/services.ts'
import { EventSchema, PullEventsResponseSchema, type Event, type PullEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { StoreError } from '../store/store.ts'
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
/** When a request that found no place to wait may come again, in milliseconds. */
const retryAfterMs = 5_000
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
  readonly #task = new CooperativeTask()
  /** Whether the caller saw an event at the last look; nothing before the first. */
  sees: (entry: LogEntry) => boolean = () => false

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
    this.#view()
    const { place: group } = this.#filter
    const root = group === '' ? undefined : rootOf(trustedUid(group))
    for (const entry of this.#log.after(from, root)) {
      if (events.length >= limit || bytes >= maxBytes || looked >= maxLooked)
        return { events, place: { ...place, seenMs: seenMsOf(place, startMs) }, more: true }
      looked += 1
      if (looked % entriesPerLook === 0 && this.#task.shouldYield) {
        await this.#task.pause()
        this.#context.signal.throwIfAborted()
        this.#view()
      }
      place = { revision: entry.revision, key: entry.key }
      if (!this.sees(entry)) continue
      const shown = await this.#shown(entry)
      // Time may have passed, and the right to see the event with it.
      this.#view()
      if (shown === undefined || !this.sees(entry)) continue
      events.push(shown.event)
      bytes += shown.bytes
    }
    return { events, place: { ...place, seenMs: startMs }, more: false }
  }

  #view(): void {
    this.#context.authorize()
    this.sees = viewOf(this.#services, callerOf(this.#context), this.#filter)
  }

  /** Returns undefined for an event that has expired, or that cannot be read. */
  async #shown(entry: LogEntry): Promise<{ readonly event: Event; readonly bytes: number } | undefined> {
    const logged = await this.#log.read(entry, this.#context.signal)
    if (logged === undefined) return undefined
    try {
      const event = eventOf(withoutForeignEmail(logged.event, this.#services.cache.tables))
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
  const endMs = services.clock.now() + waitMsOf(request.wait)
  const used = await services.eventLog.acquire(context.signal)
  const { log } = used
  try {
    await log.caughtUp(context.signal)
    const reader = new Reader(services, context, { filter, log })
    const found = await reader.look(await placeOf(services, context, { cursor: request.cursor, log }), limit)
    const isDone = found.events.length > 0 || found.more || services.clock.now() >= endMs
    return answerOf(services, isDone ? found : await nextFound(services, context, { used, reader, from: found.place, limit, endMs }))
  } finally {
    used.release()
  }
}

/** A reader that waits. */
interface Waiting {
  readonly used: UsedLog
  readonly reader: Reader
  readonly from: Place
  readonly limit: number
  readonly endMs: number
}

/** Waits for an event that the caller sees, and looks again when time is up. Throws code 8 if too many requests of the organisation wait, and code 14 if the log ends. */
async function nextFound(services: Services, context: Context, { used, reader, from, limit, endMs }: Waiting): Promise<Found> {
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
      const found = await reader.look(place, limit)
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
