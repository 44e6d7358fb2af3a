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

/** Maximum number of log entries that one read passes. If none of them is for the caller, the read returns no events. */
const maxLooked = 50_000
const entriesPerLook = 256
/** Identifies cursors of the feed, so that cursors of other methods are rejected. */
const queryHash = 'events'

/** The fields of a request that select events. */
type Selection = Pick<PullEventsRequest, 'uidp' | 'types' | 'includePulls'>

/** Position of a reader in the event log. */
export interface Place extends Position {
  /** The reader has seen every event committed before this time, in milliseconds since 1970. */
  readonly seenMs: number
  /** The reader knows about missing events that were removed up to this revision. */
  readonly knownAt: number
}

/** An event for a response. */
export interface ShownEvent {
  readonly event: Event
  readonly entry: LogEntry
  /** The reader's place after the event. */
  readonly place: Place
}

/** The result of one read of the log. */
export interface Found {
  readonly events: readonly ShownEvent[]
  readonly place: Place
  /** True if the read ended before the end of the log. */
  readonly more: boolean
}

/** Limits of one read: number of events, and their stored size in bytes. One event is always allowed. */
export interface LookLimits {
  readonly events: number
  readonly bytes: number
}

/** Returns the filter of a request. Throws code 3 for an unsupported filter. */
function filterOf({ uidp, types, includePulls }: Selection): FeedFilter {
  assertTypes(types, 'types')
  const { descendantsOf = '', childrenOf = '', ancestorsOf = '', inRoot = false, ids = [] } = uidp ?? {}
  if (childrenOf !== '' || ancestorsOf !== '' || inRoot || ids.length > 0) throw DomainError.invalid('uidp', 'events are filtered by descendants_of only')
  if (descendantsOf !== '' && !isUid(descendantsOf)) throw DomainError.invalid('uidp.descendants_of', 'must be the uid of a group')
  return { place: descendantsOf, types, includePulls }
}

/** Returns the time up to which a reader has seen all events. If it stopped in the middle of the log, this is the time of its last event. */
function seenMsOf({ key }: Position, nowMs: number): number {
  return key === '' ? nowMs : outboxTimeMs(key)
}

/** Reads the events after a place that the caller may currently see. Many readers share one log. */
export class FeedReader {
  readonly #services: Services
  readonly #context: Context
  readonly #filter: FeedFilter
  readonly #root: string | undefined
  readonly #log: EventLog
  readonly #task = new CooperativeTask()
  /** The caller's permissions at the last read. */
  #permissions: EffectivePermissions | undefined
  /** Returns whether the caller could see an event at the last read; false before the first one. */
  sees: (entry: LogEntry) => boolean = () => false

  /** Throws code 3 for an unsupported filter. */
  constructor(services: Services, context: Context, { request, log }: { request: Selection; log: EventLog }) {
    this.#services = services
    this.#context = context
    this.#filter = filterOf(request)
    this.#root = this.#filter.place === '' ? undefined : rootOf(trustedUid(this.#filter.place))
    this.#log = log
  }

  /** Returns the cursor text for a place. */
  cursorAt({ revision, key, seenMs, knownAt }: Place): string {
    const { pageKeys, random, clock } = this.#services
    return sealCursor({ key: [revision, key, seenMs, knownAt], queryHash, issuedMs: clock.now() }, pageKeys.current(), random)
  }

  /** Parses a cursor, once the log has caught up. Throws code 3 for one of another method, and code 11 if events after it are not stored. */
  async placeOf(cursor: string): Promise<Place> {
    const start = this.#start()
    if (cursor === 'now') return { ...start, ...this.#log.last }
    if (cursor === '') return start
    const { key, restarted } = await openPage(this.#services, this.#context, { text: cursor, queryHash }).catch((error: unknown) => {
      throw error instanceof DomainError && error.code === 3 ? DomainError.invalid('cursor', 'is not a cursor of this method') : error
    })
    const [revision, outboxKey, seenMs, knownAt = 0] = key ?? []
    const isPlace = typeof revision === 'number' && typeof outboxKey === 'string' && typeof seenMs === 'number' && typeof knownAt === 'number'
    // After the restore of a backup, commits up to an earlier cursor are missing, and new ones before it would never be shown.
    const isAhead = isPlace && revision > (this.#log.loadedAt ?? 0)
    if (restarted || !isPlace || isAhead || this.#services.clock.now() - seenMs > eventLifeMs) throw this.#expired()
    return { revision, key: outboxKey, seenMs, knownAt }
  }

  /**
   * Reads events after a place. Throws code 11 if events after it were removed because there were too many. Rejects with StoreError, or
   * the signal's reason.
   */
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
      // The caller may have lost the right to see the event meanwhile.
      this.view()
      if (shown === undefined || !this.sees(entry)) continue
      events.push({ event: shown.event, entry, place: placeIn(entry) })
      bytes += shown.bytes
    }
    if (missing) {
      // The events may have been removed since the read began.
      await this.#log.caughtUp(this.#context.signal)
      this.assertKept(from)
    }
    return { events, place: more ? placeIn(position) : { ...placeIn(position), seenMs: startMs }, more }
  }

  /** Makes `sees` use the caller's current rights. */
  view(): void {
    this.#context.authorize()
    this.#update()
  }

  /**
   * Returns true if the caller could see an event at the last read, or because of rights granted since. Must be cheap, since it is called
   * for each event of the installation.
   */
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

  /**
   * Returns the log's current revision. Throws code 11 if events after the place were removed that the caller might have been allowed to
   * see.
   */
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

  /** Returns an event for a response; undefined if it was removed or cannot be read. */
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
