import { TenantSlots } from '../../auth/oidc/tenant-slots.ts'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import { outboxKey } from './outbox-keys.ts'
import type { Store } from '../../store/store.ts'
import { untilAborted } from '../../base/timing.ts'
import { EventLog } from './event-log.ts'

/** How long the log is followed without users, in milliseconds: loading it again costs a read of the whole outbox. */
const idleMs = 5 * 60_000

/** How often expired events leave the index, in milliseconds. */
const dropEveryMs = 10 * 60_000

/** The parts of a shared log. */
export interface SharedLogOptions {
  readonly store: Store
  readonly log: Log
  readonly clock: Clock
  /** How long events are kept, in milliseconds. */
  readonly eventLifeMs: number
}

/** A log in use. */
export interface UsedLog {
  readonly log: EventLog
  /** Rejects when the log ends: use another one then, from the same position. */
  readonly ended: Promise<never>
  /** Ends the use. To be called once. */
  release(): void
}

interface Running {
  readonly log: EventLog
  readonly loaded: Promise<void>
  readonly ended: Promise<never>
  readonly stop: AbortController
  users: number
  idle: NodeJS.Timeout | undefined
}

/** The event log of this process. It is loaded when it is first used, and ends after some minutes without users. */
export class SharedLog {
  /** Requests and streams that wait for events. Each waits for every event of its place: so an organisation has a bounded number. */
  readonly readers = new TenantSlots({ each: 1_000, all: 4_000 })
  readonly #options: SharedLogOptions
  #running: Running | undefined
  readonly #leaving = new AbortController()

  constructor(options: SharedLogOptions) {
    this.#options = options
  }

  /** Resolves once the log is loaded. Rejects with StoreError, or the signal's reason. */
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

  /** Aborts when the process is about to stop: requests must wait for events no longer. */
  get leaving(): AbortSignal {
    return this.#leaving.signal
  }

  /** Ends all waits for events, now and from now on. */
  leave(): void {
    this.#leaving.abort(new Error('the server is about to stop'))
  }

  /** Ends the log. Its users see it end. */
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
    // A log that ended is not used again.
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
    running.idle = setTimeout(() => running.stop.abort(new Error('the event log has no users')), idleMs)
    running.idle.unref()
  }
}
