import { join } from 'node:path'
import { IndexThread } from '../../audit/index.ts'
import type { AuditEvent } from '../../base/audit-line.ts'
import type { AuditPage, AuditQuery, AuditReader } from '../../engine/audit-query.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import { Alarm, backoffMs, untilAborted, type Backoff, type Timers } from '../../base/timing.ts'
import type { AuditSink, SinkObserver } from './sink.ts'
import { Spool } from './spool.ts'

/** How long events wait to be sealed, in milliseconds, and how many bytes of them. */
const sealEveryMs = 10_000
const sealBytes = 4 * 1024 * 1024
/** Size of the spool. */
const maxSpoolBytes = 256_000_000
/** Interval of the removal of old events, in milliseconds. */
const expireEveryMs = 10 * 60_000
const dayMs = 24 * 3_600_000
const backoff: Backoff = { firstMs: 1_000, maxMs: 60_000 }
const newline = 10

/** The parts of the events that are kept. */
export interface KeptEventsOptions {
  /** The folder of the spool and of the index. */
  readonly directory: string
  readonly keepDays: number
  readonly maxBytes: number
  readonly observer: SinkObserver
  readonly clock: Clock
  readonly random: Random
  readonly timers: Timers
}

/**
 * Keeps events for lists. An event is flushed to a spool, and moves from there to the index, every 10 s or 4 MiB. A question adds what waits to the index first.
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

  private constructor(options: KeptEventsOptions, spool: Spool) {
    this.#options = options
    this.#spool = spool
    this.#index = new IndexThread(join(options.directory, 'index.sqlite'))
    this.#running = this.#run()
  }

  /** Opens the spool, and starts to move what an earlier process left. Rejects if the folder can't be used. */
  static async open(options: KeptEventsOptions): Promise<KeptEvents> {
    const { directory, observer, timers } = options
    const flushed = (): void => undefined
    const limits = { maxBytes: maxSpoolBytes, segmentBytes: sealBytes }
    const spool = await Spool.open({ directory: join(directory, 'spool'), ...limits, flushed, failed: observer.failed, timers })
    return new KeptEvents(options, spool)
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
    this.#recent.push(text)
    this.#recentBytes += text.length
    if (this.#recentBytes < sealBytes) return
    this.#recent = []
    this.#recentBytes = 0
    this.#alarm.ring()
  }

  async read(query: AuditQuery, signal: AbortSignal): Promise<AuditPage> {
    // An earlier process may have left events.
    if (!this.#hasMoved) await untilAborted(this.#moveAll().catch(this.#options.observer.failed), signal)
    await untilAborted(this.#indexRecent(), signal)
    return await untilAborted(this.#index.read(query), signal)
  }

  async close(): Promise<void> {
    const { observer } = this.#options
    const lost = await this.#spool.close()
    if (lost > 0) observer.counted('dropped', lost)
    this.#closing.abort()
    await this.#running
    await this.#index.close()
  }

  /** Adds recent events to the index, one batch after another. */
  #indexRecent(): Promise<unknown> {
    const add = async (): Promise<void> => {
      const recent = this.#recent
      if (recent.length === 0) return
      this.#recent = []
      this.#recentBytes = 0
      await this.#index.insert(Buffer.from(recent.join('\n')))
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
        await this.#moveAll()
        await this.#expire()
        failures = 0
      } catch (error) {
        observer.failed(error)
        failures += 1
      }
    }
  }

  #moveAll(): Promise<void> {
    this.#moving ??= this.#moveChunks().finally(() => (this.#moving = undefined))
    return this.#moving
  }

  async #moveChunks(): Promise<void> {
    for (let chunk = await this.#spool.chunk(); chunk.length > 0; chunk = await this.#spool.chunk()) {
      await this.#move(chunk)
      await this.#spool.deliver({ bytes: chunk.length })
      let count = 0
      for (const byte of chunk) if (byte === newline) count += 1
      this.#options.observer.counted('delivered', count)
    }
    this.#oldestMs = undefined
    this.#hasMoved = true
  }

  /** Moves lines from the spool to the index. */
  async #move(lines: Buffer): Promise<void> {
    await this.#index.insert(lines)
  }

  async #expire(): Promise<void> {
    const { clock, timers, keepDays, maxBytes } = this.#options
    if (timers.now() - this.#expiredAtMs < expireEveryMs) return
    this.#expiredAtMs = timers.now()
    await this.#index.expire({ timeMs: clock.now() - keepDays * dayMs, maxBytes, before: '' })
  }
}
