import { fromBinary } from '@bufbuild/protobuf'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { SharedQuestion } from '../../cache/shared-question.ts'
import { Waiters } from '../../cache/waiters.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { RegistryTrafficSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { OutboxCutSchema } from '../../gen/taproot/store/v1/events_pb.ts'
import { outboxCutPrefix, outboxPrefix } from './outbox-keys.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import { StoreError, type Change, type Entry, type Revision, type Store } from '../../store/store.ts'
import { comparePositions, LogIndex, pullType, type Cut, type LogEntry, type Position, type PulledName } from './log-index.ts'

const pageEntries = 500
/** Maximum time in milliseconds for which a reader waits until the log contains all acknowledged events. */
const caughtUpTimeoutMs = 5_000
/** Maximum size in bytes of the newest events, which are kept decoded. */
const tailBytes = 16 * 2 ** 20

/** An event of the log with its content, as stored. */
export interface LoggedEvent extends LogEntry {
  readonly event: OutboxEvent
}

/** The dependencies of an event log. */
export interface EventLogOptions {
  readonly store: Store
  readonly log: Log
  /** Resolves once the records in memory contain a commit: readers of the log decide by them who may see its events. Rejects like `follow`. */
  readonly remembered: (revision: Revision, signal: AbortSignal) => Promise<void>
}

/** The newest events, kept decoded up to a number of bytes. */
class Tail {
  readonly #events = new Map<string, { readonly event: OutboxEvent; readonly bytes: number }>()
  #bytes = 0

  add(key: string, event: OutboxEvent, bytes: number): void {
    this.#events.set(key, { event, bytes })
    this.#bytes += bytes
    for (const [oldest, held] of this.#events) {
      if (this.#bytes <= tailBytes) return
      this.#events.delete(oldest)
      this.#bytes -= held.bytes
    }
  }

  get(key: string): OutboxEvent | undefined {
    return this.#events.get(key)?.event
  }
}

/**
 * The events of the outbox in the order of their commits. The outbox is read once, and then followed by a watch. The order of its keys is inexact, because it
 * follows the clocks of several processes. The log's index makes positions exact (docs/spec/events.md#order). Internal events are not in the log.
 */
export class EventLog {
  readonly #options: EventLogOptions
  readonly #listeners = new Set<(entry: LogEntry) => void>()
  readonly #waiters = new Waiters()
  #index = new LogIndex()
  #tail = new Tail()
  /** For each cut (a removal of a root group's oldest events), its key in the store and its position. */
  #cuts = new Map<string, Cut>()
  #loaded: Revision | undefined
  readonly #stop = new AbortController()
  /** Sends queries for the store's current revision. Concurrent callers share one query. */
  readonly #question: SharedQuestion<Revision, Revision> = new SharedQuestion(
    () => this.#options.store.revision(this.#stop.signal),
    (revision) => Promise.resolve(revision),
  )

  constructor(options: EventLogOptions) {
    this.#options = options
  }

  /** The position of the last event in the log. */
  get last(): Position {
    return this.#index.last
  }

  /** The number of events in the log. */
  get size(): number {
    return this.#index.size
  }

  /** The revision as of which the log was loaded; undefined before the load. */
  get loadedAt(): Revision | undefined {
    return this.#loaded
  }

  /**
   * Resolves once the log contains every event whose commit was acknowledged before this call. Rejects with StoreError `unavailable` if the watch is too slow,
   * or with the signal's reason.
   */
  async caughtUp(signal: AbortSignal): Promise<void> {
    const revision = await this.#question.result()
    if ((this.#loaded ?? 0) < revision) await this.#waiters.wait(revision, caughtUpTimeoutMs, signal)
  }

  /** Calls `listener`, which must not throw, with each event that is appended. The returned function ends that. */
  onAppend(listener: (entry: LogEntry) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Yields the events after a position in order, without their content: those of one root group, or all. */
  after(position: Position, root?: string): Generator<LogEntry, void> {
    return this.#index.after(position, root)
  }

  /** Yields the events of a root group up to a position, the newest first, without their content. */
  upTo(position: Position, root: string): Generator<LogEntry, void> {
    return this.#index.upTo(position, root)
  }

  /** Returns the first event of a root group, in commit order, whose outbox key is not before `key`. */
  firstFrom(key: string, root: string): LogEntry | undefined {
    return this.#index.firstFrom(key, root)
  }

  /**
   * Returns the cuts that removed events after a position: those of one root group, or all. Omits cuts up to the revision `knownAt`, which the reader already
   * knows.
   */
  cutsAfter(position: Position, { knownAt, root }: { readonly knownAt: number; readonly root: string | undefined }): readonly Cut[] {
    const cuts = root === undefined ? [...this.#cuts.values()] : [this.#cuts.get(`${outboxCutPrefix}${root}`)].filter((cut) => cut !== undefined)
    return cuts.filter((cut) => cut.madeAt > knownAt && comparePositions(cut, position) > 0)
  }

  /** Removes expired events from the index: those whose outbox keys are before `key`. */
  dropBefore(key: string): void {
    this.#index.dropBefore(key)
  }

  /** Reads the content of an event; undefined if it has expired. Rejects with StoreError or the signal's reason. */
  async read(entry: LogEntry, signal: AbortSignal): Promise<LoggedEvent | undefined> {
    const recent = this.#tail.get(entry.key)
    if (recent !== undefined) return { ...entry, event: recent }
    const stored = await this.#options.store.get(entry.key, signal)
    return stored === undefined ? undefined : { ...entry, event: fromBinary(OutboxEventSchema, stored.value) }
  }

  /** Reads the whole outbox as of one commit. Rejects with StoreError or the signal's reason. */
  async load(signal: AbortSignal): Promise<void> {
    const { store } = this.#options
    const revision = await store.revision(signal)
    const entries: LogEntry[] = []
    for await (const page of pagesOf(store, { prefix: outboxPrefix, limit: pageEntries, revision }, signal)) {
      for (const entry of page) {
        const event = this.#decode(entry)
        if (event !== undefined && !event.internal) entries.push(entryOf(entry, event))
      }
    }
    await this.#options.remembered(revision, signal)
    entries.sort(comparePositions)
    const index = new LogIndex()
    for (const entry of entries) index.append(entry)
    const cuts = new Map<string, Cut>()
    for await (const entry of entriesOf(store, { prefix: outboxCutPrefix, revision }, signal)) cuts.set(entry.key, cutOf(entry))
    this.#index = index
    this.#tail = new Tail()
    this.#cuts = cuts
    this.#loaded = revision
  }

  /**
   * Follows the outbox from where `load` ended, and appends new events. Never resolves. Rejects with the signal's reason, or with the StoreError that ended
   * the watch. After `unavailable` it can be called again; after other errors the log must be loaded again.
   */
  async follow(signal: AbortSignal): Promise<never> {
    if (this.#loaded === undefined) throw new TypeError('the event log must be loaded before it is followed')
    for await (const { revision, changes } of this.#options.store.watch([outboxPrefix, outboxCutPrefix], this.#loaded, signal)) {
      await this.#options.remembered(revision, signal)
      this.#append(changes)
      this.#loaded = revision
      this.#waiters.reached(revision)
    }
    throw new StoreError('unavailable', 'the watch on the event log ended: read again from the last cursor')
  }

  #append(changes: readonly Change[]): void {
    const removed = changes.filter(({ value }) => value === undefined).map(({ key }) => key)
    for (const key of removed) this.#cuts.delete(key)
    this.#index.remove(removed)
    // Changes of one commit arrive in no particular order. Within a commit, positions are ordered by key.
    const added = changes.filter((change): change is Change & Entry => change.value !== undefined).sort(comparePositions)
    for (const change of added) {
      if (change.key.startsWith(outboxCutPrefix)) {
        this.#cuts.set(change.key, cutOf(change))
        continue
      }
      const event = this.#decode(change)
      if (event === undefined || event.internal) continue
      const entry = entryOf(change, event)
      if (!this.#index.append(entry)) continue
      this.#tail.add(change.key, event, change.value.length)
      for (const listener of this.#listeners) listener(entry)
    }
  }

  #decode({ key, value }: Entry): OutboxEvent | undefined {
    try {
      return fromBinary(OutboxEventSchema, value)
    } catch (cause) {
      this.#options.log.error('a stored event cannot be read and is not delivered', { key, error: errorText(cause) })
      return undefined
    }
  }
}

function entryOf({ key, revision }: Pick<Entry, 'key' | 'revision'>, event: OutboxEvent): LogEntry {
  const { type, group, subject } = event
  return { key, revision, type, group, subject, pulled: pulledIn(event) }
}

/** Returns the manifest that was pulled, or that a policy refused. Undefined for other events, other failures, and for what cannot be read. */
function pulledIn({ type, body }: OutboxEvent): PulledName | undefined {
  if (type !== pullType) return undefined
  try {
    const { type: pulled, digest, tag = '', error } = fromBinary(RegistryTrafficSchema, body)
    // Who asks for what is not there names any digest.
    const isPull = pulled === 'manifest' && digest !== '' && (error === undefined || error.code === 'DENIED')
    return isPull ? { digest, tag } : undefined
  } catch {
    // Who reads the event reports this.
    return undefined
  }
}

function cutOf(entry: Entry): Cut {
  const { revision, key } = fromBinary(OutboxCutSchema, entry.value)
  return { root: entry.key.slice(outboxCutPrefix.length), revision: Number(revision), key, madeAt: entry.revision }
}
