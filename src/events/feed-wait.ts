import { DomainError } from '../base/errors.ts'
import { Alarm } from '../base/timing.ts'
import { rootOf } from '../base/uid.ts'
import type { ReaderKind, UsedLog } from '../engine/log/shared-log.ts'
import { callerOf, type Context, type Services } from '../engine/services.ts'
import { StoreError } from '../store/store.ts'
import type { FeedReader } from './feed-reader.ts'

/** Suggested wait before a request retries that could not wait because of the limit, in milliseconds. */
const retryAfterMs = 5_000

/** A reader's place among those that wait for events. Each organisation has a limited number of places. */
export class FeedWait {
  readonly #signal: AbortSignal
  readonly #leaving: AbortSignal
  readonly #alarm = new Alarm()
  readonly #endings: (() => void)[] = []
  #hasEnded = false

  /**
   * Takes a place. Throws code 8 if too many readers of the caller's organisation are waiting. `close` frees the place, and so does the
   * end of the call.
   */
  constructor(
    { eventLog }: Pick<Services, 'eventLog'>,
    context: Context,
    { used, reader, kind }: { readonly used: UsedLog; readonly reader: FeedReader; readonly kind: ReaderKind },
  ) {
    const free = eventLog.readers.take([rootOf(callerOf(context).identity)])
    if (free === undefined)
      throw new DomainError(8, 'too many requests of this organisation wait for events', { reason: 'RATE_LIMITED', details: { retryAfterMs } })
    eventLog.waiting[kind] += 1
    const { ring } = this.#alarm
    const close = (): void => this.close()
    this.#signal = context.signal
    this.#leaving = eventLog.leaving
    this.#signal.addEventListener('abort', close, { once: true })
    this.#leaving.addEventListener('abort', ring, { once: true })
    // An event that the caller cannot see does not wake the reader.
    const forget = used.log.onAppend((entry) => {
      if (reader.awaits(entry)) ring()
    })
    this.#endings.push(
      free,
      () => void (eventLog.waiting[kind] -= 1),
      forget,
      () => this.#signal.removeEventListener('abort', close),
      () => this.#leaving.removeEventListener('abort', ring),
    )
    used.ended.catch(() => {
      this.#hasEnded = true
      ring()
    })
  }

  /** True if the server is about to stop, so that no further wait begins. */
  get isLeaving(): boolean {
    return this.#leaving.aborted
  }

  /** Ignores earlier events. Call it before the read that precedes a wait. */
  arm(): void {
    this.#alarm.arm()
  }

  /**
   * Resolves when there is an event that the caller may be allowed to see, after `ms` milliseconds, or when the server is about to stop.
   * Rejects with the signal's reason, or with StoreError if the log ended.
   */
  async wait(ms: number): Promise<void> {
    if (!this.isLeaving) await this.#alarm.within(ms, this.#signal)
    this.#signal.throwIfAborted()
    // An empty page would falsely say that there are no events.
    if (this.#hasEnded) throw new StoreError('unavailable', 'the watch on the event log ended: read again from the last cursor')
  }

  /** Frees the place. */
  close(): void {
    for (const end of this.#endings.splice(0)) end()
  }
}
