import { TenantSlots } from '../../auth/oidc/tenant-slots.ts'
import type { Clock } from '../../base/runtime.ts'
import { outboxKey } from './outbox-keys.ts'
import { untilAborted } from '../../base/timing.ts'
import { EventLog, type EventLogOptions } from './event-log.ts'

/** Time in milliseconds for which the log continues without users, because loading it again means reading the whole outbox. */
const idleMs = 5 * 60_000

/** Interval in milliseconds at which expired events are removed from the index. */
const dropEveryMs = 10 * 60_000

/** The dependencies of a SharedLog. */
export interface SharedLogOptions extends EventLogOptions {
  readonly clock: Clock
  /** Time for which events are kept, in milliseconds. */
  readonly eventLifeMs: number
}

/** The event log as one caller uses it. The caller must release it. */
export interface UsedLog {
  readonly log: EventLog
  /** Rejects when the log ends. The user must then acquire another one and continue from the same position. */
  readonly ended: Promise<never>
  /** Ends the caller's use of the log. Call it once. */
  release(): void
}

/** What waits for events: a stream, or a request with `wait`. */
export type ReaderKind = 'stream' | 'poll'

interface Running {
  readonly log: EventLog
  readonly loaded: Promise<void>
  readonly ended: Promise<never>
  readonly stop: AbortController
  users: number
  idle: NodeJS.Timeout | undefined
}

/** The event log of this process. It is loaded when it is first needed, and stopped after some minutes without users. */
export class SharedLog {
  /** Limits the requests and streams that wait for events, per organisation and in total. Each new event is checked for every one of them. */
  readonly readers = new TenantSlots({ each: 1_000, all: 4_000 })
  /** How many readers of each kind there are. */
  readonly waiting: Record<ReaderKind, number> = { stream: 0, poll: 0 }
  readonly #options: SharedLogOptions
  #running: Running | undefined
  readonly #leaving = new AbortController()

  constructor(options: SharedLogOptions) {
    this.#options = options
  }

  /** Resolves with the log once it is loaded. Rejects with StoreError, or the signal's reason. */
  async acquire(signal: AbortSignal): Promise<UsedLog> {
    const running = (this.#running ??= this.#start())
    running.users += 1
    clearTimeout(running.idle)
    let isReleased = false
    const release = (): void => {
      if (isReleased) return
      isReleased = true
      this.#release(running)
    }
    try {
      await untilAborted(running.loaded, signal)
    } catch (error) {
      release()
      throw error
    }
    return { log: running.log, ended: running.ended, release }
  }

  /** A signal that aborts when the process is about to stop. Requests must then stop waiting for events. */
  get leaving(): AbortSignal {
    return this.#leaving.signal
  }

  /** Ends all waits for events, because the process is about to stop. Later waits end at once. */
  leave(): void {
    this.#leaving.abort(new Error('the server is about to stop'))
  }

  /** Stops the log. `ended` rejects for its users. */
  close(): void {
    this.#running?.stop.abort(new Error('the event log was closed'))
  }

  #start(): Running {
    const log = new EventLog(this.#options)
    const stop = new AbortController()
    const loaded = log.load(stop.signal)
    const ended = loaded.then(() => log.follow(stop.signal))
    const running: Running = { log, loaded, ended, stop, users: 0, idle: undefined }
    const { clock, eventLifeMs } = this.#options
    const dropping = setInterval(() => log.dropBefore(outboxKey(clock.now() - eventLifeMs, '')), dropEveryMs)
    dropping.unref()
    // Do not use a log again after it ended.
    const forget = (): void => {
      clearInterval(dropping)
      clearTimeout(running.idle)
      if (this.#running === running) this.#running = undefined
    }
    ended.then(forget, forget)
    return running
  }

  #release(running: Running): void {
    running.users -= 1
    if (running.users > 0) return
    running.idle = setTimeout(() => running.stop.abort(new Error('the event log was stopped because no request used it')), idleMs)
    running.idle.unref()
  }
}
