import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { fractionOf, type Clock, type Random } from '../../base/runtime.ts'
import type { KubeApi } from '../kube-api.ts'
import { LeaseLock } from './lease-lock.ts'
import { pause, systemTimers, type Timers } from '../../base/timing.ts'

/** How long a leader relies on a Lease after it requested the last renewal, in milliseconds: 3 s less than others wait. */
const trustMs = 9_000
const renewEveryMs = 3_000
/** Timeout of one call to renew or release the Lease, in milliseconds. */
const attemptMs = 2_500
/** Delay before a failed renewal is retried, in milliseconds. */
const retryMs = 500
/** Interval at which candidates read the Lease, in milliseconds. */
const lookEveryMs = 500

/** A leadership that this process holds. */
export interface LeaseLeadership {
  /** Aborts when the leadership is lost or given up, at least 3 s before another process can acquire it. */
  readonly signal: AbortSignal
  /**
   * Returns true until the leadership ends. It uses the clock, so it is correct even if the process was suspended and timers are late.
   * Call it immediately before any work that only a leader may do. Aborts the signal if the leadership has ended.
   */
  held(): boolean
}

/** Options of an election. */
export interface LeaderOptions {
  /** Should be a separate client, so that its calls do not wait for others. */
  readonly api: Pick<KubeApi, 'get' | 'create' | 'replace'>
  /** The Lease of the leadership; created if missing. */
  readonly lease: { readonly namespace: string; readonly name: string }
  /** Identifies this process; a restarted process has another value. */
  readonly identity: string
  /** Wall time, which the Lease only displays. */
  readonly clock: Clock
  readonly log: Log
  readonly random: Random
  /** Default: the process's timers. */
  readonly timers?: Timers
  /** Called with true when this process becomes the leader, and with false when it stops, for metrics. */
  readonly onLeading?: (leads: boolean) => void
}

/**
 * Campaigns until `signal` aborts, and calls `work` each time this process becomes the leader. `work` must end soon after the leadership's
 * signal aborts. The Lease is released only after `work` has ended, so that two leaders never work at the same time. The next leader then
 * follows at once. If `work` ends or rejects by itself, the Lease is released, and the process campaigns again.
 *
 * Resolves when `signal` has aborted, `work` has ended and the Lease is released (or the attempt failed). Never rejects.
 */
export async function lead(options: LeaderOptions, work: (leadership: LeaseLeadership) => Promise<void>, signal: AbortSignal): Promise<void> {
  const timers = options.timers ?? systemTimers
  const lock = new LeaseLock({ ...options, timers })
  while (!signal.aborted) {
    const wonAt = await campaign(lock, { ...options, timers }, signal)
    if (wonAt === undefined) return
    const term = new Term(wonAt, { ...options, timers }, lock)
    options.onLeading?.(true)
    await term.serve(work, signal)
    options.onLeading?.(false)
    if (!signal.aborted) await pause(lookEveryMs, signal, timers)
  }
}

type Election = LeaderOptions & { readonly timers: Timers }

/** Waits until the Lease is free or expired, and takes it. Resolves with the time of the request, or with undefined if `signal` aborted. */
async function campaign(lock: LeaseLock, { timers, log, random }: Election, signal: AbortSignal): Promise<number | undefined> {
  while (!signal.aborted) {
    try {
      const freeInMs = await lock.look(signal)
      const askedAt = timers.now()
      if (freeInMs <= 0 && (await lock.take(signal))) return askedAt
      // Candidates read at different times. Otherwise many of them would conflict at each attempt.
      await pause(Math.min(freeInMs <= 0 ? lookEveryMs : freeInMs, lookEveryMs * (1 - fractionOf(random) / 5)), signal, timers)
    } catch (error) {
      if (signal.aborted) return undefined
      log.warn('the lease of the leader could not be requested', { error: errorText(error) })
      await pause(lookEveryMs, signal, timers)
    }
  }
  return undefined
}

/**
 * One leadership. It is renewed every few seconds, until it is lost or given up. It is lost if a renewal is too late or another process
 * has the Lease. It is given up when the process stops or the work ends. It is still renewed until the work has ended, and then released.
 */
class Term implements LeaseLeadership {
  readonly #options: Election
  readonly #lock: LeaseLock
  readonly #over = new AbortController()
  #heldUntil: number
  #lost = false
  #stopExpiry: () => void = () => undefined

  constructor(wonAt: number, options: Election, lock: LeaseLock) {
    this.#options = options
    this.#lock = lock
    this.#heldUntil = wonAt + trustMs
    this.#extend(wonAt)
  }

  get signal(): AbortSignal {
    return this.#over.signal
  }

  held(): boolean {
    if (!this.#lost && this.#options.timers.now() >= this.#heldUntil) this.#lose('the Lease was not renewed in time')
    return !this.#over.signal.aborted
  }

  /** Runs the work. Resolves when the work has ended and the Lease is released or lost. */
  async serve(work: (leadership: LeaseLeadership) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { log } = this.#options
    const abandon = (): void => this.#over.abort(signal.reason)
    if (signal.aborted) abandon()
    signal.addEventListener('abort', abandon, { once: true })
    const ended = new AbortController()
    const renewing = this.#renew(ended.signal)
    try {
      if (this.held()) await work(this)
    } catch (error) {
      if (!this.#over.signal.aborted) log.error('the work of the leader failed', { error: errorText(error) })
    } finally {
      signal.removeEventListener('abort', abandon)
      this.#over.abort(new Error('the work of the leader has ended'))
      ended.abort()
      await renewing
      this.#stopExpiry()
    }
    if (!this.#lost && this.#options.timers.now() < this.#heldUntil) await this.#release()
  }

  /** Extends the leadership. The time counts from before the renewal request, so that it ends here before it ends for others. */
  #extend(askedAt: number): void {
    const { timers } = this.#options
    this.#heldUntil = askedAt + trustMs
    this.#stopExpiry()
    this.#stopExpiry = timers.start(this.#heldUntil - timers.now(), () => this.#lose('the Lease was not renewed in time'))
  }

  #lose(why: string): void {
    if (this.#lost) return
    this.#lost = true
    this.#options.log.warn('the leadership is lost', { why })
    this.#over.abort(new Error(`the leadership is lost: ${why}`))
  }

  async #renew(ended: AbortSignal): Promise<void> {
    const { timers, log } = this.#options
    let waitMs = renewEveryMs
    for (;;) {
      await pause(waitMs, ended, timers)
      if (ended.aborted || this.#lost) return
      const askedAt = timers.now()
      try {
        const renewed = await within(timers, { ms: attemptMs, signal: ended }, (signal) => this.#lock.renew(signal))
        if (!renewed) return this.#lose('another process has the Lease')
        if (!this.#lost) this.#extend(askedAt)
        waitMs = renewEveryMs
      } catch (error) {
        if (ended.aborted) return
        log.warn('the lease of the leader could not be renewed yet', { error: errorText(error) })
        waitMs = retryMs
      }
    }
  }

  async #release(): Promise<void> {
    const { timers, log } = this.#options
    try {
      await within(timers, { ms: attemptMs }, (signal) => this.#lock.release(signal))
    } catch (error) {
      log.warn('the lease of the leader could not be released and must expire', { error: errorText(error) })
    }
  }
}

/** Calls a function with a signal that aborts after a timeout, or together with another signal. */
async function within<T>(timers: Timers, limit: { ms: number; signal?: AbortSignal }, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const stop = timers.start(limit.ms, () => late.abort(new Error('no answer in time')))
  try {
    return await call(limit.signal === undefined ? late.signal : AbortSignal.any([late.signal, limit.signal]))
  } finally {
    stop()
  }
}
