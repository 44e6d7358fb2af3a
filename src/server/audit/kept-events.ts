import { join } from 'node:path'
import { IndexThread, nameFrom, type AuditSegments, type NamedSegment } from '../../audit/index.ts'
import type { AuditEvent } from '../../base/audit-line.ts'
import type { AuditPage, AuditQuery, AuditReader } from '../../engine/audit-query.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import { Alarm, backoffMs, pause, untilAborted, type Backoff, type Timers } from '../../base/timing.ts'
import type { AuditSink, SinkObserver } from './sink.ts'
import { Spool } from './spool.ts'

/** Maximum time that events wait until they become a segment, in milliseconds, and the size at which they become one earlier. */
const sealEveryMs = 10_000
const sealBytes = 4 * 1024 * 1024
/** Size of the recent events in memory. If more than half as many wait in the spool, a question misses the oldest of those. */
const maxRecentBytes = 4 * sealBytes
/** Length of the texts in which recent events are added to the index, in characters: a longer one would block the process for milliseconds. */
const batchLength = 256 * 1024
/** Size of the spool. */
const maxSpoolBytes = 256_000_000
/** A question waits so long at most for segments of other replicas, and asks for them so often at most, in milliseconds. */
const refreshWaitMs = 2_000
const refreshEveryMs = 1_000
/** Segments that are sealed so much earlier than now are found by a full list only, in milliseconds. */
const recentMs = 120_000
/** Interval of full lists, in milliseconds. */
const listEveryMs = 10 * 60_000
/** Interval of the removal of old events, in milliseconds. */
const expireEveryMs = 10 * 60_000
const dayMs = 24 * 3_600_000
const backoff: Backoff = { firstMs: 1_000, maxMs: 60_000 }
const newline = 10

/** What became of a segment when a replica read it. */
type SegmentResult = 'added' | 'removed' | 'missing'

/** The parts of the events that are kept. */
export interface KeptEventsOptions {
  /** The folder of the spool and of the index. */
  readonly directory: string
  /** How long events are kept, in milliseconds. */
  readonly keepMs: number
  readonly maxBytes: number
  /** The segments of all replicas; undefined without an upstream. */
  readonly segments: AuditSegments | undefined
  /** False for processes that answer no lists: they only seal. */
  readonly isIndexed: boolean
  /** How long the end waits for the upstream, in milliseconds. */
  readonly closeMs: number
  readonly observer: SinkObserver
  readonly clock: Clock
  readonly random: Random
  readonly timers: Timers
}

/**
 * Keeps events for lists. An event is flushed to a spool. Every 10 s or 4 MiB, what is there becomes a segment in the upstream, and is added to the index.
 * Segments of other replicas are added as well. A question first adds what is not sealed yet.
 *
 * States: waiting for the next round; moving what waits; waiting after a failure, twice as long after each further one. `close` ends each of them.
 */
export class KeptEvents implements AuditSink, AuditReader {
  readonly name = 'kept'
  readonly #options: KeptEventsOptions
  readonly #spool: Spool
  readonly #index: IndexThread
  readonly #alarm = new Alarm()
  readonly #closing = new AbortController()
  readonly #running: Promise<void>
  /** Events that the index may not have yet, as JSON, and their size. Those that are too many come from the spool. */
  #recent: string[] = []
  #recentBytes = 0
  #indexing: Promise<unknown> = Promise.resolve()
  #moving: Promise<void> | undefined
  #hasMoved = false
  #oldestMs: number | undefined
  #expiredAtMs = -Infinity
  /** Names of the segments that the index has; undefined before they are needed. */
  #known: Set<string> | undefined
  #refreshing: Promise<void> | undefined
  #refreshedAtMs = -Infinity
  #listedAtMs = -Infinity

  private constructor(options: KeptEventsOptions, spool: Spool) {
    this.#options = options
    this.#spool = spool
    this.#index = new IndexThread(join(options.directory, 'index.sqlite'), options.segments === undefined)
    this.#running = this.#run()
  }

  /** Opens the spool, and starts to move what an earlier process left. Rejects if the folder can't be used. */
  static async open(options: KeptEventsOptions): Promise<KeptEvents> {
    const { directory, observer, timers } = options
    const opened: KeptEvents[] = []
    const flushed = (): void => {
      for (const kept of opened) if (kept.#spool.bytes >= sealBytes) kept.#alarm.ring()
    }
    const limits = { maxBytes: maxSpoolBytes, segmentBytes: sealBytes }
    const spool = await Spool.open({ directory: join(directory, 'spool'), ...limits, flushed, failed: observer.failed, timers })
    const kept = new KeptEvents(options, spool)
    opened.push(kept)
    return kept
  }

  get waitingBytes(): number {
    return this.#spool.bytes
  }

  get oldestMs(): number | undefined {
    return this.#spool.bytes === 0 ? undefined : this.#oldestMs
  }

  write({ time }: AuditEvent, json: () => string): void {
    const text = json()
    if (!this.#spool.append(text)) {
      this.#options.observer.counted('dropped', 1)
      return
    }
    this.#oldestMs ??= Date.parse(time)
    if (!this.#options.isIndexed) return
    this.#recent.push(text)
    this.#recentBytes += text.length
    if (this.#recentBytes >= maxRecentBytes) this.#forgetMoved()
  }

  async read(query: AuditQuery, turn: TaskTurn): Promise<AuditPage> {
    const { signal } = turn
    // An earlier process may have left events.
    if (!this.#hasMoved) await untilAborted(this.#moveAll(this.#closing.signal).catch(this.#options.observer.failed), signal)
    await untilAborted(this.#indexRecent(), signal)
    await this.#refreshSoon(signal)
    return await this.#index.read(query, turn)
  }

  async close(): Promise<void> {
    const { observer, segments, closeMs } = this.#options
    const lost = await this.#spool.close()
    if (lost > 0) observer.counted('dropped', lost)
    this.#closing.abort()
    await this.#running
    const enough = AbortSignal.timeout(closeMs)
    // What the upstream does not take now is sealed after the next start.
    if (segments !== undefined && this.#spool.bytes > 0) await this.#moveAll(enough).catch(observer.failed)
    await this.#index.close()
  }

  /** Forgets recent events that the index has: all but those in the spool. If the spool is large, forgets the oldest ones. */
  #forgetMoved(): void {
    const least = Math.min(this.#spool.bytes, maxRecentBytes / 2)
    let first = this.#recent.length
    this.#recentBytes = 0
    while (first > 0 && this.#recentBytes < least) this.#recentBytes += this.#recent[(first -= 1)]?.length ?? 0
    this.#recent = this.#recent.slice(first)
  }

  /** Adds recent events to the index, one batch after another. */
  #indexRecent(): Promise<unknown> {
    const add = async (): Promise<void> => {
      const recent = this.#recent
      this.#recent = []
      this.#recentBytes = 0
      for (const text of batchesOf(recent)) await this.#index.insert(Buffer.from(text))
    }
    this.#indexing = this.#indexing.catch(() => undefined).then(add)
    return this.#indexing
  }

  async #run(): Promise<void> {
    const { observer, random } = this.#options
    const { signal } = this.#closing
    for (let failures = 0; !signal.aborted;) {
      await this.#alarm.within(failures === 0 ? sealEveryMs : backoffMs(backoff, failures, random), signal)
      this.#alarm.arm()
      if (signal.aborted) return
      try {
        await this.#moveAll(signal)
        await this.#refresh(signal)
        await this.#expire()
        failures = 0
      } catch (error) {
        if (signal.aborted) return
        observer.failed(error)
        failures += 1
      }
    }
  }

  #moveAll(signal: AbortSignal): Promise<void> {
    this.#moving ??= this.#moveChunks(signal).finally(() => (this.#moving = undefined))
    return this.#moving
  }

  async #moveChunks(signal: AbortSignal): Promise<void> {
    for (let chunk = await this.#spool.chunk(); chunk.length > 0; chunk = await this.#spool.chunk()) {
      await this.#move(chunk, signal)
      await this.#spool.deliver({ bytes: chunk.length })
      this.#options.observer.counted('delivered', linesIn(chunk))
    }
    this.#oldestMs = undefined
    this.#hasMoved = true
  }

  /** Seals lines of the spool and adds them to the index. A process that ends leaves the index to the next one. */
  async #move(lines: Buffer, signal: AbortSignal): Promise<void> {
    const { segments, isIndexed } = this.#options
    if (segments === undefined) {
      await this.#index.insert(lines)
      return
    }
    const { name, content } = await segments.seal(lines, signal)
    if (!isIndexed || this.#closing.signal.aborted) return
    await this.#index.insert(content, name)
    this.#known?.add(name)
  }

  /** Adds new segments to the index, if that does not take long. */
  async #refreshSoon(signal: AbortSignal): Promise<void> {
    const { timers, observer } = this.#options
    if (timers.now() - this.#refreshedAtMs < refreshEveryMs) return
    const enough = new AbortController()
    const refreshed = this.#refresh(this.#closing.signal).catch(observer.failed)
    await Promise.race([refreshed, pause(refreshWaitMs, AbortSignal.any([signal, enough.signal]), timers)])
    enough.abort()
  }

  #refresh(signal: AbortSignal): Promise<void> {
    this.#refreshing ??= this.#addSegments(signal).finally(() => (this.#refreshing = undefined))
    return this.#refreshing
  }

  /** Adds the segments that the index does not have, newest first. */
  async #addSegments(signal: AbortSignal): Promise<void> {
    const { segments, isIndexed, clock, timers } = this.#options
    if (segments === undefined || !isIndexed) return
    const nowMs = timers.now()
    const isFull = nowMs - this.#listedAtMs >= listEveryMs
    const found = await segments.list(isFull ? '' : nameFrom(clock.now() - recentMs), signal)
    const results = new Set<SegmentResult>()
    for (const segment of found.toReversed()) results.add(await this.#addSegment(segments, segment, signal))
    this.#refreshedAtMs = timers.now()
    // A removed segment may be in another one by now. Content that is missing may come back: each list tries it again.
    if (results.has('removed')) this.#listedAtMs = -Infinity
    else if (isFull) this.#listedAtMs = nowMs
  }

  /** Adds a segment to the index. `missing`: the upstream does not have its content now, which is reported. */
  async #addSegment(segments: AuditSegments, segment: NamedSegment, signal: AbortSignal): Promise<SegmentResult> {
    const known = (this.#known ??= new Set(await this.#index.segments()))
    if (known.has(segment.name)) return 'added'
    if (segment.merged.length > 0 && segment.merged.every((name) => known.has(name))) await this.#index.note([segment.name])
    else {
      const content = await segments.content(segment, signal)
      if (content === undefined) {
        if (!(await segments.isNamed(segment, signal))) return 'removed'
        this.#options.observer.failed(new Error(`the upstream does not have the audit segment ${segment.name}`))
        return 'missing'
      }
      await this.#index.insert(content, segment.name)
    }
    known.add(segment.name)
    return 'added'
  }

  async #expire(): Promise<void> {
    const { clock, timers, keepMs, maxBytes } = this.#options
    if (timers.now() - this.#expiredAtMs < expireEveryMs) return
    this.#expiredAtMs = timers.now()
    const timeMs = clock.now() - keepMs
    await this.#index.expire({ timeMs, maxBytes, before: nameFrom(timeMs - dayMs) })
  }
}

/** Yields lines, joined to texts of a limited length. */
function* batchesOf(lines: readonly string[]): Generator<string, void> {
  let [from, length] = [0, 0]
  for (const [at, line] of lines.entries()) {
    length += line.length
    if (length < batchLength && at < lines.length - 1) continue
    yield lines.slice(from, at + 1).join('\n')
    from = at + 1
    length = 0
  }
}

function linesIn(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, at + 1)) count += 1
  return count
}
