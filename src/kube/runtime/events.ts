import type { Log } from '../../core/log.ts'
import type { Clock, Random } from '../../core/runtime.ts'
import type { KubeApi, ObjectMeta, ObjectType } from '../port/kube-api.ts'
import type { Timers } from './timers.ts'

/** Something that happened to an object, as `kubectl describe` shows it. */
export interface ObjectEvent {
  readonly type: ObjectType
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'uid' | 'resourceVersion'>
  readonly severity: 'Normal' | 'Warning'
  /** Why, as one word: `NotGranted`. At most 128 characters. */
  readonly reason: string
  /** What was done or tried, as one word: `Reconcile`. At most 128 characters. */
  readonly action: string
  /** For people; cut at 1 KiB. Never a secret. */
  readonly note: string
}

/** What a recorder needs. */
export interface EventRecorderOptions {
  readonly api: KubeApi
  /** Who reports, as in `taproot.dev/controller`. */
  readonly controller: string
  /** Which of its processes; at most 128 characters. */
  readonly instance: string
  readonly clock: Clock
  readonly log: Log
  readonly random: Random
  /** The process's own where absent. */
  readonly timers?: Timers
  /** Told how many events were dropped, for the metrics. */
  readonly onDropped?: (count: number) => void
}

/**
 * Writes Kubernetes Events (events.k8s.io/v1). What is the same of the same object (severity, reason, action, note) becomes a series of one Event, whose count is
 * written now and then. What can't be written, or is too much, is dropped and counted.
 */
export interface EventRecorder {
  /** Never waits and never throws. */
  record(event: ObjectEvent): void
  /** Writes until `signal` aborts, then what is left for a second at most, then resolves. Once only. Never rejects. */
  run(signal: AbortSignal): Promise<void>
}

/** Builds a recorder, which takes events at once and writes them in `run`. */
export declare function createEventRecorder(options: EventRecorderOptions): EventRecorder
