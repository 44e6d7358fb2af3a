import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { Random } from '../../base/runtime.ts'
import { backoffMs, systemTimers, type Backoff, type Timers } from '../../base/timing.ts'
import { KubeError } from '../kube-api.ts'

/** A key that waited. */
interface WaitingKey {
  readonly key: string
  /** When it was put in. */
  readonly since: number
}

/** A line of keys per group. The groups take turns; within a line the first that came goes first. Each step costs the same, however long the lines are. */
class FairQueue {
  readonly #lines = new Map<string, Line<WaitingKey>>()
  /** The groups that have a line, the next one first. */
  readonly #turns = new Line<string>()
  readonly #keys = new Set<string>()

  get size(): number {
    return this.#keys.size
  }

  has(key: string): boolean {
    return this.#keys.has(key)
  }

  /** Puts a key at the end of its group's line; false where it is in one already. */
  put(group: string, key: string, since: number): boolean {
    if (this.#keys.has(key)) return false
    this.#keys.add(key)
    let line = this.#lines.get(group)
    if (line === undefined) {
      line = new Line()
      this.#lines.set(group, line)
      this.#turns.put(group)
    }
    line.put({ key, since })
    return true
  }

  /** Takes out the key whose turn it is. */
  take(): WaitingKey | undefined {
    const group = this.#turns.take()
    const line = group === undefined ? undefined : this.#lines.get(group)
    const next = line?.take()
    if (group === undefined || line === undefined || next === undefined) return undefined
    this.#keys.delete(next.key)
    if (line.size > 0) this.#turns.put(group)
    else this.#lines.delete(group)
    return next
  }
}

/** Taken entries are cut off when they are so many, and most of all. */
const cutAt = 1024

/** First in, first out. */
class Line<T> {
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
  /** Due at once is every key that waits because its work failed, and all failures are forgotten: for the moment when what failed answers again. */
  retryFailed(): void
  /** Works until `signal` aborts, awaits what is under work, then resolves. Once only. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Builds a queue, which takes keys at once and works on them in `run`. */
export function createWorkQueue(options: WorkQueueOptions): WorkQueue {
  return new FairWorkQueue(options)
}

/**
 * A key is in one or two of these states:
 * - waiting for a worker, in the line of its group
 * - waiting for its time; becomes waiting for a worker, or noted as `again` where it is under work
 * - under work; where it was added meanwhile (`again`) it waits for a worker afterwards, else, where it failed or asks for it, for its time
 */
class FairWorkQueue implements WorkQueue {
  readonly #options: WorkQueueOptions
  readonly #timers: Timers
  readonly #lines = new FairQueue()
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
    return this.#lines.size
  }

  get idle(): boolean {
    return this.#lines.size === 0 && this.#underWork.size === 0
  }

  add(key: string): void {
    if (this.#stopped) return
    this.#later.get(key)?.stop()
    this.#later.delete(key)
    const current = this.#underWork.get(key)
    if (current !== undefined) current.again = true
    else if (this.#lines.put(this.#options.groupOf?.(key) ?? '', key, this.#timers.now())) this.#options.observer?.depth(this.depth)
    this.#start()
  }

  addAfter(key: string, ms: number): void {
    if (this.#stopped || this.#lines.has(key)) return
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

  /** Gives keys to workers that are free. */
  #start(): void {
    const signal = this.#running
    const { workers, observer } = this.#options
    if (signal === undefined) return
    while (!signal.aborted && this.#underWork.size < workers) {
      const next = this.#lines.take()
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

  /** Begins in a turn of its own: `#underWork` has the key by then, and work that waits for nothing keeps nothing else waiting. */
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
