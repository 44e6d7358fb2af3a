import type { Log } from '../../core/log.ts'
import type { Random } from '../../core/runtime.ts'
import type { Backoff } from './backoff.ts'
import type { Timers } from './timers.ts'

/** Told what a queue does, for the metrics. */
export interface WorkQueueObserver {
  /** How many keys wait for a worker, those that wait for their time not counted. */
  depth(keys: number): void
  /** A key's work begins, so long after it was due. */
  started(waitedMs: number): void
  finished(outcome: 'done' | 'failed', tookMs: number): void
  /** A failed key comes again after so long. */
  retry(afterMs: number): void
}

/** What the work on a key wants besides being done: to be done again after a while, unless the key is added earlier. */
export interface WorkResult {
  readonly againAfterMs: number
}

/**
 * The work on one key. Where it rejects the key comes again, each time later (a KubeError's `retryAfterMs` is waited at least); where it resolves its failures are
 * forgotten. Never called for a key that is under work.
 */
export type Work = (key: string, signal: AbortSignal) => Promise<WorkResult | undefined>

/** What a queue needs. */
export interface WorkQueueOptions {
  readonly work: Work
  /** How many keys are worked on at once. */
  readonly workers: number
  /** Groups take turns, so that one with very many keys keeps no other waiting. All keys are one group where absent. */
  readonly groupOf?: (key: string) => string
  /** 200 ms to 5 min where absent. */
  readonly backoff?: Backoff
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  readonly observer?: WorkQueueObserver
}

/** Keys that await work. A key is in it once at most; one that is added while it is under work is worked on once more afterwards. */
export interface WorkQueue {
  /** How many keys wait for a worker. */
  readonly depth: number
  /** True where nothing waits for a worker and nothing is under work; keys that wait for their time do not count. */
  readonly idle: boolean
  /** Due at once, also where the key waits for a time. */
  add(key: string): void
  /** Due after `ms`, or earlier where that was said already. */
  addAfter(key: string, ms: number): void
  /** Works until `signal` aborts, awaits what is under work, then resolves. Once only. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Builds a queue, which takes keys at once and works on them in `run`. */
export declare function createWorkQueue(options: WorkQueueOptions): WorkQueue
