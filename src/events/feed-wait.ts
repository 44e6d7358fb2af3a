import { DomainError } from '../base/errors.ts'
import { Alarm } from '../base/timing.ts'
import { rootOf } from '../base/uid.ts'
import type { UsedLog } from '../engine/log/shared-log.ts'
import { callerOf, type Context, type Services } from '../engine/services.ts'
import { StoreError } from '../store/store.ts'
import type { FeedReader } from './feed-reader.ts'

/** When a request that found no place to wait may come again, in milliseconds. */
const retryAfterMs = 5_000

/** A place among the readers that wait for events. Each organisation has a bounded number of them. */
export class FeedWait {
  readonly #signal: AbortSignal
  readonly #leaving: AbortSignal
  readonly #alarm = new Alarm()
  readonly #endings: (() => void)[] = []
  #hasEnded = false

  /** Takes a place. Throws code 8 if too many readers of the caller's organisation wait. `close` gives it back, as does the end of the call. */
  constructor({ eventLog }: Pick<Services, 'eventLog'>, context: Context, { used, reader }: { readonly used: UsedLog; readonly reader: FeedReader }) {
    const free = eventLog.readers.take([rootOf(callerOf(context).identity)])
    if (free === undefined)
      throw new DomainError(8, 'too many requests of this organisation wait for events', { reason: 'RATE_LIMITED', details: { retryAfterMs } })
    const { ring } = this.#alarm
    const close = (): void => this.close()
    this.#signal = context.signal
    this.#leaving = eventLog.leaving
    this.#signal.addEventListener('abort', close, { once: true })
    this.#leaving.addEventListener('abort', ring, { once: true })
    // An event that the caller does not see wakes no reader.
    const forget = used.log.onAppend((entry) => {
      if (reader.awaits(entry)) ring()
    })
    this.#endings.push(
      free,
      forget,
      () => this.#signal.removeEventListener('abort', close),
      () => this.#leaving.removeEventListener('abort', ring),
    )
    used.ended.catch(() => {
      this.#hasEnded = true
      ring()
    })
  }

  /** True once no wait begins: the server is about to stop. */
  get isLeaving(): boolean {
    return this.#leaving.aborted
  }

  /** Forgets the events so far. Call it before the look after which the reader waits. */
  arm(): void {
    this.#alarm.arm()
  }

  /** Resolves with an event that the caller might see, after `ms`, or when the server is about to stop. Rejects with the signal's reason, and with StoreError if the log ended. */
  async wait(ms: number): Promise<void> {
    if (!this.isLeaving) await this.#alarm.within(ms, this.#signal)
    this.#signal.throwIfAborted()
    // An empty page would say that there is no event.
    if (this.#hasEnded) throw new StoreError('unavailable', 'the watch on the outbox ended')
  }

  /** Gives the place back. */
  close(): void {
    for (const end of this.#endings.splice(0)) end()
  }
}
