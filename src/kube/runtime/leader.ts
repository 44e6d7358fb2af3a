import type { Log } from '../../core/log.ts'
import type { Clock, Random } from '../../core/runtime.ts'
import type { KubeApi } from '../port/kube-api.ts'
import type { Timers } from './timers.ts'

/** What one has who leads. */
export interface Leadership {
  /** Aborts when the leadership is lost or given up: 3 s before another one can have it. */
  readonly signal: AbortSignal
  /**
   * True while it lasts by the clock, also where the process was suspended and no timer has rung yet: ask it right before what only a leader may do. Aborts the signal
   * where it is over.
   */
  held(): boolean
}

/** What an election needs. */
export interface LeaderOptions {
  /** Better not one whose calls are kept waiting by others' calls. */
  readonly api: KubeApi
  /** The Lease that stands for the leadership; made where it is missing. */
  readonly lease: { readonly namespace: string; readonly name: string }
  /** Of this process alone: no other has it, not even this one's successor. */
  readonly identity: string
  /** Wall time, only to be shown in the Lease. */
  readonly clock: Clock
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  /** Told when this process begins (true) and ceases (false) to lead, for the metrics. */
  readonly onLeading?: (leads: boolean) => void
}

/**
 * Campaigns until `signal` aborts, and each time it leads calls `work`, which is to end soon once the leadership's signal aborts. The Lease is given back only when
 * `work` has ended, so that the next leader, which then follows at once, never works beside it. Where `work` ends or rejects by itself the Lease is given back and
 * campaigned for again. Resolves when `signal` has aborted, work has ended and the Lease is given back (or that was tried). Never rejects.
 */
export declare function lead(options: LeaderOptions, work: (leadership: Leadership) => Promise<void>, signal: AbortSignal): Promise<void>
