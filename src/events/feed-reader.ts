import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import { sealCursor } from '../base/page-token.ts'
import { DomainError } from '../base/errors.ts'
import { errorText } from '../base/error-text.ts'
import { isUid, rootOf, trustedUid } from '../base/uid.ts'
import { CooperativeTask } from '../cache/cooperative-task.ts'
import type { EventLog } from '../engine/log/event-log.ts'
import type { LogEntry, Position } from '../engine/log/log-index.ts'
import { eventLifeMs, outboxTimeMs } from '../engine/log/outbox-keys.ts'
import { openPage } from '../engine/read.ts'
import { callerOf, type Context, type Services } from '../engine/services.ts'
import type { Event, PullEventsRequest } from '../gen/taproot/events/v2/events_pb.ts'
import { eventOf, withoutForeignEmail } from './records/event-form.ts'
import { assertTypes } from './records/event-types.ts'
import { passesFilter, seesRoot, viewOf, type FeedFilter } from './records/feed-view.ts'

/** Events that one look passes. A look that passed so many, and found none for the caller, ends without events. */
const maxLooked = 50_000
const entriesPerLook = 256
/** Binds a cursor to the feed. */
const queryHash = 'events'

/** The fields by which a request selects events. */
type Selection = Pick<PullEventsRequest, 'uidp' | 'types' | 'includePulls'>

/** Where a reader is in the log. */
export interface Place extends Position {
  /** Every event that was committed before this time, in milliseconds since 1970, was seen. */
  readonly seenMs: number
  /** The reader knows that events are missing which were removed up to this revision. */
  readonly knownAt: number
}

/** An event that the caller sees. */
export interface ShownEvent {
  readonly event: Event
  readonly entry: LogEntry
  /** The place after the event. */
  readonly place: Place
}

/** What one look at the log found. */
export interface Found {
  readonly events: readonly ShownEvent[]
  readonly place: Place
  /** True if the look ended before the end of the log. */
  readonly more: boolean
}

/** How much one look finds at most: at least one event, and stored bytes. */
export interface LookLimits {
  readonly events: number
  readonly bytes: number
}

/** Returns the filter of a request. Throws code 3 for filters that events do not have. */
function filterOf({ uidp, types, includePulls }: Selection): FeedFilter {
  assertTypes(types, 'types')
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = uidp ?? {}
  if (childrenOf !== '' || ancestorsOf !== '' || inRoot || ids.length > 0) throw DomainError.invalid('uidp', 'events are filtered by descendants_of only')
  if (descendantsOf !== '' && !isUid(descendantsOf)) throw DomainError.invalid('uidp.descendants_of', 'must be the uid of a group')
  return { place: descendantsOf, types, includePulls }
}

/** Returns how far a reader who stopped in the middle of the log has seen: up to the time of the last event. */
function seenMsOf({ key }: Position, nowMs: number): number {
  return key === '' ? nowMs : outboxTimeMs(key)
}

/** Finds the events after a place that the caller sees as of now. One log serves many readers. */
export class FeedReader {
  readonly #services: Services
  readonly #context: Context
  readonly #filter: FeedFilter
  readonly #root: string | undefined
  readonly #log: EventLog
  readonly #task = new CooperativeTask()
  /** Those of the last look. */
  #permissions: EffectivePermissions | undefined
  /** Whether the caller saw an event at the last look; nothing before the first. */
  sees: (entry: LogEntry) => boolean = () => false

  /** Throws code 3 for filters that events do not have. */
  constructor(services: Services, context: Context, { request, log }: { request: Selection; log: EventLog }) {
    this.#services = services
    this.#context = context
    this.#filter = filterOf(request)
    this.#root = this.#filter.place === '' ? undefined : rootOf(trustedUid(this.#filter.place))
    this.#log = log
  }

  /** Returns the cursor of a place. */
  cursorAt({ revision, key, seenMs, knownAt }: Place): string {
    const { pageKeys, random, clock } = this.#services
    return sealCursor({ key: [revision, key, seenMs, knownAt], queryHash, issuedMs: clock.now() }, pageKeys.current(), random)
  }

  /** Returns the place of a cursor. Throws code 3 for a cursor of another kind, and code 11 for one that is older than what is kept. */
  async placeOf(cursor: string): Promise<Place> {
    const start = this.#start()
    if (cursor === 'now') return { ...start, ...this.#log.last }
    if (cursor === '') return start
    const { key, restarted } = await openPage(this.#services, this.#context, { text: cursor, queryHash }).catch((error: unknown) => {
      throw error instanceof DomainError && error.code === 3 ? DomainError.invalid('cursor', 'is not a cursor of this method') : error
    })
    const [revision, outboxKey, seenMs, knownAt = 0] = key ?? []
    const isPlace = typeof revision === 'number' && typeof outboxKey === 'string' && typeof seenMs === 'number' && typeof knownAt === 'number'
    if (restarted || !isPlace || this.#services.clock.now() - seenMs > eventLifeMs) throw this.#expired()
    return { revision, key: outboxKey, seenMs, knownAt }
  }

  /** Looks from a place on. Throws code 11 if events after it were removed because there were too many. Rejects with StoreError, or the signal's reason. */
  async look(from: Place, limits: LookLimits): Promise<Found> {
    const startMs = this.#services.clock.now()
    const events: ShownEvent[] = []
    let position: Position = from
    let [looked, bytes, missing] = [0, 0, false]
    this.view()
    const knownAt = this.assertKept(from)
    const placeIn = (at: Position): Place => ({ revision: at.revision, key: at.key, seenMs: seenMsOf(at, startMs), knownAt })
    const isFull = (): boolean => events.length >= limits.events || bytes >= limits.bytes || looked >= maxLooked
    let more = false
    for (const entry of this.#log.after(from, this.#root)) {
      more = isFull()
      if (more) break
      looked += 1
      if (looked % entriesPerLook === 0 && this.#task.shouldYield) {
        await this.#task.pause()
        this.#context.signal.throwIfAborted()
        this.view()
      }
      position = entry
      if (!this.sees(entry)) continue
      const shown = await this.#shown(entry)
      missing ||= shown === undefined
      // Time may have passed, and the right to see the event with it.
      this.view()
      if (shown === undefined || !this.sees(entry)) continue
      events.push({ event: shown.event, entry, place: placeIn(entry) })
      bytes += shown.bytes
    }
    if (missing) {
      // The events may have been removed since the look began.
      await this.#log.caughtUp(this.#context.signal)
      this.assertKept(from)
    }
    return { events, place: more ? placeIn(position) : { ...placeIn(position), seenMs: startMs }, more }
  }

  /** Makes `sees` answer by the caller's rights as of now. */
  view(): void {
    this.#context.authorize()
    this.#update()
  }

  /** True if the caller sees an event at the last look, or by rights that came since. Cheap: it is asked for each event of the installation. */
  awaits(entry: LogEntry): boolean {
    if (this.sees(entry)) return true
    if (!passesFilter(this.#filter, entry) || callerOf(this.#context).permissions() === this.#permissions) return false
    this.#update()
    return this.sees(entry)
  }

  #update(): void {
    const caller = callerOf(this.#context)
    this.#permissions = caller.permissions()
    this.sees = viewOf(this.#services, caller, this.#filter)
  }

  /** Returns the revision of the log. Throws code 11 if events after the place were removed that the caller might have seen. */
  assertKept(place: Place): number {
    const caller = callerOf(this.#context)
    const cuts = this.#log.cutsAfter(place, { knownAt: place.knownAt, root: this.#root })
    if (cuts.some(({ root }) => seesRoot(this.#services, caller, { filter: this.#filter, root }))) throw this.#expired()
    return this.#log.loadedAt ?? 0
  }

  #start(): Place {
    return { revision: 0, key: '', seenMs: this.#services.clock.now(), knownAt: this.#log.loadedAt ?? 0 }
  }

  #expired(): DomainError {
    return new DomainError(11, 'the cursor is older than the events that are kept: continue with oldestCursor, and expect a gap', {
      reason: 'CURSOR_EXPIRED',
      details: { metadata: { oldestCursor: this.cursorAt(this.#start()) } },
    })
  }

  /** Returns undefined for an event that was removed, or that cannot be read. */
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
