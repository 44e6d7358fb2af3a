import type { AuditEvent } from '../../base/audit-line.ts'
import type { Random } from '../../base/runtime.ts'
import { backoffMs, pause, type Backoff, type Timers } from '../../base/timing.ts'
import { RefusedEvents, type AuditSink, type SinkObserver } from './sink.ts'
import { Spool, type SpoolBatch, type SpooledEvent } from './spool.ts'

const backoff: Backoff = { firstMs: 500, maxMs: 60_000 }
/** Maximum number of events in one batch. */
const maxBatch = 500
/** Minimum time between two batches if few events wait, in milliseconds. */
const gatherMs = 500

/**
 * Sends events. Resolves with the number of events that the receiver accepted but did not store. Rejects with RefusedEvents if the
 * receiver permanently refuses the batch.
 */
export type SendEvents = (events: readonly SpooledEvent[], signal: AbortSignal) => Promise<number>

/** Dependencies and settings of a remote sink. */
export interface RemoteSinkOptions {
  readonly name: string
  /** Folder for events that wait. */
  readonly directory: string
  readonly maxBytes: number
  readonly send: SendEvents
  readonly observer: SinkObserver
  readonly random: Random
  readonly timers: Timers
  /** How long `close` waits for the delivery of waiting events, in milliseconds. */
  readonly closeMs: number
}

/**
 * Delivers events to a receiver at least once and in order. Events wait in a spool on disk, so a receiver that is down delays nothing
 * else.
 *
 * States: idle until an event is flushed; sending one batch; waiting after a failure, twice as long after each further one. `close` ends
 * each of them. A batch that the receiver refuses is sent again in halves. Only a single refused event is given up.
 */
export class RemoteSink implements AuditSink {
  readonly name: string
  readonly #options: RemoteSinkOptions
  readonly #spool: Spool
  readonly #closing = new AbortController()
  readonly #running: Promise<void>
  #idle = Promise.withResolvers<void>()
  #wake = Promise.withResolvers<void>()
  #failures = 0
  #oldest: string | undefined

  private constructor(options: RemoteSinkOptions, spool: Spool) {
    this.name = options.name
    this.#options = options
    this.#spool = spool
    this.#running = this.#run()
  }

  /** Opens the spool and starts to deliver. Rejects if the folder cannot be used. */
  static async open(options: RemoteSinkOptions): Promise<RemoteSink> {
    const { directory, maxBytes, observer, timers } = options
    const opened: RemoteSink[] = []
    const flushed = (): void => {
      for (const sink of opened) sink.#wake.resolve()
    }
    const sink = new RemoteSink(options, await Spool.open({ directory, maxBytes, flushed, failed: observer.failed, timers }))
    opened.push(sink)
    return sink
  }

  get waitingBytes(): number {
    return this.#spool.bytes
  }

  get oldestMs(): number | undefined {
    return this.#oldest === undefined || this.#spool.bytes === 0 ? undefined : Date.parse(this.#oldest)
  }

  write({ time }: AuditEvent, json: () => string): void {
    const text = json()
    if (!this.#spool.append(text)) {
      this.#options.observer.counted('dropped', 1)
      return
    }
    this.#oldest ??= time
  }

  async close(): Promise<void> {
    const { observer, timers, closeMs } = this.#options
    const lost = await this.#spool.close()
    if (lost > 0) observer.counted('dropped', lost)
    // If the receiver is down, the remaining events are delivered after the next start.
    const enough = new AbortController()
    if (this.#spool.bytes > 0 && this.#failures === 0) await Promise.race([this.#emptied(), pause(closeMs, enough.signal, timers)])
    enough.abort()
    this.#closing.abort()
    this.#wake.resolve()
    await this.#running
  }

  /** Resolves when no event waits for delivery, or after a failure. */
  async #emptied(): Promise<void> {
    this.#idle = Promise.withResolvers()
    this.#wake.resolve()
    await this.#idle.promise
  }

  async #run(): Promise<void> {
    const { observer, random, timers } = this.#options
    const { signal } = this.#closing
    let limit = maxBatch
    while (!signal.aborted) {
      this.#wake = Promise.withResolvers()
      try {
        const batch = await this.#spool.batch(limit)
        this.#oldest = batch.events[0]?.event.time ?? (this.#spool.bytes > 0 ? this.#oldest : undefined)
        if (batch.events.length === 0) {
          this.#idle.resolve()
          await this.#wake.promise
          continue
        }
        limit = await this.#deliver(batch, limit)
        this.#failures = 0
        if (batch.events.length < limit) await pause(gatherMs, signal, timers)
      } catch (error) {
        if (signal.aborted) return
        observer.failed(error)
        this.#failures += 1
        this.#idle.resolve()
        await pause(backoffMs(backoff, this.#failures, random), signal, timers)
      }
    }
  }

  /** Delivers a batch, or gives up a single event that is refused. Resolves with the maximum size of the next batch. */
  async #deliver(batch: SpoolBatch, limit: number): Promise<number> {
    const { observer, send } = this.#options
    const count = batch.events.length
    let refused: number
    try {
      refused = await send(batch.events, this.#closing.signal)
    } catch (error) {
      if (!(error instanceof RefusedEvents)) throw error
      if (count > 1) return Math.ceil(count / 2)
      observer.failed(error)
      refused = 1
    }
    await this.#spool.deliver(batch)
    if (refused > 0) observer.counted('refused', refused)
    if (count > refused) observer.counted('delivered', count - refused)
    return Math.min(maxBatch, limit * 2)
  }
}
