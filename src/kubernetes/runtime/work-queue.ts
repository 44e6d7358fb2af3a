import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { Random } from '../../base/runtime.ts'
import { backoffMs, systemTimers, type Backoff, type Timers } from '../../base/timing.ts'
import { KubeError } from '../kube-api.ts'

/** A key that waits in the queue. */
interface WaitingKey {
  readonly key: string
  /** When it was added, on the timers' clock. */
  readonly since: number
}

/** Keys in a first-in-first-out list for each group. The groups take turns. Every operation has constant cost, even with long lists. */
class FairQueue {
  readonly #queues = new Map<string, Queue<WaitingKey>>()
  /** Groups with waiting keys; the first one is next. */
  readonly #groupQueue = new Queue<string>()
  readonly #keys = new Set<string>()

  get size(): number {
    return this.#keys.size
  }

  has(key: string): boolean {
    return this.#keys.has(key)
  }

  /** Adds a key to its group's list. Returns false if the key is already waiting. */
  put(group: string, key: string, since: number): boolean {
    if (this.#keys.has(key)) return false
    this.#keys.add(key)
    let queue = this.#queues.get(group)
    if (queue === undefined) {
      queue = new Queue()
      this.#queues.set(group, queue)
      this.#groupQueue.put(group)
    }
    queue.put({ key, since })
    return true
  }

  /** Removes and returns the next key. */
  take(): WaitingKey | undefined {
    const group = this.#groupQueue.take()
    const queue = group === undefined ? undefined : this.#queues.get(group)
    const next = queue?.take()
    if (group === undefined || queue === undefined || next === undefined) return undefined
    this.#keys.delete(next.key)
    if (queue.size > 0) this.#groupQueue.put(group)
    else this.#queues.delete(group)
    return next
  }
}

/** Number of removed entries at which a list is compacted, if they are also the majority. */
const cutAt = 1024

/** A first-in-first-out list. */
class Queue<T> {
  #entries: T[] = []
  #taken = 0

  get size(): number {
    return this.#entries.length - this.#taken
  }

  put(entry: T): void {
    this.#entries.push(entry)
  }

  take(): T | undefined {
    if (this.size === 0) return undefined
    const entry = this.#entries[this.#taken++]
    if (this.#taken >= cutAt && this.#taken > this.#entries.length / 2) {
      this.#entries = this.#entries.slice(this.#taken)
      this.#taken = 0
    }
    return entry
  }
}

const defaultBackoff: Backoff = { firstMs: 200, maxMs: 5 * 60_000 }

/** Receives measurements of a queue, for metrics. */
export interface WorkQueueObserver {
  /** Reports how many keys wait for a worker, without delayed keys. */
  depth(keys: number): void
  /** Reports that work on a key starts, and how long after it was due. */
  started(waitedMs: number): void
  finished(outcome: 'done' | 'failed', tookMs: number): void
  /** Reports that a failed key is retried after this delay. */
  retry(afterMs: number): void
}

/** The result of work on a key. The work may request to run again after a delay, unless the key is added earlier. */
export interface WorkResult {
  readonly againAfterMs: number
}

/**
 * The work on one key. If it rejects, the key is retried with growing delays, at least a KubeError's `retryAfterMs`. If it resolves, the
 * count of failures is reset. It never runs twice at the same time for one key.
 */
export type Work = (key: string, signal: AbortSignal) => Promise<WorkResult | undefined>

/** Options of a queue. */
export interface WorkQueueOptions {
  readonly work: Work
  /** Maximum number of keys that are worked on at the same time. */
  readonly workers: number
  /** Returns a key's group. Groups take turns, so that a group with many keys does not delay others. If absent, all keys are in one group. */
  readonly groupOf?: (key: string) => string
  /** Delays of retries; from 200 ms to 5 min by default. */
  readonly backoff?: Backoff
  readonly log: Log
  readonly random: Random
  /** Default: the process's timers. */
  readonly timers?: Timers
  readonly observer?: WorkQueueObserver
}

/** A queue of keys that need work. It holds each key at most once. A key that is added during its work runs again afterwards. */
export interface WorkQueue {
  /** The number of keys that wait for a worker. */
  readonly depth: number
  /** True if no key waits for a worker and none is being worked on. Delayed keys do not count. */
  readonly idle: boolean
  /** Makes a key due now, even if it is delayed. */
  add(key: string): void
  /** Makes a key due after `ms` milliseconds, or at an earlier time for which it is already scheduled. */
  addAfter(key: string, ms: number): void
  /** Makes all failed keys due now, and resets their counts of failures. Call it when the failing service answers again. */
  retryFailed(): void
  /** Works on keys until `signal` aborts, then waits for running work. Call it once. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Creates a queue. It accepts keys at once; `run` works on them. */
export function createWorkQueue(options: WorkQueueOptions): WorkQueue {
  return new FairWorkQueue(options)
}

/**
 * A queue whose groups take turns. A key is in one or two of these states:
 * - waiting for a worker, in the list of its group
 * - delayed; becomes waiting when due, or is marked `again` while it is being worked on
 * - being worked on; then waiting if it was added meanwhile (`again`), or delayed if it failed or requested a delay
 */
class FairWorkQueue implements WorkQueue {
  readonly #options: WorkQueueOptions
  readonly #timers: Timers
  readonly #queues = new FairQueue()
  readonly #underWork = new Map<string, { again: boolean; readonly done: Promise<void> }>()
  readonly #later = new Map<string, { readonly dueAt: number; readonly stop: () => void }>()
  readonly #failures = new Map<string, number>()
  #running: AbortSignal | undefined
  #stopped = false

  constructor(options: WorkQueueOptions) {
    this.#options = options
    this.#timers = options.timers ?? systemTimers
  }

  get depth(): number {
    return this.#queues.size
  }

  get idle(): boolean {
    return this.#queues.size === 0 && this.#underWork.size === 0
  }

  add(key: string): void {
    if (this.#stopped) return
    this.#later.get(key)?.stop()
    this.#later.delete(key)
    const current = this.#underWork.get(key)
    if (current !== undefined) current.again = true
    else if (this.#queues.put(this.#options.groupOf?.(key) ?? '', key, this.#timers.now())) this.#options.observer?.depth(this.depth)
    this.#start()
  }

  addAfter(key: string, ms: number): void {
    if (this.#stopped || this.#queues.has(key)) return
    const dueAt = this.#timers.now() + ms
    const known = this.#later.get(key)
    if (known !== undefined && known.dueAt <= dueAt) return
    known?.stop()
    this.#later.set(key, { dueAt, stop: this.#timers.start(ms, () => this.add(key)) })
  }

  retryFailed(): void {
    const failed = [...this.#failures.keys()].filter((key) => this.#later.has(key))
    this.#failures.clear()
    for (const key of failed) this.add(key)
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#running = signal
    this.#start()
    if (!signal.aborted) await once(signal, 'abort')
    this.#stopped = true
    for (const { stop } of this.#later.values()) stop()
    this.#later.clear()
    await Promise.all(this.#underWork.values().map(({ done }) => done))
  }

  /** Gives waiting keys to free workers. */
  #start(): void {
    const signal = this.#running
    const { workers, observer } = this.#options
    if (signal === undefined) return
    while (!signal.aborted && this.#underWork.size < workers) {
      const next = this.#queues.take()
      if (next === undefined) return
      observer?.depth(this.depth)
      observer?.started(this.#timers.now() - next.since)
      this.#underWork.set(next.key, { again: false, done: this.#do(next.key, signal) })
    }
  }

  async #do(key: string, signal: AbortSignal): Promise<void> {
    const startedAt = this.#timers.now()
    const outcome = await this.#attempt(key, signal)
    this.#options.observer?.finished('error' in outcome ? 'failed' : 'done', this.#timers.now() - startedAt)
    const again = this.#underWork.get(key)?.again === true
    this.#underWork.delete(key)
    if ('error' in outcome) this.#failed(key, outcome.error, signal)
    else {
      this.#failures.delete(key)
      if (outcome.result !== undefined) this.addAfter(key, outcome.result.againAfterMs)
    }
    if (again) this.add(key)
    this.#start()
  }

  /**
   * Starts work in a separate turn of the event loop. So `#underWork` has the key before the work starts, and synchronous work does not
   * block other work.
   */
  async #attempt(key: string, signal: AbortSignal): Promise<{ readonly result: WorkResult | undefined } | { readonly error: unknown }> {
    await setImmediate()
    try {
      return { result: await this.#options.work(key, signal) }
    } catch (error) {
      return { error }
    }
  }

  #failed(key: string, error: unknown, signal: AbortSignal): void {
    if (signal.aborted) return
    const { log, random, observer, backoff = defaultBackoff } = this.#options
    const failures = (this.#failures.get(key) ?? 0) + 1
    this.#failures.set(key, failures)
    const asked = error instanceof KubeError ? error.retryAfterMs : undefined
    const afterMs = Math.max(backoffMs(backoff, failures, random), asked ?? 0)
    observer?.retry(afterMs)
    log.warn('work failed and is tried again', { key, failures, afterMs: Math.round(afterMs), error: errorText(error) })
    this.addAfter(key, afterMs)
  }
}
